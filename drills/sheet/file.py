"""Drill files: read one, find those there are."""

from __future__ import annotations

import os
from pathlib import Path

from drills.sheet.drill import Drill
from testbed.base.errors import InputError
from testbed.base.model_file import FileKind, model_of, text_of
from testbed.base.types import unknown

CATALOGUE = Path(__file__).resolve().parents[1] / "catalogue"
DRILL = FileKind("a drill", "testbed drill list names those that are ready", "docs/drill-authors.md has all keys")
SUFFIX = ".yaml"
_NO_DRILLS = ("suites",)  # folders beside the families


def catalogue(folder: Path = CATALOGUE) -> list[str]:
    """The ids, FAMILY/NAME, of all drills of a folder."""
    files = (path.relative_to(folder) for path in folder.glob(f"*/*{SUFFIX}"))
    return sorted(str(path)[: -len(SUFFIX)] for path in files if path.parts[0] not in _NO_DRILLS)


def load(name: str, folder: Path = CATALOGUE) -> Drill:
    """The drill of an id of the catalogue, or of a file.  Raises InputError."""
    known = catalogue(folder)
    if name in known:
        path = folder / f"{name}{SUFFIX}"
        return loads(text_of(path, DRILL), shown(path), path.parent, id=name)
    if name.endswith((SUFFIX, ".yml")) or os.path.exists(name):
        path = Path(name)
        return loads(text_of(path, DRILL), name, path.parent, id=path.stem)
    what, hint = unknown("drill", name, known, DRILL.ready if len(known) >= 12 else "")
    raise InputError(what, "command line", hint)


def loads(text: str, name: str = "drill", directory: Path = Path(), *, id: str = "drill") -> Drill:
    """From text; `name` stands for the file in messages."""
    drill, _, place = model_of(Drill, text, name, DRILL, directory)
    drill._place, drill._text, drill._id, drill._directory = place, text, id, directory
    return drill


def shown(path: Path) -> str:
    """A path from here, if that is shorter."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
