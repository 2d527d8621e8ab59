"""Which ports lie on a shortest path to which NICs, for all switches at once.

A breadth-first search from every NIC in one sweep: a set of NICs is an integer with one bit each, and one step lets
every switch learn from its neighbours which NICs they have just come to know.  A port is on a shortest path exactly if
its neighbour knew the NIC one step earlier.  A bridge in a NIC with several ports does not pass on other hosts' NICs:
no path leads through it.  (1,024 switches take some tens of milliseconds; one search per NIC with networkx takes
seconds, and the emulated clock stands still while a port that went down is being routed around.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import TypeAlias

from topologies.graph.fabric import OWN_PORTS, Fabric

Toward: TypeAlias = dict[int, int]  # port -> NICs, as a mask of bits, to which it is on a shortest path


def live_links(fabric: Fabric, down: Set[tuple[str, int]]) -> dict[str, dict[int, str]]:
    """switch -> port -> neighbour switch, without the cables that have an end in `down`."""
    table: dict[str, dict[int, str]] = {s.name: {} for s in fabric.switches}
    for cable in fabric.cables:
        a, b = cable.a, cable.b
        if a.node in table and b.node in table and not {(a.node, a.port), (b.node, b.port)} & down:
            table[a.node][a.port] = b.node
            table[b.node][b.port] = a.node
    return table


def ends(fabric: Fabric) -> frozenset[str]:
    """The bridges that carry only their own hosts' frames."""
    return frozenset(s.name for s in fabric.switches if s.role == OWN_PORTS)


def shortest(
    links: Mapping[str, Mapping[int, str]], attached: Mapping[str, int], ends: Collection[str] = ()
) -> dict[str, Toward]:
    """For each switch, its ports toward other switches' NICs.

    `links` is switch -> port -> neighbour, `attached` switch -> the NICs that hang on it, as a mask of bits; `ends` are
    switches that no path leads through. A NIC that cannot be reached is in none of the masks.
    """
    result: dict[str, Toward] = {s: {} for s in links}
    known = {s: attached.get(s, 0) for s in links}
    news = {s: mask for s, mask in known.items() if mask}
    while news:
        learnt: dict[str, int] = {}
        for switch, ports in links.items():
            unknown = ~known[switch]
            for port, neighbour in ports.items():
                if fresh := news.get(neighbour, 0) & unknown:
                    result[switch][port] = result[switch].get(port, 0) | fresh
                    learnt[switch] = learnt.get(switch, 0) | fresh
        for switch, mask in learnt.items():
            known[switch] |= mask
        news = {switch: mask for switch, mask in learnt.items() if switch not in ends}
    return result
