"""What a point is known by: its experiment as resolved, the files that it names, and the version that runs it.

Two points with the same hash give the same figures (with the virtual clock), on whatever machine.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from glob import escape
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.machine.mounts import CHECKOUT
from testbed.own.name import parse as c_file
from workloads.own.name import parse

if TYPE_CHECKING:
    from testbed.experiment import Experiment

PACKAGES = ("topologies", "controllers", "workloads", "hardware", "results", "testbed")
_SOURCES = (".py", ".c", ".h", ".def")
_STORES = {os.path.join(CHECKOUT, "results", store) for store in ("runs", "bench")}


@cache
def version() -> str:
    """The version, and a hash of all code that takes part: `0.1.0+5f3c9a7e1b20`."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted(_sources(os.path.join(CHECKOUT, package))):
            digest.update(f"{path[len(str(CHECKOUT)) + 1 :]}\0".encode())
            digest.update(_sha256(path))
    return f"{metadata.version('railbed')}+{digest.hexdigest()[:12]}"


def _sources(folder: str) -> Iterator[str]:
    """Those below, but not in the folders of runs, which may be many."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__" and entry.path not in _STORES:
                    yield from _sources(entry.path)
            elif entry.name.endswith(_SOURCES):
                yield entry.path


def _sha256(path: str) -> bytes:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).digest()


def resolved_hash(experiment: Experiment) -> str:
    """Of everything that it says, defaults included; not of its sweep."""
    values = {key: value for key, value in experiment.resolved().items() if key != "sweep"}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def point_hash(experiment: Experiment) -> str:
    """Of the point, with the files that it names and our version."""
    digest = hashlib.sha256(f"{version()} {resolved_hash(experiment)}".encode())
    for path, content in sorted(file_hashes(experiment).items()):
        digest.update(f" {path} {content}".encode())
    return digest.hexdigest()


def file_hashes(experiment: Experiment) -> dict[str, str]:
    """Each file of this machine that the experiment names, with a hash of what is in it."""
    return {path: content_hash(path) for path in sorted(set(_files(experiment.resolved())))}


def content_hash(path: str) -> str:
    """Of a file; empty if there is none. Anything but an ordinary file counts as an empty one."""
    with suppress(FileNotFoundError, NotADirectoryError):
        stat = Path(path).stat()
        return _content_hash(path, stat.st_mtime_ns, stat.st_size)
    return ""


@cache  # the points of a sweep name the same files
def _content_hash(path: str, _changed_ns: int, size: int) -> str:
    with open(path if Path(path).is_file() and size else os.devnull, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(value: Any, key: str = "") -> Iterator[str]:
    """Absolute paths, as models write them; but not `bind`, which is each machine's own.

    Any string may be a path, such as an argument of a script. A large file counts only if its key names a file: to read
    it takes time on each machine.
    """
    if isinstance(value, dict):
        for name, inner in value.items():
            if name != "bind":
                yield from _files(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _files(inner, key)
    elif isinstance(value, str) and value.startswith("/"):
        name = parse(value) if key == "algorithm" else c_file(value) if key == "file" else None
        path = Path(name.path if name else value)
        with suppress(OSError, ValueError):  # too long for a path, or a NUL in it
            if path.is_file() and (key in FILE_KEYS or path.stat().st_size < _LARGE):
                yield str(path)
            if key in _BESIDE:
                yield from map(str, _BESIDE[key](path))


def _traces(path: Path) -> Iterator[Path]:
    """A folder's, or those that begin with a path."""
    return path.glob("*.et") if path.is_dir() else path.parent.glob(f"{escape(path.name)}*.et")


def _modules(script: Path) -> Iterator[Path]:
    """What a script can import from beside itself: modules, and packages."""
    yield from script.parent.glob("*.py")
    for package in script.parent.glob("*/__init__.py"):
        yield from package.parent.rglob("*.py")


FILE_KEYS = ("apps", "image", "chakra", "groups", "aicb", "torch", "trace", "algorithm")
"""Of the experiment file: their values are files of this machine, and read as a whole."""
_BESIDE = {"chakra": _traces, "torch": _modules}
"""What else is read if a key names this file."""
_LARGE = 64 << 20
