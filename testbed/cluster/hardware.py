"""What a cluster's servers are, and what of them takes part in a collective."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.logs.row import Point
from workloads.library.servers import Servers

VERSION = "2.30.7"
"""Of NCCL, if no log says it: that whose constants are known here."""


@dataclass(frozen=True)
class Hardware:
    """Of a server.  `assumed`: what nobody has said."""

    gpu: str
    gpus: int
    nics: int
    nic_bps: float
    host: str = "intel"
    nvlink: bool = True
    version: str = VERSION
    assumed: tuple[str, ...] = ()

    def nics_of(self, point: Point) -> int:
        """NICs of a node that take part: those of its GPUs that do; 0 in a single node."""
        return 0 if point.nodes == 1 else max(1, round(self.nics * point.gpus / self.gpus))

    def servers(self, point: Point) -> Servers:
        """As the library finds them."""
        return Servers(
            nodes=point.nodes, gpus=point.gpus, nics=max(1, self.nics_of(point)), nic_bps=self.nic_bps, gpu=self.gpu,
            host=self.host, nvlink=self.nvlink, version=self.version,
        )  # fmt: skip
