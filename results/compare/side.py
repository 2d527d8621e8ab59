"""One side of a comparison: a run, or a sweep with its points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from results.figures.keys import value_at
from results.store.folder import SCHEMA, StoreError
from results.store.load import Run, find, load
from results.store.sweeps import Sweep, sweep


@dataclass(frozen=True)
class Point:
    """A run with its figures (`Run.figures`); `run` is None for a point of a sweep that has left none."""

    experiment: Mapping[str, Any]
    figures: Mapping[str, Any]
    run: Run | None
    error: str | None

    def at(self, keys: tuple[str, ...]) -> tuple[Any, ...]:
        """The values of these keys."""
        return tuple(value_at(self.experiment, key) for key in keys)


@dataclass(frozen=True)
class Side:
    """`name` as the user gave it, `swept` the keys of the sweep (none of a run)."""

    name: str
    path: Path
    swept: tuple[str, ...]
    experiment: Mapping[str, Any]
    points: tuple[Point, ...]
    live: Mapping[str, Any] = field(default_factory=dict)
    """Of a run: `Run.live`."""
    unfinished: str | None = None
    """Why a sweep has not all of its points."""

    @classmethod
    def of(cls, run: str | Path) -> Side:
        """The run or sweep in that folder, or of that name. Raises StoreError."""
        path = find(run)
        swept = sweep(path)
        if swept is not None:
            missing = len(swept.points) < swept.total
            why = f"{len(swept.points)} of {swept.total} points are done" if missing else None
            return cls(str(run), path, tuple(swept.keys), load(path).experiment, tuple(_points(swept)), unfinished=why)
        one = load(path)
        if not one.experiment:
            raise StoreError("this run has no experiment.yaml: it was killed before it began", str(path))
        return cls(str(run), path, (), one.experiment, (_point(one),), one.live)

    @cached_property
    def states(self) -> list[str]:
        """The errors of points that failed, and why there are no more of them."""
        errors = [point.error for point in self.points if point.error]
        return [*errors, self.unfinished] if self.unfinished else errors

    @property
    def verdicts(self) -> list[str]:
        """What the fidelity verdicts of its points are, each once."""
        runs = (point.run for point in self.points if point.run is not None and not point.error)
        return list(dict.fromkeys(str(run.fidelity.get("verdict", "invalid")) for run in runs))

    @property
    def older(self) -> bool:
        """Whether a run of it has an older schema, by which some of what it counts may mean something else."""
        return any(point.run.state.get("schema", 0) < SCHEMA for point in self.points if point.run is not None)

    @property
    def hashes(self) -> list[str | None]:
        """`metrics_sha256` of each point; None of one that failed."""
        return [point.run.summary.get("metrics_sha256") if point.run is not None else None for point in self.points]


def _point(run: Run) -> Point:
    state = run.state
    failed = None if state["state"] == "complete" else (state.get("error") or {}).get("what", "it did not end")
    return Point(run.experiment, run.figures, run, failed)


def _points(swept: Sweep) -> list[Point]:
    points = []
    for row in swept.points:
        folder = swept.path / row["run"] if "run" in row else None
        if folder is not None and folder.exists():
            point = _point(Run(folder))
            points.append(point if "error" not in row else Point(point.experiment, {}, point.run, row["error"]))
        else:
            points.append(Point(_put(swept.values(row)), {}, None, row.get("error", "its folder is gone")))
    return points


def _put(values: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment that has only these keys, by their paths."""
    made: dict[str, Any] = {}
    for key, value in values.items():
        for one in key.split(","):
            *above, last = one.strip().split(".")
            inner = made
            for step in above:
                inner = inner.setdefault(step, {})
            inner[last] = value
    return made
