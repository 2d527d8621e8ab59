"""Scripts of PyTorch without PyTorch: what is recorded, what becomes of it, what is said where it cannot be."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import InputError, MachineError, UserError
from testbed.experiment import load
from testbed.plan.steps import kinds, scripts
from testbed.plan.steps import plan as planning
from workloads.tasks.check import BadGraph
from workloads.tasks.graph import Settings
from workloads.tasks.oracle import oracle, step_ns
from workloads.tasks.task import Collective, Compute, Recv, Send
from workloads.torch import launch
from workloads.torch.rank import _is_lost
from workloads.torch.recorder import Recorder
from workloads.torch.steps import ScriptStep, steps

FLOPS = 1000  # of each operation: a microsecond


def by_flops(flops: int, nbytes: int, dtype: str) -> float:
    return float(flops)


def made(*recorders: Recorder, ranks: Sequence[int] = (), settings: Settings | None = None) -> list[ScriptStep]:
    told: list[Mapping[str, Any]] = [recorder.recorded() for recorder in recorders]
    return steps(told, ranks or range(len(recorders)), by_flops, settings)


def recorder(*groups: tuple[str, Sequence[int]]) -> Recorder:
    one = Recorder()
    one.groups = [{"name": name, "members": list(members)} for name, members in groups]
    return one


def computes(one: Recorder, times: int = 1) -> None:
    for _ in range(times):
        one.charge(FLOPS, 0, "float32")


def reduces(one: Recorder, group: int = 0) -> int:
    return one.collective(group, "all_reduce", 4096, "float32", "sum", "gradients")


def total_ns(step: ScriptStep, collective: float = 5000.0) -> float:
    return step_ns(oracle(step.graph, lambda rank, task: collective))


def test_what_is_computed_without_a_break_is_one_task_and_a_collective_is_beside_what_follows() -> None:
    both = [recorder(("default_pg", (0, 1))) for _ in range(2)]
    for one in both:
        computes(one, 3)
        bucket = reduces(one)
        computes(one, 4)
        one.wait([bucket])
        computes(one)
    (step,) = made(*both)
    tasks = step.graph.tasks[0]
    assert [type(t) for t in tasks] == [Compute, Collective, Compute, Compute]
    assert [t.duration_ns for t in tasks if isinstance(t, Compute)] == [3000, 4000, 1000]
    assert tasks[1].after == (tasks[0].id,) and tasks[3].after == (tasks[1].id,)
    assert total_ns(step) == 3000 + 5000 + 1000
    assert step.graph.groups == {"world": ((0, 1),)} and tasks[1].stream == "world"


def test_streams_run_side_by_side_and_wait_for_each_other_where_they_are_told_to() -> None:
    both = [recorder(("default_pg", (0, 1))) for _ in range(2)]
    for one in both:
        side = one.stream("side")
        computes(one)
        side.waits |= one.close(one.main)
        one.current = side
        computes(one, 2)
        one.current = one.main
        computes(one, 5)
        reduces(one)
    (step,) = made(*both)
    times = oracle(step.graph, lambda rank, task: 0.0)
    assert [times[0, t.id] for t in step.graph.tasks[0]] == [(0, 1000), (1000, 3000), (1000, 6000), (6000, 6000)]


def test_after_the_host_has_waited_nothing_is_issued_on_any_stream() -> None:
    both = [recorder(("default_pg", (0, 1))) for _ in range(2)]
    for one in both:
        one.host_waits([reduces(one)])
        one.current = one.stream("side")
        computes(one)
    (step,) = made(*both)
    assert total_ns(step) == 5000 + 1000


def test_steps_that_are_alike_are_one() -> None:
    both = [recorder(("default_pg", (0, 1))) for _ in range(2)]
    for one in both:
        one.collective(0, "broadcast", 64, "float32", None, "broadcast")
        one.model_is_called()
        for k in range(4):
            computes(one, 2 if k == 0 else 1)
            reduces(one)
            one.step_ends()
        computes(one)
    found = made(*both, settings=Settings(algorithms={"all_reduce": "ring"}))
    assert [(s.name, s.times, s.training) for s in found] == [
        ("setup", 1, False),
        ("step 1", 1, True),
        ("steps 2 to 4", 3, True),
    ]
    assert {s.graph.settings["world"].algorithms["all_reduce"] for s in found} == {"ring"}


def test_groups_have_the_names_of_a_meshs_dimensions_and_overlapping_ones_numbers() -> None:
    four = []
    for rank in range(4):
        shard, others = (rank // 2 * 2, rank // 2 * 2 + 1), (rank % 2, rank % 2 + 2)
        groups: list[tuple[str, Sequence[int]]] = [("mesh_shard", shard), ("mesh_replicate", others)]
        one = recorder(*groups, ("", (0, 1, 2, 3)), ("", (3, 2, 1, 0)))
        for group in range(4):
            reduces(one, group)
        one.rows[-1]["root"] = 1
        four.append(one)
    (step,) = made(*four, ranks=(4, 5, 6, 7))
    assert step.graph.groups == {
        "shard": ((4, 5), (6, 7)),
        "replicate": ((4, 6), (5, 7)),
        "group": ((4, 5, 6, 7),),
        "group 2 from 6": ((6, 5, 4, 7),),
    }


def test_from_whatever_root_a_group_does_one_thing_after_the_other() -> None:
    both = [recorder(("default_pg", (0, 1))) for _ in range(2)]
    for one in both:
        one.wait([reduces(one)])
        for root in (0, 1, 0):
            row = one.collective(0, "broadcast", 4096, "float32", None, "broadcast")
            one.rows[row]["root"] = root
        one.wait([row])
        computes(one)
    (step,) = made(*both)
    tasks = step.graph.tasks[0]
    assert [t.group for t in tasks if isinstance(t, Collective)] == ["world", "world", "world from 1", "world"]
    assert {t.stream for t in tasks if isinstance(t, Collective)} == {"world"}
    assert total_ns(step) == 4 * 5000 + 1000


def test_two_groups_of_the_same_ranks_are_two() -> None:
    """As in NCCL, one does not wait for the other; ranks may use them in different orders."""
    both = [recorder(("", (0, 1)), ("", (0, 1))) for _ in range(2)]
    for one, order in zip(both, ((0, 1), (1, 0)), strict=True):
        for group in order:
            reduces(one, group)
    (step,) = made(*both)
    assert step.graph.groups == {"group": ((0, 1),), "group 2": ((0, 1),)}
    assert [[t.stream for t in its] for its in step.graph.tasks.values()] == [
        ["group", "group 2"],
        ["group 2", "group"],
    ]
    assert total_ns(step) == 5000


def test_what_is_computed_after_a_step_is_no_part_of_it() -> None:
    both = [recorder(("default_pg", (0, 1))) for _ in range(2)]
    for one in both:
        computes(one, 7)
        one.model_is_called()
        for _ in range(2):
            computes(one, 3)
            reduces(one)
            computes(one, 2)
            one.step_ends()
        one.step_ends()  # of nothing
    (step,) = made(*both)
    assert (step.name, step.times) == ("steps 1 to 2", 2)
    assert [t.duration_ns for t in step.graph.tasks[0] if isinstance(t, Compute)] == [3000, 2000]


def test_a_second_optimizer_that_follows_at_once_is_of_the_same_step() -> None:
    both = [recorder(("default_pg", (0, 1))) for _ in range(2)]
    for one in both:
        one.model_is_called()
        for _ in range(2):
            reduces(one)
            computes(one)
            one.step_ends()
            one.step_goes_on()
            computes(one)
            one.step_ends()
    (step,) = made(*both)
    assert step.times == 2 and total_ns(step) == 5000


def test_a_step_says_what_its_flops_take_at_best_and_collectives_have_a_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps of 10 and 30 MFLOP on two ranks, 20 in the mean, at 40 TFLOP/s; the setup has no such share."""
    both = [recorder(("default_pg", (0, 1))) for _ in range(2)]
    for rank, one in enumerate(both):
        one.charge(7_000_000, 0, "float32")
        reduces(one)
        one.model_is_called()
        for _ in range(2):
            one.charge((10_000_000, 30_000_000)[rank], 0, "float32")
            reduces(one)
            one.step_ends()
    held = {"parameters": 40, "gradients": 20, "optimizer": 20}
    ranks = [
        one.recorded() | {"memory": [{"peak": 30}, held | {"peak": 80}, held | {"peak": 70 + 20 * rank}, {"peak": 99}]}
        for rank, one in enumerate(both)
    ]
    done = launch.Recorded(ranks, ["", ""])
    monkeypatch.setattr(scripts, "_recorded", lambda script: done)
    told = "{torch: s.py, gpu: {flops: 40T, efficiency: 0.5}, traffic_class: 4}"
    planned: Any = planning.plan(load(written(tmp_path, told))).steps
    setup, trained = planned
    memory = [
        {key: its for key, its in step.about_step["memory"].items() if key != "each"} for step in (setup, trained)
    ]
    assert memory == [
        {"of": "setup", "rank": 0, "peak": 30},
        held | {"of": "steps 1 to 2", "rank": 1, "peak": 90},  # the most of both; what comes after them is no part
    ]
    assert trained.iterations == 2 and "ideal_ns" not in setup.about_step
    assert trained.about_step["ideal_ns"] == pytest.approx(500)
    assert [order["ns"] for order in trained.program["tasks"]["1"] if order["do"] == "compute"] == [1500]
    assert {its["traffic_class"] for step in (setup, trained) for its in step.program["communicators"]} == {4}
    file = written(tmp_path, told)
    file.write_text(file.read_text().replace("workload", "  switch: {dscp: {26: 3}}\nworkload"))
    with pytest.raises(InputError, match="no DSCP is in class 4"):
        load(file)


def test_messages_go_to_the_fabrics_ranks() -> None:
    one, other = recorder(), recorder()
    one.message("send", 1, 64, "a")
    other.wait([other.message("recv", 0, 64, "a")])
    computes(other)
    (step,) = made(one, other, ranks=(3, 2))
    (send,), (receive, _) = step.graph.tasks[3], step.graph.tasks[2]
    assert isinstance(send, Send) and send.peer == 2
    assert isinstance(receive, Recv) and receive.peer == 3


def test_ranks_that_do_different_numbers_of_steps_are_refused() -> None:
    one, other = recorder(), recorder()
    one.step_ends()
    one.step_ends()
    other.step_ends()
    with pytest.raises(BadGraph, match="rank 1: its optimizer does 1 steps, and that of rank 0 does 2"):
        made(one, other)


def written(folder: Path, step: str) -> Path:
    (folder / "s.py").write_text("pass\n")
    (folder / "e.yaml").write_text("name: t\nfabric:\n  topology: {star: {hosts: 2}}\nworkload:\n" + f"- {step}\n")
    return folder / "e.yaml"


@pytest.mark.parametrize(
    ("step", "where", "what"),
    [
        ("{torch: no.py, gpu: {flops: 1T}}", "torch", "there is no file"),
        ("{torch: s.py, gpu: {hbm: 1TBps}}", "gpu", "a GPU without FLOP/s"),
        ("{torch: s.py, gpu: {flops: 1T}, ranks: [0, 2]}", "ranks[1]", "there is no rank 2"),
        ("{torch: s.py, gpu: {flops: 1T}, ranks: [1, 1]}", "ranks[1]", "rank 1 stands twice"),
        ("{torch: s.py, gpu: {flops: 1T}, algorithm: {all_reduce: rings}}", "algorithm.all_reduce", "'rings'"),
        ("{torch: s.py}", "gpu", "missing"),
    ],
)
def test_mistakes_are_said_with_their_place(tmp_path: Path, step: str, where: str, what: str) -> None:
    with pytest.raises(InputError) as raised:
        load(written(tmp_path, step))
    assert what in raised.value.what and raised.value.where.endswith(f":5: workload[0].{where}")


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ("{preset: v100}", "multiplies matrices, and it is not known how many FLOP/s v100 has in float32"),
        ("{preset: v100, flops: 15.7T, efficiency: 1}", ""),
    ],
)
def test_a_type_that_a_gpus_tensor_cores_do_not_know_needs_its_flops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: str, said: str
) -> None:
    both = [recorder(("default_pg", (0, 1))) for _ in range(2)]
    for one in both:
        one.charge(15_700_000, 0, "float32")
        one.charge(0, 900, "int64")  # this is memory's, whatever the type
        reduces(one)
    ranks = [one.recorded() | {"memory": [{"peak": 80}]} for one in both]
    done = launch.Recorded(ranks, ["", ""])
    monkeypatch.setattr(scripts, "_recorded", lambda script: done)
    experiment = load(written(tmp_path, f"{{torch: s.py, gpu: {gpu}}}"))
    if said:
        with pytest.raises(InputError) as raised:
            kinds.graphs(experiment)
        assert said in raised.value.what and raised.value.where.endswith(":5: workload[0].gpu")
    else:
        (graph,) = kinds.graphs(experiment).values()
        assert [t.duration_ns for t in graph.tasks[0] if isinstance(t, Compute)] == [1001.0]


def recorded(monkeypatch: pytest.MonkeyPatch, *both: Recorder, peak: int = 80, **held: int) -> None:
    """These are what a script's ranks did; at most they have held so many bytes."""
    ranks = [one.recorded() | {"memory": [{"peak": peak, **held}]} for one in both]
    monkeypatch.setattr(scripts, "_recorded", lambda script: launch.Recorded(ranks, [""] * len(ranks)))


@pytest.mark.parametrize(
    ("peak", "held", "said"),
    [
        (2_000_000_000, {}, ""),  # it just fits
        (2_500_000_000, {}, "its rank 0 has 2.5GB at a time, 0.5GB more than the GPU's 2.0GB"),
        (2_500_000_000, {"gradients": 900_000_000}, "(of it gradients 0.9GB)"),
    ],
)
def test_a_script_that_its_gpus_have_no_memory_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peak: int, held: dict[str, int], said: str
) -> None:
    both = [recorder(("default_pg", (0, 1))) for _ in range(2)]
    for one in both:
        reduces(one)
    recorded(monkeypatch, *both, peak=peak, **held)
    experiment = load(written(tmp_path, "{torch: s.py, gpu: {flops: 1T, memory: 2GB}}"))
    if not said:
        planning.plan(experiment)
        return
    with pytest.raises(InputError) as raised:
        planning.plan(experiment)
    assert said in raised.value.what and raised.value.where.endswith(":5: workload[0].gpu")
    assert ("(of it" in raised.value.what) == bool(held)


def test_ranks_that_have_nothing_to_do_with_each_other_are_no_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [recorder(("default_pg", (0, 1))) for _ in range(2)]
    for one in both:
        computes(one)
    recorded(monkeypatch, *both)
    with pytest.raises(InputError, match="nothing to do with each other: no collective, no message") as raised:
        planning.plan(load(written(tmp_path, "{torch: s.py, gpu: {flops: 1T}}")))
    assert raised.value.where.endswith("s.py")


@pytest.mark.parametrize("printed", ["", "Traceback\nRuntimeError: no"])
def test_a_script_that_fails_is_said_with_what_it_printed_and_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str
) -> None:
    def fails(script: Any) -> None:
        raise launch.ScriptFailed("rank 1 failed", "look at it", printed=printed)

    monkeypatch.setattr(scripts, "_recorded", fails)
    with pytest.raises(UserError) as raised:
        planning.plan(load(written(tmp_path, "{torch: s.py, gpu: {flops: 1T}}")))
    assert raised.value.what == "rank 1 failed" + (f"\n{printed}" if printed else "")
    assert raised.value.where.endswith(":5: workload[0].torch")


@pytest.mark.parametrize(
    ("ends", "what"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "its process was ended by SIGSEGV"),
        (lambda: os._exit(0), "it left by os._exit"),
    ],
)
def test_a_rank_that_cannot_say_why_it_ended_is_told_of(tmp_path: Path, ends: Callable[[], None], what: str) -> None:
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        ends()
        os._exit(1)
    assert _is_lost(os.waitpid(child, 0)[1], tmp_path, 1)
    failed = launch._failure(launch.Script("/x/s.py", (), "/x", ("h0", "h1"), 1), tmp_path, ["", ""], "")
    assert failed.what == f"rank 1 of the script failed: {what}"


def test_while_a_script_runs_it_is_said_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_LOOK_S", 0.01)
    line = ["sh", "-c", "read line; echo $line"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        its_input, process.stdin, told = process.stdin, None, []

        def waiting(seconds: float) -> None:
            told.append(seconds)
            if len(told) == 3:
                its_input.write("done\n")
                its_input.close()

        assert launch._output_of(process, waiting) == "done\n"
    assert len(told) >= 3 and told == sorted(told)


def test_without_pytorch_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "available", lambda: False)
    experiment = load(written(tmp_path, "{torch: s.py, gpu: {flops: 1T}}"))
    with pytest.raises(MachineError) as raised:
        planning.plan(experiment)
    assert "PyTorch is not installed" in raised.value.what and "./setup.sh torch" in raised.value.hint
    assert raised.value.where.endswith("e.yaml:5: workload[0].torch")


def test_of_ranks_that_failed_the_first_is_told_with_its_line(tmp_path: Path) -> None:
    script = launch.Script("/x/s.py", (), "/x", ("h0", "h1"), 1)
    for rank, line in ((1, 7), (0, 9)):  # rank 0 only lost rank 1
        told = {"what": "AssertionError: Torch not compiled with CUDA enabled", "line": line, "hint": ""}
        (tmp_path / f"rank{rank}.error").write_text(json.dumps(told))
        os.utime(tmp_path / f"rank{rank}.error", ns=(0, line))
    failed = launch._failure(script, tmp_path, ["", "one\ntwo"], "")
    assert (failed.where, failed.printed) == ("/x/s.py:7", "one\ntwo")
    assert failed.what == "rank 1 of the script failed: AssertionError: Torch not compiled with CUDA enabled"
    assert failed.hint.startswith("there is no GPU here")
    of_set_device = "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'"
    assert launch._hint(of_set_device) == failed.hint
