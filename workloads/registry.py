"""What workers can run: one entry per (collective, algorithm), and nothing about it in a second place.

The experiment file is validated against these entries, the worker loads an entry's code from here, and tables take
the bus bandwidth factor and the expected time from here.  Imports neither numpy nor anything that touches a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from workloads.closed_form import Costs, Path
    from workloads.context import Part

DTYPES: dict[str, int] = {"float32": 4, "float64": 8, "float16": 2, "int32": 4, "int64": 8}
"""Element types and their bytes."""

OPS: tuple[str, ...] = ("sum", "min", "max", "prod", "avg")
"""Reductions.  `avg` is the sum divided by the number of ranks; integers are truncated towards zero, as in C."""

SPARSE_INPUT: dict[str, Any] = {"density": 1.0, "overlap": 0.0, "block": 256}
"""Keys and defaults of every collective that skips blocks of zeros: its input (workloads/sparse/inputs.py)."""

FLOW_MESSAGE_BYTES = 1 << 20
"""A flow goes out in messages of this size."""


class UnknownCollective(ValueError):
    """No such entry: `what` names it, `hint` lists the ones there are."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what} ({hint})")
        self.what = what
        self.hint = hint


@dataclass(frozen=True)
class Collective:
    """An algorithm for a collective: what it accepts, where its code is, what it should cost.

    `size_bytes` of a step is what nccl-tests calls size: the whole vector of an all_reduce, the input of a
    reduce_scatter, the output of an all_gather, one message of a ping_pong.
    """

    name: str
    algorithm: str
    summary: str
    code: str  # "module:class" of its Part
    time: str  # "module:function" of its closed form: (ranks, size_bytes, path, costs) -> ns
    busbw_factor: Callable[[int], float]  # ranks -> busbw / algbw
    ops: tuple[str, ...] = ()  # () when nothing is reduced
    dtypes: tuple[str, ...] = tuple(DTYPES)
    min_ranks: int = 2
    accelerators: bool = False  # adds up in switches
    max_ranks: int | None = None  # None: any number
    on_complexes: bool = False  # compute complexes of off-path SmartNICs help: `helpers` of a plan's step
    extra: tuple[str, ...] = ()  # keys of a step that only some collectives heed
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of those that are not null by default

    @property
    def parameters(self) -> tuple[str, ...]:
        """The keys of an experiment's collective step that this entry heeds."""
        return ("sizes", "dtype", *(("op",) if self.ops else ()), "iterations", "warmup", "ranks", *self.extra)

    def load(self) -> type[Part]:
        """The code that a rank runs (imports numpy)."""
        return cast("type[Part]", _import(self.code))

    def closed_form_ns(self, ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
        """Time in ns that the stated parameters promise when every rank reaches the next over an equal, idle `path`."""
        return cast("Callable[[int, int, Path, Costs], float]", _import(self.time))(ranks, size_bytes, path, costs)


def _import(place: str) -> object:
    module, name = place.split(":")
    return getattr(import_module(module), name)


def _entries(*entries: Collective) -> dict[tuple[str, str], Collective]:
    return {(e.name, e.algorithm): e for e in entries}


COLLECTIVES: dict[tuple[str, str], Collective] = _entries(
    Collective(
        "all_reduce",
        "ring",
        "every rank ends with the reduction of all ranks' vectors",
        "workloads.collectives.ring:AllReduce",
        "workloads.closed_form:ring_all_reduce_ns",
        lambda n: 2 * (n - 1) / n,
        ops=OPS,
    ),
    Collective(
        "all_reduce",
        "in_network",
        "switches add up fixed-point blocks in slots, and copy the sums to all (SwitchML)",
        "workloads.collectives.in_network:AllReduce",
        "workloads.collectives.in_network_time:in_network_all_reduce_ns",
        lambda n: 2 * (n - 1) / n,
        ops=("sum", "avg"),
        dtypes=("float32", "float16", "int32"),
        extra=("slots", "timeout"),
        defaults={"timeout": "100us"},
        accelerators=True,
    ),
    Collective(
        "all_reduce",
        "omnireduce",
        "blocks of zeros are not sent: aggregators add up what is left, as it streams in (docs/sparse.md)",
        "workloads.sparse.omnireduce:AllReduce",
        "workloads.sparse.closed_form:omnireduce_ns",
        lambda n: 2 * (n - 1) / n,
        ops=("sum", "avg"),
        extra=(*SPARSE_INPUT, "fusion", "slots", "aggregators"),
        defaults={**SPARSE_INPUT, "fusion": 4, "slots": 256},
    ),
    Collective(
        "all_reduce",
        "omniccl",
        "blocks of zeros are not sent: compute complexes of SmartNICs add up the others (docs/sparse.md)",
        "workloads.sparse.omniccl:AllReduce",
        "workloads.sparse.closed_form:omniccl_ns",
        lambda n: 2 * (n - 1) / n,
        ops=("sum", "avg"),
        on_complexes=True,
        extra=(*SPARSE_INPUT, "spot", "aggregators"),
        defaults=SPARSE_INPUT,
    ),
    Collective(
        "reduce_scatter",
        "ring",
        "rank i ends with the i-th part of the reduction of all ranks' vectors",
        "workloads.collectives.ring:ReduceScatter",
        "workloads.closed_form:ring_reduce_scatter_ns",
        lambda n: (n - 1) / n,
        ops=OPS,
    ),
    Collective(
        "all_gather",
        "ring",
        "every rank ends with the parts of all ranks, in rank order",
        "workloads.collectives.ring:AllGather",
        "workloads.closed_form:ring_all_gather_ns",
        lambda n: (n - 1) / n,
    ),
    Collective(
        "all_gather",
        "multicast",
        "every rank sends its part once, switches copy it to all, ring neighbours repair what is lost",
        "workloads.collectives.multicast:AllGather",
        "workloads.multicast_time:all_gather_ns",
        lambda n: (n - 1) / n,
        extra=("chains", "cutoff"),
        defaults={"cutoff": "20us"},
    ),
    Collective(
        "broadcast",
        "multicast",
        "the first rank sends its vector once, switches copy it to all, ring neighbours repair what is lost",
        "workloads.collectives.multicast:Broadcast",
        "workloads.multicast_time:broadcast_ns",
        lambda _: 1.0,
        extra=("cutoff",),
        defaults={"cutoff": "20us"},
    ),
    Collective(
        "ping_pong",
        "write",
        "a message goes from one rank to another and back, by RDMA write with immediate; the time is the round trip",
        "workloads.ping_pong:WritePingPong",
        "workloads.closed_form:ping_pong_write_ns",
        lambda _: 2.0,
        max_ranks=2,
    ),
    Collective(
        "ping_pong",
        "send",
        "a message goes from one rank to another and back, by send and receive; the time is the round trip",
        "workloads.ping_pong:SendPingPong",
        "workloads.closed_form:ping_pong_send_ns",
        lambda _: 2.0,
        max_ranks=2,
    ),
)
"""(collective, algorithm) -> entry.  The first algorithm of a collective is its default."""


def names() -> tuple[str, ...]:
    """The collectives there are, each once."""
    return tuple(dict.fromkeys(name for name, _ in COLLECTIVES))


def algorithms(collective: str) -> tuple[str, ...]:
    """The algorithms of a collective, its default first.  Raises UnknownCollective."""
    found = tuple(a for name, a in COLLECTIVES if name == collective)
    if not found:
        raise UnknownCollective(f"no collective called {collective!r}", f"there are {', '.join(names())}")
    return found


def find(collective: str, algorithm: str | None = None) -> Collective:
    """The entry of a collective and algorithm (None: its default).  Raises UnknownCollective."""
    known = algorithms(collective)
    if algorithm is not None and algorithm not in known:
        raise UnknownCollective(f"{collective} has no algorithm called {algorithm!r}", f"it has {', '.join(known)}")
    return COLLECTIVES[collective, algorithm or known[0]]
