"""What an experiment calls a C file of a user's own: `FILE.c`; as resolved `/PATH/FILE.c#sha256:..`, that content."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from topologies.graph.mistake import Mistake
from workloads.base import named_file

PATTERN = r"(.+\.c)(#sha256:[0-9a-f]{64})?"
_NAME = re.compile(PATTERN)
_MOST_BYTES = 1 << 20
_MOST_NAME = 63  # bytes, for fabricd


class BadFile(Mistake):
    """What is wrong with the file, for whoever wrote it."""


class Name(NamedTuple):
    """`digest`: of what must be in the file; "" where nothing is said."""

    path: str
    digest: str

    @property
    def short(self) -> str:
        """For tables: the same wherever the file is."""
        return os.path.basename(self.path)

    def __str__(self) -> str:
        return f"{self.path}{f'#sha256:{self.digest}' if self.digest else ''}"


def parse(text: object) -> Name | None:
    """None: that is no C file's."""
    found = _NAME.fullmatch(text) if isinstance(text, str) else None
    return Name(found[1], (found[2] or "").removeprefix("#sha256:")) if found else None


def resolved(name: Name, folder: Path) -> Name:
    """With the whole path, seen from a folder, and the content. Raises BadFile."""
    path = str(Path(folder, name.path).absolute())
    if not path.isprintable():
        raise BadFile(
            f"{path!a}: no path of a C file may have such characters", "line breaks, control characters, no UTF-8"
        )
    if len(os.path.basename(path).encode()) > _MOST_NAME:
        raise BadFile(f"{path}: the name of a C file has {_MOST_NAME} bytes at most")
    digest = hashlib.sha256(_bytes(path)).hexdigest()
    if name.digest and name.digest != digest:
        hint = "the folder of a run has a copy of the file that it was done with"
        raise BadFile(f"{path} is not the file that is meant: its content is another", hint)
    return Name(path, digest)


def source(name: Name) -> bytes:
    """What is in a resolved name's file. Raises BadFile."""
    content = _bytes(name.path)
    if hashlib.sha256(content).hexdigest() != name.digest:
        raise BadFile(f"{name.path} has changed since it was read")
    return content


def _bytes(path: str) -> bytes:
    try:
        return named_file.read(path, _MOST_BYTES)
    except named_file.Unreadable as error:
        hint = "the path begins at the experiment's folder"
        raise BadFile(f"{path} cannot be read: {error.what}", hint) from None
