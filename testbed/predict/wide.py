"""The times of one step's collective among all ranks of a large fabric, by the models that work with arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.experiment.blocks.known import misshapen
from testbed.logs.row import BUSBW, Point
from testbed.plan.library import choice_of, settings_of
from testbed.predict.expected_error import bars_of
from testbed.predict.figure import FLOWS, FORMULA, MESSAGES, Figure
from testbed.predict.ground import Turn
from testbed.predict.large_fabric import LargeFabric
from testbed.predict.limits import refuse_some
from topologies.graph import frames
from workloads.base.entry import Algorithm, NoModel
from workloads.base.vocabulary import AUTO
from workloads.library.costs import Costs
from workloads.library.servers import Servers
from workloads.library.times import time_ns
from workloads.registry import algorithms, any_of, choices, find
from workloads.times.wide.model import Asked, Time, model_of
from workloads.times.wide.peers import ConnectedPairs

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment


def _modelled(collective: str) -> str:
    """Names of a collective's algorithms."""
    return ", ".join(e.name for e in algorithms(collective) if model_of(e).whole) or "none of them has one"


def wide_figures(large: LargeFabric, step: CollectiveStep, turn: Turn, made: ConnectedPairs) -> Iterator[Figure]:
    """The lines of a step.  `made`: the queue pairs so far; this step's are added to them."""
    refuse_some(step, turn.place)
    auto, ranks = step.algorithm == AUTO, large.nics.places.ranks
    chosen, no_model = dict.fromkeys(step.sizes, step.algorithm), list[str]()
    if auto:
        chosen, no_model = _chosen(large, step, turn)
    times: dict[str, WideStep] = {}  # an algorithm connects when a size first takes it
    for size_bytes in step.sizes:
        name = chosen[size_bytes]
        entry = find(step.collective, name)
        if name not in times:
            times[name] = WideStep(large, step, entry, turn, made, follow=not auto)
        yield Figure(
            step=turn.number,
            name=step.collective,
            algorithm=f"{name} (auto)" if auto else name,
            ranks=ranks,
            size_bytes=size_bytes,
            time_ns=times[name](size_bytes),
            how=times[name].how,
            times=step.iterations + step.warmup,
            busbw_factor=entry.collective.busbw.of(ranks),
            no_model=tuple(no_model),
            paused=large.unseen(step),
        )


def library_figures(experiment: Experiment, large: LargeFabric, step: CollectiveStep, turn: Turn) -> Iterator[Figure]:
    """The lines of a step by its library's own model of equal servers, whose network is a NIC's rate and a hop.

    Raises InputError where cables differ, as nothing is looked at of them beside that.
    """
    library = experiment.library
    assert library is not None
    if large.nics.own is not None:
        what = "there is no model of a library on so large a fabric whose cables differ"
        raise InputError(what, f"{turn.place}.algorithm", "cables that are alike, or name an algorithm")
    spec, ranks = large.spec, large.nics.places.ranks
    gpus = spec.topology.params.get("gpus", 1) if large.domain else 1
    rate, mtu = spec.cable.rate, spec.nic.mtu
    servers = Servers(ranks // gpus, gpus, gpus, rate, library.gpu, library.host, True, library.version)
    network = {"nic.rate": rate * mtu / (mtu + frames.FRAME_BYTES), "net.message": large.costs.post_ns}
    costs, settings, bars = Costs.of({**library.numbers(), **network}), settings_of(library), bars_of(experiment)
    busbw = any_of(step.collective, step.algorithm).collective.busbw.of(ranks)
    for size_bytes in step.sizes:
        choice = choice_of(library, step.collective, size_bytes, servers, turn.place)
        try:
            found = time_ns(step.collective, size_bytes, servers, costs, choice, settings)
        except NoModel as none:
            raise InputError(none.what, turn.place, none.hint) from None
        point = Point(step.collective, servers.nodes, gpus, size_bytes)
        yield Figure(
            step=turn.number,
            name=step.collective,
            algorithm=f"{choice.algorithm}/{choice.protocol}/{choice.channels} (library)",
            ranks=ranks,
            size_bytes=size_bytes,
            time_ns=found,
            how=FORMULA,
            times=step.iterations + step.warmup,
            busbw_factor=busbw,
            paused=large.unseen(step),
            bar=bars.at(point, choice) if bars and step.collective in BUSBW else None,
        )


def for_too_many(large: LargeFabric, turn: Turn, entry: Algorithm, made: ConnectedPairs) -> WideStep:
    """Of a step with many messages on a fabric that can be emulated.  Raises InputError."""
    large.refuse_ports()
    step: Any = turn.step  # a collective's
    refuse_some(step, turn.place)
    return WideStep(large, step, entry, turn, made, follow=True)


def _chosen(large: LargeFabric, step: CollectiveStep, turn: Turn) -> tuple[dict[int, str], list[str]]:
    """The fastest for each size, of those that have a model, as if this was the file's first step; and the others."""
    able: dict[str, WideStep] = {}
    others, ranks = [], large.nics.places.ranks
    if step.offloads:
        what = "of so large a fabric `auto` compares what hosts do alone"
        raise InputError(what, f"{turn.place}.offloads", "leave it out, or name an offload as `algorithm`")
    for entry in choices(step.collective):
        if not entry.min_ranks <= ranks <= (entry.max_ranks or ranks):
            continue
        if misshapen(entry, None, large.graph):
            continue
        if model_of(entry).whole:
            with suppress(InputError):  # none on such a fabric
                able[entry.name] = WideStep(large, step, entry, turn, ConnectedPairs(ranks))
        if entry.name not in able:
            others.append(str(entry))
    if not able:
        what = f"there is no model of any algorithm of {step.collective} on such a fabric"
        raise InputError(what, f"{turn.place}.algorithm", _modelled(step.collective))
    return {size: min(able, key=lambda name: able[name](size)) for size in step.sizes}, others


class WideStep:
    """A collective of all ranks by one algorithm: called with a size, its time.  Raises InputError without a model."""

    def __init__(
        self,
        large: LargeFabric,
        step: CollectiveStep,
        entry: Algorithm,
        turn: Turn,
        made: ConnectedPairs,
        *,
        follow: bool = False,
    ) -> None:
        """`follow`: where there is no model its messages, one by one, if they are few."""
        self.how, self._place = FLOWS, turn.place
        self._asked = Asked(
            entry,
            {key: getattr(step, key) for key in type(step).model_fields},
            step.sizes,
            step.dtype,
            large.seed,
            large.nics if entry.offloaded else large.hosts,
            made,
            large.costs,
            turn.job,
            large.adders,
            large.domain,
        )
        try:
            self._time = self._model(follow=follow and bool(entry.schedule))
        except NoModel as none:
            raise self._refused(none) from None

    def __call__(self, size_bytes: int) -> float:
        try:
            return self._time(size_bytes)
        except NoModel as none:
            raise self._refused(none) from None

    def _model(self, *, follow: bool) -> Time:
        asked, model = self._asked, model_of(self._asked.entry)
        if follow and asked.bare.own and not model.unlike:
            with suppress(NoModel):  # of cables that differ rounds of all ranks know less
                return self._followed()
        try:
            if model.whole is None:
                raise NoModel(f"there is no model of {asked.entry} for {asked.n} ranks", others=True)
            return model.whole(asked)
        except NoModel as none:
            if not (follow and none.others):
                raise
        return self._followed()

    def _followed(self) -> Time:
        time = self._asked.followed()
        self.how = MESSAGES
        return time

    def _refused(self, none: NoModel) -> InputError:
        modelled = _modelled(self._asked.entry.collective.name)
        hint = f"there is one of {modelled}{none.hint}" if none.others else none.hint
        return InputError(none.what, f"{self._place}.{none.key}", hint)
