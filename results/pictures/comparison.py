"""Algorithms compared over one or several runs and sweeps: one frame of means, with a column for whatever differs.

Every swept key is a column, and so is every other key in which the experiments differ, such as the topology of two
runs. Means are only over rows in which all of these are equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.figures.draws import REPLICATE, around_mean
from results.figures.keys import differ, hashable, raw, value_at, within
from results.figures.summary import as_run, labels
from results.figures.values import distinct, number, size_label
from results.pictures.drawing import Across, PlotError
from results.store.load import Run, find, load
from results.store.sweeps import key_names, sweep

if TYPE_CHECKING:
    import pandas as pd

FIGURES = ("time_ns", "busbw_Bps", "host_ns", "sent_bytes")
COLUMNS = ("collective", "algorithm", "dtype", "op", "ranks", "size_bytes")
TOPOLOGY = "fabric.topology"
_NOT_COMPARED = ("name", "workload", "sweep", "measure", "capture", "patience", "workers")
"""Keys that change no figure, or that the columns say."""


_OF_ALGORITHMS = ("fabric.switch.accelerator",)
"""Keys that an experiment has by itself where its algorithm asks for them."""


@dataclass(frozen=True)
class Data:
    """`means`: one row per algorithm, size, number of ranks and value of `keys`, its figures means over iterations.

    Values that are not plain are in it as JSON.
    """

    title: str
    keys: tuple[str, ...]  # by their path in the experiment
    means: pd.DataFrame
    left_out: tuple[str, ...] = ()  # parts of the runs that are left out, and why

    def dimensions(self, *without: str) -> list[str]:
        """The columns in which rows differ, apart from `without` and columns that follow from another one."""
        columns: list[str] = []
        for key in (*COLUMNS, *self.keys):
            if key not in without and self.means[key].nunique(dropna=False) > 1:
                same = (other for other in (*without, *columns) if _akin(key, other))
                twin = any(self._follows(key, of) and self._follows(of, key) for of in same)
                by_itself = key in _OF_ALGORITHMS and self._follows(key, "algorithm")
                columns += [] if twin or by_itself else [key]
        if TOPOLOGY in (*without, *columns) and self._follows("ranks", TOPOLOGY):
            columns = [key for key in columns if key != "ranks"]
        return columns

    def over_seeds(self, frame: pd.DataFrame, figure: str, axis: str) -> pd.DataFrame:
        """Means of a figure over seeds, all else the same, unless these are the axis; `sure`: their intervals."""
        import pandas as pd

        if REPLICATE not in frame or axis == REPLICATE:
            return frame.assign(sure=None)
        same = [c for c in (*COLUMNS, *self.keys) if c in frame and c != REPLICATE]
        groups = frame.groupby(same, sort=False, dropna=False)[figure]
        means = groups.mean().reset_index()
        return means.assign(sure=pd.Series([around_mean(list(draws)) for _, draws in groups], dtype=object))

    def _follows(self, key: str, other: str) -> bool:
        """Whether there is one value of `key` for each value of `other`."""
        if other not in self.means:
            return False
        return not self.means[[key, other]].drop_duplicates()[other].duplicated().any()

    def column(self, name: str) -> str:
        """A column by its name, by the last part of a key, or by `size`. Raises PlotError."""
        if name in self.keys:
            return name
        known = {"size": "size_bytes", "ranks": "ranks", "algorithm": "algorithm"}
        matching = [known[name]] if name in known else [k for k in self.keys if k.rpartition(".")[2] == name]
        if len(matching) > 1:
            raise PlotError(f"{name!r} may be {' or '.join(matching)}: give the whole key")
        if not matching:
            there = dict.fromkeys([*known, *(k.rpartition(".")[2] for k in self.keys), *self.keys])
            raise PlotError(f"there is nothing called {name!r} to draw over; there is {', '.join(there)}")
        return matching[0]

    def across(self, column: str, frame: pd.DataFrame | None = None) -> Across:
        """The values of a column along an axis."""
        values = [plain(v) for v in (self.means if frame is None else frame)[column].drop_duplicates()]
        return Across([raw(v) for v in values], size_label if column == "size_bytes" else None)

    def named(self, keys: Sequence[str], values: Any) -> str:
        """`ring, 8 ranks, 1 MiB, rate 0.01`: the name of a line or panel."""
        of = dict(zip(keys, values if isinstance(values, tuple) else (values,), strict=True))
        return ", ".join(self._word(key, plain(value)) for key, value in of.items())

    def _word(self, key: str, value: Any) -> str:
        if key == "ranks":
            return f"{value} ranks"
        if key == "size_bytes":
            return size_label(value)
        if key in COLUMNS:
            return str(value)
        every = [raw(plain(v)) for v in self.means[key].drop_duplicates()]
        name = key_names(self.keys)[key]
        text = number(value) if isinstance(value, float) else distinct(every)[every.index(raw(value))]
        return text if all(isinstance(v, dict | list) for v in every) else f"{name} {text}"


def _akin(key: str, other: str) -> bool:
    """Whether one may follow from the other: a swept algorithm and the algorithm, a star's hosts and its ranks."""
    pair = {key, other}
    of_step = any(k.startswith("workload.") for k in pair) and bool(pair & {*COLUMNS})
    return of_step or ("ranks" in pair and any(k.startswith(f"{TOPOLOGY}.") for k in pair))


def collect(paths: Sequence[str | Path]) -> Data:
    """The collectives of runs and sweeps. Raises StoreError for what is no run, PlotError without collectives."""
    import pandas as pd

    sources = [[(load(run), values) for run, values in _points(path)] for path in paths]
    runs = list(chain.from_iterable(sources))
    swept = list(dict.fromkeys(key for _, values in runs for key in values))
    keys = [*swept, *_differing([source[0][0].experiment for source in sources if source], swept)]
    if len({next(iter(run.experiment["fabric"]["topology"])) for run, _ in runs if "fabric" in run.experiment}) > 1:
        keys = [TOPOLOGY, *(k for k in keys if not within(k, TOPOLOGY))]  # their parameters are not the same
    names_of_steps = _labels([run for run, _ in runs], swept)
    frames: list[pd.DataFrame] = []
    for (run, values), names in zip(runs, names_of_steps, strict=True):
        frame = run.results[run.results["kind"] == "collective"]
        if names:
            frame = frame.assign(algorithm=[names[step] for step in frame["step"]])
        row = {k: hashable(values[k] if k in values else value_at(run.experiment, k)) for k in keys}
        frames.append(frame.assign(**{k: [v] * len(frame) for k, v in row.items()}))
    whole = pd.concat([f for f in frames if len(f)], ignore_index=True) if any(map(len, frames)) else pd.DataFrame()
    if whole.empty:
        raise PlotError("no collective has ended in what there is to draw")
    means = whole.groupby([*COLUMNS, *keys], sort=False, dropna=False)[list(FIGURES)].mean().reset_index()
    names_of_runs = dict.fromkeys(run.name for run, _ in runs)
    left_out = [why for path, source in zip(paths, sources, strict=True) if (why := _left_out(path, source))]
    return Data(", ".join(names_of_runs), tuple(keys), means, tuple(left_out))


def _left_out(path: str | Path, source: Sequence[tuple[Run, Any]]) -> str:
    """The parts of a run or sweep that are not compared, and why; empty if there are none."""
    if not any((run.results["kind"] == "collective").any() for run, _ in source):
        flows = any(len(run.results) for run, _ in source)
        return f"{path}: no collective has ended there" + (", only flows, which have no algorithm" if flows else "")
    swept = sweep(path)
    lost = len(swept.points) - len(source) if swept else 0
    return f"{path}: {lost} of {len(swept.points)} points, which failed" if swept and lost else ""


def _points(path: str | Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The runs in a folder, with the values that were swept over; points that failed are left out."""
    swept = sweep(path)
    if swept is None:
        yield find(path), {}
        return
    for point in swept.points:
        if "error" not in point and (swept.path / point["run"]).exists():
            yield swept.path / point["run"], swept.values(point)


def _labels(runs: Sequence[Run], swept: Sequence[str]) -> list[list[str]]:
    """For each run the names of its steps: by the keys that distinguish them from other steps of the same algorithm."""
    one_of_these = {part.strip() for key in swept for part in key.split(",")}
    workloads = []
    for run in runs:
        steps = run.experiment.get("workload", [])
        workloads.append([{k: v for k, v in step.items() if f"workload.{n}.{k}" not in one_of_these or k == "algorithm"}
                     for n, step in enumerate(steps)])  # fmt: skip
    every = {json.dumps(step, sort_keys=True, default=str): step for steps in workloads for step in steps}
    called = dict(zip(every, labels(list(every.values())), strict=True))
    in_file = [[called[json.dumps(step, sort_keys=True, default=str)] for step in steps] for steps in workloads]
    return [as_run(names, steps, run.steps) for names, steps, run in zip(in_file, workloads, runs, strict=True)]


def _differing(experiments: Sequence[Mapping[str, Any]], swept: Sequence[str]) -> list[str]:
    """Paths of keys in which the experiments are not the same, and that were not swept.

    Between points of one sweep, other differences follow from the swept keys.
    """
    known = {part.strip() for key in swept for part in key.split(",")}
    different = differ([{k: v for k, v in e.items() if k not in _NOT_COMPARED} for e in experiments])
    keys = [key for key in different if not any(within(key, one) or within(one, key) for one in known)]
    return [key for key in keys if not (key == "fabric.scale_up" and TOPOLOGY in keys)]  # only a rail has it


def plain(value: Any) -> Any:
    """numpy's and pandas' values as Python's; a missing one is None."""
    value = value.item() if hasattr(value, "item") else value
    missing = value is None or value != value or type(value).__name__ in ("NAType", "NaTType")
    return None if missing else value
