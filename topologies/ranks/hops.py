"""Which cables messages between ranks take on a healthy fabric.

As the controller routes: dimension order on torus and ring, elsewhere one of the shortest paths.  Which one ECMP's hash
finds depends on a flow's UDP source port; where that is not known one is drawn from the two ranks: another one, but as
uneven, so that as many ways meet by chance. The bridges of off-path SmartNICs are left out: they are on every way
alike.  Those of NICs with several ports are not, and none but the two ends' lies on a way, unless it forwards.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence

from topologies.graph.fabric import EMBEDDED, OWN_PORTS, Fabric, Nic
from topologies.graph.smartnic import without_complexes
from topologies.kinds import DIMENSION_ORDER, dimensions
from topologies.ranks.dateline import beyond, direction
from topologies.ranks.multipath import BY_NUMBER, Hashing, member

Hop = tuple[str, str]  # from, to


def chooses_ports(fabric: Fabric) -> bool:
    """Whether flows of one NIC may leave by several ports."""
    return fabric.kind not in DIMENSION_ORDER and any(s.role == OWN_PORTS for s in fabric.switches)


class Hops:
    """The ways between the ranks of a fabric.  `hashing`: as its switches do."""

    def __init__(self, fabric: Fabric, hashing: Hashing = BY_NUMBER) -> None:
        self.fabric = fabric = without_complexes(fabric)
        self.hashing = hashing
        self._ends = {s.name for s in fabric.switches if s.role == OWN_PORTS}
        self._neighbours: dict[str, list[str]] = {}
        self._ports: dict[str, list[tuple[int, str]]] = {}
        for cable in fabric.cables:
            for end in (cable.a, cable.b):
                there = cable.other(end.node).node
                self._neighbours.setdefault(end.node, []).append(there)
                self._ports.setdefault(end.node, []).append((end.port, there))
        self._ecmp = fabric.kind not in DIMENSION_ORDER
        names = {s.name for s in fabric.switches}
        self.chooses = self._ecmp and sum({c.a.node, c.b.node} <= names for c in fabric.cables) >= len(names)
        """Whether there may be several shortest ways: switches in a tree have one."""
        self._distances: dict[str, dict[str, int]] = {}
        self._domain = {fabric.nic_by_name[name].rank: k for k, d in enumerate(fabric.scale_up) for name in d}
        self._known: dict[tuple[int, int, tuple[int, ...]], list[Hop]] = {}

    def in_scale_up(self, a: int, b: int) -> bool:
        """Whether two ranks share a scale-up domain."""
        return self._domain.get(a, -1) == self._domain.get(b, -2)

    def between(self, a: int, b: int, *flow: int) -> list[Hop]:
        """The hops from rank `a` to rank `b` over the network, the NICs' cables first and last.

        `flow`: its source port, and the queue pair that it is for, where they are known.
        """
        key = a, b, flow[: 1 + self.hashing.dest_qp] if self._ecmp else ()
        if key not in self._known:
            nics = self.fabric.nics
            self._known[key] = list(
                self._shortest(nics[a], nics[b], flow) if self._ecmp else self._grid(nics[a].name, nics[b].name)
            )
        return self._known[key]

    def spread(self, a: int, b: int, flow: Sequence[int] = (), *, by_switches: bool = False) -> list[dict[Hop, float]]:
        """Step by step, the hops that packets take which use all shortest ways alike, and the share that takes each.

        `by_switches`: it is they who spread them.  Bridges in NICs hash a `flow` as ever: source port, queue pair.
        """
        source, target = self.fabric.nics[a], self.fabric.nics[b].name
        shares, steps = {source.name: 1.0}, []
        if not self._ecmp:
            return [{hop: 1.0} for hop in self.between(a, b)]
        draw, hashed = random.Random(f"{source.name} {target}"), self._ends if by_switches else ()
        while target not in shares:
            step: dict[Hop, float] = {}
            for node, share in shares.items():
                nearer = self._nearer(node, target)
                if node in hashed:
                    nearer = [self._one_of(node, nearer, source, self.fabric.nics[b], flow, draw)]
                for there in nearer:
                    step[node, there] = step.get((node, there), 0.0) + share / len(nearer)
            shares = {}
            for (_, there), share in step.items():
                shares[there] = shares.get(there, 0.0) + share
            steps.append(step)
        return steps

    def _nearer(self, node: str, target: str) -> list[str]:
        """The neighbours on a shortest way, one for each cable."""
        distance = self._distance_to(target)
        return [n for n in self._neighbours[node] if distance.get(n, -1) == distance[node] - 1 or n == target]

    def across(self, way: Sequence[Hop]) -> tuple[bool, ...]:
        """Of a message's hops, in which it is in the dateline's second class: on a grid, while it is before a dateline.

        From its last switch it goes on as it came.
        """
        if self._ecmp:
            return (False,) * len(way)
        sizes, switches = dimensions(self.fabric), self.fabric.switch_by_name
        end, between = switches[way[-1][0]].place, list[bool]()
        for a, b in way[1:-1]:
            here = switches[a].place
            axis, up = direction(sizes, here, switches[b].place)
            between.append(end[axis] in beyond(sizes[axis], here[axis], upwards=up))
        return (False, *between, *(between[-1:] or [False]))

    def _shortest(self, source: Nic, target: Nic, flow: Sequence[int]) -> Iterator[Hop]:
        a, b = source.name, target.name
        draw = random.Random(f"{a} {b}")
        while a != b:
            there = self._one_of(a, self._nearer(a, b), source, target, flow, draw)
            yield a, there
            a = there

    def _one_of(
        self, node: str, nearer: Sequence[str], source: Nic, target: Nic, flow: Sequence[int], draw: random.Random
    ) -> str:
        """Which neighbour a switch's hash takes; one is drawn where the flow is not known."""
        if len(nearer) == 1:
            return nearer[0]
        if not flow:
            return draw.choice(nearer)
        ports = [n for _, n in sorted(self._ports[node]) if n in nearer]
        source_port, *dest_qp = flow
        switch = self.fabric.switch_by_name[node]
        looked = dest_qp[0] if dest_qp and self.hashing.dest_qp and switch.role not in EMBEDDED else None
        basis = self.hashing.basis(switch.dpid)
        return ports[member(int(source.ip), int(target.ip), source_port, basis, len(ports), looked)]

    def _distance_to(self, b: str) -> dict[str, int]:
        """By node; with those at the same switch as `b`, each at the end of one cable, it shares what is known.

        There `b` itself, too, is two hops away.
        """
        at = self._neighbours[b]
        key = f"at {at[0]}" if len(at) == 1 else b
        if key not in self._distances:
            distance, queue = {b: 0}, deque([b])
            while queue:
                node = queue.popleft()
                for n in self._neighbours[node]:
                    if n in distance:
                        continue
                    if node not in self._ends or n in self.fabric.nic_by_name or node in self._neighbours[b]:
                        distance[n] = distance[node] + 1
                        queue.append(n)
            self._distances[key] = distance if key == b else {**distance, b: 2}
        return self._distances[key]

    def _grid(self, a: str, b: str) -> Iterator[Hop]:
        """The lowest dimension first, each the shorter way round (upwards, where both are as long)."""
        switches = self.fabric.switch_by_name
        at, end = switches[self._neighbours[a][0]], switches[self._neighbours[b][0]]
        by_place = {s.place: s for s in self.fabric.switches}
        yield a, at.name
        for dim, n in enumerate(dimensions(self.fabric)):
            while at.place[dim] != end.place[dim]:
                step = 1 if (end.place[dim] - at.place[dim]) % n <= n // 2 else -1
                place = (*at.place[:dim], (at.place[dim] + step) % n, *at.place[dim + 1 :])
                yield at.name, by_place[place].name
                at = by_place[place]
        yield at.name, b
