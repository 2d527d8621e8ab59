"""The times of one step's collective among all ranks of a large fabric, by the models that work with arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from testbed.base.errors import InputError
from testbed.experiment.blocks.known import misshapen
from testbed.plan.hardware import slots_over
from testbed.plan.ideal import costs_with_engines
from testbed.plan.offloads import accelerator_for
from testbed.predict.cables import cables_of
from testbed.predict.figure import FLOWS, MESSAGES, Figure
from testbed.predict.limits import refuse_ports, refuse_some
from testbed.predict.pauses import class_of, unseen
from workloads.base.entry import Algorithm, NoModel
from workloads.base.vocabulary import AUTO
from workloads.registry import algorithms, choices, find
from workloads.times.messages import Link
from workloads.times.wide.fabric import Wide
from workloads.times.wide.model import Adders, Asked, Time, model_of
from workloads.times.wide.peers import ConnectedPairs
from workloads.times.wide.places import Places, places_of

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment


def _modelled(collective: str) -> str:
    """Names of a collective's algorithms."""
    return ", ".join(e.name for e in algorithms(collective) if model_of(e).whole) or "none of them has one"


def wide_figures(
    experiment: Experiment,
    step: CollectiveStep,
    places: Places,
    made: ConnectedPairs,
    number: int,
    job: int,
    place: str,
) -> Iterator[Figure]:
    """The lines of a step; if it is offloaded, it is the fabric's `job`th.

    `made`: the queue pairs so far; this step's are added to them.
    """
    refuse_some(step, place)
    auto = step.algorithm == AUTO
    chosen, no_model = dict.fromkeys(step.sizes, step.algorithm), list[str]()
    if auto:
        chosen, no_model = _chosen(experiment, step, places, job, place)
    times: dict[str, WideStep] = {}  # an algorithm connects when a size first takes it
    for size_bytes in step.sizes:
        name = chosen[size_bytes]
        entry = find(step.collective, name)
        if name not in times:
            times[name] = WideStep(experiment, step, entry, places, made, job, place, follow=not auto)
        yield Figure(
            step=number,
            name=step.collective,
            algorithm=f"{name} (auto)" if auto else name,
            ranks=places.ranks,
            size_bytes=size_bytes,
            time_ns=times[name](size_bytes),
            how=times[name].how,
            busbw_factor=entry.collective.busbw.of(places.ranks),
            no_model=tuple(no_model),
            paused=unseen(experiment, class_of(experiment, step)),
        )


def for_too_many(
    experiment: Experiment, step: CollectiveStep, entry: Algorithm, made: ConnectedPairs, job: int, place: str
) -> WideStep:
    """Of a step with many messages on a fabric that can be emulated.  Raises InputError."""
    refuse_ports(experiment)
    refuse_some(step, place)
    spec = experiment.fabric
    scale_up = spec.scale_up is not None and not entry.offloaded
    places = places_of(spec.topology.kind, spec.topology.params, scale_up=scale_up)
    alone = step.model_copy(update={"algorithm": entry.name})
    return WideStep(experiment, alone, entry, places, made, job, place, follow=True)


def _chosen(
    experiment: Experiment, step: CollectiveStep, places: Places, job: int, place: str
) -> tuple[dict[int, str], list[str]]:
    """The fastest for each size, of those that have a model, as if this was the file's first step; and the others."""
    able: dict[str, WideStep] = {}
    others = []
    if step.offloads:
        what = "of so large a fabric `auto` compares what hosts do alone"
        raise InputError(what, f"{place}.offloads", "leave it out, or name an offload as `algorithm`")
    for entry in choices(step.collective):
        one = step.model_copy(update={"algorithm": entry.name})
        if not entry.min_ranks <= places.ranks <= (entry.max_ranks or places.ranks):
            continue
        if misshapen(entry, None, experiment.build_fabric()):
            continue
        if model_of(entry).whole:
            with suppress(InputError):  # none on such a fabric
                able[entry.name] = WideStep(experiment, one, entry, places, ConnectedPairs(places.ranks), job, place)
        if entry.name not in able:
            others.append(str(entry))
    if not able:
        what = f"there is no model of any algorithm of {step.collective} on such a fabric"
        raise InputError(what, f"{place}.algorithm", _modelled(step.collective))
    return {size: min(able, key=lambda name: able[name](size)) for size in step.sizes}, others


class WideStep:
    """A collective of all ranks by one algorithm: called with a size, its time.  Raises InputError without a model."""

    def __init__(
        self,
        experiment: Experiment,
        step: CollectiveStep,
        entry: Algorithm,
        places: Places,
        made: ConnectedPairs,
        job: int,
        place: str,
        *,
        follow: bool = False,
    ) -> None:
        """`follow`: where there is no model its messages, one by one, if they are few."""
        self.how, self._step, self._place = FLOWS, step, place
        self._asked = _asked(experiment, step, entry, places, made, job)
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
        found = self._asked.followed()
        self.how = MESSAGES
        return found

    def _refused(self, none: NoModel) -> InputError:
        hint = f"there is one of {_modelled(self._step.collective)}{none.hint}" if none.others else none.hint
        return InputError(none.what, f"{self._place}.{none.key}", hint)


def _asked(
    experiment: Experiment, step: CollectiveStep, entry: Algorithm, places: Places, made: ConnectedPairs, job: int
) -> Asked:
    spec = experiment.fabric
    domain = Link(spec.scale_up.rate, spec.scale_up.delay) if spec.scale_up else None
    usual, own = Link(spec.cable.rate, spec.cable.delay), cables_of(experiment, places)
    return Asked(
        entry,
        {key: getattr(step, key) for key in type(step).model_fields},
        step.sizes,
        step.dtype,
        experiment.seed,
        Wide(places, usual, spec.switch.latency, None if entry.offloaded else domain, own=own),
        made,
        costs_with_engines(experiment),
        job,
        Adders(
            lambda contributors: accelerator_for(experiment, contributors),
            lambda cable, switches, elements: slots_over(
                experiment, (cable.rate_bps, cable.delay_ns), switches, elements
            ),
            experiment.costs.convert,
        ),
        domain,
    )
