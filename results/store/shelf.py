"""The runs and sweeps under results/runs: listed, tagged, removed.

A run's tags are in its folder, so they move with it. A run that is running is never removed, and one with a tag only if
that tag is asked for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from results.store.folder import StoreError
from results.store.load import latest, read_object, short_name
from results.store.sweeps import SWEEP

TAGS = "tags.json"
STATES = ("complete", "failed", "killed", "running", "damaged")
SORTS = ("began", "name", "size")
_ENDED = re.compile(r"\.(failed|partial)(-\d+)?$")
"""What the store puts behind the name of a run that is not complete."""
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Stored:
    """A run or sweep on disk. `verdict` is None of sweeps and of runs that did not get that far."""

    path: Path
    kind: str  # run or sweep
    state: str  # of STATES
    began: float  # Unix time
    took_s: float | None
    size_bytes: int
    verdict: str | None
    points: int | None
    tags: tuple[str, ...]

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    def to_dict(self) -> dict[str, Any]:
        """As `testbed runs --json` has it."""
        return {"name": self.name, "run": str(self.path), **{k: v for k, v in vars(self).items() if k != "path"},
                "tags": list(self.tags)}  # fmt: skip


def shelf(
    *, names: Sequence[str] = (), states: Sequence[str] = (), tags: Sequence[str] = (), sort: str = "began"
) -> list[Stored]:
    """The runs here that match: any of the patterns, any of the states, all of the tags. The latest, or largest, first.

    A pattern (`incast*`) is of the folder's name, with or without its time stamp.
    """
    runs = []
    for path in latest():
        with suppress(FileNotFoundError):  # it has just been renamed: it has ended
            runs += [] if path.is_symlink() else [_stored(path)]
    runs = [run for run in runs if _matches(run, names, states, tags)]
    if sort == "name":
        return sorted(runs, key=lambda run: (short_name(run.path), run.began))
    return sorted(runs, key=lambda run: -(run.size_bytes if sort == "size" else run.began))


def _matches(run: Stored, names: Sequence[str], states: Sequence[str], tags: Sequence[str]) -> bool:
    plain = run.path.with_name(_ENDED.sub("", run.name))
    called = {run.name, short_name(run.path), plain.name, short_name(plain)}
    named = not names or any(fnmatchcase(name, pattern) for name in called for pattern in names)
    return named and (not states or run.state in states) and set(tags) <= set(run.tags)


def superfluous(
    runs: Iterable[Stored], *, keep: int = 0, older_s: float = 0.0, tags: Sequence[str] = ()
) -> list[Stored]:
    """Those of `runs`, the latest first, that may go: not the first `keep`, none younger than `older_s`.

    None that is running, and none that has a tag other than `tags`.
    """
    now = time.time()
    ordered = sorted(runs, key=lambda run: -run.began)
    return [
        run
        for run in ordered[keep:]
        if run.state != "running" and now - run.began >= older_s and set(run.tags) <= set(tags)
    ]


def throw_away(run: Stored) -> None:
    """Removes its folder. Raises StoreError if that is no longer the run that was listed.

    What says that it is a run goes last, so that a removal that was cut short is listed, and can be done again.
    """
    try:
        now = _stored(run.path)
        if (now.began, now.state, now.tags) != (run.began, run.state, run.tags):
            raise StoreError("this run has changed meanwhile", str(run.path))
        for inner in run.path.iterdir():
            if inner.is_dir() and not inner.is_symlink():
                shutil.rmtree(inner)
            elif inner.name != "state.json":
                inner.unlink()
        shutil.rmtree(run.path)
    except OSError as error:
        raise StoreError(f"it cannot be removed: {error.strerror}", str(run.path)) from None


def tag(path: Path, add: Iterable[str] = (), remove: Iterable[str] = ()) -> list[str]:
    """Adds and removes tags of the run in that folder; returns those that it has now.

    Raises StoreError for a tag that is none: letters, digits, `.`, `_` and `-`, at most 64.
    """
    add, remove = list(add), list(remove)
    for one in add:
        if not _TAG.fullmatch(one):
            raise StoreError(f"{one!r} is no tag", str(path), "letters, digits, '.', '_' and '-', at most 64")
    has = _tags(path)
    for one in remove:
        if one not in has:
            raise StoreError(f"it has no tag {one!r}", str(path), f"it has {', '.join(has) or 'none'}")
    now = [one for one in dict.fromkeys([*has, *add]) if one not in remove]
    new = path / f"{TAGS}.new"
    try:
        new.write_text(json.dumps({"tags": now}) + "\n")
        new.replace(path / TAGS)
    except OSError as error:
        raise StoreError(f"its tags cannot be written: {error.strerror}", str(path)) from None
    return now


def _tags(path: Path) -> tuple[str, ...]:
    return tuple(map(str, read_object(path / TAGS).get("tags", ()))) if (path / TAGS).exists() else ()


def _read(path: Path) -> dict[str, Any] | None:
    """The object in a file, empty without the file; None if it is damaged."""
    try:
        return read_object(path) if path.exists() else {}
    except StoreError:
        return None


def _stored(path: Path) -> Stored:
    state, fidelity, tags = (_read(path / name) for name in ("state.json", "fidelity.json", TAGS))
    whole = state is not None and fidelity is not None and tags is not None
    state, swept = state or {}, (path / SWEEP).exists()
    whole = whole and all(isinstance(state.get(key), int | float | None) for key in ("began", "ended"))
    began, ended = (state.get(key) if whole else None for key in ("began", "ended"))
    named = (tags or {}).get("tags")
    return Stored(
        path=path,
        kind="sweep" if swept else "run",
        state=state_of(state) if whole else "damaged",
        began=float(began or (path / "state.json").stat().st_mtime),
        took_s=float(ended) - float(began) if began and ended else None,
        size_bytes=sum(f.lstat().st_size for f in path.rglob("*") if f.is_file()),
        verdict=(fidelity or {}).get("verdict"),
        points=len(list(path.glob("point-*"))) if swept else None,
        tags=tuple(map(str, named)) if isinstance(named, list) else (),
    )


def state_of(told: dict[str, Any]) -> str:
    """A run that says `running` and whose process is gone was killed."""
    if told.get("state") != "running":
        return str(told.get("state")) if told.get("state") in STATES else "damaged"
    return "running" if _lives(told.get("pid"), float(told.get("began") or 0)) else "killed"


def _lives(pid: Any, since: float) -> bool:
    """Whether that process is there and began before the run: its number may have been given again."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        up = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return False
    return time.time() - up + ticks / os.sysconf("SC_CLK_TCK") <= since + 1
