"""The times of one step's collective among all ranks of a large fabric, by the models that work with arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf, prod
from typing import TYPE_CHECKING

import numpy as np

from testbed.base.errors import InputError
from testbed.experiment.blocks.known import misshapen
from testbed.plan.hardware import slots_over
from testbed.plan.ideal import costs_of
from testbed.predict.cables import cables_of
from testbed.predict.figure import FLOWS, MESSAGES, Figure
from testbed.predict.limits import REFUSED, accelerator_for, in_time, refuse_ports, refuse_some
from testbed.predict.pauses import class_of, unseen
from workloads.base.entry import Algorithm, named
from workloads.base.vocabulary import AUTO, DTYPES
from workloads.collectives.exchange import distances
from workloads.collectives.schedule import more_than, schedule_of
from workloads.collectives.shape import shape_of
from workloads.registry import algorithms, choices, find
from workloads.times.case import Case
from workloads.times.messages import Link
from workloads.times.queue_pairs import of_schedule
from workloads.times.replay import replayed
from workloads.times.wide.all_to_all import crowd_of, spread_ns
from workloads.times.wide.around import host_ring_over_ns
from workloads.times.wide.both_ways import MOST_FOLLOWED as MOST_FOLLOWED_RANKS
from workloads.times.wide.both_ways import Numbered, both_ways_ns
from workloads.times.wide.cables import Cables
from workloads.times.wide.direct_reduce import ring_ns
from workloads.times.wide.fabric import CachedWays, Wide
from workloads.times.wide.groups import Together
from workloads.times.wide.in_network import by_switches_ns, tree_of
from workloads.times.wide.multicast import Multicasts
from workloads.times.wide.peers import ConnectedPairs, exchanged, neighbours, on_grid
from workloads.times.wide.places import Places, Rails, Tiers, places_of
from workloads.times.wide.rounds import Round, rounds_ns, rounds_of
from workloads.times.wide.trees import HostTrees

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment
    from workloads.times.wide.fabric import Numbers

MOST_FOLLOWED = 60_000
"""Messages of a schedule that are followed one by one: a few seconds of ours."""

MOST_WITHOUT_MODEL = 4 * MOST_FOLLOWED
"""Likewise where there is nothing else."""

IN_ROUNDS = (
    "torus", "hierarchical", "halving_doubling", "halving", "recursive_doubling", "bruck", "dissemination", "shift",
)  # fmt: skip
"""Algorithms of which all ranks do the same at the same time, one message after the other."""

POWERS = ("halving", "recursive_doubling")
"""Of these, for powers of two."""

TREES = ("binomial_tree", "chain", "scatter_all_gather", "linear")
BY_HOSTS = (*TREES, "bidirectional_ring")
MOST_PAIRWISE = 4096
"""Ranks whose n - 1 rounds are followed."""


def uses_scale_up(entry: Algorithm) -> bool:
    """Whether its messages go through scale-up domains: NICs have the network alone."""
    return bool(entry.schedule) or entry.name == "host"


def _has_model(entry: Algorithm) -> bool:
    """Whether there is one, with some number of ranks on some fabric."""
    if entry.name in REFUSED or entry.collective.name in REFUSED:
        return False
    if entry.engines or entry.accelerators or entry.collective.name == "all_to_all":
        return True
    return entry.name in ("host", "ring", "multicast", *BY_HOSTS, *IN_ROUNDS)


def _modelled(collective: str) -> str:
    """Names of a collective's algorithms."""
    return ", ".join(entry.name for entry in algorithms(collective) if _has_model(entry)) or "none of them has one"


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
    scale_up = spec.scale_up is not None and uses_scale_up(entry)
    places = places_of(spec.topology.kind, spec.topology.params, scale_up=scale_up)
    alone = step.model_copy(update={"algorithm": entry.name})
    return WideStep(experiment, alone, entry, places, made, job, place, follow=True)


def _chosen(
    experiment: Experiment, step: CollectiveStep, places: Places, job: int, place: str
) -> tuple[dict[int, str], list[str]]:
    """The fastest for each size, of those that have a model, as if this was the file's first step; and the others."""
    able: dict[str, WideStep] = {}
    others = []
    for entry in choices(step.collective):
        one = step.model_copy(update={"algorithm": entry.name})
        if not entry.min_ranks <= places.ranks <= (entry.max_ranks or places.ranks):
            continue
        if misshapen(entry, None, experiment.build_fabric()):
            continue
        if _has_model(entry):
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
        self._follow, self.how = follow, FLOWS
        self.experiment, self.step, self.entry, self.places, self.place = experiment, step, entry, places, place
        self.job = job
        self.n, self.width = places.ranks, DTYPES[step.dtype]
        self.costs = costs_of(experiment)
        spec = experiment.fabric
        if (engine := spec.nic.engine) is not None:
            self.costs = replace(self.costs, engine_reduce_bps=engine.reduce, engine_packets_per_s=engine.packets)
        within = spec.scale_up if uses_scale_up(entry) else None
        scale_up = Link(within.rate, within.delay) if within else None
        self._made = made
        usual, own = Link(spec.cable.rate, spec.cable.delay), cables_of(experiment, places)
        self._bare = Wide(places, usual, spec.switch.latency, scale_up, own=own)
        self._time = self._model()

    def __call__(self, size_bytes: int) -> float:
        return self._time(size_bytes)

    def _ways(self, numbers: Numbers) -> Wide:
        """Over these queue pairs."""
        return replace(self._bare, numbers=numbers)

    def _model(self) -> Callable[[int], float]:
        """Raises InputError if there is none."""
        entry, step, order = self.entry, self.step, self.places.order
        if self._bare.own and self._follow and entry.schedule and (entry.name != "ring" or step.chunk is not None):
            with suppress(InputError):  # of cables that differ rounds of all ranks know less
                return self._followed()
            self.how = FLOWS
        if entry.engines:
            return self._round_nics(self._ways(self._made.ring(order)))
        if entry.layout == "ring" and not entry.schedule and entry.name == "host":
            rings = [self._ways(self._made.numbers(neighbours(order), order)) for _ in range(2)]
            return self._round_nics(*rings)
        if entry.name == "ring" and step.chunk is None:
            return self._round_hosts(self._ways(self._made.numbers(neighbours(order), order)))
        if entry.collective.name == "all_to_all":
            return self._all_to_all()
        if entry.name == "multicast":
            return self._multicast()
        if entry.accelerators:
            return self._by_switches()
        if entry.name in BY_HOSTS:
            return self._by_hosts()
        if entry.name not in IN_ROUNDS:
            if self._follow and entry.schedule:
                return self._followed()
            what = f"there is no model of {entry}{' in pieces' if step.chunk else ''} for {self.n} ranks"
            raise InputError(what, f"{self.place}.algorithm", f"there is one of {_modelled(step.collective)}")
        return self._on_grid() if entry.layout in ("grid", "domains") else self._in_rounds()

    def _round_nics(self, *ways: Wide) -> Callable[[int], float]:
        touched = {"sgd": 2, "adam": 3}.get(self.step.optimizer or "sgd", 2)
        rings = [its.ring() for its in ways]
        return lambda size: ring_ns(self.entry, size, rings[0], self.costs, touched=touched, gather=rings[-1])

    def _round_hosts(self, ways: Wide) -> Callable[[int], float]:
        n, name, ring = self.n, self.entry.collective.name, ways.ring()
        reduces = [True] * (n - 1) * (name != "all_gather") + [False] * (n - 1) * (name != "reduce_scatter")

        def time_ns(size_bytes: int) -> float:
            chunk = -(-(size_bytes // self.width) // n) * self.width
            return host_ring_over_ns(reduces, chunk, ring, self.costs)

        return time_ns

    def _all_to_all(self) -> Callable[[int], float]:
        n, ways = self.n, self._ways(self._made.everybody())
        if self.entry.name == "pairwise":
            self._rounds_apart()
            if n > MOST_PAIRWISE:
                what = f"there is no model of {self.entry} for {n} ranks: it has too many rounds"
                raise InputError(what, f"{self.place}.algorithm", f"spread, or at most {MOST_PAIRWISE} ranks")

            def rounds(size_bytes: int) -> Iterator[Round]:
                return rounds_of("pairwise", n, size_bytes // self.width, self.width)

            return lambda size_bytes: rounds_ns(rounds(size_bytes), ways, self.costs, paced=True)
        crowd = crowd_of(ways)
        if crowd is None:
            what = f"there is no model of {self.entry} for {n} ranks under several spines: its flows are not counted"
            raise InputError(what, f"{self.place}.algorithm", "one spine, a torus, or at most 4096 ranks")

        def time_ns(size_bytes: int) -> float:
            chunk = -(-(size_bytes // self.width) // n) * self.width
            return spread_ns(ways, crowd, chunk, self.costs)

        return time_ns

    def _on_grid(self) -> Callable[[int], float]:
        entry, dims = self.entry, [d for d in self.places.dims if d > 1]
        if not dims or prod(dims) != self.n:
            what = "these ranks are no grid"
            raise InputError(what, f"{self.place}.algorithm", "a torus, ring or rail is one")
        ways = CachedWays(self._ways(self._made.numbers(on_grid(dims))))
        if ways.own and not ways.own.tiers(self.n) and self.step.chunk is None:
            order = range(len(dims)) if entry.layout == "grid" else reversed(range(len(dims)))
            along = partial(Together(ways, ways, self.costs).along_ns, dims, list(order))
            return lambda size: along(size, self.width)

        def time_ns(size_bytes: int) -> float:
            return float(named(entry.time)(self._case(size_bytes, ways, dims)))

        return time_ns

    def _followed(self) -> Callable[[int], float]:
        """Message by message, as on a small fabric."""
        entry, step, n, self.how = self.entry, self.step, self.n, MESSAGES
        order = list(self.places.order) if entry.layout == "ring" else list(range(n))
        options = {key: getattr(step, key) for key in entry.extra}
        if entry.layout in ("grid", "domains"):
            options["dims"] = [d for d in self.places.dims if d > 1]
        seed, schedule = self.experiment.seed, schedule_of(entry)
        shapes = {size: shape_of(entry, n, size, self.width, options, seed) for size in step.sizes or [0]}
        few = [size for size, shape in shapes.items() if not more_than(schedule, shape, MOST_WITHOUT_MODEL)]
        what = f"there is no model of {entry} for {n} ranks, and more than {MOST_WITHOUT_MODEL:,} messages"
        hint = f"there is one of {_modelled(step.collective)}"
        hint += ", or a larger `chunk`" if any(shape.chunk for shape in shapes.values()) else ""
        too_many = InputError(what, f"{self.place}.algorithm", hint)
        if not few:
            raise too_many
        calls = of_schedule(schedule, shapes[max(few)], order, inf)
        assert calls is not None
        ways = Numbered(self._bare, order, self._made.connected(calls))

        def time_ns(size_bytes: int) -> float:
            if size_bytes not in few:
                raise too_many
            case = Case.of(entry, n, size_bytes, self.width, options, seed, self.costs, ways)
            found = replayed(case, schedule, inf)
            assert found is not None
            return found

        return time_ns

    def _in_rounds(self) -> Callable[[int], float]:
        entry, n = self.entry, self.n
        if self.step.chunk is not None:
            what = f"there is no model of {entry} in pieces for {n} ranks"
            raise InputError(what, f"{self.place}.chunk", "leave it out")
        if entry.name in POWERS and n & n - 1:
            what = f"there is no model of {entry} for {n} ranks"
            raise InputError(what, f"{self.place}.algorithm", "a power of two")
        if entry.name == "bruck":
            self._rounds_apart()

        def rounds(size_bytes: int) -> Iterator[Round]:
            return rounds_of(entry.name, n, size_bytes // self.width, self.width)

        ways = self._ways(self._made.numbers(exchanged(one.to for one in rounds(max(self.step.sizes)))))
        return lambda size_bytes: rounds_ns(rounds(size_bytes), ways, self.costs)

    def _by_hosts(self) -> Callable[[int], float]:
        entry, order, costs, width, n = self.entry, self.places.order, self.costs, self.width, self.n
        if self.step.chunk is not None and entry.name != "chain":
            what = f"there is no model of {entry} in pieces for {n} ranks"
            raise InputError(what, f"{self.place}.chunk", "leave it out")
        order = order if entry.layout == "ring" else range(n)
        numbers, around = self._made.by_hosts(entry.name, order)
        ways = self._ways(numbers)
        tiers = ways.own and ways.own.tiers(n)

        def smaller(places: Places) -> Wide:
            if places.ranks == n:
                return ways
            few = ConnectedPairs(places.ranks).by_hosts(entry.name, places.order)[0]
            own = tiers and Cables.of_tiers(tiers, places.ranks, places.links)
            return replace(self._bare, places=places, numbers=few, own=own)

        if entry.name == "bidirectional_ring":
            if ways.own and not tiers and n > MOST_FOLLOWED_RANKS:
                self._refuse_unlike("ring")
            return lambda size: both_ways_ns(-(-(size // width) // (2 * n)) * width, smaller, self.places, costs)
        trees, gather = HostTrees(ways, costs, np.array(order)), self._ways(around).ring()

        def time_ns(size_bytes: int) -> float:
            count = size_bytes // width
            match entry.collective.name, entry.name:
                case ("broadcast" | "reduce") as name, "chain":
                    case = self._case(size_bytes, ways)
                    return trees.chain_ns(*case.pieces(size_bytes), reduce=name == "reduce")
                case "broadcast", "binomial_tree":
                    return trees.broadcast_ns(size_bytes)
                case "reduce", _:
                    return trees.reduce_ns(size_bytes)
                case "broadcast", _:
                    return trees.scatter_all_gather_ns(count, width, gather)
                case "scatter", "binomial_tree":
                    return trees.scatter_ns(count, width)
                case "gather", "binomial_tree":
                    return trees.gather_ns(count, width)
                case "scatter", _:
                    return trees.linear_scatter_ns(-(-count // n) * width)
            return trees.linear_gather_ns(-(-count // n) * width)

        return time_ns

    def _case(self, size_bytes: int, ways: Wide, dims: Sequence[int] = ()) -> Case:
        step, seed = self.step, self.experiment.seed
        options = {key: getattr(step, key) for key in self.entry.extra} | {"dims": dims}
        return Case.of(self.entry, self.n, size_bytes, self.width, options, seed, self.costs, ways)

    def _multicast(self) -> Callable[[int], float]:
        places, spec = self.places, self.experiment.fabric
        hosts = self._bare
        if hosts.own:
            self._refuse_unlike("another algorithm")
        if isinstance(places, Rails) and places.gpus > 1 and spec.scale_up:
            domain = Link(spec.scale_up.rate, spec.scale_up.delay)
            hosts = replace(hosts, places=replace(places, scale_up=True), scale_up=domain)
        self._made.add(2 * len(distances(self.n)))
        both = Multicasts(tree_of(places, self.job), self._bare, hosts, self.costs)
        of = both.broadcast if self.entry.collective.name == "broadcast" else both.all_gather
        return lambda size_bytes: in_time(of(size_bytes), self.step.cutoff, self.place)

    def _by_switches(self) -> Callable[[int], float]:
        spec, step, bare = self.experiment.fabric, self.step, self._bare
        tree = tree_of(self.places, self.job)
        accelerator = accelerator_for(self.experiment, int(tree.inputs[tree.adding()].max()), self.place)
        elements = min(accelerator.elements, spec.nic.mtu // 4)
        worst = bare.own.worst(self.n) if bare.own else bare.cable
        slots = step.slots or slots_over(
            self.experiment, (worst.rate_bps, worst.delay_ns), self.places.switches, elements
        )
        return lambda size_bytes: by_switches_ns(
            tree, bare, size_bytes, self.costs,
            width=self.width, elements=elements, slots=min(slots, accelerator.slots),
            fixed_point=not step.dtype.startswith(("int", "uint")), convert_bps=self.experiment.costs.convert,
            rate_bps=accelerator.rate, accelerator_ns=accelerator.latency,
        )  # fmt: skip

    def _refuse_unlike(self, other: str) -> None:
        what = f"there is no model of {self.entry} for {self.n} ranks where single cables differ"
        raise InputError(what, f"{self.place}.algorithm", f"{other}, or cables that are alike")

    def _rounds_apart(self) -> None:
        if isinstance(self.places, Rails | Tiers) and self.places.links:
            others = {"bruck": "recursive_doubling", "pairwise": "spread"}
            what = f"there is no model of {self.entry} here: its rounds overlap on uplinks"
            raise InputError(what, f"{self.place}.algorithm", others[self.entry.name])
