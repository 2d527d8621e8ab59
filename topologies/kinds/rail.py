"""Rail: NIC r of every server hangs on switch `rail`r, spines join the rails, scale-up domains a server's GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from topologies.graph import address
from topologies.graph.fabric import Fabric, TopologyError
from topologies.graph.kind import Kind
from topologies.graph.params import MAX_PORTS, integer, limit
from topologies.graph.wiring import Wiring


@dataclass(frozen=True)
class Rail(Kind):
    name: ClassVar[str] = "rail"
    summary: ClassVar[str] = "servers of GPUs, one switch per rail, spines across, a scale-up domain per server"
    preset: ClassVar[str] = "servers of 8, 4, 2 or 1 GPUs, a switch per rail, one spine"

    servers: int = integer("servers", most=MAX_PORTS)
    gpus: int = integer("GPUs per server, each with its own NIC and rail", most=MAX_PORTS)
    spines: int = integer("spine switches, each wired to every rail", least=0, most=MAX_PORTS, default=1)

    def check(self) -> None:
        if self.gpus > 1 and self.spines == 0:
            raise TopologyError("spines", f"nothing joins the {self.gpus} rails", "at least 1 with more than one GPU")

    def build(self) -> Fabric:
        self.check()
        limit("gpus", nics=self.servers * self.gpus, switches=self.gpus + self.spines, ports={"spine": self.gpus})
        limit("servers", nics=0, switches=0, ports={"rail": self.servers + self.spines})
        wiring = Wiring()
        rails = [wiring.switch(f"rail{r}", "rail", (r,)) for r in range(self.gpus)]
        spines = [wiring.switch(f"spine{i}", "spine", (i,)) for i in range(self.spines)]
        servers = [[f"h{s}.{r}" for r in range(self.gpus)] for s in range(self.servers)]
        for s, names in enumerate(servers):
            wiring.host([(name, address.rail_ip(r, s), rails[r]) for r, name in enumerate(names)])
        for rail in rails:
            for spine in spines:
                wiring.cable(rail, spine)
        # A lone GPU has nobody to share a scale-up domain with.
        return wiring.fabric(self.name, asdict(self), servers if self.gpus > 1 else ())

    @classmethod
    def scale_up(cls, params: Mapping[str, Any]) -> bool:
        return True

    @classmethod
    def grid(cls, params: Mapping[str, Any]) -> tuple[int, ...]:
        return int(params["servers"]), int(params["gpus"])

    @classmethod
    def axes(cls, params: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
        servers, gpus = cls.grid(params)
        return ("rail", servers), ("scale_up", gpus)

    @classmethod
    def of_ranks(cls, ranks: int) -> dict[str, Any]:
        """Servers of 8, 4 or 2 GPUs if there are then two of them at least, else of one."""
        gpus = next(g for g in (8, 4, 2, 1) if ranks % g == 0 and (ranks // g > 1 or g == 1))
        return {"servers": ranks // gpus, "gpus": gpus, "spines": 1}
