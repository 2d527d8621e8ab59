"""What workers can run: one entry per collective and per algorithm, and nothing about it in a second place.

The experiment file is validated against these entries, the worker loads an algorithm's code from here, and tables, also
those of docs/collectives.md, take from here what they say.  Imports neither numpy nor anything that touches a machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workloads.base.entry import EVEN, POWERS, Algorithm, Collective, Factor
from workloads.base.vocabulary import ADDER_DTYPES, AUTO, OPS
from workloads.own.name import FORM, parse


class UnknownCollective(ValueError):
    """No such entry: `what` names it, `hint` lists the ones there are."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what} ({hint})")
        self.what = what
        self.hint = hint


# Collectives

_WHOLE = Factor("1", lambda n: 1.0)
_ALL_BUT_ONE = Factor("(n-1)/n", lambda n: (n - 1) / n)
_THERE_AND_BACK = Factor("2(n-1)/n", lambda n: 2 * (n - 1) / n)
_TWICE = Factor("2", lambda n: 2.0)

_ALL_REDUCE = Collective(
    "all_reduce",
    "every rank has the reduction of all vectors",
    "the vector",
    _THERE_AND_BACK,
    "host:AllReduce",
    OPS,
    meets=True,
)
_REDUCE_SCATTER = Collective(
    "reduce_scatter", "rank i has chunk i of the reduction", "the input vector", _ALL_BUT_ONE, "host:ReduceScatter",
    OPS, in_parts=True, meets=True,
)  # fmt: skip
_ALL_GATHER = Collective(
    "all_gather", "every rank has all chunks, in rank order", "the output vector", _ALL_BUT_ONE, "host:AllGather",
    in_parts=True, meets=True,
)  # fmt: skip
_BROADCAST = Collective(
    "broadcast", "every rank has the first rank's vector", "that vector", _WHOLE, "host:Broadcast", rooted=True
)
_REDUCE = Collective(
    "reduce", "the first rank has the reduction of all vectors", "the vector", _WHOLE, "host:Reduce", OPS, rooted=True
)
_SCATTER = Collective(
    "scatter", "rank i has chunk i of the first rank's vector", "that vector", _ALL_BUT_ONE, "host:Scatter",
    in_parts=True, rooted=True,
)  # fmt: skip
_GATHER = Collective(
    "gather", "the first rank has all chunks, in rank order", "the output vector", _ALL_BUT_ONE, "host:Gather",
    in_parts=True, rooted=True,
)  # fmt: skip
_ALL_TO_ALL = Collective(
    "all_to_all", "rank i has the i-th chunk of every rank's vector", "a rank's input vector", _ALL_BUT_ONE,
    "host:AllToAll", in_parts=True, meets=True,
)  # fmt: skip
_ALL_TO_ALL_V = Collective(
    "all_to_all_v", "the same with unequal chunks", "a rank's input vector", _ALL_BUT_ONE, "host:AllToAll", meets=True
)
_REDUCE_SCATTER_V, _ALL_GATHER_V, _SCATTER_V, _GATHER_V = (
    replace(its, name=f"{its.name}_v", summary=f"`{its.name}` with unequal chunks", in_parts=False, one_row=True)
    for its in (_REDUCE_SCATTER, _ALL_GATHER, _SCATTER, _GATHER)
)
_M2N = Collective(
    "m2n", "each of the first `senders` ranks has sent unequal parts to the others", "a sender's vector", _WHOLE,
    "host:AllToAll",
)  # fmt: skip
_N2M = Collective(
    "n2m", "the way back: each of the others has received unequal parts", "what a receiver gets", _WHOLE,
    "host:AllToAll", transposed=True,
)  # fmt: skip
_BARRIER = Collective(
    "barrier", "nobody has returned before all had called", "none", _WHOLE, "host:Barrier", sized=False, meets=True
)
_SEND_RECV = Collective(
    "send_recv", "rank 1 has rank 0's vector (`pair`), every rank the one before it (`shift`, as nccl-tests)",
    "the vector", _WHOLE, "host:SendReceive",
)  # fmt: skip
_OPTIMIZER_STEP = Collective(
    "optimizer_step", "every rank has the parameters that an optimizer makes of the reduction of all gradients",
    "the parameters", _THERE_AND_BACK, ops=("avg", "sum"),
)  # fmt: skip
_PING_PONG = Collective(
    "ping_pong", "a message has gone to the other rank and back; the time is the round trip", "the message", _TWICE
)

_RPC = Collective(
    "rpc", "the first rank has served remote procedure calls of all others ([smartnic-programs.md]"
    "(smartnic-programs.md))", "a message, in memory", _WHOLE, rooted=True,
    unpredicted="its calls share host cores and compute complexes, which are no flows",
)  # fmt: skip

_BLOCK_WRITE = Collective(
    "block_write", "blocks have been compressed by a middle tier (the first rank) and are at storage servers (the last "
    "ones) ([smartnic-programs.md](smartnic-programs.md))", "what all writers write together", _WHOLE, rooted=True,
    unpredicted="its blocks share host cores and compute complexes, which are no flows",
)  # fmt: skip

_FEED = Collective(
    "feed", "accelerators (the last ranks) have got and used what the others have preprocessed "
    "([smartnic-programs.md](smartnic-programs.md))", "all that is preprocessed", _WHOLE,
    unpredicted="who gets a batch depends on who is ready first",
)  # fmt: skip


# Algorithms


def _hosts(
    collective: Collective, name: str, schedule: str, time: str, summary: str, wide: str = "", **more: Any
) -> Algorithm:
    """Hosts carry out a schedule of workloads/collectives/; `time` is its formula in workloads/times/ (or "").

    `wide`: its model for large fabrics in workloads/times/wide/models.py (or "").
    """
    part, schedule = (f"workloads.collectives.{its}" for its in (collective.part, schedule))
    time = time and f"workloads.times.{time}"
    return Algorithm(collective, name, summary, part, time, schedule, collective.ops, wide=_wide(wide), **more)


def _others(
    collective: Collective, name: str, code: str, time: str, summary: str, wide: str = "", **more: Any
) -> Algorithm:
    """A part of its own."""
    return Algorithm(collective, name, summary, f"workloads.{code}", f"workloads.{time}", wide=_wide(wide), **more)


def _offload(collective: Collective, name: str, code: str, *more: str, **keys: Any) -> Algorithm:
    """Likewise one of workloads/offloads/, of NICs or switches that do the work."""
    return _others(collective, name, f"offloads.{code}", *more, offloaded=True, **keys)


def _wide(name: str) -> str:
    return name and f"workloads.times.wide.models:{name}"


_CHUNK: dict[str, Any] = {"extra": ("chunk",)}
_PIPED: dict[str, Any] = {"extra": ("chunk",), "chunk_bytes": 128 << 10}  # worth little unless pipelined
_RAILS: dict[str, Any] = {"layout": "rails", "wide": "RAILS"}
_SKEW: dict[str, Any] = {"extra": ("skew", "parts"), "defaults": {"skew": 1.0}}
_SENDERS: dict[str, Any] = {"extra": ("senders", "skew", "parts"), "defaults": {"skew": 1.0}}
_MULTICAST: dict[str, Any] = {"defaults": {"cutoff": "20us"}, "layout": "ring", "multicast": True}
_SUMS: dict[str, Any] = {"ops": ("sum", "avg")}
_BY_SWITCHES: dict[str, Any] = {**_SUMS, "dtypes": ADDER_DTYPES, "extra": ("slots", "timeout"), "accelerators": True}
_BY_NICS: dict[str, Any] = {"dtypes": ADDER_DTYPES, "engines": True, "layout": "ring"}
_OPTIMIZER: dict[str, Any] = {
    **{"ops": _OPTIMIZER_STEP.ops, "dtypes": ("float32",), "layout": "ring"},
    **{"extra": ("optimizer",), "defaults": {"optimizer": "sgd"}},
}
_PAIR: dict[str, Any] = {"max_ranks": 2}
_GRID: dict[str, Any] = {"layout": "grid"}
_EVEN_GRID: dict[str, Any] = {"layout": "grid", "lengths": EVEN}
_BUFFERS: dict[str, Any] = {"extra": ("chunk",), "chunk_bytes": 512 << 10}  # PAT's (workloads/collectives/pat.py)
_ALONE: dict[str, Any] = {"waits": True}
_MESSAGE: dict[str, Any] = {"extra": ("message",), "defaults": {"message": {}}}
_STORAGE: dict[str, Any] = {"extra": ("storage",), "defaults": {"storage": {}}, "min_ranks": 3}
_FED: dict[str, Any] = {"extra": ("feed",), "defaults": {"feed": {}}}
_SPARSE_INPUT: dict[str, Any] = {"density": 1.0, "overlap": 0.0, "block": 256}  # workloads/sparse/inputs.py
_SPARSE: dict[str, Any] = {**_SUMS, **_ALONE, "unpredicted": "what it sends depends on where the vectors have zeros"}

_ALL_REDUCE_RING = _hosts(
    _ALL_REDUCE, "ring", "ring:all_reduce", "rings:ring_all_reduce",
    "n - 1 hops that reduce, n - 1 that gather", layout="ring", **_CHUNK, wide="ALL_REDUCE_RING",
)  # fmt: skip
_REDUCE_SCATTER_RING = _hosts(
    _REDUCE_SCATTER, "ring", "ring:reduce_scatter", "rings:ring_reduce_scatter",
    "the hops that reduce", layout="ring", **_CHUNK, wide="REDUCE_SCATTER_RING",
)  # fmt: skip
_ALL_GATHER_RING = _hosts(
    _ALL_GATHER, "ring", "ring:all_gather", "rings:ring_all_gather",
    "the hops that gather", layout="ring", **_CHUNK, wide="ALL_GATHER_RING",
)  # fmt: skip
_OPTIMIZER_BY_HOSTS = _others(
    _OPTIMIZER_STEP, "host", "offloads.optimizer_step:Host", "times.wide.direct_reduce:host_optimizer_step_ns",
    "ring reduce-scatter, each host updates its part, ring all-gather", **_OPTIMIZER, wide="HOSTS_OPTIMIZER",
)  # fmt: skip

_ENTRIES = (
    _ALL_REDUCE_RING,
    _hosts(
        _ALL_REDUCE, "bidirectional_ring", "ring:bidirectional_all_reduce", "rings:bidirectional_all_reduce",
        "two rings, half of the vector each, in opposite directions", layout="ring", **_CHUNK, wide="BOTH_WAYS",
    ),
    _hosts(
        _ALL_REDUCE, "halving_doubling", "halving:all_reduce", "halving:halving_doubling_all_reduce",
        "log2 p rounds with a partner p/2, p/4, .. away that halve the vector, and the same backwards (Rabenseifner)",
        wide="HALVING_DOUBLING", **_CHUNK,
    ),
    _hosts(
        _ALL_REDUCE, "double_binary_tree", "trees:double_binary_all_reduce", "trees:double_binary_tree_all_reduce",
        "two trees, half of the vector each; whoever has children in one is a leaf in the other (NCCL, Sanders et al.)",
        **_PIPED,
    ),
    _hosts(
        _ALL_REDUCE, "torus", "grids.torus:all_reduce", "rings:torus_all_reduce",
        "a ring along each dimension in turn: reduce-scatter along all, all-gather back", layout="grid", **_CHUNK,
        wide="GRID",
    ),
    _hosts(
        _ALL_REDUCE, "bucket", "grids.torus:bucket_all_reduce", "grids.at_once:bucket_all_reduce",
        "the same in all dimensions and directions at once, a part of the vector each (Jain & Sabharwal, Sack & Gropp)",
        **_GRID, **_CHUNK,
    ),
    _hosts(
        _ALL_REDUCE, "swing", "grids.swing:all_reduce", "grids.at_once:swing_all_reduce",
        "halving and doubling with near partners, now on one side, now on the other, in all dimensions and directions "
        "at once (De Sensi et al.)", **_EVEN_GRID,
    ),
    _hosts(
        _ALL_REDUCE, "swing_latency", "grids.swing:small_all_reduce", "grids.at_once:swing_latency_all_reduce",
        "log2 n of these exchanges, of all that there is", **_GRID, lengths=POWERS,
    ),
    _hosts(
        _ALL_REDUCE, "recursive_doubling", "grids.hypercube:all_reduce", "halving:recursive_doubling_all_reduce",
        "log2 p exchanges of the whole vector", wide="WHOLE_DOUBLING",
    ),
    _hosts(
        _ALL_REDUCE, "hierarchical", "grids.torus:hierarchical_all_reduce", "rings:hierarchical_all_reduce",
        "reduce-scatter in the scale-up domain, all-reduce along the rails, all-gather in the domain",
        wide="GRID", layout="domains", **_CHUNK,
    ),
    _hosts(
        _ALL_REDUCE, "multi_ring", "ring:rings_all_reduce", "nics.ports:all_reduce",
        "sixteen rings, a part of the vector each: for NICs with several ports", layout="ports", **_PIPED,
    ),
    _hosts(
        _ALL_REDUCE, "rails", "rails:all_reduce", "nics.rails:all_reduce",
        "likewise, but domains and all rails at once, piece by piece", **_RAILS, **_PIPED,
    ),
    _REDUCE_SCATTER_RING,
    _hosts(
        _REDUCE_SCATTER, "halving", "halving:reduce_scatter", "halving:halving_reduce_scatter",
        "the rounds that halve the vector", **_CHUNK, wide="HALVING",
    ),
    _hosts(
        _REDUCE_SCATTER, "pat", "pat:reduce_scatter", "halving:pat_reduce_scatter",
        "a binomial tree for each chunk, the nearest first; a message holds chunks of many (PAT, NCCL 2.23)",
        wide="PAT_REDUCE_SCATTER", **_BUFFERS,
    ),
    _hosts(
        _REDUCE_SCATTER, "bucket", "grids.torus:bucket_reduce_scatter", "grids.at_once:bucket_reduce_scatter",
        "a ring along each dimension in turn, in all dimensions and directions at once", **_GRID, **_CHUNK,
    ),
    _hosts(
        _REDUCE_SCATTER, "swing", "grids.swing:reduce_scatter", "grids.at_once:swing_reduce_scatter",
        "the first half of the all-reduce", **_EVEN_GRID,
    ),
    _hosts(
        _REDUCE_SCATTER, "multi_ring", "ring:rings_reduce_scatter", "nics.ports:reduce_scatter",
        "sixteen rings, a part of the vector each: for NICs with several ports", layout="ports", **_PIPED,
    ),
    _hosts(
        _REDUCE_SCATTER, "rails", "rails:reduce_scatter", "nics.rails:reduce_scatter",
        "in scale-up domains and along all rails at once, piece by piece",
        **_RAILS, **_CHUNK, chunk_bytes=96 << 10,  # a server's first pieces are added up before anything leaves it
    ),
    _ALL_GATHER_RING,
    _hosts(
        _ALL_GATHER, "recursive_doubling", "halving:all_gather", "halving:doubling_all_gather",
        "the halving rounds backwards", wide="RECURSIVE_DOUBLING",
    ),
    _hosts(
        _ALL_GATHER, "bruck", "exchange:bruck_all_gather", "halving:bruck_all_gather",
        "ceil(log2 n) rounds for any n (Bruck et al.)", wide="BRUCK",
    ),
    _hosts(
        _ALL_GATHER, "pat", "pat:all_gather", "halving:pat_all_gather",
        "a binomial tree for each chunk, the farthest first; a message holds chunks of many (PAT, NCCL 2.23)",
        wide="PAT_ALL_GATHER", **_BUFFERS,
    ),
    _hosts(
        _ALL_GATHER, "bucket", "grids.torus:bucket_all_gather", "grids.at_once:bucket_all_gather",
        "a ring along each dimension in turn, in all dimensions and directions at once", **_GRID, **_CHUNK,
    ),
    _hosts(
        _ALL_GATHER, "swing", "grids.swing:all_gather", "grids.at_once:swing_all_gather",
        "the second half of the all-reduce", **_EVEN_GRID,
    ),
    _hosts(
        _ALL_GATHER, "multi_ring", "ring:rings_all_gather", "nics.ports:all_gather",
        "sixteen rings, a part of the vector each: for NICs with several ports", layout="ports", **_PIPED,
    ),
    _hosts(
        _ALL_GATHER, "rails", "rails:all_gather", "nics.rails:all_gather",
        "along all rails and in scale-up domains at once, piece by piece", **_RAILS, **_PIPED,
    ),
    _hosts(
        _BROADCAST, "binomial_tree", "trees:binomial_broadcast", "trees:binomial_broadcast",
        "one child after the other", **_CHUNK, wide="TREE_BROADCAST",
    ),
    _hosts(
        _BROADCAST, "chain", "trees:chain_broadcast", "trees:chain_broadcast",
        "piece by piece through all ranks", layout="ring", **_PIPED, wide="CHAIN_BROADCAST",
    ),
    _hosts(
        _BROADCAST, "scatter_all_gather", "exchange:scatter_all_gather_broadcast",
        "exchange:scatter_all_gather_broadcast", "a binomial scatter, then a ring all-gather (van de Geijn)",
        wide="SCATTER_ALL_GATHER", layout="ring",
    ),
    _hosts(
        _BROADCAST, "rails", "rails:broadcast", "nics.rails:broadcast",
        "a share along every rail, from server to server, and to all GPUs there", **_RAILS, **_PIPED,
    ),
    _hosts(
        _REDUCE, "binomial_tree", "trees:binomial_reduce", "trees:binomial_reduce",
        "one child after the other, upwards", **_CHUNK, wide="TREE_REDUCE",
    ),
    _hosts(
        _REDUCE, "chain", "trees:chain_reduce", "trees:chain_reduce",
        "piece by piece through all ranks", layout="ring", **_PIPED, wide="CHAIN_REDUCE",
    ),
    _hosts(_SCATTER, "linear", "exchange:linear_scatter", "exchange:linear_scatter", "all at once", "LINEAR_SCATTER"),
    _hosts(
        _SCATTER, "binomial_tree", "exchange:binomial_scatter", "trees:binomial_scatter",
        "through the tree, what a child needs in one message", wide="TREE_SCATTER",
    ),
    _hosts(_GATHER, "linear", "exchange:linear_gather", "exchange:linear_gather", "all at once", "LINEAR_GATHER"),
    _hosts(
        _GATHER, "binomial_tree", "exchange:binomial_gather", "trees:binomial_gather",
        "through the tree, what a child has in one message", wide="TREE_GATHER",
    ),
    *(
        entry
        for collective, spread, pairwise, rails, more in (
            (_ALL_TO_ALL, "SPREAD", "PAIRWISE", "RAILS", {}), (_ALL_TO_ALL_V, "SPREAD_V", "", "", _SKEW)
        )
        for entry in (
            _hosts(
                collective, "spread", "exchange:spread_all_to_all", "exchange:spread_all_to_all",
                "all messages at once", spread, **more,
            ),
            _hosts(
                collective, "pairwise", "exchange:pairwise_all_to_all", "exchange:pairwise_all_to_all",
                "n - 1 rounds, each to the next but k", pairwise, **more,
            ),
            _hosts(
                collective, "rails", "rails:all_to_all", "nics.rails:all_to_all",
                "to another server by the NIC on the receiver's rail, first to its GPU (NCCL's PXN)", rails,
                layout="rails", **more,
            ),
        )
    ),
    _hosts(
        _ALL_TO_ALL, "hypercube", "grids.hypercube:all_to_all", "exchange:hypercube_all_to_all",
        "log2 n exchanges of half a vector, which hand on what is meant for others", wide="HYPERCUBE", lengths=POWERS,
    ),
    _hosts(
        _REDUCE_SCATTER_V, "ring", "ring:reduce_scatter", "rings:ring_reduce_scatter_v", "the hops that reduce",
        layout="ring", **_SKEW,
    ),
    _hosts(
        _ALL_GATHER_V, "ring", "ring:all_gather", "rings:ring_all_gather_v", "the hops that gather",
        layout="ring", **_SKEW,
    ),
    _hosts(_ALL_GATHER_V, "bruck", "exchange:bruck_all_gather", "", "ceil(log2 n) rounds for any n", **_SKEW),
    _hosts(_SCATTER_V, "linear", "exchange:linear_scatter", "exchange:linear_scatter", "all at once", **_SKEW),
    _hosts(
        _SCATTER_V, "binomial_tree", "exchange:binomial_scatter", "trees:binomial_scatter",
        "through the tree, what a child needs in one message", **_SKEW,
    ),
    _hosts(_GATHER_V, "linear", "exchange:linear_gather", "exchange:linear_gather", "all at once", **_SKEW),
    _hosts(
        _GATHER_V, "binomial_tree", "exchange:binomial_gather", "trees:binomial_gather",
        "through the tree, what a child has in one message", **_SKEW,
    ),
    *(
        _hosts(
            collective, "write", "exchange:m_to_n", "exchange:m_to_n",
            "all messages at once, each sender beginning with another receiver", **_SENDERS,
        )
        for collective in (_M2N, _N2M)
    ),
    _hosts(
        _BARRIER, "dissemination", "exchange:dissemination_barrier", "exchange:dissemination_barrier",
        "ceil(log2 n) rounds of empty messages", wide="DISSEMINATION",
    ),
    _hosts(_SEND_RECV, "pair", "exchange:pair_send_recv", "exchange:pair_send_recv", "one message", **_PAIR),
    _hosts(
        _SEND_RECV, "shift", "exchange:shift_send_recv", "exchange:shift_send_recv", "a message to the next rank",
        wide="SHIFT",
    ),
    _offload(
        _ALL_REDUCE, "in_network", "in_network:AllReduce", "times.in_network:in_network_all_reduce_ns",
        "switches add up fixed-point blocks in slots, and copy the sums to all (SwitchML, "
        "[in-network.md](in-network.md))", wide="BY_SWITCHES", instead=_ALL_REDUCE_RING, **_BY_SWITCHES,
    ),
    _offload(
        _ALL_REDUCE, "in_network_best_effort", "best_effort:AllReduce",
        "times.in_network:best_effort_all_reduce_ns",
        "likewise in slots that jobs share; blocks that get none are added up by the first rank's host (ATP, "
        "[best-effort.md](best-effort.md))",
        instead=_ALL_REDUCE_RING, shared_slots=True, max_ranks=64, **_BY_SWITCHES,
        unpredicted="which of its blocks meet in shared slots depends on when each packet comes",
    ),
    _others(
        _ALL_REDUCE, "omnireduce", "sparse.omnireduce:AllReduce", "sparse.closed_form:omnireduce_ns",
        "blocks of zeros are not sent: aggregators add up what is left, as it streams in ([sparse.md](sparse.md))",
        extra=(*_SPARSE_INPUT, "fusion", "slots", "aggregators"),
        defaults={**_SPARSE_INPUT, "fusion": 4, "slots": 256}, **_SPARSE,
    ),
    _others(
        _ALL_REDUCE, "omniccl", "sparse.omniccl:AllReduce", "sparse.closed_form:omniccl_ns",
        "blocks of zeros are not sent: compute complexes of SmartNICs add up the others ([sparse.md](sparse.md))",
        extra=(*_SPARSE_INPUT, "spot", "aggregators"), defaults=_SPARSE_INPUT, on_complexes=True, **_SPARSE,
    ),
    _offload(
        _ALL_REDUCE, "direct_reduce", "direct_reduce:AllReduce",
        "times.wide.direct_reduce:direct_all_reduce_ns",
        "a ring of NICs that add up what comes in and send it on; only results reach memory (DirectReduce, "
        "[direct-reduce.md](direct-reduce.md))",
        wide="NICS_ALL_REDUCE", instead=_ALL_REDUCE_RING, ops=OPS, extra=("compression",), **_BY_NICS,
    ),
    _offload(
        _REDUCE_SCATTER, "direct_reduce", "direct_reduce:ReduceScatter",
        "times.wide.direct_reduce:direct_reduce_scatter_ns", "the reducing half of the ring of NICs",
        wide="NICS_REDUCE_SCATTER", instead=_REDUCE_SCATTER_RING, ops=OPS, extra=("compression",), **_BY_NICS,
    ),
    _offload(
        _ALL_GATHER, "multicast", "multicast:AllGather", "times.multicast:all_gather_ns",
        "every rank sends its part once, switches copy it to all, ring neighbours repair what is lost "
        "([multicast.md](multicast.md))", wide="MULTICAST_ALL_GATHER", extra=("chains", "cutoff"), **_MULTICAST,
    ),
    _offload(
        _BROADCAST, "multicast", "multicast:Broadcast", "times.multicast:broadcast_ns",
        "the first rank sends its vector once, switches copy it to all, ring neighbours repair what is lost",
        wide="MULTICAST_BROADCAST", extra=("cutoff",), **_MULTICAST,
    ),
    _offload(
        _ALL_GATHER, "direct_reduce", "direct_reduce:AllGather",
        "times.wide.direct_reduce:direct_all_gather_ns",
        "the gathering half of the ring of NICs", instead=_ALL_GATHER_RING, **_BY_NICS, wide="NICS_ALL_GATHER",
    ),
    _OPTIMIZER_BY_HOSTS,
    _offload(
        _OPTIMIZER_STEP, "optimus_nic", "optimizer_step:OptimusNic", "times.wide.direct_reduce:optimus_nic_ns",
        "a ring of NICs, which keep the parameters and what the optimizer remembers (OptimusNIC)",
        wide="NICS_OPTIMIZER", instead=_OPTIMIZER_BY_HOSTS, engines=True, **_OPTIMIZER,
    ),
    _others(
        _PING_PONG, "write", "parts.ping_pong:WritePingPong", "times.messages:ping_pong_write_ns",
        "by RDMA write with immediate", anywhere=True, **_PAIR, **_ALONE,
    ),
    _others(
        _PING_PONG, "send", "parts.ping_pong:SendPingPong", "times.messages:ping_pong_send_ns",
        "by send and receive", anywhere=True, **_PAIR, **_ALONE,
    ),
    _others(
        _RPC, "host", "programs.rpc:ByHosts", "programs.closed_form:rpc_by_hosts_ns",
        "host cores serialize and make objects", **_MESSAGE, **_ALONE,
    ),
    _others(
        _RPC, "nic", "programs.rpc:ByNics", "programs.closed_form:rpc_by_nics_ns",
        "compute complexes of the NICs do (RpcNIC)", on_complexes=True, helped_by="workloads.programs.roles:everybody",
        **_MESSAGE, **_ALONE,
    ),
    _others(
        _BLOCK_WRITE, "host", "programs.storage:Write", "programs.closed_form:block_write_by_hosts_ns",
        "the middle tier's cores look at headers, compress and send", **_STORAGE, **_ALONE,
    ),
    _others(
        _BLOCK_WRITE, "nic", "programs.storage:Write", "programs.closed_form:block_write_by_nics_ns",
        "its host looks at headers, its NIC does the rest (SmartDS)", on_complexes=True,
        helped_by="workloads.programs.roles:first", **_STORAGE, **_ALONE,
    ),
    _others(
        _FEED, "host", "programs.feed:Feed", "programs.closed_form:feed_by_hosts_ns",
        "the core that preprocesses copies, posts and keeps the books", **_FED, **_ALONE,
    ),
    _others(
        _FEED, "nic", "programs.feed:Feed", "programs.closed_form:feed_by_nics_ns",
        "complexes of the servers' NICs do that (Conspirator)", on_complexes=True,
        helped_by="workloads.programs.roles:feeders", **_FED, **_ALONE,
    ),
)  # fmt: skip

ALGORITHMS: dict[tuple[str, str], Algorithm] = {(e.collective.name, e.name): e for e in _ENTRIES}
"""(collective, algorithm) -> entry.  The first algorithm of a collective is its default."""

COLLECTIVES: dict[str, Collective] = {e.collective.name: e.collective for e in _ENTRIES}


def algorithms(collective: str) -> list[Algorithm]:
    """The algorithms of a collective, its default first.  Raises UnknownCollective."""
    if collective not in COLLECTIVES:
        raise UnknownCollective(f"no collective called {collective!r}", f"there are {', '.join(COLLECTIVES)}")
    return [entry for entry in _ENTRIES if entry.collective.name == collective]


def find(collective: str, algorithm: str | None = None) -> Algorithm:
    """The entry of a collective and algorithm (None: its default; or of a user's file).  Raises UnknownCollective."""
    known = {entry.name: entry for entry in algorithms(collective)}
    if algorithm is not None and (name := parse(algorithm)) and name.digest:
        from workloads.own.algorithm import entry_of

        return entry_of(_like(collective), algorithm)
    if algorithm is not None and algorithm not in known:
        raise UnknownCollective(f"{collective} has no algorithm called {algorithm!r}", f"it has {', '.join(known)}")
    return known[algorithm or next(iter(known))]


def shipped(told: Mapping[str, Any]) -> Algorithm:
    """The entry that a plan's step names; of a user's file without the file, with what the plan has of it."""
    if "programs" not in told:
        return find(told["collective"], told["algorithm"])
    from workloads.own.shipped import shipped

    return shipped(_like(told["collective"]), told["algorithm"], told)


def _like(collective: str) -> Algorithm:
    """What algorithms of a user's own have in common with ours.  Raises UnknownCollective."""
    if not (found := choices(collective)):
        raise UnknownCollective(f"{collective} is not done by schedules of hosts", f"not by {FORM}")
    return found[0]


def choices(collective: str, *, offloads: bool = False) -> list[Algorithm]:
    """The algorithms that AUTO chooses from; with what NICs and switches do, too.  Raises UnknownCollective."""
    return [entry for entry in algorithms(collective) if entry.schedule or (offloads and entry.offloaded)]


def any_of(collective: str, algorithm: str) -> Algorithm:
    """The entry; of AUTO any that it may choose, for what all have in common.  Raises UnknownCollective."""
    if algorithm != AUTO:
        return find(collective, algorithm)
    if not (found := choices(collective)):
        raise UnknownCollective(f"{collective} has no algorithms to choose from", "leave algorithm out")
    return found[0]


def unpredicted(collective: str, algorithm: str) -> tuple[str, str] | None:
    """Which of a step's two keys says what there is no model of (AUTO: of none of its choices), and why there is none.

    Raises UnknownCollective.
    """
    if why := COLLECTIVES[collective].unpredicted:
        return "collective", why
    entries = choices(collective) if algorithm == AUTO else [find(collective, algorithm)]
    return ("algorithm", entries[0].unpredicted) if entries and all(e.unpredicted for e in entries) else None


def extra(collective: str, algorithm: str) -> tuple[str, ...]:
    """The keys of a step that not every collective heeds, and this algorithm (AUTO: one of its choices) does."""
    heeding = choices(collective) if algorithm == AUTO else [find(collective, algorithm)]
    return tuple(dict.fromkeys(key for entry in heeding for key in entry.extra))


def heeding(key: str) -> str:
    """Who heeds a key of a step, in words: collectives, or algorithms of some."""
    heeds = [entry for entry in _ENTRIES if key in entry.extra]
    whole = {c.name for c in COLLECTIVES.values() if all(key in entry.extra for entry in algorithms(c.name))}
    words = [c for c in dict.fromkeys(entry.collective.name for entry in heeds) if c in whole]
    for name in dict.fromkeys(entry.name for entry in heeds if entry.collective.name not in whole):
        its = [entry.collective.name for entry in heeds if entry.name == name]
        has_it = [entry.collective.name for entry in _ENTRIES if entry.name == name]
        words.append(name if its == has_it else f"{' and '.join(its)} by {name}")
    return ", ".join(words)
