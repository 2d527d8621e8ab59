"""A YAML file as a typed model. All mistakes are reported at once, each with file and line.

A `FileKind` says what is expected, so that errors name it, and where examples are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from testbed.base import yaml_reader
from testbed.base.errors import InputError, Problem
from testbed.base.explain import explain
from testbed.base.types import Model
from workloads.base import named_file

MAX_PROBLEMS = 20

M = TypeVar("M", bound=Model)
Located = Callable[[yaml_reader.Path], str]
"""`FILE:LINE: KEY` of what stands at a path."""


@dataclass(frozen=True)
class FileKind:
    """A kind of files: `an experiment`, where examples are, what to start from."""

    name: str
    ready: str
    start: str

    @property
    def bare(self) -> str:
        return self.name.partition(" ")[2]


def text_of(path: str | Path, sort: FileKind, most: int = yaml_reader.MAX_BYTES) -> str:
    """What stands in the file, of at most so many bytes.  Raises InputError."""
    name = str(path)
    if not name:
        raise InputError("the name of the file is empty", "command line", sort.ready)
    try:
        return named_file.text(path, most)
    except named_file.Missing as error:
        raise InputError(error.what, name, sort.ready) from None
    except named_file.Folder:
        raise InputError(f"this is a folder, not {sort.name} file", name, "name a .yaml file in it") from None
    except named_file.Unreadable as error:
        place = f"{name}:{error.line}" if error.line else name
        raise InputError(f"cannot be read: {error.what}", place, f"name {sort.name} file") from None


def model_of(
    model: type[M], text: str, name: str, sort: FileKind, directory: Path, defaults: Mapping[str, Any] | None = None
) -> tuple[M, dict[str, Any], Located]:
    """The model, what was written, and where.  `name` stands for the file in messages.  Raises InputError."""
    try:
        document = yaml_reader.read(text)
    except yaml_reader.YamlProblem as error:
        raise InputError(error.what, where(name, error.line, error.path), error.hint) from None
    if not isinstance(document.data, dict):
        raise InputError(f"{sort.name} is a mapping of keys to values", f"{name}:1", sort.start)
    try:
        written = {**(defaults or {}), **document.data}
        instance = model.model_validate(written, context={"directory": directory})
    except ValidationError as error:
        explained = sorted(explain(error, model, document.value), key=lambda mistake: document.line(mistake[0]))
        raise InputError.several(
            Problem(what, where(name, document.line(path), path), hint, path)
            for path, what, hint in explained[:MAX_PROBLEMS]
        ) from None
    return instance, written, lambda path: where(name, document.line(path), path)


def where(name: str, line: int, path: yaml_reader.Path) -> str:
    """`FILE:LINE: KEY`."""
    place = f"{name}:{line}" if line else name
    dotted = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return f"{place}: {dotted}" if dotted else place
