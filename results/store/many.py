"""Several runs as one: tidy frames over runs and sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from results.figures.keys import differ, value_at
from results.store import load as one_run
from results.store.load import Frames, Run
from results.store.sweeps import Sweep, sweep

if TYPE_CHECKING:
    import pandas as pd

_LABELS = ("name", "sweep")


class Runs(Frames):
    """Several runs. In front of each frame stand `run`, a run's name, and a column for each key in which they differ.

    Keys are called by their path, as in a sweep: `fabric.cable.rate`. Values that are not plain are as in the file.
    """

    def __init__(self, runs: Sequence[tuple[str, Run]]) -> None:
        self.runs = tuple(runs)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys in which the experiments differ."""
        found = differ([{k: v for k, v in run.experiment.items() if k not in _LABELS} for _, run in self.runs])
        return tuple(found)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a frame of all runs."""
        return [{**about, **row} for about, run in self._about() for row in run.rows(name)]

    @property
    def figures(self) -> pd.DataFrame:
        """A row for each run: its few figures, as in a sweep's table."""
        import pandas as pd

        return pd.DataFrame([{**about, **run.figures} for about, run in self._about()])

    def _about(self) -> list[tuple[dict[str, Any], Run]]:
        return [
            ({"run": name, **{key: value_at(run.experiment, key) for key in self.keys}}, run) for name, run in self.runs
        ]

    def _frame(self, name: str) -> pd.DataFrame:
        frame = super()._frame(name)
        own = ["run", *self.keys]
        return frame[[*(key for key in own if key in frame), *(key for key in frame if key not in own)]]


@overload
def load(run: str | Path) -> Run: ...
@overload
def load(run: str | Path, another: str | Path, *more: str | Path) -> Runs: ...
def load(run: str | Path, another: str | Path | None = None, *more: str | Path) -> Run | Runs:
    """The run in the folder `run`, or of that name under results/runs; of several, one `Runs`.

    Raises StoreError if there is no run. A failed or killed run loads too: see `Run.state`.
    """
    return one_run.load(run) if another is None else load_many([run, another, *more])


def load_many(runs: Sequence[str | Path]) -> Runs:
    """One `Runs` of runs and of the points of sweeps, a single sweep too. Points that failed are left out.

    Raises StoreError for what is none.
    """
    found: list[tuple[str, Run]] = []
    for each in runs:
        swept = sweep(each)
        found += _points(swept) if swept else [((one := one_run.load(each)).path.name, one)]
    return Runs(found)


def _points(swept: Sweep) -> list[tuple[str, Run]]:
    good = (point["run"] for point in swept.points if "error" not in point)
    return [(f"{swept.path.name}/{folder}", Run(swept.path / folder)) for folder in good]
