"""The collectives: what each means, how its bandwidth is counted, and which operations it has."""

from __future__ import annotations

from dataclasses import replace

from workloads.base.entry import Collective, Factor
from workloads.base.vocabulary import OPS

_WHOLE = Factor("1", lambda n: 1.0)
_ALL_BUT_ONE = Factor("(n-1)/n", lambda n: (n - 1) / n)
_THERE_AND_BACK = Factor("2(n-1)/n", lambda n: 2 * (n - 1) / n)
_TWICE = Factor("2", lambda n: 2.0)

ALL_REDUCE = Collective(
    "all_reduce",
    "every rank has the reduction of all vectors",
    "the vector",
    _THERE_AND_BACK,
    "host:AllReduce",
    OPS,
    meets=True,
)
REDUCE_SCATTER = Collective(
    "reduce_scatter", "rank i has chunk i of the reduction", "the input vector", _ALL_BUT_ONE, "host:ReduceScatter",
    OPS, in_parts=True, meets=True,
)  # fmt: skip
ALL_GATHER = Collective(
    "all_gather", "every rank has all chunks, in rank order", "the output vector", _ALL_BUT_ONE, "host:AllGather",
    in_parts=True, meets=True,
)  # fmt: skip
BROADCAST = Collective(
    "broadcast", "every rank has the first rank's vector", "that vector", _WHOLE, "host:Broadcast", rooted=True
)
REDUCE = Collective(
    "reduce", "the first rank has the reduction of all vectors", "the vector", _WHOLE, "host:Reduce", OPS, rooted=True
)
SCATTER = Collective(
    "scatter", "rank i has chunk i of the first rank's vector", "that vector", _ALL_BUT_ONE, "host:Scatter",
    in_parts=True, rooted=True,
)  # fmt: skip
GATHER = Collective(
    "gather", "the first rank has all chunks, in rank order", "the output vector", _ALL_BUT_ONE, "host:Gather",
    in_parts=True, rooted=True,
)  # fmt: skip
ALL_TO_ALL = Collective(
    "all_to_all", "rank i has the i-th chunk of every rank's vector", "a rank's input vector", _ALL_BUT_ONE,
    "host:AllToAll", in_parts=True, meets=True,
)  # fmt: skip
ALL_TO_ALL_V = Collective(
    "all_to_all_v", "the same with unequal chunks", "a rank's input vector", _ALL_BUT_ONE, "host:AllToAll", meets=True
)
REDUCE_SCATTER_V, ALL_GATHER_V, SCATTER_V, GATHER_V = (
    replace(its, name=f"{its.name}_v", summary=f"`{its.name}` with unequal chunks", in_parts=False, one_row=True)
    for its in (REDUCE_SCATTER, ALL_GATHER, SCATTER, GATHER)
)
M2N = Collective(
    "m2n", "each of the first `senders` ranks has sent unequal parts to the others", "a sender's vector", _WHOLE,
    "host:AllToAll",
)  # fmt: skip
N2M = Collective(
    "n2m", "the way back: each of the others has received unequal parts", "what a receiver gets", _WHOLE,
    "host:AllToAll", transposed=True,
)  # fmt: skip
BARRIER = Collective(
    "barrier", "nobody has returned before all had called", "none", _WHOLE, "host:Barrier", sized=False, meets=True
)
SEND_RECV = Collective(
    "send_recv", "rank 1 has rank 0's vector (`pair`), every rank the one before it (`shift`, as nccl-tests)",
    "the vector", _WHOLE, "host:SendReceive",
)  # fmt: skip
OPTIMIZER_STEP = Collective(
    "optimizer_step", "every rank has the parameters that an optimizer makes of the reduction of all gradients",
    "the parameters", _THERE_AND_BACK, ops=("avg", "sum"),
)  # fmt: skip
PING_PONG = Collective(
    "ping_pong", "a message has gone to the other rank and back; the time is the round trip", "the message", _TWICE
)

RPC = Collective(
    "rpc", "the first rank has served remote procedure calls of all others ([smartnic-programs.md]"
    "(smartnic-programs.md))", "a message, in memory", _WHOLE, rooted=True,
    unpredicted="its calls share host cores and compute complexes, which are no flows",
)  # fmt: skip

BLOCK_WRITE = Collective(
    "block_write", "blocks have been compressed by a middle tier (the first rank) and are at storage servers (the last "
    "ones) ([smartnic-programs.md](smartnic-programs.md))", "what all writers write together", _WHOLE, rooted=True,
    unpredicted="its blocks share host cores and compute complexes, which are no flows",
)  # fmt: skip

FEED = Collective(
    "feed", "accelerators (the last ranks) have got and used what the others have preprocessed "
    "([smartnic-programs.md](smartnic-programs.md))", "all that is preprocessed", _WHOLE,
    unpredicted="who gets a batch depends on who is ready first",
)  # fmt: skip
