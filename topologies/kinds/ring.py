"""Ring: a torus of one dimension.  Two nodes are joined by one cable."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

from .fabric import Fabric
from .params import MAX_SWITCHES, Kind, boolean, integer
from .torus import grid


@dataclass(frozen=True)
class Ring(Kind):
    name: ClassVar[str] = "ring"
    summary: ClassVar[str] = "nodes in a circle, each wired to two neighbours"

    nodes: int = integer("nodes in the ring", least=2, most=MAX_SWITCHES)
    direct: bool = boolean("the cables end at the hosts' own NICs, which forward")

    def build(self) -> Fabric:
        return grid(self.name, asdict(self), [self.nodes], direct=self.direct)
