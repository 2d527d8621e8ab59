"""Traces on a fabric: what is written and replayed measures the same, to the picosecond."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import results
from testbed.experiment import load
from testbed.plan.steps.kinds import graphs
from testbed.predict import predict
from testbed.run.run import run
from tests.parts.trace_nodes import TWO_STAGES, two_stages
from workloads.chakra import et, record
from workloads.chakra.et import Node, Trace

HEAD = "name: t\nfabric:\n  topology: {rail: {servers: 2, gpus: 2, spines: 1}}\nworkload:\n"
DIRECT = """  - tasks:
      groups: {dp: {ranks: [[0, 2], [1, 3]], traffic_class: 4}, tp: [[0, 1], [2, 3]]}
      iterations: 2
      list:
        - {id: f, compute: 100.125us, kind: forward, ranks: [0, 1]}
        - {id: t, collective: all_reduce, group: tp, size: 256KiB, stream: tp, kind: tensor, algorithm: ring}
        - {id: s, send: 128KiB, to: 2, ranks: [0], after: [t], tag: a, stream: pp}
        - {id: r, recv: 128KiB, from: 0, ranks: [2], tag: a, stream: pp}
        - {id: b, compute: 200us, kind: backward, ranks: [0, 1, 2, 3], after: [t]}
        - {id: g, collective: all_reduce, group: dp, size: 1MiB, stream: dp, kind: gradients}
        - {id: a, collective: all_gather, group: dp, size: 64KiB, stream: dp, after: [b]}
"""


def test_written_and_replayed_is_the_direct_run(tmp_path: Path) -> None:
    direct, replayed = tmp_path / "direct.yaml", tmp_path / "replayed.yaml"
    direct.write_text(HEAD + DIRECT)
    (graph,) = graphs(load(direct)).values()
    record.write(graph, tmp_path / "traces")
    replayed.write_text(HEAD + "  - {chakra: traces, iterations: 2}\n")
    runs = [run(load(file), tmp_path / file.stem) for file in (direct, replayed)]
    rows = [results.load(one.folder).rows("timeline") for one in runs]
    assert rows[0] == rows[1] and len(rows[0]) == 2 * 20
    (told, _) = runs[0].to_dict()["steps"]
    assert told["step"] == told["iteration"] == 0 and told["ranks"] == 4
    lost = told["compute_ns"] + told["exposed_ns"] + told["bubble_ns"]
    assert lost == pytest.approx(told["time_ns"], rel=1e-12)
    assert runs[0].metrics_sha256 == runs[1].metrics_sha256
    assert {row["wrong"] for one in runs for row in one.results} == {0}


def test_a_trace_of_others_runs_as_its_nodes_say(tmp_path: Path) -> None:
    """A forward on the GPU, beside it one collective at a time, and a receive that nobody holds up."""
    for rank in range(4):
        nodes = [
            Node(1, "init", 1),
            Node(2, "forward", 4, data_deps=[1], duration_us=50, attributes={"is_cpu_op": False}),
            Node(
                3,
                "reduce",
                7,
                data_deps=[1],
                attributes={"comm_type": 0, "comm_size": 65536, "pg_name": str(1 + rank % 2)},
            ),
            Node(4, "gather", 7, data_deps=[2], attributes={"comm_type": 2, "comm_size": 16384}),
            Node(5, "backward", 4, ctrl_deps=[3, 4], duration_us=30, attributes={"is_cpu_op": False}),
        ]
        if rank == 0:
            nodes.append(Node(6, "send", 5, data_deps=[2], attributes={"comm_dst": 3, "comm_size": 4096}))
        if rank == 3:
            nodes.append(Node(6, "receive", 6, attributes={"comm_src": 0, "comm_size": 4096}))
        et.write(tmp_path / f"gpt.{rank}.et", Trace(nodes))
    (tmp_path / "groups.json").write_text('{"1": [0, 2], "2": [1, 3]}')
    (tmp_path / "e.yaml").write_text(HEAD + "  - {chakra: gpt, groups: groups.json}\n")
    result = run(load(tmp_path / "e.yaml"), tmp_path / "run")
    assert result.fidelity.verdict == "exact" and {row["wrong"] for row in result.results} == {0}
    rows = results.load(result.folder).rows("timeline")
    of = {(row["rank"], row["task"]): row for row in rows}
    assert {task for _, task in of} == {"2 forward", "3 reduce", "4 gather", "5 backward", "6 send", "6 receive"}
    for rank in range(4):
        begin = of[rank, "2 forward"]["start_ns"]
        assert of[rank, "3 reduce"]["start_ns"] == begin  # beside the compute
        assert of[rank, "2 forward"]["end_ns"] == begin + 50_000
        assert of[rank, "4 gather"]["start_ns"] == begin + 50_000 > of[rank, "3 reduce"]["end_ns"]
        assert of[rank, "5 backward"]["start_ns"] == of[rank, "4 gather"]["end_ns"]
        assert of[rank, "4 gather"]["size_bytes"] == 4 * 16384
    receive, send = of[3, "6 receive"], of[0, "6 send"]
    assert send["start_ns"] == of[0, "4 gather"]["end_ns"]  # one communication at a time
    assert receive["start_ns"] == of[3, "2 forward"]["start_ns"] and receive["end_ns"] > send["start_ns"]


def test_a_pipeline_whose_ids_are_no_order_of_issue_runs_as_the_longest_path_says(tmp_path: Path) -> None:
    """Ids as ASTRA-sim's generator gives them; messages do not meet here, so the two agree."""
    for rank, nodes in enumerate(two_stages()):
        et.write(tmp_path / f"stage.{rank}.et", Trace(nodes))
    (tmp_path / "groups.json").write_text(json.dumps(TWO_STAGES))
    (tmp_path / "e.yaml").write_text(HEAD + "  - {chakra: stage, groups: groups.json}\n")
    experiment = load(tmp_path / "e.yaml")
    result = run(experiment, tmp_path / "run")
    assert result.fidelity.verdict == "exact" and {row["wrong"] for row in result.results} == {0}
    (figure,) = predict(experiment).figures
    rows = results.load(result.folder).rows("timeline")
    took = max(row["end_ns"] for row in rows) - min(row["start_ns"] for row in rows)
    assert took == pytest.approx(figure.time_ns, rel=0.01)
