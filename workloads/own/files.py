"""Files of algorithms: read, and known by what is in them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from workloads.base import named_file
from workloads.collectives.schedule import Schedule
from workloads.own import msccl
from workloads.own.mistake import BadAlgorithm
from workloads.own.name import FORM, Name, parse
from workloads.own.python import Function, functions

_MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class Own:
    """An algorithm of a file."""

    name: Name
    text: bytes
    schedule: Schedule

    @property
    def msccl(self) -> msccl.Msccl | None:
        return self.schedule if isinstance(self.schedule, msccl.Msccl) else None


def resolved(text: str, folder: Path) -> str:
    """The same with the file's whole path, seen from a folder, and its content.  Raises BadAlgorithm."""
    name = parse(text)
    if name is None:
        raise BadAlgorithm(f"{text!r:.80} names no algorithm", FORM)
    path = str(Path(folder, name.path).absolute())
    content = _bytes(path)
    if not name.function and not path.endswith(".xml"):
        there = [f"{name.path}:{function}" for function in functions(content)]
        raise BadAlgorithm(f"{name.path} names no function", " or ".join(there) or "the file has none")
    digest = hashlib.sha256(content).hexdigest()
    if name.digest and name.digest != digest:
        hint = "the folder of a run has a copy of the file that it was done with"
        raise BadAlgorithm(f"{path} is not the file that is meant: its content is another", hint)
    return str(Name(path, name.function, digest))


@lru_cache(maxsize=64)
def load(text: str) -> Own:
    """What a resolved name stands for.  Raises BadAlgorithm."""
    name = parse(text)
    assert name is not None
    content = _bytes(name.path)
    if name.digest and hashlib.sha256(content).hexdigest() != name.digest:
        raise BadAlgorithm(f"{name.path} has changed since it was read")
    if name.function:
        return Own(name, content, Function(content, name.path, name.function))
    return Own(name, content, msccl.read(content))


def _bytes(path: str) -> bytes:
    try:
        return named_file.read(path, _MOST_BYTES)
    except named_file.Unreadable as error:
        raise BadAlgorithm(f"{path} cannot be read: {error.what}", f"{FORM}, from the experiment's folder on") from None
