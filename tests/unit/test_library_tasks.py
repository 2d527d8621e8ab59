"""Collectives of training steps as a library carries them out: real data, one time two ways, and whose choice it is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from testbed.experiment import Experiment, loads
from testbed.plan.steps.plan import plan
from testbed.predict import predict
from testbed.predict.figure import LONGEST_PATH
from tests.parts import task_graphs
from workloads.collectives.manner import Manner
from workloads.registry import by_library
from workloads.tasks.graph import Graph, Settings
from workloads.tasks.task import Collective, Compute, Task


def step(train: str, library: str = "library: {}") -> Experiment:
    experts = ", experts: 8" if "expert" in train else ""
    model = f"{{layers: 2, hidden: 512, heads: 8, vocab: 0, seq: 256{experts}}}"
    text = f"name: t\nfabric: {{topology: {{rail: {{servers: 2, gpus: 4}}}}}}\n{library}\nworkload:\n- train:\n"
    return loads(f"{text}    model: {model}\n    gpu: {{preset: h100}}\n    {train}\n", "t.yaml")


def ways(experiment: Experiment) -> dict[tuple[str, str], Any]:
    program: Any = plan(experiment).told()["steps"][0]
    return {(way["collective"], way["algorithm"]): way for way in program["ways"]}


@pytest.mark.parametrize("padded", [1.0, 2.0])
def test_data_is_right_while_others_compute(padded: float) -> None:
    """Two groups at a time, each collective of a library that ranks can carry out, on a fabric of random times."""
    manner = Manner(4, 2, 2, 4, "simple", False, True, 4096, 2, 64, 4, 5000.0, 0.01, 100.0, 10.0, 20.0, padded, 2)
    for name in ("ring", "tree", "nvls_tree", "pat", "p2p"):
        its = [c for c, names in by_library().items() if f"nccl_{name}" in names and c != "send_recv"]
        both: tuple[Task, ...] = (Compute(id="c", stream="gpu", duration_ns=5000),)
        for group in ("a", "b"):
            both += tuple(
                Collective(id=f"{group}{c}", stream=group, collective=c, group=group, size_bytes=12_000) for c in its
            )
        settings = Settings(algorithms=dict.fromkeys(its, f"nccl_{name}"))
        everybody = ((0, 1, 2, 3),)
        graph = Graph(dict.fromkeys("ab", everybody), dict.fromkeys(range(4), both), dict.fromkeys("ab", settings))
        lines = task_graphs.run(4, graph, iterations=2, options={"library": asdict(manner)})
        task_graphs.in_order(graph, task_graphs.times(lines, graph))


def test_groups_go_as_the_library_chooses_unless_they_name_an_algorithm() -> None:
    train = "parallel: {data: 8, expert: 4}"
    taken = ways(step(train, "library: {env: {NCCL_ALGO: Ring, NCCL_PROTO: Simple}}"))
    assert set(taken) == {("all_to_all", "nccl_p2p"), ("all_reduce", "nccl_ring")}
    servers = {way["library"]["gpus"] for way in taken.values()}
    assert servers == {1, 4}  # experts' copies are a GPU of each server, experts a whole server
    named = ways(step(f"{train}\n    groups: {{expert: {{algorithm: spread}}}}"))
    assert ("all_to_all", "spread") in named and ("all_reduce", "nccl_ring") in named
    assert not any(its.startswith("nccl_") for _, its in ways(step(train, "")))


@pytest.mark.parametrize(
    "train", ["parallel: {data: 8}\n    shard: fsdp", "parallel: {tensor: 4, data: 2, sequence: true}"]
)
def test_message_by_message_it_is_the_longest_path(train: str) -> None:
    """Where no two tasks share a cable."""
    one = step(train, "library: {env: {NCCL_ALGO: Ring}}")
    (figure,) = predict(one).figures
    assert figure.how == LONGEST_PATH
    assert task_graphs.followed_ns(one) == pytest.approx(figure.time_ns, rel=0.01)


def test_experts_that_get_more_take_longer() -> None:
    """Unequal parts go as without a library, equal ones not: so both are unequal."""
    even, skewed = (
        predict(step(f"parallel: {{data: 8, expert: 8}}\n    gating: {gating}")).figures[0].time_ns
        for gating in ("{zipf: 0.2}", "{zipf: 1.0}")
    )
    assert skewed > 1.2 * even
