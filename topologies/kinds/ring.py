"""Ring: a torus of one dimension.  Two nodes are joined by one cable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from topologies.graph.fabric import Fabric
from topologies.graph.kind import Kind
from topologies.graph.params import MAX_SWITCHES, boolean, integer
from topologies.kinds.torus import wrapped


@dataclass(frozen=True)
class Ring(Kind):
    name: ClassVar[str] = "ring"
    summary: ClassVar[str] = "nodes in a circle, each wired to two neighbours"
    preset: ClassVar[str] = "a switch per rank, in a circle"
    dimension_order: ClassVar[bool] = True

    nodes: int = integer("nodes in the ring", least=2, most=MAX_SWITCHES)
    direct: bool = boolean("the cables end at the hosts' own NICs, which forward")

    def build(self) -> Fabric:
        return wrapped(self.name, asdict(self), [self.nodes], direct=self.direct)

    @classmethod
    def grid(cls, params: Mapping[str, Any]) -> tuple[int, ...]:
        return (int(params["nodes"]),)

    @classmethod
    def of_ranks(cls, ranks: int) -> dict[str, Any]:
        return {"nodes": ranks}
