"""Reads a run folder, complete or not: `results.load(run)` gives a `Run` with pandas frames."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.figures.summary import as_run, labels, of_steps, summarize
from results.frames.columns import COLUMNS, frame
from results.frames.metrics import counter_rows, rank_rows, result_rows
from results.store.folder import RUNS, SCHEMA, StoreError

if TYPE_CHECKING:
    import pandas as pd


LIVE = "live.json"
MOST_SHOWN = 60
"""Rows of a frame in a notebook."""


def _frame(name: str, about: str) -> cached_property[pd.DataFrame]:
    read: cached_property[pd.DataFrame] = cached_property(lambda frames: frames._frame(name))
    read.__doc__ = about
    return read


class Frames:
    """The frames that both a run and several runs have; they are read when first asked for."""

    results = _frame("results", "One row per finished operation.")
    ranks = _frame("ranks", "One row per operation and rank.")
    ports = _frame("ports", "One row per port.")
    nics = _frame("nics", "One row per NIC.")
    qps = _frame("qps", "One row per queue pair.")
    switches = _frame("switches", "One row per switch.")
    accelerators = _frame("accelerators", "One row per accelerator of a switch.")
    drops = _frame("drops", "One row per node, port and reason of dropped frames.")
    flows = _frame("flows", "One row per OpenFlow rule.")
    priorities = _frame("priorities", "One row per port and priority.")
    faults = _frame("faults", "One row per injected fault.")
    timeline = _frame("timeline", "One row per task of a rank; none if the workload has no tasks.")
    events = _frame("events", "The event log.")

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a frame as plain data."""
        raise NotImplementedError

    def _frame(self, name: str) -> pd.DataFrame:
        return frame(name, self.rows(name))


class Run(Frames):
    """A run on disk. Its frames have the columns of results.frames.columns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def state(self) -> dict[str, Any]:
        """`state` (complete, failed, or running, as a killed run says too), `error`, `began`, `ended` (Unix time)."""
        state = self._json("state.json")
        if not state:
            raise damaged(self.path / "state.json", "it is empty")
        return {"error": None, **state}

    @cached_property
    def experiment(self) -> dict[str, Any]:
        """The experiment as resolved, every default written out."""
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        path = self.path / "experiment.yaml"
        if not _is_there(path):
            return {}
        try:
            experiment = dict(YAML(typ="safe").load(path))
        except (YAMLError, UnicodeDecodeError, TypeError, ValueError, RecursionError):
            raise damaged(path) from None
        _check(path, experiment)
        return experiment

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, kernel, seed, git commit."""
        return self._json("environment.json")

    @cached_property
    def fidelity(self) -> dict[str, Any]:
        """`verdict`, `reasons`, `advice`; empty if the run did not get that far."""
        return self._json("fidelity.json")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What `testbed run --json` printed; `run` is where the folder is now."""
        summary = self._json("summary.json")
        return {**summary, "run": str(self.path)} if summary else {}

    @cached_property
    def live(self) -> dict[str, Any]:
        """Of a run on a live fabric: what was in force there besides (results.figures.in_force); empty of others."""
        return self._json(LIVE)

    @cached_property
    def steps(self) -> list[dict[str, Any]]:
        """The steps of the workload, as results.frames.metrics.result_rows takes it."""
        return list(self._json("steps.json").get("steps", []))

    @cached_property
    def figures(self) -> dict[str, Any]:
        """The main figures of the run, as in its row of a sweep (results.figures.summary)."""
        workload = self.experiment.get("workload", [])
        names = as_run(labels(workload), workload, self.steps)
        row = summarize(self.rows("results"), self.summary.get("counters", {}), names)
        return {**of_steps(self.rows("timeline"), self.steps), **row}

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self.experiment.get("name", self.path.name))

    @cached_property
    def thresholds(self) -> dict[str, Any]:
        """`ecn`: where marking begins and ends, by port and class; of runs with time series."""
        return self._json("thresholds.json")

    @cached_property
    def counters(self) -> dict[str, Any]:
        """fabricd's counters at the end of the run (docs/fabricd-protocol.md); empty if none were kept."""
        return self._json("counters.json")

    @cached_property
    def fastest_bps(self) -> float:
        """Rate of the fastest cable; 0 if no counters were kept."""
        return max((link["rate_bps"] for link in self.counters.get("links", ())), default=0)

    def __repr__(self) -> str:
        return f"<run {self.name!r}, {self.fidelity.get('verdict', self.state['state'])}, in {self.path}>"

    def _repr_html_(self) -> str:
        """In a notebook: the verdict, its reasons, and `results`."""
        verdict = [self.fidelity.get("verdict", self.state["state"]), *self.fidelity.get("reasons", [])]
        title = escape(f"{self.name}: {'; '.join(verdict)}")
        shown = self.results.dropna(axis="columns", how="all")
        return f"<p><b>{title}</b></p>{shown.to_html(index=False, max_rows=MOST_SHOWN)}<p>{escape(str(self.path))}</p>"

    def series(self, name: str) -> pd.DataFrame:
        """A time series (results.frames.series.SERIES). Raises StoreError if the run was not sampled."""
        import pandas as pd

        from results.frames.series import SERIES, units

        path = self.path / "metrics" / f"{name}.parquet"
        if name not in SERIES:
            raise StoreError(f"there is no series called {name!r}", str(self.path), f"there are {', '.join(SERIES)}")
        if not _is_there(path):
            raise StoreError("this run was not sampled", str(self.path), "say measure: {sample: 10us}")
        try:
            series = pd.read_parquet(path)
        except (OSError, ValueError):  # pyarrow's own errors are among them
            raise damaged(path) from None
        series.attrs["units"] = units(name)
        return series

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a frame as plain data; None where a value is missing.

        If a run was killed before its frames were stored, they are made from its lines and counters.
        """
        import pyarrow.parquet as pq

        path = self.path / "metrics" / f"{name}.parquet"
        if _is_there(path):
            try:
                with pq.ParquetFile(path) as file:  # read_table() would import pyarrow.dataset first, half a second
                    rows = list(file.read().to_pylist())
            except (OSError, ValueError):  # pyarrow's own errors are among them
                raise damaged(path) from None
            return _completed(name, rows)
        if name == "timeline":
            return []
        if name == "events":
            return [event_row(e) for e in self._lines("events.jsonl")]
        if name in ("results", "ranks"):
            ranks = rank_rows(self._lines("measurements.jsonl"))
            return ranks if name == "ranks" else result_rows(ranks, self.steps)
        return counter_rows(self.counters)[name]

    def _json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        return read_object(path) if _is_there(path) else {}

    def _lines(self, name: str) -> list[dict[str, Any]]:
        return read_lines(self.path / name)


def _completed(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with every column of the frame: a run of an older version has fewer."""
    newer = [column.name for column in COLUMNS[name] if rows and column.name not in rows[0]]
    return [{**dict.fromkeys(newer), **row} for row in rows] if newer else rows


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises StoreError if there is none."""
    return _objects(path, lambda text: [text])[0]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in the complete lines of a file; whoever was killed may leave half a line at the end."""
    return _objects(path, lambda text: text[: text.rfind("\n") + 1].splitlines()) if _is_there(path) else []


def _objects(path: Path, parts: Callable[[str], list[str]]) -> list[dict[str, Any]]:
    _is_there(path)
    try:
        values = [json.loads(part) for part in parts(path.read_text())]
    except (ValueError, RecursionError):
        raise damaged(path) from None
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise damaged(path)
        _check(path, value, number if path.suffix == ".jsonl" else 0)
    return values


def _check(path: Path, value: dict[str, Any], line: int = 0) -> None:
    """Raises StoreError that names the first wrong value."""
    from results.store.shapes import wrong_in

    if wrong := wrong_in(path.name, value):
        raise damaged(path, wrong, line)


def _is_there(path: Path) -> bool:
    """Raises StoreError for what is no file: a FIFO blocks, a device has no end."""
    if path.exists() and not path.is_file():
        raise StoreError("this is no ordinary file", str(path), "a run's folder has ordinary files and folders")
    return path.exists()


def damaged(path: Path, why: str = "", line: int = 0) -> StoreError:
    """The error for a damaged file of a run folder."""
    what = "this file is damaged" + (f": {why}" if why else "")
    return StoreError(what, f"{path}:{line}" if line else str(path), "the run's other files can still be read")


def event_row(event: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of the event log as a row of the frame `events`."""
    own = ("time_ns", "wall_s", "event", "rank", "port")
    detail = {k: v for k, v in event.items() if k not in (*own, "switch")}
    return {
        **{k: event.get(k) for k in own},
        "node": event.get("switch"),
        "detail": json.dumps(detail) if detail else None,
    }


def load(run: str | Path) -> Run:
    """The run in the folder `run`, or of that name under results/runs (see `find`).

    Raises StoreError if there is no run. A failed or killed run loads too: see `Run.state`.
    """
    return Run(find(run))


def find(run: str | Path) -> Path:
    """The folder that `load` reads: `run`, one of that name under results/runs, or the latest TIMESTAMP-`run` there;
    a sweep's name and /point-K is its point. Raises StoreError.
    """
    if not str(run):
        raise StoreError("the name of the run is empty", "", _known())
    path = Path(run)
    for candidate in (path, RUNS / path):
        if (candidate / "state.json").exists():
            return _readable(candidate)
    if path.exists():
        raise StoreError("this is no run folder: it has no state.json", str(run))
    name, *point = path.parts
    its = next((folder for folder in latest() if short_name(folder) == name), None)
    if its and (its.joinpath(*point) / "state.json").exists():
        return _readable(its.joinpath(*point))
    raise StoreError("there is no such run", str(run), _known(str(path)))


def _readable(folder: Path) -> Path:
    """Raises StoreError for a folder of a later schema, whose values may mean something else."""
    try:
        schema = read_object(folder / "state.json").get("schema", 0)
    except StoreError:  # damaged: whoever reads it will say so
        return folder
    if not isinstance(schema, int) or schema > SCHEMA:
        what = f"a later version of Railbed has made this folder: its schema is {schema}, this one reads up to {SCHEMA}"
        raise StoreError(what, str(folder), "read it with that version, or a later one")
    return folder


def latest() -> list[Path]:
    """The folders under results/runs, the run that began last first."""
    return sorted((p.parent for p in RUNS.glob("*/state.json")), key=_began, reverse=True)


def _began(folder: Path) -> tuple[float, str]:
    state = folder / "state.json"
    try:
        return float(read_object(state)["began"]), folder.name
    except (OSError, StoreError, ValueError, KeyError, TypeError):
        return state.stat().st_mtime, folder.name


_STAMP = re.compile(r"\d{8}-\d{6}-")


def short_name(folder: Path) -> str:
    """A run's name without the time stamp that the store puts in front, and the number of one in the same second."""
    if not _STAMP.match(folder.name):
        return folder.name
    first = re.sub(r"-\d+$", "", folder.name)
    same = first != folder.name and (folder.parent / first / "state.json").exists()
    return _STAMP.sub("", first if same else folder.name, count=1)


def _known(asked: str = "") -> str:
    """The runs that resemble the name asked for, and the latest."""
    runs = latest()
    if not runs:
        return f"there is none in {RUNS}"
    alike = get_close_matches(asked, [*dict.fromkeys(n for r in runs for n in (r.name, short_name(r)))], 1)
    meant = f"did you mean {alike[0]}? " if alike else ""
    return f"{meant}the latest here is {RUNS / runs[0].name}"
