"""Points that are done: those of an earlier start of the same sweep, which goes on where it stopped, and those that
come home from a machine.

A sweep notes the hash of each point in `points-run.jsonl`. A later one that runs several points at a time looks through
those that did not come to their end: beside its own folder, and of its name in the store.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Generator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.store.folder import RUNS, RunFolder, StoreError
from results.store.load import find, read_object
from results.store.shelf import state_of
from results.store.sweeps import SWEEP
from results.store.zipped import unpacked
from testbed.base.errors import InputError, MachineError
from testbed.machines.where import HERE
from testbed.run.sweep import at, one_by_one

if TYPE_CHECKING:
    from testbed.base.progress import Progress
    from testbed.experiment import Experiment

Rows = Generator[tuple[int, dict[str, Any]], None, None]

RUN_POINTS = "points-run.jsonl"
_STAMP = re.compile(r"\d{8}-\d{6}-")
_UNENDED = re.compile(r"\.(failed|partial)(-\d+)?$")


def earlier(folder: RunFolder, name: str) -> list[Path]:
    """Folders of sweeps that ended early, the latest first; not of one that still runs. They may vanish meanwhile."""
    base = _STAMP.sub("", folder.final.name, count=1) if folder.final.parent == RUNS.absolute() else ""
    folders: list[tuple[float, Path]] = []
    for path in folder.final.parent.glob("*"):
        bare = _UNENDED.sub("", path.name)
        same = bare == folder.final.name or (base and _STAMP.sub("", bare, count=1) == base)
        if same and bare != path.name and path != folder.path:
            with suppress(OSError, ValueError, StoreError):
                if state_of(read_object(path / "state.json")) != "running":
                    folders.append(((path / RUN_POINTS).stat().st_mtime, path))
    return [path for _, path in sorted(folders, reverse=True)]


def noted(sweep: str) -> Path:
    """The folder of a sweep whose points are known by their hashes. Raises InputError."""
    try:
        path = find(sweep)
    except StoreError as error:
        raise InputError(error.what, f"--failed: {error.where}", error.hint) from None
    where = f"--failed: {sweep}"
    if not (path / SWEEP).exists():
        raise InputError("this is no sweep", where, "a run has no points")
    if not (path / RUN_POINTS).exists():
        what = "an older version has run this sweep: nothing says what its points were"
        raise InputError(what, where, "run all of it again")
    if state_of(read_object(path / "state.json")) == "running":
        raise InputError("this sweep still runs", where, "when it has ended")
    return path


def note(folder: RunFolder, sha256: str, row: dict[str, Any], place: str, seconds: float | None = None) -> None:
    """Of a point that has ended: its hash, its row, where it has run, and how long that took."""
    folder.append(RUN_POINTS, {"sha256": sha256, "machine": place, "seconds": seconds, "row": row})


def noting(experiment: Experiment, folder: RunFolder, progress: Progress) -> Rows:
    """A Runner: points one by one, each noted."""
    from testbed.machines.identity import point_hash

    with closing(one_by_one(experiment, folder, progress)) as points:
        for number, row in points:
            with suppress(InputError):  # a combination that cannot be
                noted = {key: value for key, value in row.items() if key != "stopped"}
                note(folder, point_hash(at(experiment, number)), noted, HERE)
            yield number, row


def done_in(path: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """By a point's hash: its row, and its run's folder. Only points that were measured, and are whole."""
    points: dict[str, tuple[dict[str, Any], str]] = {}
    try:
        text = (path / RUN_POINTS).read_text()
    except (OSError, ValueError):
        return {}
    for line in text[: text.rfind("\n") + 1].splitlines():
        with suppress(ValueError, KeyError, TypeError, OSError, StoreError):
            noted = json.loads(line)
            row = noted["row"]
            if "error" not in row and read_object(path / row["run"] / "state.json")["state"] == "complete":
                points[noted["sha256"]] = (row, row["run"])
    return points


def take_over(run: Path, folder: Path) -> None:
    """Copies a run's folder, as hard links where the file system has them."""

    def link(source: str, target: str) -> str:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
        return target

    shutil.copytree(run, folder, copy_function=link)


def run_of(number: int, name: Any) -> bool:
    """Whether point `number` may have a run's folder of this name: another machine sent it, and it becomes a path."""
    return isinstance(name, str) and re.fullmatch(rf"point-{number}(\.[a-z]+)?(-\d+)?", name) is not None


def brought_home(packed: Path, folder: Path) -> None:
    """Unpacks a run's folder from another machine.

    Raises MachineError if its files cannot be written here, as no further point's could; ValueError for a bad file.
    """
    try:
        unpacked(packed, folder)
    except (ValueError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, ValueError):
            raise
        raise cannot_write(error, folder) from None
    finally:
        packed.unlink(missing_ok=True)


def cannot_write(error: OSError, folder: Path) -> MachineError:
    """What came from another machine has no room here."""
    what = f"a point's run cannot be written: {error.strerror or error}"
    return MachineError(what, str(folder), "make room, and start it again: it goes on")
