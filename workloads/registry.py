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
    from workloads.collectives.schedule import Schedule
    from workloads.parts.context import Part
    from workloads.times.case import Case
    from workloads.times.messages import Costs, Path

DTYPES: dict[str, int] = {
    **{"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1},
    **{"int32": 4, "int64": 8, "int8": 1, "uint8": 1},
}
"""Element types and their bytes.  float8: the OCP's two, by the names that PyTorch and ml_dtypes have for them."""

OPS: tuple[str, ...] = ("sum", "min", "max", "prod", "avg")
"""Reductions.  `avg` is the sum divided by the number of ranks; integers are truncated towards zero, as in C."""

SPARSE_INPUT: dict[str, Any] = {"density": 1.0, "overlap": 0.0, "block": 256}
"""Keys and defaults of every collective that skips blocks of zeros: its input (workloads/sparse/inputs.py)."""

ADDER_DTYPES: tuple[str, ...] = tuple(name for name in DTYPES if name not in ("float64", "int64"))
"""Element types that NICs and switches add up."""

MOST_PIECES = 4096
"""That a vector may be cut into: a queue pair keeps 16384 receives, and a ring's carries the vector nearly twice."""

AUTO = "auto"
"""Instead of an algorithm: the one that its closed form expects to be the fastest, of those that have a schedule."""

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
    time: (
        str  # "module:function" of its closed form: (Case) -> ns with a schedule, else (ranks, size, path, costs) -> ns
    )
    busbw_factor: Callable[[int], float]  # ranks -> busbw / algbw
    ops: tuple[str, ...] = ()  # () when nothing is reduced
    dtypes: tuple[str, ...] = tuple(DTYPES)
    min_ranks: int = 2
    accelerators: bool = False  # adds up in switches
    shared_slots: bool = False  # in slots that jobs share, with a host as parameter server
    engines: bool = False  # adds up in NICs
    max_ranks: int | None = None  # None: any number
    on_complexes: bool = False  # compute complexes of off-path SmartNICs help: `helpers` of a plan's step
    extra: tuple[str, ...] = ()  # keys of a step that only some collectives heed
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of those that are not null by default
    schedule: str = ""  # "module:function" of what the hosts carry out; "": its Part knows by itself
    chunk_bytes: int | None = None  # pieces that a schedule is pipelined by, unless the step says; None: whole messages
    layout: str = ""  # "ring": next in order is near; what the group must be: "grid", "domains" of equal size
    transposed: bool = False  # unequal counts are those of the way there, backwards
    sized: bool = True  # False: it moves no data, and `sizes` may be left out

    @property
    def parameters(self) -> tuple[str, ...]:
        """The keys of an experiment's collective step that this entry heeds."""
        return ("sizes", "dtype", *(("op",) if self.ops else ()), "iterations", "warmup", "ranks", *self.extra)

    def load(self) -> type[Part]:
        """The code that a rank runs (imports numpy)."""
        return cast("type[Part]", _import(self.code))

    def closed_form_ns(self, ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
        """Time in ns that the stated parameters promise when every rank reaches every other over an equal, idle `path`.

        With a schedule: for elements of 4 bytes, as a step does it that says nothing more.
        """
        if not self.schedule:
            return cast("Callable[[int, int, Path, Costs], float]", _import(self.time))(ranks, size_bytes, path, costs)
        from workloads.times.case import Case
        from workloads.times.ways import Uniform

        return self.expected_ns(Case.of(self, ranks, size_bytes, 4, {}, 1, costs, Uniform(path)))

    def expected_ns(self, case: Case) -> float:
        """Time in ns of a collective with a schedule: message by message, or, where they are many, by its formula."""
        from workloads.times.replay import replayed

        followed = replayed(case, cast("Schedule", _import(self.schedule)))
        if followed is not None:
            return followed
        return cast("Callable[[Case], float]", _import(self.time))(case)


def _import(place: str) -> object:
    module, name = place.split(":")
    return getattr(import_module(module), name)


def _entries(*entries: Collective) -> dict[tuple[str, str], Collective]:
    return {(e.name, e.algorithm): e for e in entries}


def _whole(n: int) -> float:
    return 1.0


def _all_but_one(n: int) -> float:
    return (n - 1) / n


def _there_and_back(n: int) -> float:
    return 2 * (n - 1) / n


_SEMANTICS: dict[str, tuple[str, str, Callable[[int], float], tuple[str, ...]]] = {
    "all_reduce": ("every rank ends with the reduction of all ranks' vectors", "AllReduce", _there_and_back, OPS),
    "reduce_scatter": ("rank i ends with the i-th chunk of the reduction", "ReduceScatter", _all_but_one, OPS),
    "all_gather": ("every rank ends with the chunks of all ranks, in rank order", "AllGather", _all_but_one, ()),
    "broadcast": ("every rank ends with the first rank's vector", "Broadcast", _whole, ()),
    "reduce": ("the first rank ends with the reduction of all ranks' vectors", "Reduce", _whole, OPS),
    "scatter": ("rank i ends with the i-th chunk of the first rank's vector", "Scatter", _all_but_one, ()),
    "gather": ("the first rank ends with the chunks of all ranks, in rank order", "Gather", _all_but_one, ()),
    "all_to_all": ("rank i ends with the i-th chunk of every rank's vector", "AllToAll", _all_but_one, ()),
    "all_to_all_v": ("all_to_all with unequal chunks, drawn from the seed", "AllToAll", _all_but_one, ()),
    "m2n": ("each of the first `senders` ranks sends unequal parts to the others", "AllToAll", _whole, ()),
    "n2m": ("the way back of m2n: each of the others receives unequal parts", "AllToAll", _whole, ()),
    "barrier": ("nobody returns before all have called", "Barrier", _whole, ()),
    "send_recv": ("a vector goes from a rank to another", "SendReceive", _whole, ()),
}
"""What the hosts' collectives mean: summary, class of their Part in workloads.collectives.host, bus factor, ops."""


def _host(name: str, algorithm: str, schedule: str, time: str, **more: Any) -> Collective:
    """An algorithm that hosts carry out by a schedule of workloads.collectives."""
    summary, part, factor, ops = _SEMANTICS[name]
    return Collective(
        name,
        algorithm,
        summary,
        f"workloads.collectives.host:{part}",
        f"workloads.times.{time}",
        factor,
        ops=ops,
        schedule=f"workloads.collectives.{schedule}",
        **more,
    )


_CHUNK = ("chunk",)
_SKEW = {"skew": 1.0}
_PIPE = 128 << 10  # bytes of a piece, for what is worth little unless pipelined

COLLECTIVES: dict[tuple[str, str], Collective] = _entries(
    _host("all_reduce", "ring", "ring:all_reduce", "rings:ring_all_reduce", extra=_CHUNK, layout="ring"),
    _host(
        "all_reduce",
        "bidirectional_ring",
        "ring:bidirectional_all_reduce",
        "rings:bidirectional_all_reduce",
        extra=_CHUNK,
        layout="ring",
    ),
    _host("all_reduce", "halving_doubling", "halving:all_reduce", "halving:halving_doubling_all_reduce", extra=_CHUNK),
    _host(
        "all_reduce",
        "double_binary_tree",
        "trees:double_binary_all_reduce",
        "trees:double_binary_tree_all_reduce",
        extra=_CHUNK,
        chunk_bytes=_PIPE,
    ),
    _host("all_reduce", "torus", "torus:all_reduce", "rings:torus_all_reduce", extra=_CHUNK, layout="grid"),
    _host(
        "all_reduce",
        "hierarchical",
        "torus:hierarchical_all_reduce",
        "rings:hierarchical_all_reduce",
        extra=_CHUNK,
        layout="domains",
    ),
    _host("reduce_scatter", "ring", "ring:reduce_scatter", "rings:ring_reduce_scatter", extra=_CHUNK, layout="ring"),
    _host("reduce_scatter", "halving", "halving:reduce_scatter", "halving:halving_reduce_scatter", extra=_CHUNK),
    _host("all_gather", "ring", "ring:all_gather", "rings:ring_all_gather", extra=_CHUNK, layout="ring"),
    _host("all_gather", "recursive_doubling", "halving:all_gather", "halving:doubling_all_gather"),
    _host("all_gather", "bruck", "exchange:bruck_all_gather", "halving:bruck_all_gather"),
    _host("broadcast", "binomial_tree", "trees:binomial_broadcast", "trees:binomial_broadcast", extra=_CHUNK),
    _host(
        "broadcast",
        "chain",
        "trees:chain_broadcast",
        "trees:chain_broadcast",
        extra=_CHUNK,
        chunk_bytes=_PIPE,
        layout="ring",
    ),
    _host(
        "broadcast",
        "scatter_all_gather",
        "exchange:scatter_all_gather_broadcast",
        "exchange:scatter_all_gather_broadcast",
        layout="ring",
    ),
    _host("reduce", "binomial_tree", "trees:binomial_reduce", "trees:binomial_reduce", extra=_CHUNK),
    _host(
        "reduce", "chain", "trees:chain_reduce", "trees:chain_reduce", extra=_CHUNK, chunk_bytes=_PIPE, layout="ring"
    ),
    _host("scatter", "linear", "exchange:linear_scatter", "exchange:linear_scatter"),
    _host("scatter", "binomial_tree", "exchange:binomial_scatter", "trees:binomial_scatter"),
    _host("gather", "linear", "exchange:linear_gather", "exchange:linear_gather"),
    _host("gather", "binomial_tree", "exchange:binomial_gather", "trees:binomial_gather"),
    _host("all_to_all", "spread", "exchange:spread_all_to_all", "exchange:spread_all_to_all"),
    _host("all_to_all", "pairwise", "exchange:pairwise_all_to_all", "exchange:pairwise_all_to_all"),
    _host(
        "all_to_all_v",
        "spread",
        "exchange:spread_all_to_all",
        "exchange:spread_all_to_all",
        extra=("skew",),
        defaults=_SKEW,
    ),
    _host(
        "all_to_all_v",
        "pairwise",
        "exchange:pairwise_all_to_all",
        "exchange:pairwise_all_to_all",
        extra=("skew",),
        defaults=_SKEW,
    ),
    _host("m2n", "write", "exchange:m_to_n", "exchange:m_to_n", extra=("senders", "skew"), defaults=_SKEW),
    _host(
        "n2m", "write", "exchange:m_to_n", "exchange:m_to_n", extra=("senders", "skew"), defaults=_SKEW, transposed=True
    ),
    _host("barrier", "dissemination", "exchange:dissemination_barrier", "exchange:dissemination_barrier", sized=False),
    _host("send_recv", "pair", "exchange:pair_send_recv", "exchange:pair_send_recv", max_ranks=2),
    _host("send_recv", "shift", "exchange:shift_send_recv", "exchange:shift_send_recv"),
    Collective(
        "all_reduce",
        "in_network",
        "switches add up fixed-point blocks in slots, and copy the sums to all (SwitchML)",
        "workloads.offloads.in_network:AllReduce",
        "workloads.times.in_network:in_network_all_reduce_ns",
        lambda n: 2 * (n - 1) / n,
        ops=("sum", "avg"),
        dtypes=ADDER_DTYPES,
        extra=("slots", "timeout"),
        accelerators=True,
    ),
    Collective(
        "all_reduce",
        "in_network_best_effort",
        "likewise in slots that jobs share; blocks that get none are added up by the first rank's host (ATP)",
        "workloads.offloads.best_effort:AllReduce",
        "workloads.times.best_effort:best_effort_all_reduce_ns",
        lambda n: 2 * (n - 1) / n,
        ops=("sum", "avg"),
        dtypes=ADDER_DTYPES,
        extra=("slots", "timeout"),
        accelerators=True,
        shared_slots=True,
        max_ranks=64,
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
        "all_reduce",
        "direct_reduce",
        "a ring of NICs that add up what comes in and send it on; only results reach memory (DirectReduce)",
        "workloads.offloads.direct_reduce:AllReduce",
        "workloads.times.messages:direct_all_reduce_ns",
        lambda n: 2 * (n - 1) / n,
        ops=OPS,
        dtypes=ADDER_DTYPES,
        engines=True,
        extra=("compression",),
        layout="ring",
    ),
    Collective(
        "reduce_scatter",
        "direct_reduce",
        "the reducing half of the ring of NICs",
        "workloads.offloads.direct_reduce:ReduceScatter",
        "workloads.times.messages:direct_reduce_scatter_ns",
        lambda n: (n - 1) / n,
        ops=OPS,
        dtypes=ADDER_DTYPES,
        engines=True,
        extra=("compression",),
        layout="ring",
    ),
    Collective(
        "all_gather",
        "multicast",
        "every rank sends its part once, switches copy it to all, ring neighbours repair what is lost",
        "workloads.offloads.multicast:AllGather",
        "workloads.times.multicast:all_gather_ns",
        lambda n: (n - 1) / n,
        extra=("chains", "cutoff"),
        layout="ring",
        defaults={"cutoff": "20us"},
    ),
    Collective(
        "broadcast",
        "multicast",
        "the first rank sends its vector once, switches copy it to all, ring neighbours repair what is lost",
        "workloads.offloads.multicast:Broadcast",
        "workloads.times.multicast:broadcast_ns",
        lambda _: 1.0,
        extra=("cutoff",),
        layout="ring",
        defaults={"cutoff": "20us"},
    ),
    Collective(
        "all_gather",
        "direct_reduce",
        "the gathering half of the ring of NICs",
        "workloads.offloads.direct_reduce:AllGather",
        "workloads.times.messages:direct_all_gather_ns",
        lambda n: (n - 1) / n,
        dtypes=ADDER_DTYPES,
        engines=True,
        layout="ring",
    ),
    Collective(
        "optimizer_step",
        "host",
        "gradients in, parameters out: ring reduce-scatter, the hosts update their parts, ring all-gather",
        "workloads.offloads.optimizer_step:Host",
        "workloads.times.messages:host_optimizer_step_ns",
        lambda n: 2 * (n - 1) / n,
        ops=("avg", "sum"),
        dtypes=("float32",),
        extra=("optimizer",),
        defaults={"optimizer": "sgd"},
        layout="ring",
    ),
    Collective(
        "optimizer_step",
        "optimus_nic",
        "likewise by a ring of NICs, which keep the parameters and what the optimizer remembers (OptimusNIC)",
        "workloads.offloads.optimizer_step:OptimusNic",
        "workloads.times.messages:optimus_nic_ns",
        lambda n: 2 * (n - 1) / n,
        ops=("avg", "sum"),
        dtypes=("float32",),
        engines=True,
        extra=("optimizer",),
        defaults={"optimizer": "sgd"},
        layout="ring",
    ),
    Collective(
        "ping_pong",
        "write",
        "a message goes from one rank to another and back, by RDMA write with immediate; the time is the round trip",
        "workloads.parts.ping_pong:WritePingPong",
        "workloads.times.messages:ping_pong_write_ns",
        lambda _: 2.0,
        max_ranks=2,
    ),
    Collective(
        "ping_pong",
        "send",
        "a message goes from one rank to another and back, by send and receive; the time is the round trip",
        "workloads.parts.ping_pong:SendPingPong",
        "workloads.times.messages:ping_pong_send_ns",
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


def any_of(collective: str, algorithm: str) -> Collective:
    """The entry; of AUTO any that it may choose, for what all have in common.  Raises UnknownCollective."""
    if algorithm != AUTO:
        return find(collective, algorithm)
    for name in algorithms(collective):
        if COLLECTIVES[collective, name].schedule:
            return COLLECTIVES[collective, name]
    raise UnknownCollective(f"{collective} has no algorithms to choose from", "leave algorithm out")


def extra(collective: str, algorithm: str) -> tuple[str, ...]:
    """The keys of a step that not every collective heeds, and this algorithm (AUTO: one of its choices) does."""
    if algorithm != AUTO:
        return find(collective, algorithm).extra
    scheduled = [e for (name, _), e in COLLECTIVES.items() if name == collective and e.schedule]
    return tuple(dict.fromkeys(key for entry in scheduled for key in entry.extra))


def find(collective: str, algorithm: str | None = None) -> Collective:
    """The entry of a collective and algorithm (None: its default).  Raises UnknownCollective."""
    known = algorithms(collective)
    if algorithm is not None and algorithm not in known:
        raise UnknownCollective(f"{collective} has no algorithm called {algorithm!r}", f"it has {', '.join(known)}")
    return COLLECTIVES[collective, algorithm or known[0]]
