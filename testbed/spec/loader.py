"""From a file to an Experiment; everything that is wrong is said at once, each with file and line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from testbed.errors import InputError, Problem
from testbed.spec import positions
from testbed.spec.model import Experiment
from testbed.spec.types import Model, unknown
from testbed.units import RATE, SIZE, TIME, UnitError

MAX_PROBLEMS = 20


def load(path: str | Path) -> Experiment:
    """Read and validate an experiment file.  Raises InputError; touches nothing but the file."""
    name = str(path)
    try:
        with open(path, "rb") as file:
            raw = file.read(positions.MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError("there is no such file", name, "ready ones are in experiments/") from None
    except IsADirectoryError:
        raise InputError("this is a folder, not an experiment file", name, "name a .yaml file in it") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", name) from None
    if len(raw) > positions.MAX_BYTES:
        raise InputError(f"larger than {positions.MAX_BYTES >> 20} MiB", name, "this is no experiment file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError("not UTF-8 text", f"{name}:{line}") from None
    return loads(text, name, Path(path).parent)


def loads(text: str, name: str = "experiment", directory: Path = Path()) -> Experiment:
    """As `load`, from text; `name` stands for the file in messages, `directory` is where relative paths start."""
    try:
        document = positions.read(text)
    except positions.YamlProblem as error:
        raise InputError(error.what, _where(name, error.line, error.path), error.hint) from None
    if not isinstance(document.data, dict):
        what = "an experiment is a mapping of keys to values"
        raise InputError(what, f"{name}:1", "start from experiments/quickstart.yaml")
    try:
        return Experiment.model_validate(document.data, context={"directory": directory})
    except ValidationError as error:
        found = sorted(_problems(error, document), key=lambda p: p[0])
        first, *others = [Problem(what, _where(name, line, path), hint) for line, path, what, hint in found]
        raise InputError(first.what, first.where, first.hint, others[: MAX_PROBLEMS - 1]) from None


def _where(name: str, line: int, path: positions.Path) -> str:
    place = f"{name}:{line}" if line else name
    dotted = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return f"{place}: {dotted}" if dotted else place


def _problems(error: ValidationError, document: positions.Document) -> Iterator[tuple[int, positions.Path, str, str]]:
    """(line, path, what, hint) of everything pydantic found."""
    for detail in error.errors(include_url=False):
        loc = detail["loc"]
        path = tuple(step for step in loc if not str(step).startswith("<"))
        if detail["type"] == "railbed":
            for inner, what, hint in detail["ctx"]["faults"]:
                full = (*path, *inner)
                yield document.line(full), full, what, hint
        else:
            what, hint = _say(detail, loc, document.value(path))
            yield document.line(path), path, what, hint


_TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "list_type": "a list",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "dict_type": "a mapping of keys to values",
}
_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def _say(detail: ErrorDetails, loc: tuple[str | int, ...], written: object) -> tuple[str, str]:
    """What and hint for one of pydantic's own errors; `written` is the value as in the file."""
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    shown = "nothing" if value is None else f"{value!r:.60}"
    if kind == "extra_forbidden":
        return unknown_key(str(loc[-1]), allowed_keys(loc[:-1]))
    if kind == "missing":
        return f"key {loc[-1]!r} is missing", f"allowed keys: {', '.join(allowed_keys(loc[:-1]))}"
    if kind in _TYPES:
        return (
            ("there is nothing here", f"expected: {_TYPES[kind]}")
            if value is None
            else (f"{shown} is not {_TYPES[kind]}", "")
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
    for kind in (RATE, TIME, SIZE):
        with suppress(UnitError):
            kind.parse(written)
            return kind.format(Decimal(limit))
    return f"{limit:g}"


def unknown_key(key: str, allowed: list[str]) -> tuple[str, str]:
    """What and hint for a key that does not exist."""
    what, hint = unknown("key", key, allowed)
    return what, hint.replace("known: ", "allowed keys: ")


def allowed_keys(loc: tuple[str | int, ...]) -> list[str]:
    """The keys of the model at a pydantic location."""
    models: list[type[BaseModel]] = [Experiment]
    for step in loc:
        if isinstance(step, int):
            continue
        if step.startswith("<"):  # the tag of a union's member
            models = [m for m in models if step.strip("<>") in m.model_fields]
            continue
        fields = [f for m in models for n, f in m.model_fields.items() if step in (n, f.alias)]
        models = [m for f in fields for m in _models_in(f.annotation)]
    return [f.alias or n for m in models for n, f in m.model_fields.items()]


def _models_in(annotation: Any) -> list[type[Model]]:
    """The models that an annotation such as `list[A | B]` or `A | None` mentions."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return [annotation]
    arguments = get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
    return [m for argument in arguments for m in _models_in(argument)]
