"""From a file to an Experiment. All mistakes are reported at once, each with file and line."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from testbed.base import yaml_reader
from testbed.base.errors import InputError, Problem
from testbed.base.explain import explain
from testbed.experiment.model import Experiment

MAX_PROBLEMS = 20


def load(path: str | Path, defaults: Mapping[str, Any] | None = None) -> Experiment:
    """Read and validate an experiment file; `defaults` are keys that it may leave out although they are required.

    Raises InputError; touches nothing but the file.
    """
    name = str(path)
    if not name:
        raise InputError("the name of the file is empty", "command line", "ready ones are in experiments/")
    try:
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):  # a FIFO would keep us waiting
            raise InputError("this is no ordinary file", name, "name an experiment file")
        with open(path, "rb") as file:
            raw = file.read(yaml_reader.MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError("there is no such file", name, "ready ones are in experiments/") from None
    except IsADirectoryError:
        raise InputError("this is a folder, not an experiment file", name, "name a .yaml file in it") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", name) from None
    if len(raw) > yaml_reader.MAX_BYTES:
        raise InputError(f"larger than {yaml_reader.MAX_BYTES >> 20} MiB", name, "this is no experiment file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError("not UTF-8 text", f"{name}:{line}") from None
    return loads(text, name, Path(path).parent, defaults)


def loads(
    text: str, name: str = "experiment", directory: Path = Path(), defaults: Mapping[str, Any] | None = None
) -> Experiment:
    """As `load`, from text; `name` stands for the file in messages, `directory` is where relative paths start."""
    try:
        document = yaml_reader.read(text)
    except yaml_reader.YamlProblem as error:
        raise InputError(error.what, _where(name, error.line, error.path), error.hint) from None
    if not isinstance(document.data, dict):
        what = "an experiment is a mapping of keys to values"
        raise InputError(what, f"{name}:1", "start from experiments/quickstart.yaml; docs/experiment.md has all keys")
    try:
        written = {**(defaults or {}), **document.data}
        experiment = Experiment.model_validate(written, context={"directory": directory})
    except ValidationError as error:
        explained = explain(error, Experiment, document.value)
        found = sorted(((document.line(path), path, what, hint) for path, what, hint in explained), key=lambda p: p[0])
        first, *others = [Problem(what, _where(name, line, path), hint) for line, path, what, hint in found]
        raise InputError(first.what, first.where, first.hint, others[: MAX_PROBLEMS - 1]) from None
    experiment._written, experiment._directory = written, directory
    experiment._place = lambda path: _where(name, document.line(path), path)
    return experiment


def _where(name: str, line: int, path: yaml_reader.Path) -> str:
    place = f"{name}:{line}" if line else name
    dotted = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return f"{place}: {dotted}" if dotted else place
