"""Fabrics that are too large for any machine to emulate: read as any other, predicted without their graph.

While such a file is read, a small fabric of the same kind stands for the large one, so that all else is checked as
always; `topology.params` keep what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.experiment.blocks.fabric import STAND_IN
from testbed.plan.ideal import costs_of
from testbed.predict.figure import FLOWS, Figure
from topologies import Fabric
from topologies.graph.fabric import TopologyError
from topologies.kinds import KINDS, build
from workloads.base.entry import Algorithm, named
from workloads.base.vocabulary import AUTO, DTYPES
from workloads.registry import find
from workloads.times.case import Case
from workloads.times.messages import Link
from workloads.times.wide.around import Ring, host_ring_over_ns
from workloads.times.wide.direct_reduce import ring_ns
from workloads.times.wide.fabric import Grid, Places, Rails, Tiers, Wide
from workloads.times.wide.rounds import rounds_ns, rounds_of

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment

MOST_RANKS = 1 << 19
SMALL: dict[str, dict[str, Any]] = {
    "star": {"hosts": 4},
    "ring": {"nodes": 4},
    "torus": {"dims": [2, 2]},
    "rail": {"servers": 2},
    "clos": {"leaves": 2, "spines": 1, "hosts_per_leaf": 2, "pods": 1, "cores": 0},
}
"""What stands for a large fabric of each kind; other parameters stay."""


@contextmanager
def of_any_size() -> Iterator[None]:
    """Experiments that are read meanwhile may have a fabric of up to MOST_RANKS."""
    token = STAND_IN.set(_stand_in)
    try:
        yield
    finally:
        STAND_IN.reset(token)


def is_large(experiment: Experiment) -> bool:
    """Whether a small fabric stands for the one that is asked for."""
    return experiment.build_fabric().params != experiment.fabric.topology.params


def _stand_in(kind: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], Fabric]:
    """The parameters with defaults, and the fabric or what stands for it.  Raises TopologyError."""
    try:
        fabric = build(kind, params)
    except TopologyError as error:
        if kind not in SMALL or not _too_large(error):
            raise
        wide = {p.name: replace(p, most=MOST_RANKS) for p in KINDS[kind].parameters()}
        given = {name: wide[name].parse(value) for name, value in params.items()}
        asked = KINDS[kind](**given)
        asked.check()
        whole: dict[str, Any] = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(asked).items()}
        if (ranks := places_of(kind, whole).ranks) > MOST_RANKS:
            raise TopologyError(
                error.key, f"{ranks} ranks are too many", f"at most {MOST_RANKS} are predicted"
            ) from None
        if whole.get("direct") or int(whole.get("links", 1)) > 1:
            what = "there is no model of NICs with several ports in so large a fabric"
            raise TopologyError("direct" if whole.get("direct") else "links", what, "leave it out") from None
        return whole, build(kind, {**whole, **SMALL[kind]})
    return dict(fabric.params), fabric


def _too_large(error: TopologyError) -> bool:
    return "too many" in error.what or "out of range" in error.what or "would need" in error.what


def places_of(kind: str, params: Mapping[str, Any], *, scale_up: bool = False) -> Places:
    """Where the ranks of such a fabric are."""
    p = {key: value for key, value in params.items() if key not in ("links", "direct")}
    if kind == "star":
        return Tiers(per=p["hosts"])
    if kind == "rail":
        return Rails(p["servers"], p["gpus"], p["spines"], scale_up and p["gpus"] > 1)
    if kind == "clos":
        return Tiers(p["hosts_per_leaf"], p["leaves"], p["spines"], p["pods"], p["cores"])
    return Grid(tuple(p["dims"]) if kind == "torus" else (p["nodes"],))


IN_ROUNDS = (
    "torus", "hierarchical", "halving_doubling", "halving", "recursive_doubling", "bruck", "dissemination", "shift",
)  # fmt: skip
"""Algorithms of which all ranks do the same at the same time, one message after the other."""

POWERS = ("halving_doubling", "halving", "recursive_doubling")
"""Of these, for powers of two."""


def large_figures(experiment: Experiment) -> Iterator[Figure]:
    """The lines of an experiment whose fabric is large.  Raises InputError for what there is no model of."""
    for k, step in enumerate(experiment.workload):
        place = experiment.place("workload", k)
        if step.kind != "collective":
            raise InputError(
                f"there is no model of {step.kind} on so large a fabric", place, "collectives are predicted"
            )
        yield from _of_step(experiment, step, k, place)


def _of_step(experiment: Experiment, step: CollectiveStep, number: int, place: str) -> Iterator[Figure]:
    spec = experiment.fabric
    what = "of so large a fabric all ranks take part"
    if step.ranks is not None or step.groups is not None:
        raise InputError(what, f"{place}.{'groups' if step.ranks is None else 'ranks'}", "leave it out")
    if spec.cables or spec.host_cable.model_fields_set:
        hint = "leave `cables` and `host_cable` out"
        raise InputError("of so large a fabric all cables are alike", experiment.place("fabric"), hint)
    if step.algorithm == AUTO:
        hint = f"name one of {', '.join(('ring', 'direct_reduce', *IN_ROUNDS))}"
        raise InputError("of so large a fabric no algorithm is chosen", f"{place}.algorithm", hint)
    entry = find(step.collective, step.algorithm)
    within = spec.scale_up if entry.schedule or entry.name == "host" else None  # NICs have the network alone
    scale_up = Link(within.rate, within.delay) if within else None
    places = places_of(spec.topology.kind, spec.topology.params, scale_up=scale_up is not None)
    ways = Wide(places, Link(spec.cable.rate, spec.cable.delay), spec.switch.latency, scale_up)
    ring = cache(ways.ring)
    for size_bytes in step.sizes:
        yield Figure(
            step=number,
            name=step.collective,
            algorithm=step.algorithm,
            ranks=places.ranks,
            size_bytes=size_bytes,
            time_ns=_time(experiment, step, entry, ways, ring, size_bytes, place),
            how=FLOWS,
            busbw_factor=entry.collective.busbw.of(places.ranks),
        )


def _time(
    experiment: Experiment,
    step: CollectiveStep,
    entry: Algorithm,
    ways: Wide,
    ring: Callable[[], Ring],
    size_bytes: int,
    place: str,
) -> float:
    costs, n = costs_of(experiment), ways.places.ranks
    engine = experiment.fabric.nic.engine
    if engine is not None:
        costs = replace(costs, engine_reduce_bps=engine.reduce, engine_packets_per_s=engine.packets)
    if not entry.schedule and entry.layout == "ring" and entry.name != "multicast":
        touched = {"sgd": 2, "adam": 3}.get(step.optimizer or "sgd", 2)
        return ring_ns(entry, size_bytes, ring(), costs, touched=touched)
    if entry.name == "ring" and step.chunk is None:
        width = DTYPES[step.dtype]
        chunk = -(-(size_bytes // width) // n) * width
        reduces = [True] * (n - 1) * (entry.collective.name != "all_gather")
        reduces += [False] * (n - 1) * (entry.collective.name != "reduce_scatter")
        return host_ring_over_ns(reduces, chunk, ring(), costs)
    if entry.name not in IN_ROUNDS:
        what = f"there is no model of {entry}{' in pieces' if step.chunk else ''} for {n} ranks"
        raise InputError(
            what, f"{place}.algorithm", f"there is one of {', '.join(('ring', 'direct_reduce', *IN_ROUNDS))}"
        )
    dims = [d for d in ways.places.dims if d > 1]
    if entry.layout in ("grid", "domains") and (not dims or prod(dims) != n):
        raise InputError("these ranks are no grid", f"{place}.algorithm", "a torus, ring or rail is one")
    if entry.layout not in ("grid", "domains"):
        if step.chunk is not None:
            raise InputError(f"there is no model of {entry} in pieces for {n} ranks", f"{place}.chunk", "leave it out")
        if entry.name in POWERS and n & n - 1:
            raise InputError(f"there is no model of {entry} for {n} ranks", f"{place}.algorithm", "a power of two")
        if entry.name == "bruck" and isinstance(ways.places, Rails | Tiers) and ways.places.links:
            what = f"there is no model of {entry} here: its rounds overlap on uplinks"
            raise InputError(what, f"{place}.algorithm", "recursive_doubling")
        width = DTYPES[step.dtype]
        return rounds_ns(rounds_of(entry.name, n, size_bytes // width, width), ways, costs)
    options = {key: getattr(step, key) for key in entry.extra} | {"dims": dims}
    case = Case.of(entry, n, size_bytes, DTYPES[step.dtype], options, experiment.seed, costs, _Once(ways))
    return float(named(entry.time)(case))


class _Once(Wide):
    """Rounds that repeat the same pairs are looked at once."""

    def __init__(self, ways: Wide) -> None:
        super().__init__(ways.places, ways.cable, ways.latency_ns, ways.scale_up)
        object.__setattr__(self, "_known", {})

    def path(self, pairs: Any) -> Any:
        known: dict[int, tuple[Any, Any]] = self._known  # type: ignore[attr-defined]
        if id(pairs) not in known:
            known[id(pairs)] = pairs, super().path(pairs)  # kept, so that its id stays its own
        return known[id(pairs)][1]
