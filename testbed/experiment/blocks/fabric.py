"""`fabric:` of the experiment file: topology, cables, switches, NICs, scale-up domains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from testbed.base.types import Dscp, Model, Rate, Share, Size, Time, default, mistake, mistakes, names, unknown
from testbed.experiment.blocks import known
from testbed.experiment.blocks.cables import MAX_RATE, MAX_TIME, HostCable, Override
from testbed.experiment.blocks.flow_control import OfCables
from testbed.experiment.blocks.trimming import Trimming
from topologies.graph.fabric import Fabric, TopologyError
from topologies.graph.smartnic import with_complexes

STAND_IN: ContextVar[Callable[[str, Mapping[str, Any]], tuple[dict[str, Any], Fabric, int]] | None] = ContextVar(
    "STAND_IN", default=None
)
"""Who makes parameters, fabric and number of ranks instead, while files are read of which no fabric is built."""


class Topology(Model):
    """`{KIND: {PARAMETERS}}`; `params` has every parameter with defaults written out."""

    kind: str
    params: dict[str, Any]
    _fabric: Fabric = PrivateAttr()
    _ranks: int = PrivateAttr()
    _is_large: bool = PrivateAttr(default=False)
    _with_complexes: Fabric | None = PrivateAttr(default=None)

    @model_validator(mode="wrap")
    @classmethod
    def _build(cls, value: Any, handler: Any, info: ValidationInfo) -> Self:
        if isinstance(value, cls):
            return value
        if not isinstance(value, dict) or len(value) != 1:
            raise mistake(
                "a topology is one kind with its parameters",
                f"write {{KIND: {{PARAMETERS}}}}; kinds: {', '.join(known.topologies())}",
            )
        ((kind, params),) = value.items()
        if kind not in known.topologies():
            raise mistake(*unknown("topology", kind, known.topologies()), path=[kind])
        if params is not None and not isinstance(params, dict):
            raise mistake(f"the parameters of {kind} are a mapping, not {params!r:.40}", path=[kind])
        if kind == "custom":
            from testbed.experiment.blocks.custom import custom

            try:
                params, fabric = custom(params or {}, Path((info.context or {}).get("directory", ".")))
                ranks = fabric.ranks
            except PydanticCustomError as error:
                found = (error.context or {})["mistakes"]
                raise mistakes([((kind, *path), what, hint) for path, what, hint in found]) from None
        else:
            make = STAND_IN.get() or _built
            try:
                params, fabric, ranks = make(kind, params or {})
            except TopologyError as error:
                raise mistake(error.what, error.hint, path=[kind, *_steps(error.key)]) from None
        topology: Self = handler({"kind": kind, "params": params})
        topology._fabric, topology._ranks = fabric, ranks
        topology._is_large = kind != "custom" and fabric.params != params
        return topology

    @property
    def is_large(self) -> bool:
        """Whether a small fabric stands for the one that is asked for."""
        return self._is_large

    @property
    def ranks(self) -> int:
        """Of the fabric that is asked for, whatever stands for it."""
        return self._ranks

    def with_complexes(self) -> Fabric:
        """With an off-path SmartNIC at every host.  Raises TopologyError."""
        if self._with_complexes is None:
            self._with_complexes = with_complexes(self._fabric)
        return self._with_complexes

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        return {self.kind: self.params}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return known.topology_schema()


def _built(kind: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], Fabric, int]:
    fabric = known.build(kind, params)
    return dict(fabric.params), fabric, fabric.ranks


def _steps(key: str) -> list[str | int]:
    """`dims[1]` -> dims, 1."""
    return [int(step[:-1]) if step.endswith("]") else step for step in key.split("[")]


class Cable(OfCables):
    rate: Rate = default("400Gbps", "bit rate of every cable, each direction", gt=0, le=MAX_RATE)
    delay: Time = default("500ns", "propagation delay of every cable", le=MAX_TIME)


TrafficClass = Annotated[int, Field(ge=0, le=7)]


def _number_keys(value: Any) -> Any:
    """Keys of a mapping are numbers, also where they are written in quotes (as JSON must)."""
    if not isinstance(value, dict):
        return value
    return {int(k) if isinstance(k, str) and k.isdecimal() else k: v for k, v in value.items()}


Weights = Annotated[dict[TrafficClass, Annotated[int, Field(ge=1, le=100)]], BeforeValidator(_number_keys)]


class Shaper(Model):
    min: Share | None = Field(default=None, description="share of its port that a class has in any case (null: none)")
    max: Share | None = Field(default=None, description="share of its port that a class has at most (null: all)")
    burst: Size | None = Field(
        default=None, description="what it may catch up on when it has had less (null: two of the longest frames)"
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min is None and self.max is None:
            raise mistake("neither min nor max is given", "give one of them, or leave the class out")
        if self.min and self.max and self.min > self.max:
            raise mistake("min is larger than max", "what a class has in any case is within what it may have", ["min"])
        return self


Shapers = Annotated[dict[TrafficClass, Shaper], BeforeValidator(_number_keys)]


class Scheduler(Model):
    strict: list[TrafficClass] = Field(
        default=[6, 7], description="classes that go first, the highest before the others"
    )
    weights: Weights = Field(
        default=dict.fromkeys(range(6), 1), description="shares of the other classes (deficit round robin)"
    )
    shapers: Shapers = Field(
        default_factory=dict, description="what classes have of a port in any case, and at most: `{3: {max: 50%}}`"
    )

    @model_validator(mode="after")
    def _no_more_than_all(self) -> Self:
        if sum(shaper.min or 0.0 for shaper in self.shapers.values()) > 1 + 1e-9:
            raise mistake("what classes have in any case is more than 100% together", "less", ["shapers"])
        return self


DscpMap = Annotated[dict[Dscp, TrafficClass], BeforeValidator(_number_keys)]


class Ecn(Model):
    classes: list[TrafficClass] = Field(default=[3, 4], description="classes whose frames are marked")
    kmin: Size | None = Field(
        default=None, description="queue up to which nothing is marked (null: by the cable's rate)"
    )
    kmax: Size | None = Field(default=None, description="queue above which every frame is marked (null: by the rate)")
    pmax: float | None = Field(
        default=None, ge=0, le=1, allow_inf_nan=False, description="share of marked frames at kmax (null: by the rate)"
    )
    to_nics: bool | None = Field(
        default=None,
        description="ports to NICs mark, too (null: unless `transport.cc` goes by marks and by credit: `uec`)",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.kmin is not None and self.kmax is not None and self.kmin > self.kmax:
            raise mistake("kmin is larger than kmax", "marking grows from kmin to kmax", ["kmin"])
        if (self.kmin is None) != (self.kmax is None):
            raise mistake("kmin and kmax go together", "give both, or none", ["kmin" if self.kmax else "kmax"])
        return self


class Watchdog(Model):
    detect: Time = default("400ms", "a queue paused for this long without a break is stormed", gt=0, le=MAX_TIME)
    restore: Time = default("2s", "the storm is over when no pause has come for this long", gt=0, le=MAX_TIME)
    action: Literal["drop", "forward"] = Field(
        default="drop", description="throw away what the queue holds and gets, or no longer heed the pause"
    )


class Accelerator(Model):
    slots: int = Field(default=1024, ge=1, le=65535, description="aggregation slots, shared by all jobs")
    shared_slots: int | None = Field(
        default=None, ge=0, le=65535,
        description="of those, shared by best-effort jobs (null: all or none of them, as the workload has such "
        "collectives only or none; beside others by slots what is free, and half where one step has both)",
    )  # fmt: skip
    elements: int = Field(default=256, ge=1, le=2250, description="int32 elements that it adds of one packet, at most")
    fan_in: int = Field(default=64, ge=1, le=64, description="bits of a slot's bitmap: contributors to a switch")
    rate: Rate | None = Field(
        default=None, gt=0, le=10**15, description="between pipeline and accelerator (null: that of all ports together)"
    )
    latency: Time = default("0ns", "of the accelerator, besides a second pass through the switch", le=10**9)

    @model_validator(mode="after")
    def _shared_of_all(self) -> Self:
        if self.shared_slots is not None and self.shared_slots > self.slots:
            what = f"{self.shared_slots} of {self.slots} slots cannot be shared"
            raise mistake(what, "at most all", ["shared_slots"])
        return self


class Switch(Model):
    latency: Time = default("500ns", "from a frame's last bit in to its first bit out, at the earliest", le=MAX_TIME)
    cut_through: bool = Field(
        default=False,
        description="frames go on while they still come in, where their way out is free and no faster; `latency` "
        "counts from a frame's header",
    )
    buffer: Size = default("32MB", "packet buffer of a switch, shared by its ports", gt=0)
    alpha: float = Field(
        default=0.125, ge=1 / 1024, le=64, allow_inf_nan=False,
        description="a group or lossy queue may hold alpha x what is free of the shared buffer",
    )  # fmt: skip
    reserve: Size = default("4KB", "of the buffer for each port and lossless class alone", le=10**12)
    headroom: Size | None = Field(
        default=None,
        description="of each port and lossless class for what comes after XOFF (null: what the cables need)",
    )
    xon_offset: Size = default("3KB", "XON when a group is so far below its threshold", le=10**12)
    lossless: list[TrafficClass] = Field(default=[3, 4], description="classes with PFC")
    dscp: DscpMap = Field(
        default={26: 3, 28: 4, 48: 6}, description="class of a frame by its DSCP; all others are in class 0"
    )
    pfc: bool = Field(default=True, description="send pauses and heed them")
    ecn: Ecn | None = Field(default_factory=Ecn, description="marking of frames in long queues (null: none)")
    scheduler: Scheduler = Field(default_factory=Scheduler, description="which class goes first")
    watchdog: Watchdog | None = Field(default_factory=Watchdog, description="what ends a pause storm (null: nothing)")
    trimming: Trimming | None = Field(
        default=None, description="frames that find no place in a lossy queue are trimmed, not dropped (null: dropped)"
    )
    accelerator: Accelerator | None = Field(
        default=None,
        description="in-network aggregation on every switch (null: none; left out: if the workload asks for it)",
    )

    @property
    def classes(self) -> list[int]:
        """Of each DSCP."""
        trimmed = {self.trimming.dscp: self.trimming.queue} if self.trimming else {}
        return [(self.dscp | trimmed).get(dscp, 0) for dscp in range(64)]


class Pcie(Model):
    rate: Rate = default("512Gbps", "bandwidth between NIC and memory, each direction", gt=0, le=MAX_RATE)
    latency: Time = default("500ns", "time of one transfer over an idle link, without its payload", le=MAX_TIME)


def _left_to_the_profile(schema: dict[str, Any]) -> None:
    schema.pop("required")


class Engine(Model):
    """What an on-path SmartNIC adds up with."""

    model_config = ConfigDict(json_schema_extra=_left_to_the_profile)

    reduce: Rate = Field(gt=0, le=MAX_RATE, description="bits of one operand that it adds up per second")
    packets: float = Field(gt=0, le=1e12, allow_inf_nan=False, description="packets that it takes per second")
    memory: Size = Field(gt=0, le=10**12, description="memory that it has for what it adds up")


class Complex(Model):
    """The embedded bridge and the compute complex of an off-path SmartNIC."""

    model_config = ConfigDict(json_schema_extra=_left_to_the_profile)

    port: Rate = Field(gt=0, le=MAX_RATE, description="of the NIC's port: a faster cable runs at this rate")
    rate: Rate = Field(gt=0, le=MAX_RATE, description="between the embedded bridge and the complex, each direction")
    delay: Time = Field(le=MAX_TIME, description="delay between them, one way")
    bridge_latency: Time = Field(le=MAX_TIME, description="of the embedded bridge, as `fabric.switch.latency`")
    dma_latency: Time = Field(le=MAX_TIME, description="of a transfer from or to the complex's memory")
    post: Time = Field(le=MAX_TIME, description="time of a core to post one work request")
    wake: Time = Field(le=MAX_TIME, description="time of a core to notice a completion")
    reduce: Rate = Field(gt=0, le=MAX_RATE, description="speed at which the cores add up what is in their cache")
    cache: Size = Field(gt=0, le=10**12, description="last-level cache of the cores")
    memory_reduce: Rate = Field(
        gt=0, le=MAX_RATE, description="speed at which they add up when their working set is larger than that"
    )


class Router(Model):
    """The bridge in a NIC with several ports, or in one that forwards."""

    rate: Rate | None = Field(
        default=None, gt=0, le=10**15, description="between the host and the bridge (null: that of its ports together)"
    )
    latency: Time = default("100ns", "from a frame's last bit in to its first bit out, at the earliest", le=MAX_TIME)


class Nic(Model):
    mtu: int = Field(default=4096, ge=256, le=9000, description="payload of an RDMA packet at most, in bytes")
    pcie: Pcie = Field(default_factory=Pcie, description="the link between the NIC and its server")
    ack_every: int = Field(default=16, ge=1, le=1 << 20, description="packets that one acknowledgement covers")
    timeout: Annotated[Time, Field(gt=0, le=MAX_TIME)] | None = Field(
        default=None,
        description="send again after this long without an acknowledgement (null: as long as a packet may wait in full "
        "buffers on its path, 2 ms at least)",
    )
    retry: int = Field(default=7, ge=0, le=1000, description="timeouts in a row until the queue pair fails")
    tx_buffer: Size = default("128KiB", "what the NIC has fetched and not yet sent, at most", gt=0)
    rx_buffer: Size = default("512KiB", "what has come in and not yet gone over PCIe, at most (0B: no end)", le=10**12)
    pfc: bool = Field(default=True, description="send pauses when the receive buffer fills, and heed them")
    kind: Literal["plain", "on_path", "off_path"] = Field(
        default="plain",
        description="what the NIC can do besides: add up in its pipeline, or run programs behind a bridge "
        "(left out: on_path if the workload has an algorithm that adds up in NICs)",
    )
    profile: str | None = Field(
        default=None,
        description="a known SmartNIC, from which `engine` or `complex` take what they leave out (docs/smartnics.md)",
        json_schema_extra=names(known.smartnic_profiles),
    )
    engine: Engine | None = Field(default=None, description="on_path: the adder (null: the profile's)")
    complex: Complex | None = Field(default=None, description="off_path: bridge and cores (null: the profile's)")

    router: Router = Field(
        default_factory=Router, description="topologies with `direct` or `links`: the bridge inside the NIC"
    )

    @model_validator(mode="before")
    @classmethod
    def _filled_from_the_profile(cls, value: Any) -> Any:
        return known.smartnic(value) if isinstance(value, dict) else value


class ScaleUp(Model):
    rate: Rate = default("3600Gbps", "bandwidth of each GPU into its server's domain", gt=0, le=MAX_RATE)
    delay: Time = default("300ns", "delay between two GPUs of a domain", le=MAX_TIME)


class FabricSpec(Model):
    topology: Topology = Field(description="the kind of network and its parameters")
    cable: Cable = Field(default_factory=Cable, description="every cable")
    host_cable: HostCable = Field(
        default_factory=HostCable, description="the cables between hosts and switches, where they are different"
    )
    cables: dict[str, Override] = Field(
        default_factory=dict,
        description="single cables: `{TARGET: {rate: .., delay: ..}}`, such as `cable:leaf0-spine0`; the last one wins",
    )
    switch: Switch = Field(default_factory=Switch, description="every switch")
    nic: Nic = Field(default_factory=Nic, description="every NIC")
    scale_up: ScaleUp | None = Field(
        default=None,
        description="the NVLink domain of a server (default where it has several GPUs; null: servers without)",
    )

    @model_validator(mode="before")
    @classmethod
    def _has_scale_up(cls, value: Any) -> Any:
        topology = value.get("topology") if isinstance(value, dict) else None
        if known.with_scale_up(topology):
            return {"scale_up": {}, **value}
        return value


def dscp_of(traffic_class: int, spec: FabricSpec) -> int | None:
    """How packets of a class are marked: by the lowest DSCP that switches put into it."""
    marks = [d for d in range(64) if spec.switch.dscp.get(d, 0) == traffic_class]
    return min(marks, default=None)
