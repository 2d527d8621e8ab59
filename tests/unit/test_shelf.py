"""What is stored under results/runs: listed, tagged, pruned; several runs loaded as one."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import results
from results.store.folder import SCHEMA, RunFolder, StoreError
from results.store.shelf import SORTS, STATES, shelf, superfluous, tag, throw_away
from testbed.base.errors import InputError
from testbed.commands import runs as verb
from testbed.commands._counters import FRAMES
from testbed.commands._counters import command as show_counters
from tests.parts.stored_runs import experiment, operation, stored, stored_sweep


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "results" / "runs"
    folder.mkdir(parents=True)
    return folder


def began(run: Path, days_ago: float) -> Path:
    state = json.loads((run / "state.json").read_text())
    (run / "state.json").write_text(json.dumps({**state, "began": time.time() - days_ago * 86_400}))
    return run


def ran(*args: str) -> str:
    done = CliRunner().invoke(verb.command, list(args), catch_exceptions=True)
    if done.exit_code:
        raise done.exception or AssertionError(done.output)
    return done.stdout


def test_states_sizes_and_order(store: Path) -> None:
    began(stored(store / "20260101-120000-small", [operation(1)]), 3)
    began(stored(store / "large", [operation(1)]), 2)
    (store / "large" / "counters.json").write_text("{" + " " * 100_000 + "}")
    RunFolder.create("x", store / "broken").fail({"what": "deadlock"})
    began(stored_sweep(store / "swept", [({"seed": 1}, 1.0), ({"seed": 2}, 2.0)]), 5)
    RunFolder.create("x", store / "now")
    dead = RunFolder.create("x", store / "dead")
    state = json.loads((dead.path / "state.json").read_text())
    (dead.path / "state.json").write_text(json.dumps({**state, "pid": 1, "began": 1.0}))  # before the machine's start
    stored(store / "odd", [])
    (store / "odd" / "state.json").write_text("{half")
    found = {run.name: run for run in shelf()}
    assert {name: run.state for name, run in found.items()} == {
        "20260101-120000-small": "complete", "large": "complete", "broken.failed": "failed", "swept": "complete",
        "now.partial": "running", "dead.partial": "killed", "odd": "damaged",
    }  # fmt: skip
    assert {run.state for run in found.values()} == set(STATES)
    assert (found["swept"].kind, found["swept"].points, found["large"].verdict) == ("sweep", 2, "exact")
    assert found["large"].size_bytes > 100_000
    assert [run.name for run in shelf(states=["complete"])] == ["large", "20260101-120000-small", "swept"]
    assert shelf(sort="size")[0].name == "large"
    assert [run.name for run in shelf(names=["small", "bro*"], sort="name")] == [
        "broken.failed",
        "20260101-120000-small",
    ]


def test_tags(store: Path) -> None:
    run = stored(store / "a", [])
    assert tag(run, ["paper", "figure-3"]) == ["paper", "figure-3"]
    assert tag(run, ["paper"], ["figure-3"]) == ["paper"]
    assert [r.name for r in shelf(tags=["paper"])] == ["a"] and shelf(tags=["other"]) == []
    with pytest.raises(StoreError, match="it has no tag 'other'"):
        tag(run, remove=["other"])
    for bad in ("", "a b", "../x", "-x", "x" * 65):
        with pytest.raises(StoreError, match="is no tag"):
            tag(run, [bad])
    assert "a: no tags" in ran("untag", "a", "paper")


def test_a_name_is_whole_but_for_its_stamp_and_how_it_ended(store: Path) -> None:
    for name in ("v1", "v1.1", "gpt-1.5b"):
        stored(store / name, [])
    RunFolder.create("x", store / "20260101-120000-incast").fail({"what": "x"})
    assert [run.name for run in shelf(names=["v1"])] == ["v1"] and shelf(names=["gpt-1"]) == []
    assert [run.name for run in shelf(names=["incast"])] == ["20260101-120000-incast.failed"]


@pytest.mark.parametrize("state", ['{"state": "complete", "began": "x"}', '{"state": "complete", "began": []}', "[]"])
def test_a_damaged_state_is_listed(store: Path, state: str) -> None:
    stored(store / "a", [])
    (store / "a" / "state.json").write_text(state)
    assert [run.state for run in shelf()] == ["damaged"]


def test_pruning_spares_what_runs_what_is_tagged_and_the_latest(store: Path) -> None:
    for k in range(5):
        began(stored(store / f"r{k}", []), 10 - k)
    tag(store / "r0", ["paper"])
    RunFolder.create("x", store / "now")
    assert [run.name for run in superfluous(shelf(), keep=3)] == ["r2", "r1"]  # now, r4 and r3 are the latest
    assert [run.name for run in superfluous(shelf(), older_s=8.5 * 86_400)] == ["r1"]
    assert "r0" in [run.name for run in superfluous(shelf(tags=["paper"]), tags=["paper"])]
    assert "would remove" in ran("prune", "--older", "8.5d") and (store / "r1").exists()
    assert "removed" in ran("prune", "--older", "8.5d", "--yes")
    assert sorted(os.listdir(store)) == ["now.partial", "r0", "r2", "r3", "r4"]
    with pytest.raises(InputError, match="nothing says which"):
        ran("prune", "--yes")


def test_what_was_made_anew_meanwhile_is_not_thrown_away(store: Path) -> None:
    began(stored(store / "a", []), 3)
    (listed,) = shelf()
    began(store / "a", 0)
    with pytest.raises(StoreError, match="has changed meanwhile"):
        throw_away(listed)
    tag(store / "a", ["paper"])
    (listed,) = shelf()
    tag(store / "a", ["later"])
    with pytest.raises(StoreError, match="has changed meanwhile"):
        throw_away(listed)
    assert (store / "a").exists()


def test_the_list_and_its_json(store: Path) -> None:
    assert ran() == "no runs in results/runs\n"
    stored(store / "a", [operation(1)])
    tag(store / "a", ["paper"])
    assert "paper" in ran() and "no runs that match" in ran("--state", "failed")
    (one,) = json.loads(ran("--json", "--tag", "paper"))["runs"]
    assert (one["name"], one["state"], one["verdict"], one["tags"]) == ("a", "complete", "exact", ["paper"])
    assert {p.name: p.type.choices for p in verb.command.params if p.name == "sort"} == {"sort": SORTS}  # type: ignore[attr-defined]
    assert STATES == verb._STATES


def test_several_runs_are_one_tidy_frame(store: Path) -> None:
    stored(store / "a", [operation(100.0), operation(300.0, iteration=1)], experiment())
    stored(store / "b", [operation(50.0)], experiment(fabric__cable__rate="100Gbps"))
    stored_sweep(store / "s", [({"seed": 1}, 10.0), ({"seed": 2}, 20.0), ({"seed": 3}, "deadlock")])
    both = results.load("a", "b")
    assert both.keys == ("fabric.cable.rate",)
    assert list(both.results.columns[:3]) == ["run", "fabric.cable.rate", "step"]
    assert both.results.groupby("fabric.cable.rate").time_ns.mean().to_dict() == {"400Gbps": 200.0, "100Gbps": 50.0}
    with pytest.warns(results.IncompleteWarning, match="1 of 3 points are left out.*s/point-2: deadlock"):
        swept = results.load("s")
    assert swept.failed == {"s/point-2": "deadlock"}
    assert swept.figures[["run", "seed", "time_us_1048576"]].values.tolist() == [
        ["s/point-0", 1, 0.01],
        ["s/point-1", 2, 0.02],
    ]
    with pytest.warns(results.IncompleteWarning):
        assert len(results.load("a", "s").results) == 4
    assert results.load("a").results.columns[0] == "step"


def test_points_that_are_not_there_are_said(store: Path) -> None:
    swept = stored_sweep(store / "s", [({"seed": 1}, 10.0), ({"seed": 2}, 20.0)])
    assert len(results.load("s").results) == 2  # without a warning, which would be an error here
    shutil.rmtree(swept / "point-1")
    told = json.loads((swept / "sweep.json").read_text())
    (swept / "sweep.json").write_text(json.dumps({**told, "total": 4}))
    with pytest.warns(results.IncompleteWarning):
        loaded = results.load_many(["s"])
    assert loaded.failed == {"s/point-1": "its folder is gone", "s: 2 more": "2 of 4 points are done"}


def test_a_folder_of_a_later_schema_is_refused_and_one_without_is_read(store: Path) -> None:
    run = stored(store / "a", [operation(1)])
    state = json.loads((run / "state.json").read_text())
    assert state["schema"] == SCHEMA
    (run / "state.json").write_text(json.dumps({**state, "schema": SCHEMA + 1}))
    with pytest.raises(StoreError, match=f"reads up to {SCHEMA}"):
        results.load("a")
    del state["schema"]
    (run / "state.json").write_text(json.dumps(state))
    assert len(results.load("a").results) == 1


def test_parquet_files_say_their_units(store: Path) -> None:
    run = stored(store / "a", [operation(1)])
    fields = pq.read_schema(run / "metrics" / "results.parquet")
    assert fields.field("busbw_Bps").metadata == {b"unit": b"bytes/s"} and fields.field("ranks").metadata is None
    assert results.load("a").results.attrs["units"]["time_ns"] == "ns, emulated"


@pytest.mark.parametrize("frame", FRAMES)
def test_every_table_of_counters_can_be_shown(store: Path, frame: str) -> None:
    stored(store / "a", [operation(1)], frames={"accelerators": [{"switch": "sw0", "completed": 7}]})
    done = CliRunner().invoke(show_counters, ["a", frame], catch_exceptions=False)
    assert done.exit_code == 0 and ("completed" in done.output) is (frame == "accelerators")
