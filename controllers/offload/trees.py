"""Trees over the switches: where a job's contributions are added up, and which paths its multicasts take.

From every switch there is one next hop to every other, the same for all jobs, so an accelerator's address needs one
flow at a switch however many jobs use it.  A job's tree is made of the paths from its ranks' switches to a root, the
switch whose longest path is the shortest.  Of roots that are equally good it takes the least used one: by trees of the
same ranks, which are for parts of one message, then by those of all jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from controllers.routing.distances import ends, live_links
from topologies.graph.fabric import Fabric

Used = Mapping[str, tuple[int, int]]
"""How many trees have a switch as root: of the same ranks, and of all."""
NOT_USED: Used = {}


class NoTree(ValueError):
    """The ranks cannot be joined; the text says why."""


@dataclass(frozen=True)
class Tree:
    """A root, and for each of its switches the switches below and the ranks on it, by port."""

    root: str
    up: Mapping[str, int]  # port towards the root; the root has none
    below: Mapping[str, Mapping[int, str]]  # switch -> port -> switch
    ranks: Mapping[str, Mapping[int, int]]  # switch -> port -> rank

    @cached_property
    def switches(self) -> tuple[str, ...]:
        return tuple(self.below)

    def inputs(self, switch: str) -> int:
        """How many branches come into a switch from below."""
        return len(self.below[switch]) + len(self.ranks[switch])

    def down_ports(self, switch: str) -> tuple[int, ...]:
        return tuple(sorted([*self.below[switch], *self.ranks[switch]]))

    def ports(self, switch: str) -> tuple[int, ...]:
        """All its ports in the tree."""
        up = [self.up[switch]] if switch in self.up else []
        return tuple(sorted([*self.down_ports(switch), *up]))

    @cached_property
    def adding(self) -> tuple[str, ...]:
        """The switches that add up: the root, and all where two branches meet."""
        return tuple(s for s in self.switches if s == self.root or self.inputs(s) > 1)

    def behind(self, switch: str) -> int:
        """How many ranks there are on a switch and below it."""
        return len(self.ranks[switch]) + sum(self.behind(child) for child in self.below[switch].values())

    def largest_branch(self) -> int:
        """How many ranks are behind one port of the root, at most."""
        return max([*(self.behind(child) for child in self.below[self.root].values()), 1])

    def parent(self, switch: str) -> str:
        """The next switch towards the root that adds up."""
        above = {child: s for s, children in self.below.items() for child in children.values()}
        switch = above[switch]
        while switch not in self.adding:
            switch = above[switch]
        return switch


class Trees:
    """Trees of one fabric, over the cables that are up."""

    def __init__(self, fabric: Fabric, down: Set[tuple[str, int]] = frozenset()) -> None:
        self.fabric = fabric
        self._links = live_links(fabric, down)
        self._ends = ends(fabric)  # no path leads through these
        self._hops: dict[str, dict[str, tuple[int, int]]] = {}

    def hops(self, target: str) -> dict[str, tuple[int, int]]:
        """For every switch that reaches `target`: its distance, and the port to the next hop."""
        if target in self._hops:
            return self._hops[target]
        index = self.fabric.switch_by_name[target].index
        hops = {target: (0, 0)}
        front = [target]
        while front:
            reached = sorted({n for s in front for n in self._links[s].values() if n not in hops})
            distance = hops[front[0]][0] + 1
            for switch in reached:
                nearer = sorted(p for p, n in self._links[switch].items() if n in front)
                # parallel paths: different targets take different ones
                hops[switch] = (distance, nearer[(index + self.fabric.switch_by_name[switch].index) % len(nearer)])
            front = [switch for switch in reached if switch not in self._ends]
        self._hops[target] = hops
        return hops

    def next_hop(self, switch: str, target: str) -> int:
        return self.hops(target)[switch][1]

    def way(self, switch: str, target: str) -> list[tuple[str, int]]:
        """Switches and the ports that a frame leaves them by, from `switch` to before `target`."""
        steps = []
        while switch != target:
            port = self.next_hop(switch, target)
            steps.append((switch, port))
            switch = self._links[switch][port]
        return steps

    def tree(
        self,
        ranks: Sequence[int],
        number: int = 0,
        among: Set[str] | None = None,
        *,
        keep: str | None = None,
        shun: Set[str] = frozenset(),
        used: Used = NOT_USED,
    ) -> Tree:
        """The tree of a job. `number` spreads jobs over roots as little used, `among` are the switches that may be one.

        Of equal roots those in `shun` are taken last, and the one that it has (`keep`) first.
        """
        places = self._places(ranks)
        best = self._roots(places, among)
        best = [root for root in best if root not in shun] or best
        if keep in best:
            root = keep
        else:
            turn = number % len(best)
            root = min([*best[turn:], *best[:turn]], key=lambda name: used.get(name, (0, 0)))
        below: dict[str, dict[int, str]] = {root: {}}
        up: dict[str, int] = {}
        for place in places:
            switch = place
            while switch != root and switch not in up:
                port = self.next_hop(switch, root)
                above = self._links[switch][port]
                up[switch] = port
                below.setdefault(switch, {})
                far = self.fabric.cable_at[switch, port].other(switch)
                below.setdefault(above, {})[far.port] = switch
                switch = above
        return Tree(root, up, below, {s: places.get(s, {}) for s in below})

    def several(
        self,
        ranks: Sequence[int],
        number: int,
        count: int,
        among: Set[str] | None = None,
        *,
        keep: Sequence[str] = (),
        used: Used = NOT_USED,
    ) -> list[Tree]:
        """So many trees of the same ranks, at roots of their own as far as there are so many.

        `number` is the first one's; each of the others has the next.
        """
        trees: list[Tree] = []
        for k in range(count):
            of_others = [tree.root for tree in trees] + [*keep[k + 1 :]]
            taken = {root: (same + of_others.count(root), of_all) for root, (same, of_all) in used.items()}
            taken |= {root: (of_others.count(root), 0) for root in of_others if root not in used}
            trees.append(self.tree(ranks, number + k, among, keep=keep[k] if keep else None, used=taken))
        return trees

    def roots(self, ranks: Sequence[int], among: Set[str] | None = None) -> list[str]:
        """Those that are equally good for these ranks.  Raises NoTree."""
        return self._roots(self._places(ranks), among)

    def _places(self, ranks: Sequence[int]) -> dict[str, dict[int, int]]:
        """Switches that ranks are on: by port."""
        places: dict[str, dict[int, int]] = {}
        for rank in ranks:
            nic = self.fabric.nics[rank]
            end = self.fabric.cable_at[nic.name, 1].other(nic.name)
            places.setdefault(end.node, {})[end.port] = rank
        return places

    def _roots(self, places: Mapping[str, object], among: Set[str] | None) -> list[str]:
        """Those whose longest path to the ranks is the shortest."""
        best: list[str] = []
        best_cost: tuple[int, int] | None = None
        for switch in self.fabric.switches:
            if among is not None and switch.name not in among:
                continue
            hops = self.hops(switch.name)
            if not all(place in hops for place in places):
                continue
            distances = [hops[place][0] for place in places]
            cost = (max(distances), sum(distances))
            if best_cost is None or cost < best_cost:
                best, best_cost = [], cost
            if cost == best_cost:
                best.append(switch.name)
        if not best:
            raise NoTree(
                "no switch reaches all ranks" if among is None else "no switch with an accelerator reaches all"
            )
        return best
