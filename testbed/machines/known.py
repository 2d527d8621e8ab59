"""Points that an earlier start of the same sweep has done already: it goes on where it stopped.

A sweep that runs several points at a time notes the hash of each in `points-run.jsonl`. A later one looks through those
that did not come to their end: beside its own folder, and of its name in the store.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from results.store.folder import RUNS, RunFolder, StoreError
from results.store.load import read_object
from results.store.shelf import state_of

RUN_POINTS = "points-run.jsonl"
_STAMP = re.compile(r"\d{8}-\d{6}-")
_UNENDED = re.compile(r"\.(failed|partial)(-\d+)?$")


def earlier(folder: RunFolder, name: str) -> list[Path]:
    """Folders of sweeps that ended early, the latest first; not of one that still runs. They may vanish meanwhile."""
    base = _STAMP.sub("", folder.final.name, count=1) if folder.final.parent == RUNS.absolute() else ""
    found: list[tuple[float, Path]] = []
    for path in folder.final.parent.glob("*"):
        bare = _UNENDED.sub("", path.name)
        ours = bare == folder.final.name or (base and _STAMP.sub("", bare, count=1) == base)
        if ours and bare != path.name and path != folder.path:
            with suppress(OSError, ValueError, StoreError):
                if state_of(read_object(path / "state.json")) != "running":
                    found.append(((path / RUN_POINTS).stat().st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)]


def done_in(path: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """By a point's hash: its row, and its run's folder. Only points that were measured, and are whole."""
    found: dict[str, tuple[dict[str, Any], str]] = {}
    try:
        text = (path / RUN_POINTS).read_text()
    except (OSError, ValueError):
        return {}
    for line in text[: text.rfind("\n") + 1].splitlines():
        with suppress(ValueError, KeyError, TypeError, OSError, StoreError):
            noted = json.loads(line)
            row = noted["row"]
            if "error" not in row and read_object(path / row["run"] / "state.json")["state"] == "complete":
                found[noted["sha256"]] = (row, row["run"])
    return found


def take_over(run: Path, folder: Path) -> None:
    """The run's folder once more, in `folder`: the files are the same ones where the file system can do that."""

    def link(source: str, target: str) -> str:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
        return target

    shutil.copytree(run, folder, copy_function=link)


def packed(folder: Path) -> bytes:
    """A run's folder as a zip file, which is removed here."""
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder))
    shutil.rmtree(folder, ignore_errors=True)
    return into.getvalue()


def unpacked(content: bytes, folder: Path) -> None:
    """The folder again."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        file.extractall(folder)  # strips what would lead out of it
