"""An algorithm of a file is like one of ours: tables, bench, sweeps, predictions, runs; known by what is in it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from results.figures.summary import labels
from testbed.base.errors import InputError
from testbed.bench.experiment import Options
from testbed.bench.experiment import experiment as bench
from testbed.experiment import Experiment, load, loads
from testbed.experiment.overrides import load_with, override
from testbed.machines.identity import file_hashes, resolved_hash
from testbed.operate.registry import ACTIONS
from testbed.plan.steps.plan import plan
from testbed.predict.predict import predict
from testbed.run import own_files
from testbed.run.sweep import points
from tests.parts.own_files import EXAMPLES, experiment, refused
from tests.parts.uniform_paths import Uniform
from workloads.check.check import check
from workloads.check.memory import Wrong
from workloads.collectives.schedule import Copy, Lane, Program, Recv, Schedule, Send, Shape, Step, Wait, schedule_of
from workloads.own.name import parse
from workloads.registry import ALGORITHMS
from workloads.times.case import Case
from workloads.times.expected import replayed
from workloads.times.messages import Costs
from workloads.times.messages import Path as Way


def test_what_stands_in_files_of_results_is_the_same_wherever_the_file_is(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "ring.xml", tmp_path)
    here, there = (plan(experiment(folder, 4, "./ring.xml")) for folder in (EXAMPLES, tmp_path))
    assert here.described() == there.described()
    assert here.described()[0]["algorithm"] == "ring.xml"
    its = experiment(tmp_path, 4, "./ring.xml")
    assert labels(its.resolved()["workload"]) == ["ring.xml"]


def test_an_experiment_is_known_by_what_is_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    shutil.copy(EXAMPLES / "mine.py", file)
    before = experiment(tmp_path, 4, "mine.py:one_shot")
    written = before.resolved()["workload"][0]["algorithm"]
    assert written.startswith(f"{file}:one_shot#sha256:") and list(file_hashes(before)) == [str(file)]
    assert loads(json.dumps(before.resolved())) == before
    file.write_text(file.read_text() + "# changed\n")
    assert resolved_hash(experiment(tmp_path, 4, "mine.py:one_shot")) != resolved_hash(before)
    with pytest.raises(InputError, match="is not the file that is meant: its content is another"):
        loads(json.dumps(before.resolved()))


def test_a_runs_folder_has_a_copy_of_each_file(tmp_path: Path) -> None:
    """Of two that have one name both."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "ring.xml").write_text((EXAMPLES / "ring.xml").read_text() + "<!-- another -->\n")
    algorithms = [EXAMPLES / "ring.xml", tmp_path / "other" / "ring.xml", EXAMPLES / "mine.py:one_shot"]
    steps = [experiment(tmp_path, 4, str(path)).workload[0] for path in algorithms]
    plain = experiment(EXAMPLES, 4, "ring")
    with_steps = SimpleNamespace(workload=steps, senders=plain.senders, control=plain.control)
    own_files.keep(with_steps, tmp_path)  # type: ignore[arg-type]
    kept = sorted(path.name for path in (tmp_path / "algorithms").iterdir())
    assert kept[1:] == ["mine.py", "ring.xml"] and kept[0].endswith("-ring.xml")
    assert (tmp_path / "algorithms" / "ring.xml").read_text() == (EXAMPLES / "ring.xml").read_text()


def test_bench_sweeps_and_settings_take_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    options = Options("all_reduce", ["ring", "ring.xml[chunk=64KiB]", "mine.py:one_shot"], "64K", "64K", ranks=4)
    assert labels(bench(options).resolved()["workload"]) == ["ring", "ring.xml", "mine.py:one_shot"]
    assert bench(options).workload[1].chunk == 64 << 10
    with pytest.raises(InputError) as info:
        bench(replace(options, algorithms=["none.xml"]))
    assert "none.xml cannot be read" in info.value.what and info.value.where == "command line: --algorithm"
    base = experiment(EXAMPLES, 4, "ring")
    assert override(base, ["workload.0.algorithm=allpairs.xml"]).workload[0].label == "all_reduce by allpairs.xml"
    swept = override(base, ["sweep={workload.0.algorithm: [ring, ./ring.xml, './mine.py:one_shot']}"])
    assert [p.experiment.workload[0].label.rpartition(" ")[2] for p in points(swept)] == [
        "ring", "ring.xml", "mine.py:one_shot",
    ]  # fmt: skip


def test_a_file_without_a_function_is_answered_with_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    its = refused(EXAMPLES, 4, "./mine.py")
    assert its.what == "./mine.py names no function" and its.hint == "./mine.py:one_shot or ./mine.py:scattered"
    monkeypatch.chdir(EXAMPLES)
    with pytest.raises(InputError) as info:
        bench(Options("all_reduce", ["mine.py"], ranks=4))
    assert (info.value.where, info.value.hint) == ("command line: --algorithm", "mine.py:one_shot or mine.py:scattered")


def test_bench_says_its_own_options_of_a_files_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    told = []
    for more in (
        {"ranks": 8, "end": "64K"},
        {"ranks": 4, "end": "4"},
        {"ranks": 4, "algorithms": ["ring.xml[offloads=true]"]},
    ):
        with pytest.raises(InputError) as info:
            bench(Options("all_reduce", **{"algorithms": ["ring", "ring.xml"], **more}))
        told.append((info.value.what, info.value.where, info.value.hint))
    assert told == [
        ("all_reduce by ring.xml takes 4 ranks, not 8", "command line: --algorithm", "-g 4"),
        ("4B are not 4 equal chunks of float32 (nchunksperloop)", "command line: -b, -e", "a multiple of 16 bytes"),
        ("ring.xml chooses nothing", "command line: --algorithm: offloads", "leave offloads out, or algorithm: auto"),
    ]


def test_what_a_setting_replaces_is_not_run(tmp_path: Path) -> None:
    """Its code would say so; where nothing replaces it, it does."""
    (tmp_path / "a.py").write_text("raise RuntimeError('it runs')\n")
    (tmp_path / "x.yaml").write_text(
        "name: t\nfabric: {topology: {star: {hosts: 4}}}\n"
        "workload: [{collective: all_reduce, algorithm: 'a.py:f', sizes: [4KiB]}]\n"
    )
    assert load_with(tmp_path / "x.yaml", ["workload.0.algorithm=ring"]).workload[0].label == "all_reduce by ring"
    assert bench(Options("all_reduce", ["ring"], end="4K", topology=str(tmp_path / "x.yaml"))).workload
    for settings in ([], ["seed=2"]):
        with pytest.raises(InputError, match="it runs"):
            load_with(tmp_path / "x.yaml", settings)


def test_the_example_is_predicted() -> None:
    figures = predict(load(EXAMPLES / "own.yaml")).figures
    assert {f.algorithm: f.how for f in figures} == dict.fromkeys(
        ("hierarchical.xml", "rails", "ring.xml", "allpairs.xml", "mine.py:one_shot", "mine.py:scattered"),
        "messages",
    )


def test_a_rank_gets_its_own_program_and_those_of_its_peers() -> None:
    its = plan(experiment(EXAMPLES, 4, "ring.xml", sizes=["64KiB", "1MiB"]))
    assert "programs" not in its.told()["steps"][0]
    (step,) = its.told([2])["steps"]
    assert {key: set(its) for key, its in step["programs"].items()} == {
        "4 16384": {"1", "2", "3"}, "4 262144": {"1", "2", "3"},
    }  # fmt: skip


def test_who_only_operates_or_plays_runs_no_code_here() -> None:
    site: Any = SimpleNamespace(job=SimpleNamespace(workload=lambda: [{"collective": "all_reduce"}]))
    with pytest.raises(InputError, match="a job goes on by an algorithm of ours"):
        list(ACTIONS["job algorithm"].steps(site, name="/tmp/a.py:f"))
    written = experiment(EXAMPLES, 4, "ring").resolved()
    written["workload"][0]["algorithm"] = "ring.xml"
    with pytest.raises(ValidationError, match="has no place here"):
        Experiment.model_validate(written, context={"directory": EXAMPLES, "own": False})


def test_a_task_names_no_file() -> None:
    task = f"{{id: a, collective: all_reduce, group: g, size: 64KiB, algorithm: {EXAMPLES / 'ring.xml'}}}"
    steps = f"[{{tasks: {{groups: {{g: [[0, 1, 2, 3]]}}, list: [{task}]}}}}]"
    with pytest.raises(InputError, match="has no place here"):
        loads(f"{{name: x, fabric: {{topology: {{star: {{hosts: 4}}}}}}, workload: {steps}}}")


def test_names_of_files() -> None:
    assert parse("ring") is parse("a.py:b:c") is parse("a.xml:f") is None and parse("a.py").function == ""
    for text in ("a.xml", "../b/a.py:f", f"/c/a.xml#sha256:{'0' * 64}", f"/c/a.py:f#sha256:{'0' * 64}"):
        assert str(parse(text)) == text


# What schedules are made of


def took(schedule: Schedule, shape: Shape, costs: Costs) -> float:
    way = Way.uniform(1, rate_bps=400e9, delay_ns=500, latency_ns=500)
    time_ns = replayed(Case(shape, 4, costs, Uniform(way)), schedule)
    assert time_ns is not None
    return time_ns


def test_waiting_for_another_lane_takes_as_long_as_one_lane() -> None:
    costs, shape = Costs(wake_ns=300, reduce_bps=100e9), Shape(3, 50_000)

    def relay(apart: bool) -> Schedule:
        def program(shape: Shape, rank: int) -> Program:
            whole = (0, shape.count)
            comes: list[Step] = [Recv(rank - 1, *whole, reduce=True)] if rank else []
            goes: list[Step] = [Send(rank + 1, *whole)] if rank < 2 else []
            return [Lane([Wait(1, len(comes)), *goes]), Lane(comes)] if apart else [Lane([*comes, *goes])]

        program.__qualname__ += str(apart)
        return program

    assert took(relay(True), shape, costs) == took(relay(False), shape, costs) > 0


def test_a_copy_that_reduces_takes_a_reductions_time_and_others_none() -> None:
    costs, shape = Costs(reduce_bps=100e9), Shape(2, 1000)

    def copies(reduce: int, others: int) -> Schedule:
        def program(shape: Shape, rank: int) -> Program:
            made = [Copy(0, shape.count, 0)] * (others + 1) + [Copy(0, shape.count, 0, reduce=True)] * reduce
            return [Lane([*made, Send(1 - rank, 0, 1), Recv(1 - rank, 0, 1, True)], buffered=True)]

        program.__qualname__ += f"{reduce} {others}"
        return program

    alone = took(copies(0, 0), shape, costs)
    assert took(copies(0, 5), shape, costs) == alone
    assert took(copies(3, 0), shape, costs) == pytest.approx(alone + 3 * 4000 * 8 / 100)  # 4,000 bytes at 100 Gb/s


@pytest.mark.parametrize("name", ["ring", "halving_doubling", "double_binary_tree"])
def test_each_message_that_is_left_out_or_moved_is_noticed(name: str) -> None:
    entry, shape = ALGORITHMS["all_reduce", name], Shape(4, 64, 8)
    programs = [schedule_of(entry)(shape, rank) for rank in range(4)]
    steps = [(r, n, k) for r, p in enumerate(programs) for n, lane in enumerate(p) for k in range(len(lane.steps))]
    for at in steps[:: max(1, len(steps) // 40)]:
        for change in (lambda step: [], lambda step: [step._replace(start=step.start + 1)]):

            def schedule(shape: Shape, rank: int, at: Any = at, change: Any = change) -> Program:
                made = [list(lane.steps) for lane in programs[rank]]
                if at[0] == rank:
                    made[at[1]][at[2] : at[2] + 1] = change(made[at[1]][at[2]])
                return [Lane(its, lane.window) for lane, its in zip(programs[rank], made, strict=True)]

            with pytest.raises(Wrong):
                check(entry, schedule, shape)
