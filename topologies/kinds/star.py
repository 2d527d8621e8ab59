"""Star: every host on one switch, `sw0`; or with a NIC port on each of several."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from topologies.graph import address
from topologies.graph.fabric import Fabric
from topologies.graph.kind import Kind
from topologies.graph.params import MAX_PORTS, integer
from topologies.graph.wiring import Wiring


@dataclass(frozen=True)
class Star(Kind):
    name: ClassVar[str] = "star"
    summary: ClassVar[str] = "every host on one switch"
    preset: ClassVar[str] = "all on one switch"

    hosts: int = integer("hosts on the switch", most=MAX_PORTS)
    links: int = integer("ports of a NIC, each on a switch of its own (`sw0` ..)", most=16, default=1)

    def build(self) -> Fabric:
        wiring = Wiring()
        switches = [wiring.switch(f"sw{k}", "leaf", (k,)) for k in range(self.links)]
        for i in range(self.hosts):
            wiring.host_on([(f"h{i}", address.star_ip(i))], switches)
        return wiring.fabric(self.name, asdict(self))

    @classmethod
    def of_ranks(cls, ranks: int) -> dict[str, Any]:
        return {"hosts": ranks}
