"""Steps that are traces: read from the experiment file's folder, checked, written by `testbed chakra`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.cli import cli
from testbed.experiment import Experiment, load
from testbed.plan.steps import plan as planning
from testbed.plan.steps.kinds import graphs
from workloads.chakra import et, record
from workloads.chakra.et import Node, Trace
from workloads.tasks.graph import Graph, Settings
from workloads.tasks.task import Collective, Compute, Recv, Send, Task

HEAD = "name: t\nfabric:\n  topology: {star: {hosts: %d}}\nworkload:\n"
AICB = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2\n1\nmlp -1 100 ALLREDUCE %d 0 NONE 0 0 NONE 0 1\n"


def written(folder: Path) -> Graph:
    ranks: dict[int, tuple[Task, ...]] = {
        rank: (
            Compute(id="c", duration_ns=1000.25, stream="gpu"),
            Collective(id="g", collective="all_reduce", group="all", size_bytes=4096, after=("c",)),
            Send(id="m", peer=1, size_bytes=64, tag="x") if rank == 0 else Recv(id="m", peer=0, size_bytes=64, tag="x"),
        )
        for rank in range(2)
    }
    graph = Graph({"all": ((0, 1),)}, ranks, {"all": Settings(4, {"all_reduce": "ring"}, {"chunk": "1KiB"})})
    record.write(graph, folder, "gpt")
    return graph


def loaded(folder: Path, step: str, hosts: int = 2) -> Experiment:
    (folder / "e.yaml").write_text(HEAD % hosts + f"  - {step}\n")
    return load(folder / "e.yaml")


def mistake(folder: Path, step: str, hosts: int = 2) -> tuple[str, str]:
    with pytest.raises(InputError) as raised:
        loaded(folder, step, hosts)
    return raised.value.where.rpartition("e.yaml")[2], raised.value.what


def test_traces_are_found_from_the_files_folder_and_mean_the_same_graph(tmp_path: Path) -> None:
    graph = written(tmp_path / "traces")
    experiment = loaded(tmp_path, "{chakra: traces/gpt, iterations: 3}")
    assert graphs(experiment) == {0: graph}
    (step,) = planning.plan(experiment).told()["steps"]
    assert (step["kind"], step["iterations"], step["ranks"]) == ("tasks", 3, [0, 1])
    again = Experiment.model_validate(experiment.resolved())  # as it goes into the run's folder: paths are absolute
    assert graphs(again) == {0: graph}


def test_algorithms_of_the_experiment_come_before_those_of_the_trace(tmp_path: Path) -> None:
    written(tmp_path / "traces")
    step = "{chakra: traces, algorithm: {all_reduce: halving_doubling}}"
    (graph,) = graphs(loaded(tmp_path, step)).values()
    assert graph.settings["all"] == Settings(4, {"all_reduce": "halving_doubling"}, {"chunk": "1KiB"})
    (tmp_path / "w.txt").write_text(AICB % 4096)
    experiment = loaded(tmp_path, "{aicb: w.txt, algorithm: {all_reduce: in_network}}")
    assert experiment.fabric.switch.accelerator is not None  # asked for, so there is one


def test_a_training_step_is_written_and_read_back_as_it_was(tmp_path: Path) -> None:
    plan = "{tensor: 2, pipeline: 2, data: 2}, shard: zero1, batch: {count: 3}"
    model = "{layers: 4, hidden: 256, heads: 4, seq: 64}"
    experiment = loaded(tmp_path, f"train: {{model: {model}, gpu: {{flops: 40T}}, parallel: {plan}}}", hosts=8)
    (graph,) = graphs(experiment).values()
    record.write(graph, tmp_path / "traces")
    assert graphs(loaded(tmp_path, "{chakra: traces}", hosts=8)) == {0: graph}


def test_aicb_and_times_by_a_roofline(tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text(AICB % 4096)
    (graph,) = graphs(loaded(tmp_path, "{aicb: w.txt}")).values()
    assert [t.id for t in graph.tasks[1]] == ["0 mlp.forward", "0 mlp.forward.all_reduce"]
    node = Node(1, "c", 4, duration_us=5, attributes={"num_ops": 4_000_000, "tensor_size": 10})
    et.write(tmp_path / "c.0.et", Trace([node]))
    (graph,) = graphs(loaded(tmp_path, "{chakra: c, time: {flops: 4T, memory: 1TBps}}")).values()
    assert [t.duration_ns for t in graph.tasks[0] if isinstance(t, Compute)] == [1000.0]


def test_mistakes_have_their_place_and_name_file_and_node(tmp_path: Path) -> None:
    written(tmp_path / "traces")
    where, what = mistake(tmp_path, "{chakra: nothing}")
    assert where == ":5: workload[0].chakra" and "there are no traces" in what
    where, what = mistake(tmp_path, "{chakra: ''}")
    assert "the name of the file is empty" in what
    where, what = mistake(tmp_path, "{chakra: traces, groups: none.json}")
    assert where == ":5: workload[0].groups" and "none.json: cannot be read" in what
    where, what = mistake(tmp_path, "{chakra: traces, skip: [mem_lod]}")
    assert where == ":5: workload[0].skip[0]" and "there is no type of nodes 'mem_lod'" in what
    where, what = mistake(tmp_path, "{chakra: traces, algorithm: {all_reduce: rnig}}")
    assert where == ":5: workload[0].algorithm.all_reduce" and "unknown algorithm 'rnig' of all_reduce" in what
    where, what = mistake(tmp_path, "{chakra: traces, time: measured}")
    assert where.startswith(":5: workload[0].time")
    (tmp_path / "traces/gpt.1.et").unlink()
    where, what = mistake(tmp_path, "{chakra: traces/gpt}")
    assert where == ":5: workload[0].chakra" and what == "there is no trace of rank 1: there are 0"


def test_a_class_that_this_fabric_has_no_dscp_for_and_traces_of_nothing(tmp_path: Path) -> None:
    both = Collective(id="g", collective="all_reduce", group="all", size_bytes=4096)
    graph = Graph({"all": ((0, 1),)}, {0: (both,), 1: (both,)}, {"all": Settings(5)})
    record.write(graph, tmp_path / "other")
    where, what = mistake(tmp_path, "{chakra: other}")
    assert where == ":5: workload[0].chakra" and what == (
        "group 'all' of the trace: no DSCP is in class 5, so nothing can be sent in it"
    )
    et.write(tmp_path / "n.0.et", Trace([Node(1, "m", 1)]))
    assert "there is nothing to do in it" in mistake(tmp_path, "{chakra: n}")[1]
    (tmp_path / "w.txt").write_text("HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1\n0\n")
    assert "there is nothing to do in it" in mistake(tmp_path, "{aicb: w.txt}")[1]


def test_more_traces_than_ranks_and_nodes_without_their_sizes(tmp_path: Path) -> None:
    for rank in range(3):
        et.write(tmp_path / f"t.{rank}.et", Trace([Node(7, "nccl", 7, attributes={"comm_type": 0})]))
    _, what = mistake(tmp_path, "{chakra: t}", hosts=3)
    assert what.endswith("t.0.et: node 7 'nccl': a comm_coll node has no comm_size: nothing is guessed")
    for rank in range(3):
        et.write(tmp_path / f"t.{rank}.et", Trace())
    _, what = mistake(tmp_path, "{chakra: t}", hosts=2)
    assert "there are traces of ranks 0 to 2, and this fabric has 2 ranks" in what
    (tmp_path / "w.txt").write_text(AICB % 4096)
    where, what = mistake(tmp_path, "{aicb: w.txt}", hosts=3)
    assert where == ":5: workload[0].aicb" and "w.txt:1: 3 ranks are no whole number of groups of 2" in what


def test_what_collectives_of_a_trace_cannot_be_done_is_said_with_the_task(tmp_path: Path) -> None:
    for rank in range(2):
        et.write(tmp_path / f"t.{rank}.et", Trace([Node(7, "x", 7, attributes={"comm_type": 0, "comm_size": 2 << 40})]))
    where, what = mistake(tmp_path, "{chakra: t}")
    assert where == ":5: workload[0].chakra" and what.startswith("task '7 x': ")


def test_what_is_wrong_with_many_collectives_of_a_trace_is_said_once(tmp_path: Path) -> None:
    nodes = [Node(n, "x", 7, attributes={"comm_type": 0, "comm_size": n << 40}) for n in (2, 3)]
    for rank in range(2):
        et.write(tmp_path / f"t.{rank}.et", Trace(nodes))
    with pytest.raises(InputError) as raised:
        loaded(tmp_path, "{chakra: t}")
    said = [raised.value.what, *(one.what for one in raised.value.also)]
    assert [what.partition(":")[0] for what in said] == ["task '2 x'"]


def test_the_command_writes_what_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = "{id: c, compute: 10us}, {id: g, collective: all_reduce, group: dp, size: 64KiB}"
    experiment = loaded(tmp_path, f"tasks: {{groups: {{dp: [[0, 1]]}}, list: [{listed}]}}")

    def testbed(*words: str) -> tuple[int, Any]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["chakra", str(tmp_path / "e.yaml"), *words])
        return int(ended.value.code or 0), capsys.readouterr()

    out = tmp_path / "out"
    code, printed = testbed("--out", str(out))
    assert code == 0
    assert printed.out.split() == [str(out / name) for name in ("step0.0.et", "step0.1.et", "step0.json")]
    again = loaded(tmp_path, "{chakra: out/step0, groups: out/step0.json}")
    assert graphs(again) == graphs(experiment)
    code, printed = testbed("--out", str(out))
    assert code == 2 and "not empty" in printed.err
    loaded(tmp_path, "{collective: all_reduce, sizes: [1KiB]}")
    code, printed = testbed("--out", str(tmp_path / "other"))
    assert code == 2 and "no step of tasks" in printed.err
