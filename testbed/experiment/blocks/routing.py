"""`control.routing` of the experiment file: how the controller finds paths, and switches choose among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Tag,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.base import controls
from testbed.base.types import Model, Time, default, folder_of, mistake, unknown
from testbed.experiment.blocks import known
from topologies.ranks.multipath import Hashing

if TYPE_CHECKING:
    from hardware.multipath import PortPolicy

ADAPTIVE, ECMP = "adaptive", "ecmp"


class Flowlets(Model):
    gap: Time = default("2us", "a flow may change its port when so long nothing of it has come", gt=0, le=1e9)
    entries: int = Field(
        default=4096, ge=1, le=1 << 20, description="of a switch's table; flows that meet in one are taken for one"
    )


class Scope(Model):
    flowlet: Flowlets = Field(default_factory=Flowlets, description="a switch chooses anew for each burst of a flow")


class Quality(Model):
    bands: int = Field(
        default=8,
        ge=2,
        le=255,
        description="a switch tells so many lengths of a queue apart, each as much as is sent in `every`",
    )
    every: Time = default("1us", "it looks at its queues so often", gt=0, le=1e9)


class PickPolicy(Model):
    """`NAME`, or `{file: FILE.c, PARAMETERS}`; `values` are the parameters given. `name` of a file: its path and
    content."""

    name: str
    values: dict[str, float] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_written(cls, value: Any, info: ValidationInfo) -> Any:
        return value if isinstance(value, cls) else controls.read_adaptive(value, folder_of(info))

    @property
    def entry(self) -> PortPolicy:
        return controls.adaptive(self.name)

    @model_serializer
    def _as_written(self) -> Any:
        return controls.written_adaptive(self.name, self.values)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return controls.adaptive_schema()


class Adaptive(Model):
    policy: PickPolicy = default(
        "two_choices",
        "which port a switch takes: of two that are drawn the one that is free first, of all that one, one after the "
        "other, any; or `{file: FILE.c, PARAMETERS}`, one of your own (docs/own-paths.md)",
    )
    scope: Annotated[
        Annotated[Literal["packet"], Tag("<packet>")] | Annotated[Scope, Tag("<flowlet>")],
        Discriminator(lambda value: "<packet>" if value == "packet" else "<flowlet>"),
    ] = Field(
        default="packet", description="for each packet, or for each flowlet: `{flowlet: {gap: 2us, entries: 4096}}`"
    )
    weights: Literal["equal", "capacity"] = Field(
        default="equal",
        description="what ports weigh: all the same, or what each can carry to the destination, by the rates of cables",
    )
    local_repair: bool = Field(
        default=True, description="a switch passes over its own ports whose cable is down, before the controller does"
    )
    quality: Quality | None = Field(
        default=None, description="how coarsely and how seldom a switch looks at its queues (null: exactly, each time)"
    )

    @model_validator(mode="before")
    @classmethod
    def _scope(cls, value: Any) -> Any:
        scope = value.get("scope", "packet") if isinstance(value, dict) else "packet"
        if scope == "flowlet":
            return {**value, "scope": {"flowlet": {}}}
        if scope != "packet" and not isinstance(scope, dict | Scope):
            raise mistake(*unknown("scope", scope, ["packet", "flowlet", "{flowlet: {..}}"]), path=["scope"])
        return value

    @model_validator(mode="after")
    def _quality(self) -> Self:
        if self.quality and not self.policy.entry.looks:
            what = f"{self.policy.entry.name} looks at no queues: quality changes nothing"
            raise mistake(what, "policy: two_choices or shortest, or leave quality out", ["quality"])
        return self

    @property
    def flowlet(self) -> Flowlets | None:
        return self.scope.flowlet if isinstance(self.scope, Scope) else None


class Ecmp(Model):
    seed: int | None = Field(
        default=None,
        ge=0,
        le=(1 << 32) - 1,
        description="of all switches' hashes (null: each hashes by its own number)",
    )
    dest_qp: bool = Field(
        default=False,
        description="E-ECMP: switches hash by the queue pair that a packet is for, too: their chips do, of the ports "
        "that Open vSwitch names",
    )


class Routing(Model):
    """`NAME`, or `{NAME: {PARAMETERS}}` of one that has some."""

    name: str = "ecmp"
    ecmp: Ecmp = Field(default_factory=Ecmp, description="by what switches hash")
    adaptive: Adaptive | None = Field(
        default=None, description="a switch takes one of the shortest paths for each frame"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_written(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {value: {}}
        if not isinstance(value, dict) or len(value) != 1:
            raise mistake(f"{value!r:.60} is no routing", f"one of {', '.join(known.routings())}, or {{ecmp: {{..}}}}")
        ((name, given),) = value.items()
        if name not in known.routings():
            raise mistake(*unknown("routing", name, known.routings()), path=[] if given == {} else [str(name)])
        if name in (ADAPTIVE, ECMP):
            return {"name": name, name: given or {}}
        if given:
            raise mistake(f"routing {name!r} has no parameters", f"write routing: {name}", path=[name])
        return {"name": name}

    @model_serializer(mode="wrap")
    def _as_written(self, handler: Any) -> Any:
        written = self.adaptive or self.ecmp != Ecmp()
        return {self.name: handler(self)[self.name]} if written else self.name

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        made = handler.resolve_ref_schema(handler(schema))
        del made["properties"]["name"]
        return made

    @property
    def hashing(self) -> Hashing:
        return Hashing(self.ecmp.seed, self.ecmp.dest_qp)

    @property
    def chooses(self) -> bool:
        """Whether of the ports that Open vSwitch names a switch's chip takes one."""
        return self.adaptive is not None or self.ecmp.dest_qp

    @property
    def weighs(self) -> bool:
        """Whether ports weigh by rates."""
        return self.adaptive is not None and self.adaptive.weights == "capacity"


def in_words(schema: dict[str, Any]) -> None:
    """The key's schema: a name, or a mapping with one."""
    reference = schema.pop("$ref", None) or schema.pop("allOf")[0]["$ref"]
    schema.update({"default": "ecmp", "anyOf": [{"type": "string", "enum": known.routings()}, {"$ref": reference}]})
