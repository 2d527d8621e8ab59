"""What trees take: NCCL's double binary tree over servers, with a chain or NVLS inside each.

A server's GPUs pass what they have up a chain to the one at the NIC, which adds what comes from the servers below, and
sends it to the one above; the sum comes back the same way.  Half of the channels go by each of two trees, in which
whoever has servers below in one is a leaf in the other (src/graph/trees.cc, connect.cc).  A thread block has half of
its threads for each direction (runTreeSplit, src/device/all_reduce.h).  With NVLS the switch inside adds and copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log2

from workloads.collectives.trees import binary
from workloads.library.dataflow import Nic, Station, ended_ns

_MOST_NODES = 256
"""That are followed; of more, trees are as much deeper."""
_ROUNDS = (12, 20)
"""That are followed; of more, each takes as long as those between."""


@dataclass(frozen=True)
class Inside:
    """What stations of a server take for a round, and its way to the next; `count`: of a chain, 1 of NVLS."""

    count: int
    station_ns: float
    last_ns: float  # a station that only hands on what has come
    hop_ns: float
    streamed: bool = False  # what comes is handed on line by line (costs.STREAMED)

    def later_ns(self, hop_ns: float, to: Station) -> float:
        """From a station's end until another may begin: of lines so that it ends when the last one has come."""
        return hop_ns - (to.ns if self.streamed else 0.0)


@dataclass(frozen=True)
class Between:
    """What a NIC takes for a round's messages to one server, and their way."""

    message_ns: float
    hop_ns: float


def tree_ns(nodes: int, rounds: int, launch_ns: float, inside: Inside, between: Between) -> float:
    """`rounds`: of each of the two trees."""
    if nodes > _MOST_NODES:  # what more of them add are the hops of one level more
        less, most = (tree_ns(count, rounds, launch_ns, inside, between) for count in (_MOST_NODES // 2, _MOST_NODES))
        return most + (log2(nodes) - log2(_MOST_NODES)) * (most - less)
    if rounds <= _ROUNDS[1]:
        return launch_ns + _ended(nodes, rounds, inside, between)
    first, more = (_ended(nodes, count, inside, between) for count in _ROUNDS)
    return launch_ns + more + (rounds - _ROUNDS[1]) * (more - first) / (_ROUNDS[1] - _ROUNDS[0])


@lru_cache(maxsize=4096)
def _ended(nodes: int, rounds: int, inside: Inside, between: Between) -> float:
    """From the launch on.  Kept, as vectors of whole chunks differ in their number of rounds alone."""
    nics = [Nic(between.message_ns) for _ in range(nodes)]
    stations: list[Station] = []
    for second in (False, True):
        up, down = ([_chain(inside) for _ in range(nodes)] for _ in range(2))
        for node in range(nodes):
            down[node][-1].ns = inside.last_ns
            for q in range(1, inside.count):
                up[node][q].to(up[node][q - 1], inside.later_ns(inside.hop_ns, up[node][q - 1]))
                down[node][q - 1].to(down[node][q], inside.later_ns(inside.hop_ns, down[node][q]))
            above = binary(node, nodes, second=second).parent
            if above is None:
                up[node][0].to(down[node][0], 0.0)
                down[node][0].ns = 0.0 if inside.count > 1 else inside.last_ns
            else:
                up[node][0].to(up[above][0], inside.later_ns(between.hop_ns, up[above][0]), nics[node])
                down[above][0].to(down[node][0], inside.later_ns(between.hop_ns, down[node][0]), nics[above])
        stations += [station for chain in (*up, *down) for station in chain]
    return ended_ns(stations, rounds)


def _chain(inside: Inside) -> list[Station]:
    return [Station(inside.station_ns) for _ in range(inside.count)]
