"""Torus: one switch and one host per node, wired to its two neighbours in each dimension.

Nodes are numbered with the last dimension running fastest.  A dimension of 2 has one cable, not two.
`direct`: instead of the switch, the host's own NIC forwards, and a neighbour is one cable away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, ClassVar

from topologies.graph import address
from topologies.graph.fabric import FORWARDS, Fabric
from topologies.graph.kind import Kind, near_root
from topologies.graph.params import MAX_SWITCHES, boolean, integers, limit
from topologies.graph.wiring import Wiring


@dataclass(frozen=True)
class Torus(Kind):
    name: ClassVar[str] = "torus"
    summary: ClassVar[str] = "nodes in a grid of any number of dimensions, wrapped around"
    preset: ClassVar[str] = "a switch per rank, in two dimensions that are as equal as can be"
    dimension_order: ClassVar[bool] = True

    dims: tuple[int, ...] = integers("nodes along each dimension", least=2, most=MAX_SWITCHES)
    direct: bool = boolean("the cables end at the hosts' own NICs, which forward")

    def build(self) -> Fabric:
        ports = 1 + sum(min(size - 1, 2) for size in self.dims)
        limit("dims", nics=prod(self.dims), switches=prod(self.dims), ports={"node": ports})
        return wrapped(self.name, {"dims": list(self.dims), "direct": self.direct}, self.dims, direct=self.direct)

    @classmethod
    def grid(cls, params: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(int(d) for d in params["dims"])

    @classmethod
    def of_ranks(cls, ranks: int) -> dict[str, Any] | None:
        rows = near_root(ranks)
        return {"dims": [rows, ranks // rows]} if rows > 1 else None


def wrapped(kind: str, params: Mapping[str, Any], dims: Sequence[int], *, direct: bool) -> Fabric:
    """The torus of these dimensions; ring uses it too."""
    wiring = Wiring()
    places = list(product(*map(range, dims)))
    names = {place: name_at(place, direct=direct) for place in places}
    for place in places:
        wiring.switch(names[place], FORWARDS if direct else "node", place)
    for i, place in enumerate(places):
        wiring.host([(f"h{i}", address.torus_ip(dims, place), names[place])])
    for place in places:
        for axis, size in enumerate(dims):
            # Each node lays the cable to its upper neighbour; with two nodes that would be the same cable twice.
            if size > 2 or place[axis] == 0:
                wiring.cable(names[place], names[step(place, axis, 1, dims)])
    return wiring.fabric(kind, params)


def name_at(place: Sequence[int], *, direct: bool = False) -> str:
    """The switch at these coordinates: sw3, sw0-2, sw1-0-2; in a direct network the NIC: nic3, nic0-2."""
    return ("nic" if direct else "sw") + "-".join(map(str, place))


def step(place: Sequence[int], axis: int, by: int, dims: Sequence[int]) -> tuple[int, ...]:
    """The coordinates `by` steps along a dimension, around its end."""
    moved = list(place)
    moved[axis] = (moved[axis] + by) % dims[axis]
    return tuple(moved)
