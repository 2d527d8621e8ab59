"""Clos: hosts on leaves, every leaf of a pod to every spine of it, and with several pods every spine to every core.

Leaves, spines and hosts are numbered through all pods: pod p has leaves p * leaves .. (p + 1) * leaves - 1.  A host may
be a server of several GPUs, each with a NIC on the server's leaf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from topologies.graph import address
from topologies.graph.fabric import Fabric, TopologyError
from topologies.graph.kind import Kind, near_root
from topologies.graph.params import MAX_PORTS, integer, limit
from topologies.graph.wiring import Wiring


@dataclass(frozen=True)
class Clos(Kind):
    name: ClassVar[str] = "clos"
    summary: ClassVar[str] = "leaves and spines in two tiers, or in pods under a third tier of cores"
    preset: ClassVar[str] = "leaves and spines without oversubscription"

    leaves: int = integer("leaf switches in a pod", most=MAX_PORTS)
    spines: int = integer("spine switches in a pod, each wired to every leaf of the pod", most=MAX_PORTS)
    hosts_per_leaf: int = integer("hosts on a leaf", most=MAX_PORTS)
    pods: int = integer("pods", most=MAX_PORTS, default=1)
    cores: int = integer("core switches, each wired to every spine", least=0, most=MAX_PORTS, default=0)
    links: int = integer(
        "ports of a NIC: so many leaves in a row share their hosts, each of which has a cable to every one of them",
        most=16,
        default=1,
    )
    gpus: int = integer("GPUs of a host, each with its own NIC, in a scale-up domain", most=MAX_PORTS, default=1)

    def build(self) -> Fabric:
        self.check()
        self._limit()
        wiring = Wiring()
        leaves = [
            [wiring.switch(f"leaf{p * self.leaves + i}", "leaf", (p, i)) for i in range(self.leaves)]
            for p in range(self.pods)
        ]
        spines = [
            [wiring.switch(f"spine{p * self.spines + i}", "spine", (p, i)) for i in range(self.spines)]
            for p in range(self.pods)
        ]
        cores = [wiring.switch(f"core{i}", "core", (i,)) for i in range(self.cores)]
        servers: list[list[str]] = []
        for p, pod in enumerate(leaves):
            for i in range(self.leaves):
                first = i - i % self.links
                for h in range(self.hosts_per_leaf):
                    above = pod[first : first + self.links]
                    host = f"h{len(servers)}"
                    servers.append([f"{host}.{g}" for g in range(self.gpus)] if self.gpus > 1 else [host])
                    ips = (address.clos_ip(p, i, h * self.gpus + g) for g in range(self.gpus))
                    wiring.host_on(list(zip(servers[-1], ips, strict=True)), above, (p, i))
        for lower, upper in zip(leaves, spines, strict=True):
            for leaf in lower:
                for spine in upper:
                    wiring.cable(leaf, spine)
        for pod in spines:
            for spine in pod:
                for core in cores:
                    wiring.cable(spine, core)
        return wiring.fabric(self.name, asdict(self), servers if self.gpus > 1 else ())

    @classmethod
    def scale_up(cls, params: Mapping[str, Any]) -> bool:
        return bool(params.get("gpus", 1) != 1)

    @classmethod
    def grid(cls, params: Mapping[str, Any]) -> tuple[int, ...]:
        pods, leaves, hosts, gpus = cls._sizes(params)
        return (pods * leaves * hosts, gpus) if gpus > 1 else ()

    @classmethod
    def axes(cls, params: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
        pods, leaves, hosts, gpus = cls._sizes(params)
        return ("core", pods), ("spine", leaves), ("leaf", hosts), *((("scale_up", gpus),) if gpus > 1 else ())

    @classmethod
    def _sizes(cls, params: Mapping[str, Any]) -> tuple[int, int, int, int]:
        pods, leaves, hosts = (int(params[key]) for key in ("pods", "leaves", "hosts_per_leaf"))
        return pods, leaves, hosts, int(params.get("gpus", 1))  # runs of before have none

    @classmethod
    def of_ranks(cls, ranks: int) -> dict[str, Any]:
        """As many spines as a leaf has hosts, so that nothing is oversubscribed; of a prime one host stays idle."""
        leaves = max(near_root(ranks), 2)
        hosts = -(-ranks // leaves)
        return {"leaves": leaves, "spines": hosts, "hosts_per_leaf": hosts}

    def check(self) -> None:
        if self.pods > 1 and self.cores == 0:
            raise TopologyError("cores", f"nothing joins the {self.pods} pods", "at least 1 with more than one pod")
        if self.pods == 1 and self.cores > 0:
            raise TopologyError(
                "cores", "cores join pods, and there is one pod", "set pods to 2 or more, or cores to 0"
            )
        if self.leaves % self.links:
            raise TopologyError(
                "links", f"{self.leaves} leaves are no groups of {self.links}", "links that divide leaves"
            )

    def _limit(self) -> None:
        on_leaf = self.hosts_per_leaf * self.gpus
        limit("hosts_per_leaf", nics=0, switches=0, ports={"leaf": on_leaf * self.links + self.spines})
        limit("leaves", nics=0, switches=0, ports={"spine": self.leaves + self.cores})
        limit("spines", nics=0, switches=0, ports={"core": self.pods * self.spines if self.cores else 0})
        limit(
            "pods" if self.pods > 1 else "leaves",
            nics=self.pods * self.leaves * on_leaf,
            switches=self.pods * (self.leaves + self.spines)
            + self.cores
            + (self.links > 1) * self.pods * self.leaves * on_leaf,
            ports={},
        )
