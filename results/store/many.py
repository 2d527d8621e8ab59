"""Several runs as one: tidy frames over runs and sweeps."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from results.figures.keys import differ, value_at
from results.store import load as one_run
from results.store.load import MOST_SHOWN, Frames, Run, find
from results.store.sweeps import SWEEP, Sweep, sweep

if TYPE_CHECKING:
    import pandas as pd

_LABELS = ("name", "sweep")
MOST_LISTED = 3


class IncompleteWarning(UserWarning):
    """Points of sweeps that have no figures are left out."""


class Runs(Frames):
    """Several runs. In front of each frame stand `run`, a run's name, and a column for each key in which they differ.

    Keys are called by their path, as in a sweep: `fabric.cable.rate`. Values that are not plain are as in the file.
    Of the points of one sweep they are what was swept (`swept`: of each run), whatever else follows from that.
    `failed` has the points of sweeps that are in no frame, each with its error.
    """

    def __init__(
        self,
        runs: Sequence[tuple[str, Run]],
        failed: Mapping[str, str] | None = None,
        swept: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self.runs = tuple(runs)
        self.failed = dict(failed or {})
        self._swept = swept

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys in which the experiments differ."""
        if self._swept:
            return tuple(self._swept[0])
        return tuple(differ([{k: v for k, v in run.experiment.items() if k not in _LABELS} for _, run in self.runs]))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a frame of all runs."""
        return [{**about, **row} for about, run in self._about() for row in run.rows(name)]

    @property
    def figures(self) -> pd.DataFrame:
        """A row for each run: its few figures, as in a sweep's table."""
        import pandas as pd

        return pd.DataFrame([{**about, **run.figures} for about, run in self._about()])

    def __repr__(self) -> str:
        return f"<{len(self.runs)} runs" + (f", {len(self.failed)} failed>" if self.failed else ">")

    def _repr_html_(self) -> str:
        """In a notebook: `figures`, and what has failed."""
        failed = "".join(f"<li>{escape(f'{name}: {why}')}</li>" for name, why in self.failed.items())
        table = self.figures.to_html(index=False, max_rows=MOST_SHOWN)
        return table + (f"<p>Failed:</p><ul>{failed}</ul>" if failed else "")

    def _about(self) -> list[tuple[dict[str, Any], Run]]:
        values = self._swept or [{key: value_at(run.experiment, key) for key in self.keys} for _, run in self.runs]
        return [({"run": name, **its}, run) for (name, run), its in zip(self.runs, values, strict=True)]

    def _frame(self, name: str) -> pd.DataFrame:
        frame = super()._frame(name)
        own = ["run", *self.keys]
        return frame[[*(key for key in own if key in frame), *(key for key in frame if key not in own)]]


@overload
def load(run: str | Path) -> Run | Any: ...  # a Runs, if it is a sweep
@overload
def load(run: str | Path, another: str | Path, *more: str | Path) -> Runs: ...
def load(run: str | Path, another: str | Path | None = None, *more: str | Path) -> Run | Runs:
    """The run in the folder `run`, or of that name under results/runs; of several, or of a sweep, one `Runs`.

    Raises StoreError if there is no run. A failed or killed run loads too: see `Run.state`.
    """
    several = another is not None or (find(run) / SWEEP).exists()
    return load_many([run, *([another] if another is not None else []), *more]) if several else one_run.load(run)


def load_many(runs: Sequence[str | Path]) -> Runs:
    """One `Runs` of runs and of the points of sweeps.

    Points that failed have no figures: `Runs.failed` says which, and a warning how many. Raises StoreError for what is
    no run.
    """
    loaded: list[tuple[str, Run]] = []
    failed: dict[str, str] = {}
    values: list[Mapping[str, Any]] | None = None
    for each in runs:
        if swept := sweep(each):
            good, bad = _points(swept)
            loaded += [(name, run) for name, run, _ in good]
            values = [its for _, _, its in good] if len(runs) == 1 else None
            failed |= bad
        else:
            one = one_run.load(each)
            loaded.append((one.path.name, one))
    if failed:
        listed = "; ".join(f"{name}: {why}" for name, why in list(failed.items())[:MOST_LISTED])
        more = f"; and {len(failed) - MOST_LISTED} more" if len(failed) > MOST_LISTED else ""
        what = f"{len(failed)} of {len(failed) + len(loaded)} points are left out, .failed has them: {listed}{more}"
        warnings.warn(what, IncompleteWarning, stacklevel=2)
    return Runs(loaded, failed, values)


def _points(swept: Sweep) -> tuple[list[tuple[str, Run, dict[str, Any]]], dict[str, str]]:
    """Those with figures; and why the others have none, also those that a sweep which ended early has not run."""
    good, bad = [], {}
    for number, point in enumerate(swept.points):
        folder = swept.path / point.get("run", "")
        name = f"{swept.path.name}/{point.get('run', f'point-{number}')}"
        if "error" in point or not (folder / "state.json").exists():
            bad[name] = str(point.get("error", "its folder is gone"))
        else:
            good.append((name, Run(folder), swept.values(point)))
    if missing := swept.total - len(swept.points):
        bad[f"{swept.path.name}: {missing} more"] = f"{len(swept.points)} of {swept.total} points are done"
    return good, bad
