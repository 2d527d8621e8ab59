"""Star: every host on one switch, `sw0`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

from . import address
from .fabric import Fabric
from .params import MAX_PORTS, Kind, integer
from .wiring import Wiring


@dataclass(frozen=True)
class Star(Kind):
    name: ClassVar[str] = "star"
    summary: ClassVar[str] = "every host on one switch"

    hosts: int = integer("hosts on the switch", most=MAX_PORTS)

    def build(self) -> Fabric:
        wiring = Wiring()
        switch = wiring.switch("sw0", "leaf", (0,))
        for i in range(self.hosts):
            wiring.host([(f"h{i}", address.star_ip(i), switch)])
        return wiring.fabric(self.name, asdict(self))
