"""Turns pydantic's errors into words for the person who wrote the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from testbed.base.types import Model, closest, unknown
from testbed.base.units import BANDWIDTH, FLOPS, RATE, SIZE, TIME, UnitError

Path = tuple[str | int, ...]
_MOST_UNKNOWN = 100
"""So many unknown keys are named; more than that nobody reads."""


def explain(
    error: ValidationError, root: type[BaseModel], value: Callable[[Path], object]
) -> Iterator[tuple[Path, str, str]]:
    """(path, what, hint) of everything wrong; `value` gives what was written at a path.

    A key that is missing because it is misspelt is reported once: at the misspelt key.
    """
    details = error.errors(include_url=False)
    # to look for what each may mean takes longer than to read the file
    strange = [detail["loc"] for detail in details if detail["type"] == "extra_forbidden"][:_MOST_UNKNOWN]
    meant = {(*loc[:-1], closest(loc[-1], allowed_keys(loc[:-1], root))) for loc in strange}
    for detail in details:
        loc, kind = detail["loc"], detail["type"]
        if (kind == "missing" and loc in meant) or (kind == "extra_forbidden" and loc not in strange):
            continue
        of_key = loc[-1:] == ("[key]",)  # what is wrong is the key itself
        loc = loc[:-1] if of_key else loc
        path = tuple(step for step in loc if not str(step).startswith("<"))
        if kind == "railbed":
            for inner, what, hint in detail["ctx"]["mistakes"]:
                yield (*path, *inner), what, hint
        else:
            yield path, *_say(detail, loc, loc[-1] if of_key else value(path), root)


_MAPPING = ("a mapping of keys to values", "KEY: VALUE, each in a line of its own, or {KEY: VALUE, ..}")
_TYPES = {  # and how it is written
    "int_type": ("a whole number", "such as 4"),
    "float_type": ("a number", "such as 0.01"),
    "finite_number": ("a finite number", ""),
    "string_type": ("a text", 'in quotes if need be: "4"'),
    "list_type": ("a list", "[ENTRY, ..], or lines that begin with a dash, one for each entry"),
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dict_type": _MAPPING,
}
_OF_MANY = ("list_type", *(kind for kind, its in _TYPES.items() if its is _MAPPING))
_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def _say(detail: ErrorDetails, loc: tuple[str | int, ...], written: object, root: type[BaseModel]) -> tuple[str, str]:
    """What and hint for one of pydantic's own errors; `written` is the value as in the file."""
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    shown = "nothing" if value is None else f"{value!r:.60}"
    if kind == "extra_forbidden":
        return unknown_key(str(loc[-1]), allowed_keys(loc[:-1], root))
    if kind == "missing":
        about = " or ".join(dict.fromkeys(f.description or "" for f in _fields_at(loc, root)))
        keys = f"allowed keys: {', '.join(allowed_keys(loc[:-1], root))}"
        return f"key {loc[-1]!r} is missing", f"it says: {about}; {keys}" if about else keys
    if kind in _TYPES:
        wanted, such_as = _TYPES[kind]
        if isinstance(value, list) and kind not in _OF_MANY and "sweep" in root.model_fields:
            key = ".".join(str(step) for step in loc if not str(step).startswith("<"))
            such_as = f"one value; or each in a run of its own, by sweep: {{{key}: {value!r:.60}}}"
        return (
            ("there is nothing here", f"expected: {wanted}") if value is None else (f"{shown} is not {wanted}", such_as)
        )
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"{str(written)[:40]} is out of bounds", f"must be {words} {_in_units_of(written, context[key])}"
    if kind == "literal_error":
        choices = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        return unknown(str(loc[-1]), value, choices)
    if kind == "too_short":
        return "the list is empty", "at least one entry is needed"
    if kind == "too_long":
        return f"the list has {context['actual_length']} entries", f"at most {context['max_length']} are allowed"
    if kind == "string_pattern_mismatch":
        return f"{shown} is not allowed here", "a letter or digit, then letters, digits, '.', '_' or '-', 64 at most"
    return f"{detail['msg'][:1].lower()}{detail['msg'][1:]}: {shown}", ""


def _in_units_of(written: object, limit: float) -> str:
    """A limit as a quantity of the kind that was written."""
    for kind in (RATE, TIME, SIZE, FLOPS, BANDWIDTH):
        with suppress(UnitError):
            kind.parse(written)
            return kind.format(Decimal(limit))
    return f"{limit:g}"


def unknown_key(key: str, allowed: list[str]) -> tuple[str, str]:
    """What and hint for a key that does not exist."""
    return unknown("key", key, allowed, f"allowed keys: {', '.join(allowed) or 'none'}")


def allowed_keys(loc: Path, root: type[BaseModel]) -> list[str]:
    """The keys of the model at a pydantic location."""
    return [f.alias or n for m in _models_at(loc, root) for n, f in m.model_fields.items()]


def takes_null(loc: Path, root: type[BaseModel]) -> bool:
    """Whether `null` is a value of the key there, which says something."""
    return any(f.annotation is Any or NoneType in get_args(f.annotation) for f in _fields_at(loc, root))


def _fields_at(loc: Path, root: type[BaseModel]) -> list[FieldInfo]:
    """What the models at a pydantic location have for its last step."""
    return [f for m in _models_at(loc[:-1], root) for n, f in m.model_fields.items() if loc[-1] in (n, f.alias)]


def _models_at(loc: Path, root: type[BaseModel]) -> list[type[BaseModel]]:
    models: list[type[BaseModel]] = [root]
    names_follow = False  # the next step is a name that the file chooses, as in `cables: {NAME: ..}`
    for step in loc:
        if isinstance(step, int) or names_follow:
            names_follow = False
            continue
        if step.startswith("<"):  # the tag of a union's member
            models = [m for m in models if step.strip("<>") in m.model_fields]
            continue
        fields = [f for m in models for n, f in m.model_fields.items() if step in (n, f.alias)]
        models = [m for f in fields for m in _models_in(f.annotation)]
        names_follow = any(get_origin(f.annotation) is dict for f in fields)
    return models


def _models_in(annotation: Any) -> list[type[Model]]:
    """The models that an annotation such as `list[A | B]` or `A | None` mentions."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return [annotation]
    arguments = get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
    return [m for argument in arguments for m in _models_in(argument)]
