"""`topology: {custom: ..}` as it is written: nodes and cables in place, or in a file beside the experiment.

A network from a file is written out in the run's folder, so that the run can be repeated without the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, GetJsonSchemaHandler, ValidationError, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from testbed.base import yaml_reader
from testbed.base.types import Model, Rate, Time, mistake, mistakes
from testbed.base.units import format_rate, format_time
from testbed.experiment.blocks.cables import MAX_RATE, MAX_TIME, OwnCable
from topologies import build
from topologies.graph.fabric import Fabric, TopologyError
from workloads.base import named_file

Place = tuple[str | int, ...]
Found = tuple[Place, str, str]


class Node(Model):
    """A node; written as its kind alone, if there is nothing more."""

    kind: Literal["host", "switch"] = Field(description="what it is")
    forwards: bool = Field(
        default=False, description="host: its NIC forwards what is for others, as in a direct network"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_kind(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value

    @model_serializer
    def _as_written(self) -> Any:
        return {"kind": self.kind, "forwards": True} if self.forwards else self.kind

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"enum": ["host", "switch"]}, _mapping_of(cls)]}


class CustomCable(Model):
    """A cable; written as its two nodes alone, if there is nothing more."""

    between: str = Field(description="`A-B`, two nodes")
    rate: Rate | None = Field(default=None, gt=0, le=MAX_RATE, description="bit rate (null: its class's)")
    delay: Time | None = Field(default=None, le=MAX_TIME, description="propagation delay (null: its class's)")
    of_class: str | None = Field(
        default=None, alias="class", description="one of `classes` (null: `host` at a host, else `uplink`)"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_nodes(cls, value: Any) -> Any:
        return {"between": value} if isinstance(value, str) else value

    @model_serializer
    def _as_written(self) -> Any:
        own = {key: value for key, value in self._own() if value is not None}
        return {"between": self.between, **own} if own else self.between

    def _own(self) -> Iterator[tuple[str, str | None]]:
        yield "rate", None if self.rate is None else format_rate(self.rate)
        yield "delay", None if self.delay is None else format_time(self.delay)
        yield "class", self.of_class

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, _mapping_of(cls)]}


def _mapping_of(model: type[Model]) -> dict[str, Any]:
    """JSON schema of a model that also has a short form."""
    quantities: dict[Any, dict[str, Any]] = {Rate: {"x-quantity": "rate"}, Time: {"x-quantity": "time"}}
    properties = {}
    for name, field in model.model_fields.items():
        kind = quantities.get(field.annotation, {})
        properties[field.alias or name] = {**kind, "description": field.description}
    required = [field.alias or name for name, field in model.model_fields.items() if field.is_required()]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


class Custom(Model):
    """A network, node by node and cable by cable."""

    nodes: dict[str, Node] = Field(description="`{NAME: host}` or `{NAME: switch}`")
    cables: list[CustomCable] = Field(max_length=65536, description="`A-B`, or a mapping with more")
    classes: dict[str, OwnCable] = Field(
        default_factory=dict, description="cables that have something in common; `host` and `uplink` are there anyway"
    )

    def fabric(self) -> Fabric:
        """Raises TopologyError."""
        return build(
            "custom",
            {
                "nodes": {name: {"kind": n.kind, "forwards": n.forwards} for name, n in self.nodes.items()},
                "cables": [_plain(cable) for cable in self.cables],
                "classes": {n: {"rate_bps": c.rate, "delay_ns": c.delay} for n, c in self.classes.items()},
            },
        )


def _plain(cable: CustomCable) -> dict[str, Any]:
    own = {"rate_bps": cable.rate, "delay_ns": cable.delay, "class": cable.of_class}
    return {"between": cable.between, **{key: value for key, value in own.items() if value is not None}}


def custom(value: Any, directory: Path) -> tuple[dict[str, Any], Fabric]:
    """The parameters with every default written out, and the fabric.  Raises what a validator raises."""
    if isinstance(value, dict) and "file" in value:
        if len(value) > 1:
            raise mistake("a network is either in a file or here", "leave out `file`, or all else", ["file"])
        return _from_file(value["file"], directory)
    network, found = _read(value)
    if network is None:
        raise mistakes(found)
    return _built(network)


def _read(value: Any) -> tuple[Custom | None, list[Found]]:
    from testbed.base.explain import explain

    try:
        return Custom.model_validate(value), []
    except ValidationError as error:
        document = yaml_reader.Document(value)
        return None, list(explain(error, Custom, document.value))


def _built(network: Custom) -> tuple[dict[str, Any], Fabric]:
    try:
        fabric = network.fabric()
    except TopologyError as error:
        place = ["nodes", error.key] if error.key in network.nodes else _place(error.key)
        raise mistake(error.what, error.hint, place) from None
    return network.model_dump(mode="json", by_alias=True), fabric


def _place(key: str) -> list[str | int]:
    """`cables[1]` -> cables, 1."""
    steps = [step.rstrip("]") for step in key.split("[")]
    return [int(step) if step.isdecimal() else step for step in steps]


def _from_file(name: Any, directory: Path) -> tuple[dict[str, Any], Fabric]:
    if not isinstance(name, str):
        raise mistake(f"{name!r:.40} is no file name", "a path relative to the experiment file", ["file"])
    try:
        text = named_file.text(directory / name, yaml_reader.MAX_BYTES)
    except named_file.Unreadable as error:
        what = f"{name} cannot be read: {error.what}"
        raise mistake(what, "a path relative to the experiment file", ["file"]) from None
    try:
        document = yaml_reader.read(text)
    except yaml_reader.YamlProblem as error:
        raise mistake(f"{name}:{error.line}: {error.what}", error.hint, ["file"]) from None
    network, found = _read(document.data)
    if network is not None:
        try:
            return _built(network)
        except PydanticCustomError as error:
            found = (error.context or {})["mistakes"]
    raise mistakes(
        [
            (("file",), f"{name}:{document.line(path)}: {_dotted(path)}: {what}", hint)
            for path, what, hint in sorted(found, key=lambda problem: document.line(problem[0]))
        ]
    )


def _dotted(path: Place) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".") or "the file"


def schema() -> dict[str, Any]:
    """JSON schema of the parameters, without references."""
    made = Custom.model_json_schema()
    defs = made.pop("$defs")

    def plain(node: Any) -> Any:
        if isinstance(node, list):
            return [plain(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return plain({**defs[node["$ref"].rpartition("/")[2]], **{k: v for k, v in node.items() if k != "$ref"}})
        return {key: plain(value) for key, value in node.items()}

    inline: dict[str, Any] = plain(made)
    file = {"type": "string", "description": "a YAML file that has the others, relative to the experiment file"}
    inline["properties"]["file"] = file
    inline.pop("required")
    return inline
