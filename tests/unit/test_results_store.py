"""The run store: names, atomicity, failures, and reading back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from results import StoreError, load
from results.frames.columns import COLUMNS, as_markdown, frame
from results.store.folder import RUNS, RunFolder
from results.store.load import Run, event_row, latest
from tests.parts.measurements import line, step


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_run_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    folder = RunFolder.create("x", tmp_path / "run")
    assert names(tmp_path) == ["run.partial"]
    assert load(folder.path).state["state"] == "running"
    assert folder.complete() == tmp_path / "run"
    assert names(tmp_path) == ["run"]
    assert load(tmp_path / "run").state["state"] == "complete"


def test_a_failed_run_keeps_what_it_has_and_says_why(tmp_path: Path) -> None:
    folder = RunFolder.create("x", tmp_path / "run")
    folder.append("measurements.jsonl", line(0, 0, 10))
    assert folder.fail({"what": "rank 3 died", "where": "", "hint": ""}) == tmp_path / "run.failed"
    run = load(tmp_path / "run.failed")
    assert run.state["error"]["what"] == "rank 3 died"
    assert len(run.ranks) == 1


def test_nothing_of_anybodys_is_overwritten(tmp_path: Path) -> None:
    first, second = (RunFolder.create("x", tmp_path / "run") for _ in range(2))
    assert first.complete().name == "run"
    assert second.complete().name == "run-2"
    with pytest.raises(StoreError, match="not empty"):
        RunFolder.create("x", tmp_path / "run")
    for number in ("", "-2"):
        folder = RunFolder.create("x", tmp_path / "other")
        assert folder.fail({"what": "x"}).name == f"other.failed{number}"


def test_an_empty_folder_may_be_the_runs(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    RunFolder.create("x", tmp_path / "run").complete()
    assert load(tmp_path / "run").state["state"] == "complete"


@pytest.mark.parametrize("out", ["file", "file/under", "/proc/nowhere", "/dev/null/run"])
def test_a_folder_that_cannot_be_written_is_said_and_leaves_nothing(tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError) as told:
        RunFolder.create("x", tmp_path / out)
    assert "--out" in told.value.hint
    assert names(tmp_path) == ["file"]


def test_parents_are_made_and_taken_back_with_a_discarded_run(tmp_path: Path) -> None:
    RunFolder.create("x", tmp_path / "a" / "b" / "run").discard()
    assert names(tmp_path) == []


def test_the_default_is_named_after_time_and_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [RunFolder.create("my run/1").complete() for _ in range(2)]
    assert folders[0].parent == tmp_path / "results" / "runs"
    assert folders[0].name.endswith("-my-run-1")
    assert folders[0] != folders[1]
    assert load(folders[0].name).state["state"] == "complete", "by its name"


def test_a_run_killed_at_any_moment_still_has_what_it_measured(tmp_path: Path) -> None:
    source = (
        "import os, signal; from results.store.folder import RunFolder\n"
        "from tests.parts.measurements import line, step\n"
        f"f = RunFolder.create('x', {str(tmp_path / 'run')!r})\n"
        "f.write_json('steps.json', {'ranks': 2, 'steps': [step(2)]})\n"
        "for r in (0, 1): f.append('measurements.jsonl', line(r, 0, 10))\n"
        "f.append('measurements.jsonl', line(0, 20, 30, iteration=1))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", source], env=environment).returncode == -signal.SIGKILL
    assert names(tmp_path) == ["run.partial"]
    with (tmp_path / "run.partial" / "measurements.jsonl").open("a") as file:
        file.write('{"kind": "coll')  # and half a line
    run = load(tmp_path / "run.partial")
    assert (run.state["state"], len(run.ranks), len(run.results)) == ("running", 3, 1)


def test_loading_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such run"):
        load(tmp_path / "none")
    with pytest.raises(StoreError, match="no run folder"):
        load(tmp_path)


def test_a_point_is_found_by_its_sweeps_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for at, points in enumerate((3, 2)):
        swept = RUNS / f"2026010{at + 1}-120000-victim"
        for folder in (swept, *(swept / f"point-{k}" for k in range(points))):
            folder.mkdir(parents=True)
            (folder / "state.json").write_text(json.dumps({"began": 1e9 + at}))
    assert load("victim/point-1").path == RUNS / "20260102-120000-victim" / "point-1", "of the latest"
    for none in ("victim/point-2", "other/point-0", "victim/metrics"):
        with pytest.raises(StoreError, match="no such run"):
            load(none)


def test_a_run_is_found_by_its_name_without_the_time_stamp_and_the_latest_is_that_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def begun(name: str, at: float) -> None:
        (RUNS / name).mkdir(parents=True)
        (RUNS / name / "state.json").write_text(json.dumps({"began": at}))

    with pytest.raises(StoreError, match="there is none in results/runs"):
        load("quickstart")
    for number, name in enumerate(
        ("zebra", "20260101-120000-quickstart", "20260101-120000-quickstart-2", "20260102-120000-fast-3", "first")
    ):
        begun(name, 1e9 + number)
    assert load("quickstart").path == RUNS / "20260101-120000-quickstart-2"
    assert load("20260101-120000-quickstart").path == RUNS / "20260101-120000-quickstart"
    assert load("fast-3").path.name == "20260102-120000-fast-3"  # the 3 is its own
    with pytest.raises(StoreError) as error:
        load("firstt")
    assert error.value.hint == "did you mean first? the latest here is results/runs/first"
    with pytest.raises(StoreError) as error:
        load("quickstrat")
    assert error.value.hint == "did you mean quickstart? the latest here is results/runs/first"
    assert [path.name for path in latest()][::4] == ["first", "zebra"]


@pytest.mark.parametrize("name", COLUMNS)
def test_frames_have_their_columns_and_dtypes_also_when_empty(tmp_path: Path, name: str) -> None:
    folder = RunFolder.create("x", tmp_path / "run")
    folder.write_frame(name, [])
    run = load(folder.complete())
    data = getattr(run, name)
    documented = frame(name, [])
    assert isinstance(data, pd.DataFrame)
    assert list(data.columns) == [c.name for c in COLUMNS[name]]
    assert list(data.dtypes) == list(documented.dtypes)
    assert [str(t) for t in documented.dtypes if t != "object"] == [
        c.dtype for c, t in zip(COLUMNS[name], documented.dtypes, strict=True) if t != "object"
    ]


def test_rows_come_back_as_they_were_stored(tmp_path: Path) -> None:
    rows = [
        {"node": "sw0", "port": 2, "reason": "tail", "count": 7, "headers": "a|b"},
        {"node": "sw1", "port": 1, "reason": "fault", "count": 1, "headers": None, "new_counter": 4},
    ]
    folder = RunFolder.create("x", tmp_path / "run")
    folder.write_frame("drops", rows)
    drops = load(folder.complete()).drops
    assert list(drops["count"]) == [7, 1]
    assert drops["headers"].isna().tolist() == [False, True]
    assert drops["new_counter"].tolist()[1] == 4, "a counter that no column documents yet is kept"


def test_an_event_keeps_all_that_it_said() -> None:
    row = event_row(
        {"event": "forwarding_drop", "time_ns": 5.5, "switch": "leaf0", "port": 3, "headers": "h", "wall_s": 1}
    )
    assert (row["node"], row["port"], row["time_ns"]) == ("leaf0", 3, 5.5)
    assert json.loads(row["detail"]) == {"headers": "h"}


def test_the_documentation_has_the_table_of_columns() -> None:
    page = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
    assert as_markdown().strip() in page, "put what results.frames.columns.as_markdown() returns into docs/results.md"


def test_the_state_names_the_writer(tmp_path: Path) -> None:
    assert load(RunFolder.create("x", tmp_path / "run").path).state["pid"] == os.getpid()


def test_unfinished_steps_are_loadable_without_steps(tmp_path: Path) -> None:
    folder = RunFolder.create("x", tmp_path / "run")
    folder.write_json("steps.json", {"ranks": 2, "steps": [step(2)]})
    assert load(folder.path).results.empty


@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("state.json", lambda run: run.state),
        ("summary.json", lambda run: run.summary),
        ("experiment.yaml", lambda run: run.experiment),
        ("events.jsonl", lambda run: run.rows("events")),
        ("metrics/results.parquet", lambda run: run.rows("results")),
    ],
)
def test_a_device_in_a_runs_folder_is_not_read(tmp_path: Path, file: str, read: Callable[[Run], object]) -> None:
    """It may have no end, a FIFO no beginning."""
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.symlink_to("/dev/null")
    with pytest.raises(StoreError, match="no ordinary file") as error:
        read(Run(tmp_path))
    assert error.value.where == str(path)


@pytest.mark.parametrize(
    ("file", "text", "read"),
    [
        ("state.json", '{"state": 5, "error": null}', lambda run: run.state),
        ("state.json", '{"state": "failed", "error": "x"}', lambda run: run.state),
        ("state.json", "{}", lambda run: run.state),
        ("fidelity.json", '{"reasons": []}', lambda run: run.fidelity),
        ("summary.json", "[]", lambda run: run.summary),
        ("summary.json", "[" * 100_000, lambda run: run.summary),
        ("experiment.yaml", "[" * 5_000, lambda run: run.experiment),
        ("events.jsonl", "[]\n", lambda run: run.rows("events")),
        ("events.jsonl", "[" * 100_000 + "\n", lambda run: run.rows("events")),
        ("events.jsonl", "\udcff\n", lambda run: run.rows("events")),
    ],
)
def test_what_is_not_as_it_was_written_is_damaged(
    tmp_path: Path, file: str, text: str, read: Callable[[Run], object]
) -> None:
    (tmp_path / file).write_text(text, errors="surrogateescape")
    with pytest.raises(StoreError, match="this file is damaged") as error:
        read(Run(tmp_path))
    assert error.value.where == str(tmp_path / file)
