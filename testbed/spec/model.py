"""The experiment file as typed models.  Attribute names are the file's keys; rates are bps, times ns, sizes bytes.

Descriptions and defaults here are the only source of the JSON schema and of the reference in docs/experiment.md.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from testbed.shown import Bind, CannotBind
from testbed.spec import known
from testbed.spec.cables import MAX_RATE, MAX_TIME, Override, OwnCable, laid
from testbed.spec.checks import cross_check
from testbed.spec.steps import Step
from testbed.spec.types import Model, Rate, Size, Time, default, fault, faults, names, unknown
from topologies.fabric import EMBEDDED, Fabric, TopologyError
from topologies.smartnic import capped, with_complexes


class Topology(Model):
    """`{KIND: {PARAMETERS}}`; `params` has every parameter with defaults written out."""

    kind: str
    params: dict[str, Any]
    _fabric: Fabric = PrivateAttr()
    _with_complexes: Fabric | None = PrivateAttr(default=None)

    @model_validator(mode="wrap")
    @classmethod
    def _build(cls, value: Any, handler: Any, info: ValidationInfo) -> Self:
        if isinstance(value, cls):
            return value
        if not isinstance(value, dict) or len(value) != 1:
            raise fault(
                "a topology is one kind with its parameters",
                f"write {{KIND: {{PARAMETERS}}}}; kinds: {', '.join(known.topologies())}",
            )
        ((kind, params),) = value.items()
        if kind not in known.topologies():
            raise fault(*unknown("topology", kind, known.topologies()), path=[kind])
        if params is not None and not isinstance(params, dict):
            raise fault(f"the parameters of {kind} are a mapping, not {params!r:.40}", path=[kind])
        if kind == "custom":
            from testbed.spec.custom import custom

            try:
                params, fabric = custom(params or {}, Path((info.context or {}).get("directory", ".")))
            except PydanticCustomError as error:
                found = (error.context or {})["faults"]
                raise faults([((kind, *path), what, hint) for path, what, hint in found]) from None
        else:
            try:
                fabric = known.build(kind, params or {})
            except TopologyError as error:
                raise fault(error.what, error.hint, path=[kind, *_steps(error.key)]) from None
            params = dict(fabric.params)
        topology: Self = handler({"kind": kind, "params": params})
        topology._fabric = fabric
        return topology

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


def _steps(key: str) -> list[str | int]:
    """`dims[1]` -> dims, 1."""
    return [int(step[:-1]) if step.endswith("]") else step for step in key.split("[")]


class Cable(Model):
    rate: Rate = default("400Gbps", "bit rate of every cable, each direction", gt=0, le=MAX_RATE)
    delay: Time = default("500ns", "propagation delay of every cable", le=MAX_TIME)


TrafficClass = Annotated[int, Field(ge=0, le=7)]
Dscp = Annotated[int, Field(ge=0, le=63)]


def _number_keys(value: Any) -> Any:
    """Keys of a mapping are numbers, also where they are written in quotes (as JSON must)."""
    if not isinstance(value, dict):
        return value
    return {int(k) if isinstance(k, str) and k.isdecimal() else k: v for k, v in value.items()}


Weights = Annotated[dict[TrafficClass, Annotated[int, Field(ge=1, le=100)]], BeforeValidator(_number_keys)]
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

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.kmin is not None and self.kmax is not None and self.kmin > self.kmax:
            raise fault("kmin is larger than kmax", "marking grows from kmin to kmax", ["kmin"])
        if (self.kmin is None) != (self.kmax is None):
            raise fault("kmin and kmax go together", "give both, or none", ["kmin" if self.kmax else "kmax"])
        return self


class Scheduler(Model):
    strict: list[TrafficClass] = Field(
        default=[6, 7], description="classes that go first, the highest before the others"
    )
    weights: Weights = Field(
        default=dict.fromkeys(range(6), 1), description="shares of the other classes (deficit round robin)"
    )


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
        description="of those, shared by best-effort jobs (null: all, half or none of them, as the workload has "
        "best-effort collectives only, also others by slots, or none)",
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
            raise fault(f"{self.shared_slots} of {self.slots} slots cannot be shared", "at most all", ["shared_slots"])
        return self


class Switch(Model):
    latency: Time = default("500ns", "from a frame's last bit in to its first bit out, at the earliest", le=MAX_TIME)
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
    accelerator: Accelerator | None = Field(
        default=None,
        description="in-network aggregation on every switch (null: none; left out: if the workload asks for it)",
    )


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
    timeout: Time = default("2ms", "send again after this long without an acknowledgement", gt=0, le=MAX_TIME)
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
    host_cable: OwnCable = Field(
        default_factory=OwnCable, description="the cables between hosts and switches, where they are different"
    )
    cables: dict[str, Override] = Field(
        default_factory=dict,
        description="single cables: `{TARGET: {rate: .., delay: ..}}`, such as `cable:leaf0-spine0`; the last one wins",
    )
    switch: Switch = Field(default_factory=Switch, description="every switch")
    nic: Nic = Field(default_factory=Nic, description="every NIC")
    scale_up: ScaleUp | None = Field(
        default=None,
        description="the NVLink domain of a server (rail only, where it is the default; null: servers without)",
    )

    @model_validator(mode="before")
    @classmethod
    def _rail_has_scale_up(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(topology := value.get("topology"), dict) and "rail" in topology:
            return {"scale_up": {}, **value}
        return value


class Clock(Model):
    """`virtual`, `real` or `{real: {dilation: N, fifo: BOOL}}`; `dilation` None: found out when the fabric comes up.

    `fifo`: fabricd asks for real-time scheduling (SCHED_FIFO), and goes on without where it is not allowed.
    """

    mode: Literal["virtual", "real"]
    dilation: int | None = None
    fifo: bool = False

    @model_validator(mode="before")
    @classmethod
    def _from_written(cls, value: Any) -> Any:
        if value in ("virtual", "real"):
            return {"mode": value}
        if not isinstance(value, dict) or list(value) != ["real"]:
            raise fault(f"{value!r:.40} is not a clock", "write virtual, real or {real: {dilation: 10000}}")
        inner = {} if value["real"] is None else value["real"]
        if not isinstance(inner, dict):
            raise fault("the real clock takes a mapping", "write {real: {dilation: 10000}}", path=["real"])
        for key in inner:
            if key not in ("dilation", "fifo"):
                raise fault(f"unknown key {key!r}", "allowed keys: dilation, fifo", path=["real", key])
        dilation, fifo = inner.get("dilation", "auto"), inner.get("fifo", False)
        if type(fifo) is not bool:
            raise fault(f"{fifo!r:.40} is neither true nor false", "write true or false", ["real", "fifo"])
        if dilation == "auto":
            return {"mode": "real", "fifo": fifo}
        if type(dilation) is not int or not 1 <= dilation <= 10**9:
            raise fault(
                f"{dilation!r:.40} is not a dilation",
                "write auto or a whole number from 1 to 10^9",
                ["real", "dilation"],
            )
        return {"mode": "real", "dilation": dilation, "fifo": fifo}

    @model_serializer
    def _as_written(self) -> Any:
        if self.mode == "virtual":
            return "virtual"
        return {"real": {"dilation": "auto" if self.dilation is None else self.dilation, "fifo": self.fifo}}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        dilation = {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": 10**9}]}
        properties = {"dilation": dilation, "fifo": {"type": "boolean"}}
        real = {"type": "object", "properties": properties, "additionalProperties": False}
        written = {"type": "object", "properties": {"real": real}, "required": ["real"], "additionalProperties": False}
        return {"anyOf": [{"enum": ["virtual", "real"]}, written]}


def _application(directory: str | Path, name: str) -> str:
    """The absolute path of a controller application; raises what a validator raises."""
    path = Path(directory, name).absolute()
    if not path.is_file():
        raise fault(f"there is no application {name!r}", "a path relative to the experiment file")
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise fault(f"{name}{line} is not Python: {getattr(error, 'msg', error)}") from None
    return str(path)


class Control(Model):
    routing: str = Field(
        default="ecmp", description="how the controller finds paths", json_schema_extra=names(known.routings)
    )
    reaction: Time = default("1ms", "emulated time from a port's change to the new rules", le=MAX_TIME)

    dateline: bool = Field(
        default=True,
        description="torus, ring: a second lossless class for what wraps around, so that nothing deadlocks",
    )
    library: Literal["os-ken", "ryu"] = Field(
        default="os-ken", description="the OpenFlow library that the controller runs on (`./setup.sh ryu` builds ryu's)"
    )
    apps: list[str] = Field(
        default=[], description="files with applications of your own, written to Ryu's API (docs/controller-apps.md)"
    )

    @field_validator("apps")
    @classmethod
    def _python(cls, value: list[str], info: ValidationInfo) -> list[str]:
        directory = (info.context or {}).get("directory", ".")
        return [_application(directory, path) for path in value]

    @field_validator("routing")
    @classmethod
    def _known_routing(cls, value: str) -> str:
        if value not in known.routings():
            raise fault(*unknown("routing", value, known.routings()))
        return value


class CongestionControl(Model):
    """`NAME` or `{NAME: {PARAMETERS}}`; `values` are the parameters given, `set` a named set of them."""

    name: str
    set: str | None = None
    values: dict[str, float] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_written(cls, value: Any) -> Any:
        return known.congestion_control(value)

    @model_serializer
    def _as_written(self) -> Any:
        return known.congestion_control_written(self.name, self.set, self.values)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return known.congestion_control_schema()


class Transport(Model):
    cc: CongestionControl = default("none", "congestion control of every queue pair: a name, or {NAME: {PARAMETERS}}")
    recovery: Literal["go_back_n", "selective_repeat"] = Field(
        default="go_back_n", description="what is sent again after a loss: everything from there on, or what was lost"
    )
    reorder_packets: int = Field(
        default=1024, ge=1, le=1 << 16, description="selective repeat: packets that a NIC keeps out of order, at most"
    )
    dscp: Dscp = Field(default=26, description="DSCP of data packets")
    ack_dscp: Dscp = Field(default=48, description="DSCP of acknowledgements")
    cnp_dscp: Dscp = Field(default=48, description="DSCP of congestion notifications")


class Workers(Model):
    cpus: float | None = Field(
        default=None, gt=0, le=4096, allow_inf_nan=False, description="CPUs a worker may use (null: no limit)"
    )
    memory: Size = default("1GiB", "memory a worker may use", ge=16 << 20)
    image: str | None = Field(
        default=None, description="root file system of the workers: an archive by `docker save` (null: this machine's)"
    )
    bind: list[str] = Field(
        default_factory=list, description="folders and files of this machine that workers see: PATH, or PATH:rw"
    )

    @field_validator("image")
    @classmethod
    def _readable(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        path = Path((info.context or {}).get("directory", "."), value).absolute()
        if not path.is_file():
            raise fault(f"there is no image archive {value!r}", "a path relative to the experiment file")
        return str(path)

    @field_validator("bind")
    @classmethod
    def _visible(cls, value: list[str]) -> list[str]:
        found, seen = [], set()
        for n, text in enumerate(value):
            bind = Bind.of(text)
            try:
                bind.check()
            except CannotBind as error:
                found.append(((n,), error.what, error.hint))
            if bind.path in seen:
                found.append(((n,), f"{str(bind.path)!r} is bound twice", "name it once"))
            seen.add(bind.path)
        if found:
            raise faults(found)
        return value


class Costs(Model):
    post: Time = default("100ns", "host time to post one work request", le=MAX_TIME)
    reduce: Rate = default("800Gbps", "speed at which a host adds up received data", gt=0, le=MAX_RATE)
    wake: Time = default("0ns", "host time to notice a completion", le=MAX_TIME)
    convert: Rate = default(
        "1600Gbps", "speed at which a host turns floating into fixed point, and back", gt=0, le=10**15
    )


class Measure(Model):
    sample: Annotated[Time, Field(ge=1000, le=1e12)] | None = Field(
        default=None,
        description="time series: interval of the samples of queues, buffers, rates, pauses (null: none)",
    )


def _injections(value: Any) -> Any:
    if not isinstance(value, list):
        raise fault("inject is a list", "write [] or leave it out")
    from testbed.inject import Injection, Mistakes

    made, found = [], []
    for i, entry in enumerate(value):
        try:
            made.append(entry if isinstance(entry, Injection) else Injection.of(entry))
        except Mistakes as mistakes:
            found += [((i, *path), what, hint) for path, what, hint in mistakes.found]
    if found:
        raise faults(found)
    return made


def _injections_written(value: list[Any]) -> list[dict[str, Any]]:
    return [injection.written() for injection in value]


class Experiment(Model):
    """A validated experiment.  Raises pydantic's ValidationError; `spec.load` turns that into an InputError."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="letters, digits, `.`, `_`, `-`; names the run's folder",
    )
    seed: int = Field(default=1, ge=0, lt=1 << 63, description="of everything random, and of the data")
    clock: Clock = default("virtual", "`virtual`, `real` or `{real: {dilation: N}}`")
    fabric: FabricSpec = Field(description="the emulated network")
    control: Control = Field(default_factory=Control, description="the controller")
    transport: Transport = Field(default_factory=Transport, description="the RDMA transport")
    workload: list[Step] = Field(default_factory=list, max_length=10_000, description="steps, one after the other")
    inject: Annotated[list[Any], BeforeValidator(_injections), PlainSerializer(_injections_written)] = Field(
        default_factory=list, max_length=1000, description="faults: `{fault: NAME, on: TARGET, ..}`, see docs/faults.md"
    )
    capture: list[str] = Field(
        default_factory=list, max_length=1000, description="`port:SWITCH:N`, `nic:RANK` or `cable:A-B`, to pcapng files"
    )
    sweep: dict[str, list[Any]] = Field(
        default_factory=dict,
        description="`{KEY: [VALUES]}`: one fabric and run for each value of a key, named by its path in this file "
        "(`'KEY, KEY'`: the same value for both)",
    )
    measure: Measure = Field(default_factory=Measure, description="what is recorded besides results and counters")
    workers: Workers = Field(default_factory=Workers, description="the workers' containers")
    patience: Time = default(
        "60s",
        "how long a worker, the controller, Open vSwitch or fabricd may compute or sleep without a word while it is "
        "waited for (wall time; while it is ready to run and gets no CPU does not count)",
        ge=1e9,
        le=1e15,
    )
    costs: Costs = Field(default_factory=Costs, description="emulated time of what workers do on the host")
    _written: dict[str, Any] | None = PrivateAttr(default=None)
    _graph: Fabric | None = PrivateAttr(default=None)
    _directory: Path = PrivateAttr(default=Path())
    _place: Callable[[tuple[str | int, ...]], str] | None = PrivateAttr(default=None)

    @field_validator("sweep")
    @classmethod
    def _something_to_sweep(cls, value: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for key, values in value.items():
            if not values:
                raise fault("there is nothing to sweep over", "name at least one value", [key])
        return value

    @model_validator(mode="before")
    @classmethod
    def _accelerators_where_asked_for(cls, value: Any) -> Any:
        if not known.asks_for(value, "accelerators"):
            return value
        fabric = value.get("fabric")
        switch = fabric.get("switch", {}) if isinstance(fabric, dict) else None
        if not isinstance(switch, dict) or "accelerator" in switch:
            return value
        return {**value, "fabric": {**fabric, "switch": {**switch, "accelerator": {}}}}

    @model_validator(mode="before")
    @classmethod
    def _engines_where_asked_for(cls, value: Any) -> Any:
        if not known.asks_for(value, "engines"):
            return value
        fabric = value.get("fabric")
        nic = fabric.get("nic", {}) if isinstance(fabric, dict) else None
        if not isinstance(nic, dict) or "kind" in nic:
            return value
        return {**value, "fabric": {**fabric, "nic": {**nic, "kind": "on_path"}}}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        try:
            self.build_fabric()
        except TopologyError as error:
            where = ["cables", error.key] if error.key in self.fabric.cables else ["nic", error.key]
            raise fault(error.what, error.hint, ["fabric", *where]) from None
        if found := cross_check(self, self.build_fabric()):
            raise faults(found)
        return self

    def build_fabric(self) -> Fabric:
        """The topology's graph; without scale-up domains where the experiment has none, with accelerators if it has.

        Every cable that differs from `fabric.cable` has its own rate and delay.
        """
        if self._graph is None:
            self._graph = self._build_fabric()
        return self._graph

    def _build_fabric(self) -> Fabric:
        topology = self.fabric.topology
        fabric = topology.with_complexes() if self.fabric.nic.complex else topology._fabric
        if not self.fabric.scale_up:
            fabric = replace(fabric, scale_up=())
        if self.fabric.switch.accelerator:
            switches = tuple(replace(s, accelerator=s.role not in EMBEDDED) for s in fabric.switches)
            fabric = replace(fabric, switches=switches)
        fabric = laid(fabric, self.fabric.host_cable, self.fabric.cables)
        inside = self.fabric.nic.complex
        return capped(fabric, inside.port, self.fabric.cable.rate) if inside else fabric

    def __eq__(self, other: object) -> bool:
        """Whether they say the same, however it was written."""
        return isinstance(other, Experiment) and self.resolved() == other.resolved()

    __hash__ = None  # type: ignore[assignment]  # like any model that holds lists

    @property
    def directory(self) -> Path:
        """Where relative paths start."""
        return self._directory

    def place(self, *path: str | int) -> str:
        """`FILE:LINE: KEY` of what stands at `path` in the file, for errors that are found later."""
        return self._place(path) if self._place else ".".join(map(str, path))

    def written(self) -> dict[str, Any]:
        """Plain data as it was written: what was left out is not there, so that a changed key changes defaults, too."""
        return self.resolved() if self._written is None else deepcopy(self._written)

    def resolved(self) -> dict[str, Any]:
        """Plain data as in the file with every default written out; loading it gives this experiment again."""
        return self.model_dump(mode="json", by_alias=True)
