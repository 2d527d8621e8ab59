"""Faults by background traffic: flows that NICs send beside the workload."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from testbed.base.types import Size, default
from testbed.faults.base import Fault, Place, Primitive
from testbed.faults.built import CannotInject
from topologies.graph.targets import FlowTarget, NicTarget
from workloads.traffic import Arrival, burst, poisson, sizes_named


class TrafficFault(Fault):
    distribution: Literal["fixed", "uniform", "web_search", "hadoop", "ali_storage", "google_rpc"] = Field(
        default="fixed", description="sizes of the flows: all `size`, evenly from 1 byte to twice that, or as measured"
    )
    size: Size = default("1MB", "payload of a flow (fixed), or its mean (uniform)", gt=0, le=1 << 30)
    most: Size = default("10MB", "largest flow of a measured distribution: larger ones are cut", gt=0, le=1 << 30)

    def arrivals(self, place: Place) -> list[Arrival]:
        raise NotImplementedError

    def primitives(self, place: Place) -> list[Primitive]:
        flows = [[a.source, a.target, a.size_bytes, a.start_ns] for a in self.arrivals(place)]
        if not flows:
            raise CannotInject("nobody would send", "a NIC does not send to itself")
        return [{"primitive": "traffic", "flows": flows}]


def _ranks(place: Place, ranks: list[int] | None, key: str) -> list[int]:
    """These, or all. Raises CannotInject."""
    if any(not 0 <= rank < len(place.fabric.nics) for rank in ranks or ()):
        raise CannotInject("no such rank", f"ranks: 0 to {len(place.fabric.nics) - 1}", key)
    return list(range(place.fabric.ranks)) if ranks is None else ranks


class Incast(TrafficFault):
    name: ClassVar[str] = "incast"
    summary: ClassVar[str] = "one or more NICs send a lot to one, beside the job"
    shows: ClassVar[str] = "a queue in front of that NIC, marks, pauses; the workload there slows down"
    example: ClassVar[dict[str, Any]] = {"on": "nic:0", "size": "512KiB"}
    on: ClassVar[tuple[str, ...]] = ("nic",)

    senders: list[int] | None = Field(default=None, description="ranks that send (null: all others)")
    each: int = Field(default=1, ge=1, le=1000, description="flows from each")

    def arrivals(self, place: Place) -> list[Arrival]:
        assert isinstance(place.target, NicTarget)
        ranks = _ranks(place, self.senders, "senders")
        sizes = sizes_named(self.distribution, self.size, self.most)
        return burst(sizes, ranks=ranks, to=place.target.nic.rank, each=self.each, seed=place.seed)


class NoisyNeighbour(TrafficFault):
    name: ClassVar[str] = "noisy_neighbour"
    summary: ClassVar[str] = "another tenant's flows, with given load and sizes; they arrive as a Poisson process"
    shows: ClassVar[str] = "queues and marks where its flows pass; operations take longer, each by another time"
    example: ClassVar[dict[str, Any]] = {"on": "all", "load": 0.3, "flows": 20}
    on: ClassVar[tuple[str, ...]] = ("all",)

    load: float = Field(
        default=0.3, gt=0, le=1, allow_inf_nan=False, description="share of its line rate that each sends"
    )
    flows: int = Field(default=100, ge=1, le=100_000, description="how many in all")
    ranks: list[int] | None = Field(default=None, min_length=2, description="ranks among which they run (null: all)")

    def arrivals(self, place: Place) -> list[Arrival]:
        ranks = _ranks(place, self.ranks, "ranks")
        sizes = sizes_named(self.distribution, self.size, self.most)
        return poisson(
            sizes, ranks=ranks, pattern="random", load=self.load, line_rate_bps=place.line_rate_bps, flows=self.flows,
            seed=place.seed,
        )  # fmt: skip


class VictimFlow(TrafficFault):
    name: ClassVar[str] = "victim_flow"
    summary: ClassVar[str] = "one more flow between two ranks, to see what becomes of it"
    shows: ClassVar[str] = "its completion time (`testbed show faults`), against that on an idle fabric"
    example: ClassVar[dict[str, Any]] = {"on": "flow:1->0"}
    on: ClassVar[tuple[str, ...]] = ("flow",)

    def arrivals(self, place: Place) -> list[Arrival]:
        assert isinstance(place.target, FlowTarget)
        return [Arrival(place.target.source.rank, place.target.destination.rank, self.size, 0.0)]


FAULTS = (Incast, NoisyNeighbour, VictimFlow)
