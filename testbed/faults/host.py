"""Faults of hosts: their processors, PCIe, memory and NIC settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from testbed.base import controls
from testbed.base.types import Rate, Time, mistake, mistakes
from testbed.faults.base import Fault, Place, Primitive, ShowsAs, act, overlay
from testbed.faults.built import Built, CannotInject, less


class NicFault(Fault):
    on: ClassVar[tuple[str, ...]] = ("nic", "all")

    def primitives(self, place: Place) -> list[Primitive]:
        values = self.values()
        return [overlay("nic", rank, values) for rank in place.nics()]


class Straggler(NicFault):
    name: ClassVar[str] = "straggler"
    summary: ClassVar[str] = "a host and its GPU are slower by a factor: posting, reducing, computing"
    shows: ClassVar[str] = "every collective waits for that rank; no counter moves"
    example: ClassVar[dict[str, Any]] = {"on": "nic:0", "factor": 2}

    sets: ClassVar[Mapping[str, str]] = {"slow": "factor"}

    factor: float = Field(gt=1, le=1000, allow_inf_nan=False, description="how many times as long")


class SlowPcie(NicFault):
    name: ClassVar[str] = "slow_pcie"
    summary: ClassVar[str] = "PCIe has come up with fewer lanes or at a lower speed"
    shows: ClassVar[str] = (
        "the NIC sends pauses (`tx_prio3_pause`) because its receive buffer fills; it sends slower, too"
    )
    example: ClassVar[dict[str, Any]] = {"on": "nic:0", "rate": "100Gbps"}

    mended_by: ClassVar[tuple[str, ...]] = ("nic pcie retrain", "nic replace")
    sets: ClassVar[Mapping[str, str]] = {"pcie_rate_bps": "rate"}

    rate: Rate = Field(gt=0, le=10**14, description="bandwidth that is left, each direction: less than without")

    def makes_worse(self, place: Place, built: Built) -> None:
        less("rate", self.rate, built.pcie(place.fabric, place.nics()), "rate", "the PCIe rate")


class SlowReceiver(NicFault):
    name: ClassVar[str] = "slow_receiver"
    summary: ClassVar[str] = "receive buffers are posted late"
    shows: ClassVar[str] = "`rnr_nak_retry_err` at those who send to it"
    example: ClassVar[dict[str, Any]] = {"on": "nic:0", "delay": "20us"}

    sets: ClassVar[Mapping[str, str]] = {"recv_delay_ns": "delay"}

    delay: Time = Field(gt=0, le=1e12, description="how much later a posted receive can be used")


class CcOff(NicFault):
    name: ClassVar[str] = "cc_off"
    summary: ClassVar[str] = "one NIC sends without congestion control, and sends no notifications of marks"
    shows: ClassVar[str] = "it takes more than its share; `rp_cnp_ignored` grows"
    example: ClassVar[dict[str, Any]] = {"on": "nic:0"}

    def values(self) -> dict[str, Any]:
        return {"cc": {"algorithm": "none", "params": {}}}


class WrongCc(NicFault):
    name: ClassVar[str] = "wrong_cc"
    summary: ClassVar[str] = "one NIC runs its congestion control with other parameters"
    shows: ClassVar[str] = "its flows get another share than the others'"
    example: ClassVar[dict[str, Any]] = {"on": "nic:0", "parameters": {"g": 1.0}, "cc": "dcqcn"}

    parameters: dict[str, float | str] = Field(
        min_length=1, description="parameters of the control that the experiment uses, with their wrong values"
    )
    cc: str = Field(default="dcqcn", description="the control that they belong to")

    @model_validator(mode="after")
    def _known(self) -> Self:
        self._parsed()
        return self

    def _parsed(self) -> dict[str, float]:
        """The parameters as numbers; an error names the key of the fault."""
        if "set" in self.parameters:
            raise mistake("a named set is no parameter", "give the parameters that are wrong", ["parameters", "set"])
        try:
            values: dict[str, float] = controls.read({self.cc: self.parameters})["values"]
        except PydanticCustomError as error:
            written = (error.context or {})["mistakes"]
            own = [(("parameters", *path[1:]) if path[1:] else ("cc",), *text) for path, *text in written]
            raise mistakes(own) from None
        return values

    def primitives(self, place: Place) -> list[Primitive]:
        if place.cc not in (None, self.cc):
            hint = f"set transport.cc, or cc: {place.cc} here"
            raise CannotInject(f"the NICs run {place.cc}, not {self.cc}", hint, "cc")
        return super().primitives(place)

    def values(self) -> dict[str, Any]:
        from hardware.cc import CONTROLS

        return {"cc": {"params": {CONTROLS[self.cc].by_name[k].key: v for k, v in self._parsed().items()}}}


class GrantLeak(Fault):
    name: ClassVar[str] = "grant_leak"
    summary: ClassVar[str] = "a NIC counts credits as given that it does not send"
    shows: ClassVar[str] = (
        "its senders wait and ask again (`tx_credit_request`), and get fewer credits (`rx_credit`) than it has counted "
        "(`tx_credit`); its cable is not full, and nothing is lost or sent again"
    )
    example: ClassVar[dict[str, Any]] = {"on": "nic:0", "rate": 0.5}
    on: ClassVar[tuple[str, ...]] = ("nic", "all")
    mended_by: ClassVar[tuple[str, ...]] = ("nic replace",)
    grants: ClassVar[bool] = True
    shows_as: ClassVar[ShowsAs | None] = "silent"

    rate: float = Field(
        gt=0, le=1, allow_inf_nan=False, description="share of its credits, drawn at random from the seed"
    )

    def primitives(self, place: Place) -> list[Primitive]:
        ports = [f"{place.fabric.nics[rank].name}:1" for rank in place.nics()]
        chosen = {"ports": ports, "match": {"opcodes": ["CREDIT"]}, "select": {"share": self.rate}}
        return [{"primitive": "frames", "effect": "drop", "shown": self.shows_as, **chosen}]


class WorkerFault(Fault):
    on: ClassVar[tuple[str, ...]] = ("nic",)
    mended_by: ClassVar[tuple[str, ...]] = ("job restart",)
    action: ClassVar[str]

    def primitives(self, place: Place) -> list[Primitive]:
        return [act("agent", {"worker": self.action, "rank": rank}) for rank in place.nics()]


class WorkerKilled(WorkerFault):
    name: ClassVar[str] = "worker_killed"
    summary: ClassVar[str] = "a rank's container is killed; healed, the rank gets a new one, what ran in it stays dead"
    shows: ClassVar[str] = "event `worker_lost`; the run ends and names the rank, or its launcher starts all again"
    example: ClassVar[dict[str, Any]] = {"on": "nic:0"}
    action: ClassVar[str] = "kill"


class CpuQuota(Fault):
    name: ClassVar[str] = "cpu_quota"
    summary: ClassVar[str] = "a rank's container gets less of a CPU (real clock: emulated time knows no CPUs)"
    shows: ClassVar[str] = "the rank's programs take longer in wall time; `nr_throttled` of its control group grows"
    example: ClassVar[dict[str, Any]] = {"on": "nic:0", "cpus": 0.5}
    on: ClassVar[tuple[str, ...]] = ("nic", "all")
    only_real_clock: ClassVar[bool] = True

    cpus: float = Field(ge=0.01, le=4096, allow_inf_nan=False, description="CPUs that it may use: less than without")

    def primitives(self, place: Place) -> list[Primitive]:
        return [act("agent", {"worker": "quota", "rank": rank, "cpus": self.cpus}) for rank in place.nics()]

    def makes_worse(self, place: Place, built: Built) -> None:
        if built.cpus is not None:
            has = [(built.cpus, f"nic:{rank}") for rank in place.nics()]
            less("cpus", self.cpus, has, "CPUs", "`workers.cpus`")


class WorkerFrozen(NicFault):
    name: ClassVar[str] = "worker_frozen"
    summary: ClassVar[str] = (
        "a rank's worker stands still until it is healed, on a live fabric with the real clock all programs in its "
        "container; its NIC goes on"
    )
    shows: ClassVar[str] = "all others wait for that rank; without an end the run is stuck and says so"
    example: ClassVar[dict[str, Any]] = {"on": "nic:0"}
    mended_by: ClassVar[tuple[str, ...]] = ("job restart",)

    def values(self) -> dict[str, Any]:
        return {"frozen": True}

    def primitives(self, place: Place) -> list[Primitive]:
        programs = place.nics() if place.programs else []
        return [*super().primitives(place), *(act("agent", {"worker": "freeze", "rank": rank}) for rank in programs)]


FAULTS = (Straggler, SlowPcie, SlowReceiver, CcOff, WrongCc, GrantLeak, WorkerKilled, WorkerFrozen, CpuQuota)
