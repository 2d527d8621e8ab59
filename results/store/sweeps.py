"""Reads a sweep's folder: the swept keys, a row for each point, and the runs.

`sweep.json` has all of it once the sweep has ended; while it runs, or if it was killed, the points that are done are
the lines of `points.jsonl`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from results.figures.summary import RARE
from results.figures.values import full
from results.store.load import Run, damaged, find, read_lines, read_object

SWEEP = "sweep.json"
POINTS = "points.jsonl"


class Sweep:
    """A sweep on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = read_object(path / SWEEP)
        try:
            self.name: str = data["name"]
            self.keys: list[str] = data["keys"]
            self.points: list[dict[str, Any]] = list(map(dict, data["points"] or read_lines(path / POINTS)))
            self.total: int = data.get("total", len(self.points))
            whole = all({*self.keys} <= point.keys() and point.keys() & {"run", "error"} for point in self.points)
        except (KeyError, TypeError, AttributeError, ValueError):
            whole = False
        if not whole:
            raise damaged(path / SWEEP)
        some = [name for name in RARE if any(name in point for point in self.points)]
        for point in self.points:
            if "error" not in point:  # a run tells these only if there are any
                point.update({name: 0 for name in some if name not in point})

    @property
    def state(self) -> dict[str, Any]:
        """As `Run.state`."""
        return Run(self.path).state

    def values(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the swept keys at this point."""
        return {key: point[key] for key in self.keys}

    def runs(self) -> Iterator[tuple[dict[str, Any], Run]]:
        """Each point's values and run; points without a run are left out."""
        for point in self.points:
            if "run" in point and (self.path / point["run"]).exists():
                yield self.values(point), Run(self.path / point["run"])

    def rows(self, frame: str) -> list[dict[str, Any]]:
        """A frame's rows of all points, each with the point's values in front."""
        return [{**values, **row} for values, run in self.runs() for row in run.rows(frame)]

    def to_dict(self) -> dict[str, Any]:
        """As `testbed run --json` prints a sweep."""
        failed = sum("error" in point for point in self.points)
        data: dict[str, Any] = {"run": str(self.path), "keys": self.keys, "points": self.points}
        error = self.state.get("error")
        if error is None and len(self.points) < self.total:
            error = {"what": f"{len(self.points)} of {self.total} points are done", "where": "", "hint": ""}
        if error is None and failed:
            error = {"what": f"{failed} of {self.total} points failed", "where": str(self.path), "hint": ""}
        return {**data, "error": error} if error else data


def sweep(run: str | Path) -> Sweep | None:
    """The sweep in that folder, or of that name under results/runs; None for a run. Raises StoreError."""
    path = find(run)
    return Sweep(path) if (path / SWEEP).exists() else None


def key_names(keys: Iterable[str]) -> dict[str, str]:
    """Short names of swept keys: their last part, if that is unique."""
    last = {key: key.rpartition(".")[2] for key in keys}
    return {key: one if list(last.values()).count(one) == 1 and "," not in key else key for key, one in last.items()}


def described(values: Mapping[str, Any]) -> str:
    """`hosts = 4, cc = dcqcn`: a point's values."""
    return ", ".join(f"{name} = {full(values[key])}" for key, name in key_names(values).items())
