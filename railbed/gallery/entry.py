"""One entry of the gallery: a paper's figure, what it says, and how ours is read from the runs.

Each is a file `experiments/papers/NAME.py` with an `ENTRY`, found by itself. Its experiment is `NAME.yaml` beside it,
or one that is there already.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from railbed.experiment import Experiment
from results import Run
from testbed.base.errors import InputError

PAPERS = Path("experiments/papers")

EXACTLY, ABOUT, AT_LEAST, AT_MOST = "", "about ", "at least ", "up to "


@dataclass(frozen=True)
class Value:
    """One published number. `says` is how the paper puts it; of a band both ends are given.

    `about`: what it is of, so that who has not read the paper understands it.
    """

    about: str
    published: float | tuple[float, float]
    unit: str = ""
    says: str = EXACTLY

    def ratio(self, ours: float) -> float:
        """Ours to the published number; to the nearer end of a band, within which it is 1."""
        if not isinstance(self.published, tuple):
            return ours / self.published
        low, high = self.published
        return ours / low if ours < low else ours / high if ours > high else 1.0


@dataclass(frozen=True)
class Point:
    """A run, and `at`: the values of what was swept. `error` says why it failed, which may be what is asked for."""

    at: Mapping[str, Any]
    run: Run
    error: str = ""

    def time_us(self, step: int, size: int | None = None) -> float:
        """Of a step, at that size if it has several: the mean of its operations."""
        times: list[float] = [
            row["time_ns"]
            for row in self.run.rows("results")
            if row["step"] == step and size in (None, row["size_bytes"])
        ]
        return sum(times) / len(times) / 1000


@dataclass(frozen=True)
class Curve:
    """One line of the picture."""

    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Made:
    """What the runs gave: a number for each value, by its `about`, and lines for the picture."""

    values: Mapping[str, float]
    curves: tuple[Curve, ...] = ()


@dataclass(frozen=True)
class Entry:
    """`read` makes our numbers of the runs. `axes` names a picture's axes; without it the values are drawn as bars.

    `change` is what is set in the experiment first. `why` is a paragraph: why ours differ, or what it means that they
    do not.
    """

    title: str
    paper: str
    where: str
    values: tuple[Value, ...]
    read: Callable[[Sequence[Point]], Made]
    why: str
    link: str = ""
    file: str = ""
    change: Mapping[str, Any] = field(default_factory=dict)
    axes: tuple[str, str] | None = None
    name: str = ""

    @property
    def path(self) -> Path:
        return PAPERS / (self.file or f"{self.name}.yaml")

    def experiment(self) -> Experiment:
        """Raises InputError."""
        return Experiment(self.path).set(self.change)


def entries(names: tuple[str, ...] = ()) -> list[Entry]:
    """Those of these names, or all, by name. Raises InputError."""
    known = {path.stem: path for path in sorted(PAPERS.glob("*.py"))}
    if not known:
        raise InputError(
            "there is no entry here", str(PAPERS), "say it in a checkout, or where `testbed examples` wrote"
        )
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"there is no entry {', '.join(unknown)}", str(PAPERS), f"there are {', '.join(known)}")
    return [_read(known[name]) for name in known if not names or name in names]


def _read(path: Path) -> Entry:
    entry = runpy.run_path(str(path)).get("ENTRY")
    if not isinstance(entry, Entry):
        raise InputError("there is no ENTRY in it", str(path), "an Entry of railbed.gallery is wanted")
    return replace(entry, name=path.stem)
