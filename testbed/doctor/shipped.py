"""Where the ready experiments and the pages of this installation are: in the checkout, or in what was installed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from testbed.base.errors import InputError, MachineError

FOLDERS = ("experiments", "docs")
_HERE = Path(__file__).resolve().parents[2]
_PLACES = (_HERE, Path(sys.prefix, "share", "railbed"), _HERE / "share" / "railbed")  # the last: pip --target


def folder(name: str) -> Path:
    """Raises MachineError."""
    for place in _PLACES:
        if (place / name).is_dir():
            return place / name
    raise MachineError(f"this installation has no {name}/", str(_PLACES[1]), "install it again (docs/install.md)")


def copy(to: Path) -> list[Path]:
    """Puts a copy of each into the folder `to`, and says where. Overwrites nothing: raises InputError, MachineError."""
    wanted = {to / name: folder(name) for name in FOLDERS}
    for target in wanted:
        if target.exists():
            raise InputError("it is there already", str(target), "name another folder: testbed examples FOLDER")
    to.mkdir(parents=True, exist_ok=True)
    for target, source in wanted.items():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "site.py"))
    return list(wanted)
