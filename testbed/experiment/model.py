"""The whole experiment file as a typed model; the models of its blocks are in blocks/.

Attribute names are the file's keys; rates are bps, times ns, sizes bytes. Descriptions and defaults of the models are
the only source of the JSON schema and of the reference in docs/experiment.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from testbed.base.types import Model, Time, default, mistake, mistakes
from testbed.cluster.profile import Profile
from testbed.cluster.source import FILE_OR_MAPPING
from testbed.experiment.axes import Axis, axes_of, checked
from testbed.experiment.blocks.cables import laid
from testbed.experiment.blocks.clock import Clock
from testbed.experiment.blocks.control import Control
from testbed.experiment.blocks.fabric import FabricSpec
from testbed.experiment.blocks.transport import Sending, Transport, over
from testbed.experiment.blocks.workers import Costs, Workers
from testbed.experiment.checks import cross_check
from testbed.experiment.cluster import with_profile
from testbed.experiment.library import Library, by_library
from testbed.experiment.steps.step import Path as StepPath
from testbed.experiment.steps.steps import AnyStep, asks_for
from topologies.graph.fabric import EMBEDDED, Fabric, TopologyError
from topologies.graph.smartnic import capped


class Measure(Model):
    sample: Annotated[Time, Field(ge=1000, le=1e12)] | None = Field(
        default=None,
        description="time series: interval of the samples of queues, buffers, rates, pauses (null: none)",
    )


def _injections(value: Any) -> Any:
    if not isinstance(value, list):
        raise mistake("inject is a list", "write [] or leave it out")
    from testbed.faults import Injection, Mistakes

    made, found = [], []
    for i, entry in enumerate(value):
        try:
            made.append(entry if isinstance(entry, Injection) else Injection.of(entry))
        except Mistakes as wrong:
            found += [((i, *path), what, hint) for path, what, hint in wrong.found]
    if found:
        raise mistakes(found)
    return made


def _injections_written(value: list[Any]) -> list[dict[str, Any]]:
    return [injection.written() for injection in value]


class Experiment(Model):
    """A validated experiment.  Raises pydantic's ValidationError; `loader.load` turns that into an InputError."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="letters, digits, `.`, `_`, `-`; names the run's folder",
    )
    seed: int = Field(default=1, ge=0, lt=1 << 63, description="of everything random, and of the data")
    clock: Clock = default("virtual", "`virtual`, `real`, `{virtual: {partitions: N}}` or `{real: {dilation: N}}`")
    fabric: FabricSpec = Field(description="the emulated network")
    control: Control = Field(default_factory=Control, description="the controller")
    transport: Transport = Field(default_factory=Transport, description="the RDMA transport")
    workload: list[AnyStep] = Field(default_factory=list, max_length=10_000, description="steps, one after the other")
    inject: Annotated[list[Any], BeforeValidator(_injections), PlainSerializer(_injections_written)] = Field(
        default_factory=list, max_length=1000, description="faults: `{fault: NAME, on: TARGET, ..}`, see docs/faults.md"
    )
    capture: list[str] = Field(
        default_factory=list, max_length=1000, description="`port:SWITCH:N`, `nic:RANK` or `cable:A-B`, to pcapng files"
    )
    sweep: dict[str, list[Any] | dict[str, Any]] = Field(
        default_factory=dict,
        description="`{KEY: [VALUES]}`: one run for each value of a key, named by its path in this file "
        "(`'KEY, KEY'`: the same value for both; `WORD: {NAME: {KEY: VALUE, ..}, ..}`: variants; `zip`, `sample`: "
        "docs/sweeps.md)",
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
    library: Library | None = Field(
        default=None,
        description="a collective library, in whose manner collectives are carried out that name no `algorithm` "
        "(null: none, docs/collective-library.md)",
    )
    cluster: Annotated[Profile | None, WithJsonSchema(FILE_OR_MAPPING)] = Field(
        default=None,
        description="a cluster's profile: a file that `testbed calibrate` has written, or the name of a ready one; it "
        "fills in `fabric.cable`, `fabric.scale_up`, `costs` and `library` where they are left out (docs/calibrate.md)",
    )
    _written: dict[str, Any] | None = PrivateAttr(default=None)
    _graph: Fabric | None = PrivateAttr(default=None)
    _axes: list[Axis] | None = PrivateAttr(default=None)
    _stands: Transport | None = PrivateAttr(default=None)
    _directory: Path = PrivateAttr(default=Path())
    _place: Callable[[tuple[str | int, ...]], str] | None = PrivateAttr(default=None)

    @field_validator("sweep", mode="before")
    @classmethod
    def _something_to_sweep(cls, value: Any) -> Any:
        for word, axis in value.items() if isinstance(value, dict) else ():
            checked(word, axis)
        return value

    @model_validator(mode="before")
    @classmethod
    def _as_the_library_does(cls, value: Any) -> Any:
        return by_library(value)

    @model_validator(mode="before")
    @classmethod
    def _accelerators_where_asked_for(cls, value: Any) -> Any:
        if not asks_for(value, "accelerators"):
            return value
        fabric = value.get("fabric")
        switch = fabric.get("switch", {}) if isinstance(fabric, dict) else None
        if not isinstance(switch, dict) or "accelerator" in switch:
            return value
        return {**value, "fabric": {**fabric, "switch": {**switch, "accelerator": {}}}}

    @model_validator(mode="before")
    @classmethod
    def _engines_where_asked_for(cls, value: Any) -> Any:
        if not asks_for(value, "engines"):
            return value
        fabric = value.get("fabric")
        nic = fabric.get("nic", {}) if isinstance(fabric, dict) else None
        if not isinstance(nic, dict) or "kind" in nic:
            return value
        return {**value, "fabric": {**fabric, "nic": {**nic, "kind": "on_path"}}}

    @model_validator(mode="before")
    @classmethod
    def _with_the_profile(cls, value: Any, info: ValidationInfo) -> Any:
        return with_profile(value, Path((info.context or {}).get("directory", ".")))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        try:
            self.build_fabric()
        except TopologyError as error:
            where = ["cables", error.key] if error.key in self.fabric.cables else ["nic", error.key]
            raise mistake(error.what, error.hint, ["fabric", *where]) from None
        if found := cross_check(self, self.build_fabric()):
            raise mistakes(found)
        return self

    @property
    def stands(self) -> Transport:
        """What NICs have: on a fabric that is up what that came up with, which may be another."""
        return self._stands or self.transport

    def senders(self) -> Iterator[tuple[StepPath, Sending]]:
        """What is sent by: by default, and wherever the file says something else, with the place of that."""
        transport = self.transport
        yield ("transport",), transport
        for written, own in transport.nics.items():
            yield ("transport", "nics", written), over(transport, own)
        for its, own in transport.classes.items():
            for nic in (None, *transport.nics.values()):
                yield ("transport", "classes", its), over(transport, nic, own)
        for i, step in enumerate(self.workload):
            for path, owns in step.own_transports():
                for above in (None, *transport.nics.values(), *transport.classes.values()):
                    yield ("workload", i, *path), over(transport, above, *owns)

    def build_fabric(self) -> Fabric:
        """The topology's graph; without scale-up domains where the experiment has none, with accelerators if it has.

        Every cable that differs from `fabric.cable` has its own rate and delay.
        """
        if self._graph is None:
            self._graph = self._build_fabric()
        return self._graph

    def axes(self) -> list[Axis]:
        """Those of its sweep."""
        if self._axes is None:
            self._axes = axes_of(self.sweep, self.seed, self.place)
        return self._axes

    def on_fabric(self, fabric: Fabric) -> Self:
        """The same on a fabric whose cables are others: to see what it would take."""
        other = self.model_copy()
        other._graph = fabric
        return other

    def _build_fabric(self) -> Fabric:
        topology = self.fabric.topology
        fabric = topology.with_complexes() if self.fabric.nic.complex else topology._fabric
        if not self.fabric.scale_up:
            fabric = replace(fabric, scale_up=())
        if self.fabric.switch.accelerator:
            switches = tuple(replace(s, accelerator=s.role not in EMBEDDED) for s in fabric.switches)
            fabric = replace(fabric, switches=switches)
        overrides = {} if topology.is_large else self.fabric.cables  # of cables that its small stand-in does not have
        fabric = laid(fabric, self.fabric.host_cable, overrides)
        inside = self.fabric.nic.complex
        return capped(fabric, inside.port, self.fabric.cable.rate) if inside else fabric

    def __eq__(self, other: object) -> bool:
        """Whether they mean the same, however they were written."""
        return isinstance(other, Experiment) and self.resolved() == other.resolved()

    __hash__ = None  # type: ignore[assignment]  # like any model that holds lists

    @property
    def directory(self) -> Path:
        """The directory from which relative paths start."""
        return self._directory

    def place(self, *path: str | int) -> str:
        """`FILE:LINE: KEY` of what stands at `path` in the file, for errors that are found later."""
        return self._place(path) if self._place else ".".join(map(str, path))

    def written(self) -> dict[str, Any]:
        """Plain data as it was written, without defaults, so that defaults follow a key that is changed."""
        return self.resolved() if self._written is None else deepcopy(self._written)

    def resolved(self) -> dict[str, Any]:
        """Plain data as in the file with every default written out; loading it gives this experiment again."""
        return self.model_dump(mode="json", by_alias=True)
