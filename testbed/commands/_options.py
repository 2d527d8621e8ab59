"""The options of `testbed inject FAULT`: made from the fault's parameters, so that click says what they take.

A parameter is an option with its type, range and default from the fault's class; lists are written with commas. Errors
of the class's further checks name options, not keys.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from testbed.base.errors import InputError, Problem
from testbed.base.ranges import Number, Whole
from testbed.base.units import RATE, SIZE, TIME, UnitError
from testbed.faults import CATALOGUE, Fault, Injection, Mistakes

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # older ones are not generic

_FORMS = {
    "cable": "cable:A-B", "port": "port:SWITCH:N", "nic": "nic:RANK", "switch": "switch:NAME",
    "flow": "flow:RANK->RANK", "controller": "controller", "all": "all",
}  # fmt: skip
_QUANTITIES = {kind.name: kind for kind in (RATE, TIME, SIZE)}


class Quantity(ParamType):
    """A number with its unit, `400Gbps`; kept as it was written."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            _QUANTITIES[self.name].parse(value)
        except UnitError as error:
            self.fail(f"{error.what}; {error.hint}" if error.hint else error.what, param, ctx)
        return value


class Words(ParamType):
    """Several values of one type, `3,4`; brackets are allowed, as in an experiment file."""

    name = "list"

    def __init__(self, of: ParamType) -> None:
        self.of = of

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        words = [word.strip() for word in value.strip().removeprefix("[").removesuffix("]").split(",")]
        return [self.of.convert(word, param, ctx) for word in words]

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        if isinstance(self.of, click.IntRange) and None not in (self.of.min, self.of.max):
            return f"{self.of.min}..{self.of.max},.."
        return "NAME,.." if isinstance(self.of, click.Choice) else f"{self.of.name.upper()},.."


class Yaml(ParamType):
    """A value that has no simpler form, such as a mapping, written in YAML as in an experiment file."""

    name = "yaml"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from testbed.base import yaml_reader

        try:
            return yaml_reader.value(value)
        except yaml_reader.YamlProblem as problem:
            self.fail(f"{value!r} is no YAML value: {problem.why}", param, ctx)


def of(fault: type[Fault]) -> list[click.Parameter]:
    """The options of a fault: its target and times, then its parameters."""
    kinds = ", ".join(_FORMS[kind] for kind in fault.on)
    about = [
        click.Option(["--on"], required=True, metavar="TARGET", help=f"What it strikes: {kinds}.",
                     shell_complete=_targets),
        click.Option(["--at"], type=Quantity("time"), help="Emulated time from now (default: at once)."),
        click.Option(["--for"], type=Quantity("time"), help="How long (default: until it is healed)."),
        click.Option(["--every"], type=Quantity("time"), help="From one beginning to the next; goes with --for."),
    ]  # fmt: skip
    schema = fault.model_json_schema(by_alias=True)
    own = [
        _option(name, told, name in schema.get("required", ())) for name, told in schema.get("properties", {}).items()
    ]
    return [*about, *own]


def _targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
    from testbed.commands._complete import TARGET

    return TARGET(ctx, param, incomplete)


def _option(name: str, field: dict[str, Any], required: bool) -> click.Option:
    names = list(dict.fromkeys([f"--{name.replace('_', '-')}", f"--{name}"]))
    kind = _type(field)
    shown = field.get("default")
    text = str(field.get("description", "")).rstrip(".").replace("`", "")
    text = text.replace(" (null: all)", "; all if left out").replace("null", "left out")
    if isinstance(shown, list):
        shown = ",".join(map(str, shown))
    if isinstance(kind, Words) and isinstance(kind.of, click.Choice):
        text += f"; of {', '.join(map(str, kind.of.choices))}"
    default = f" [default: {shown}]" if shown not in (None, {}) else ""
    if field.get("type") == "boolean":
        pair = "/".join((names[0], f"--no-{names[0][2:]}"))
        return click.Option([pair], default=None, help=f"{text[:1].upper()}{text[1:]}.{default}")
    return click.Option(names, type=kind, required=required, help=f"{text[:1].upper()}{text[1:]}.{default}")


def _type(field: dict[str, Any]) -> ParamType:
    """click's type for a JSON schema."""
    if "anyOf" in field:
        some = [one for one in field["anyOf"] if one.get("type") != "null"]
        return _type(some[0]) if len(some) == 1 else Yaml()
    if "x-quantity" in field:
        return Quantity(field["x-quantity"])
    if "enum" in field:
        return click.Choice(field["enum"])
    if field.get("type") == "array":
        return Words(_type(field["items"]))
    low, high = field.get("minimum", field.get("exclusiveMinimum")), field.get("maximum", field.get("exclusiveMaximum"))
    opens = {"min_open": "exclusiveMinimum" in field, "max_open": "exclusiveMaximum" in field}
    if field.get("type") == "integer":
        return Whole(low, high, **opens)
    if field.get("type") == "number":
        return Number(low, high, **opens)
    return click.STRING if field.get("type") == "string" else Yaml()


def injection(fault: str, given: dict[str, Any]) -> Injection:
    """The injection that the options say. Raises InputError that names the options."""
    written = {key: value for key, value in given.items() if value is not None}
    try:
        return Injection.of({"fault": fault, **written})
    except Mistakes as mistakes:
        first, *others = [
            Problem(
                re.sub(r"`(\w+)`", r"--\1", what),
                f"command line: --{path[0]}" if path else "command line",
                hint,
            )
            for path, what, hint in mistakes.found
        ]
        raise InputError(first.what, first.where, first.hint, others) from None


def described(fault: str) -> dict[str, Any]:
    """A fault for a program: what it strikes, what it is, its parameters as a JSON schema."""
    cls = CATALOGUE[fault]
    schema = cls.model_json_schema(by_alias=True)
    about = {"fault": fault, "on": list(cls.on), "summary": cls.summary, "shows": cls.shows}
    return {**about, "parameters": schema.get("properties", {}), "required": schema.get("required", [])}
