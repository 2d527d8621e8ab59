"""An algorithm of a user's own in a step: its file as it is, and whether it is right for the step's ranks and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationInfo

from testbed.base.types import mistake
from testbed.base.units import format_size
from testbed.experiment.blocks import known
from workloads.base.vocabulary import DTYPES
from workloads.own.mistake import BadAlgorithm
from workloads.own.name import parse
from workloads.registry import UnknownCollective

Found = tuple[tuple[str | int, ...], str, str]
_put_off = ContextVar("_put_off", default=False)


@contextmanager
def unproved() -> Iterator[None]:
    """No file's own code is run within: a setting may yet name another algorithm, and what comes of it is checked."""
    token = _put_off.set(True)
    try:
        yield
    finally:
        _put_off.reset(token)


class OfStep(Protocol):
    """What a step says that has such an algorithm."""

    @property
    def collective(self) -> str: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def sizes(self) -> list[int]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def ranks(self) -> list[int] | None: ...
    @property
    def groups(self) -> list[list[int]] | None: ...


def short(algorithm: str) -> str:
    """What it is called in tables."""
    name = parse(algorithm)
    return name.short if name else algorithm


def resolved(collective: str, algorithm: str, info: ValidationInfo) -> str:
    """Its name with the file's whole path and content.  Raises what a validator raises."""
    from workloads.own import files

    context, name = info.context or {}, algorithm
    if not context.get("own", True):
        raise mistake("an algorithm from a file has no place here", "one of ours", ["algorithm"])
    try:
        name = files.resolved(algorithm, Path(context.get("directory", ".")))
        known.entry(collective, name)
    except BadAlgorithm as error:
        raise mistake(_said(name, error), error.hint, ["algorithm"]) from None
    except UnknownCollective as error:
        raise mistake(error.what, error.hint, ["algorithm"]) from None
    return name


def mistakes(step: OfStep, ranks: int, seed: int) -> Iterator[Found]:
    """What is wrong with it for its groups, or all ranks."""
    if _put_off.get() or not known.own(step.algorithm):
        return
    from workloads.own.algorithm import prove, shapes

    entry = known.entry(step.collective, step.algorithm)
    members = [len(its) for its in step.groups or [step.ranks or list(range(ranks))]]
    told: dict[str, Any] = {key: getattr(step, key) for key in ("sizes", "dtype", *entry.extra)}
    unit = getattr(entry.own, "chunks", 1) * DTYPES[step.dtype]
    uneven = [(i, size) for i, size in enumerate(step.sizes) if size % unit]
    for i, size in uneven:
        what = f"{format_size(size)} are not {entry.own.chunks} equal chunks of {step.dtype} (nchunksperloop)"
        yield ("sizes", i), what, f"a multiple of {unit} bytes"
    try:
        for n in dict.fromkeys(members) if not uneven else ():
            prove(step.algorithm, entry, tuple(shapes(entry, n, told, seed)))
    except BadAlgorithm as error:
        yield ("algorithm",), _said(step.algorithm, error), error.hint


def _said(algorithm: str, error: BadAlgorithm) -> str:
    """With the file, and the line in it."""
    name = parse(algorithm)
    path = name.path if name and name.digest else ""
    return f"{path}:{error.line}: {error.what}" if error.line else f"{path}: {error.what}" if path else error.what
