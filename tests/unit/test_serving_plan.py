"""What a serving step becomes in the plan: names, what is said of it, and what it is expected to take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.experiment import Experiment, load, loads
from testbed.experiment.steps.serving import shared_pools
from testbed.plan.ideal import costs_of
from testbed.plan.steps.kinds import graphs
from testbed.plan.steps.plan import plan
from testbed.plan.steps.planned import Planned
from testbed.predict import predict
from workloads.serving.balance import Balance
from workloads.serving.batching import Iteration
from workloads.tasks.task import Collective, Compute, Send
from workloads.times.messages import Link, MemoryPath, received_ns
from workloads.times.messages import Path as Way

STAR = "name: t\nfabric: {topology: {star: {hosts: 10}}}\nworkload:\n"
LAYERS, HIDDEN, WIDTH = 2, 256, 2
MODEL = f"{{layers: {LAYERS}, hidden: {HIDDEN}, heads: 8, seq: 128%s}}"
EXPERTS = ", experts: 4, top_k: 2"


def step(more: str, model: str = "") -> str:
    text = more.replace("\n", "\n    ")
    return f"{STAR}- serve:\n    model: {MODEL % model}\n    {text}\n"


def with_requests(folder: Path, more: str, rows: str, model: str = "") -> Experiment:
    (folder / "r.csv").write_text(f"arrival,prompt,output\n{rows}")
    (folder / "t.yaml").write_text(step(f"{more}\nrequests: {{trace: r.csv}}", model))
    return load(folder / "t.yaml")


def steps(experiment: Experiment) -> list[tuple[Planned, dict[str, Any]]]:
    return [(one, one.about_step["serving"]) for one in plan(experiment).steps]


def message_ns(experiment: Experiment, size: int) -> float:
    """From a send's start to its arrival, over a switch and two cables of 400 Gb/s and 500 ns."""
    costs = costs_of(experiment)
    memory = MemoryPath(costs.pcie_rate_bps, costs.pcie_latency_ns)
    way = Way((Link(400e9, 500),) * 2, (500,), memories=(memory, memory))
    return costs.post_ns + received_ns(size, way, costs) + costs.wake_ns


def test_ranks_that_share_every_matrix_add_up_twice_a_layer() -> None:
    """Four tokens' vectors each time, and half a layer of 20 us before; three tokens for each sequence."""
    ((made, about),) = steps(loads(step("decode: {ranks: [0, 1], layer: 20us, cost: 1.5}\ntokens: 4\noutput: 3")))
    size = 4 * HIDDEN * WIDTH
    (sums,) = predict(loads(
        f"{STAR}- {{collective: all_reduce, algorithm: auto, ranks: [0, 1], sizes: [{size}B], dtype: bfloat16}}\n"
    )).figures  # fmt: skip
    assert (made.name, made.about_step["tokens"]) == ("serve decode tp2", 12)
    expected = about.pop("expected_ns")
    assert expected == pytest.approx(3 * LAYERS * 2 * (10e3 + sums.time_ns), abs=1)
    assert about == {"kind": "decode", "answers": [0, 1], "gpus": 2, "cost": 3.0, "output": 3}


def test_the_graph_of_a_shared_step_is_what_each_rank_does() -> None:
    (graph,) = graphs(loads(step("decode: {ranks: [0, 1], layer: 20us}\ntokens: 4\noutput: 3"))).values()
    for tasks in graph.tasks.values():
        sums = [task for task in tasks if isinstance(task, Collective)]
        assert [task.size_bytes for task in sums] == [4 * HIDDEN * WIDTH] * (3 * LAYERS * 2)
        assert sum(task.duration_ns for task in tasks if isinstance(task, Compute)) == 3 * LAYERS * 20e3


APART = "prefill: {ranks: [0], gpu: {preset: h20}}\ndecode: {ranks: [1], layer: 20us}"
LONG = 610
"""Tokens of a prompt whose keys and values take some 25 us of a cable: more than half an iteration of `decode`."""


def test_a_cache_goes_over_when_its_prompt_is_read_and_one_behind_the_other(tmp_path: Path) -> None:
    """Two prompts that are read together: the second one's cache comes while the first gets its second token."""
    experiment = with_requests(tmp_path, APART, f"0,{LONG},3\n0,{LONG},2\n")
    ((made, about),) = steps(experiment)
    prefill, decode = about["pools"]
    assert made.name == "serve prefill tp1, decode tp1" and made.about_step["tokens"] == 5
    assert about["requests"] == [[0.0, LONG, 3], [0.0, LONG, 2]]
    assert prefill == {
        "name": "prefill", "ranks": [0], "iterations": [[(0, 1), (0, 1), ()]], "end": "prefill{}.end", "where": {},
        "reads": True, "answers": False,
    }  # fmt: skip
    assert decode == {
        "name": "decode", "ranks": [1], "iterations": [[(0,), (0,), ()], [(0, 1), (1,), ()]], "end": "decode{}.end",
        "where": {}, "reads": False, "answers": True,
    }  # fmt: skip
    pool, _ = shared_pools(experiment.workload[0].serve, 1)  # type: ignore[union-attr]
    read = pool.compute_ns(Iteration((0, 1), (LONG, LONG), (LONG, LONG)))
    cache = 2 * LAYERS * WIDTH * HIDDEN * LONG
    way = message_ns(experiment, cache)
    assert 20e3 < way < 40e3
    assert about["expected_ns"] == pytest.approx(read + way + 2 * LAYERS * 20e3, abs=1)
    (graph,) = graphs(experiment).values()
    assert [task.size_bytes for task in graph.tasks[0] if isinstance(task, Send)] == [cache, cache]


def test_a_request_waits_until_the_iteration_before_it_is_through(tmp_path: Path) -> None:
    """One pool reads and generates: what comes while it reads is taken in behind that."""
    experiment = with_requests(tmp_path, "decode: {ranks: [3], gpu: {preset: h20}}", "0,600,2\n1us,20,1\n50ms,20,1\n")
    ((made, about),) = steps(experiment)
    (pool,) = about["pools"]
    assert made.name == "serve decode tp1" and (pool["reads"], pool["answers"]) == (True, True)
    assert pool["iterations"] == [[(0,), (0,), ()], [(1,), (1,), ()], [(0,), (), ()], [(2,), (2,), ()]]
    (its,) = shared_pools(experiment.workload[0].serve, 1)  # type: ignore[union-attr]
    assert about["expected_ns"] == pytest.approx(50e6 + its.compute_ns(Iteration((2,), (20,), (20,))), abs=1)


POOLS = "attention: {ranks: [0, 1], layer: 20us, cost: 2}\nexperts: {ranks: [2, 3], layer: 30us, cost: 1}\n"


def test_a_ping_pong_says_what_the_formulas_say() -> None:
    """Of MegaScale-Infer; with even tokens the longest path is the formula to the nanosecond."""
    found = steps(loads(step(POOLS + "tokens: 8\noutput: 2\nmicro_batches: [1, 2]", EXPERTS)))
    for count, (made, about) in enumerate(found, 1):
        way = about["dispatch_ns"]
        its = Balance(20e3, 30e3, way, about["wire_ns"])
        assert made.about_step["tokens"] == count * 8 * 2 * 2
        assert about == {
            "kind": "ping_pong", "micro_batches": count, "output": 2, "answers": [0, 1], "gpus": 4, "cost": 6.0,
            "attention_ns": 20e3, "expert_ns": 30e3, "busiest": 2, "dispatch_ns": way, "combine_ns": way,
            "wire_ns": about["wire_ns"], "needed": pytest.approx((50e3 + 2 * way) / 30e3),
            "form_ns": pytest.approx(its.time_ns(2 * LAYERS, count)),
            "form_batch_ns": pytest.approx(its.time_ns(LAYERS, count)),
            "form_between_ns": pytest.approx(its.between_ns(LAYERS, count)),
            "expected_ns": pytest.approx(its.time_ns(2 * LAYERS, count)),
        }  # fmt: skip


def test_a_pool_that_says_no_cost_leaves_none() -> None:
    ((_, about),) = steps(loads(step(POOLS.replace(", cost: 1", "") + "tokens: 8", EXPERTS)))
    assert about["cost"] is None


PREFILL = "prefill: {ranks: [4], gpu: {preset: h100}, cost: 5}"


def test_requests_are_shared_out_among_micro_batches_and_ranks(tmp_path: Path) -> None:
    """To the micro-batch with the fewest, and there to the rank with the fewest; all come at once."""
    experiment = with_requests(tmp_path, POOLS + PREFILL + "\nmicro_batches: [1, 2]", "0,20,2\n" * 4, EXPERTS)
    one, two = steps(experiment)
    assert [made.name for made, _ in (one, two)] == ["serve m=1, m2n, prefill tp1", "serve m=2, m2n, prefill tp1"]
    for count, (made, about) in enumerate((one, two), 1):
        prefill, *batches = about["pools"]
        assert (about["kind"], about["answers"], about["gpus"], about["cost"]) == ("requests", [0, 1], 5, 11.0)
        assert (about["micro_batches"], made.about_step["tokens"], len(batches)) == (count, 8, count)
        assert about["requests"] == [[0.0, 20, 2]] * 4
        assert (prefill["name"], prefill["ranks"], prefill["reads"], prefill["answers"]) == (
            "prefill",
            [4],
            True,
            False,
        )
        for k, batch in enumerate(batches):
            # keys and values come from `prefill`; the last exchange of the last layer ends a pass
            assert (batch["name"], batch["end"]) == (f"m{k}.", f"combinem{k}.{{}}.1")
            assert (batch["ranks"], batch["reads"], batch["answers"]) == ([0, 1], False, True)
            served = sorted(r for its in batch["iterations"] for r in its[0])
            assert served == [[0, 1, 2, 3], [k, k + 2]][count - 1]
    assert sorted(one[1]["pools"][1]["where"].values()) == [0, 0, 1, 1]
    (graph,) = graphs(experiment).values()
    assert {task.id.partition(".")[0] for task in graph.tasks[2]} >= {"dispatchm0", "dispatchm1"}


def test_a_request_on_attention_and_experts_takes_its_passes(tmp_path: Path) -> None:
    """Its prompt, its cache's way, then two passes; what one takes, a ping-pong of one token says."""
    one = POOLS.replace("[0, 1]", "[0]")
    ((_, alone),) = steps(loads(step(one + "tokens: 1\nmicro_batches: [1]", EXPERTS)))
    experiment = with_requests(tmp_path, one + PREFILL, "0,20,3\n", EXPERTS)
    ((_, about),) = steps(experiment)
    (pool,) = shared_pools(experiment.workload[0].serve, 1)  # type: ignore[union-attr]
    read = pool.compute_ns(Iteration((0,), (20,), (20,)))
    cache = message_ns(experiment, 2 * LAYERS * WIDTH * HIDDEN * 20)
    assert about["expected_ns"] == pytest.approx(read + cache + 2 * alone["expected_ns"], abs=1)
    assert about["pools"][1]["iterations"] == [[(0,), (0,), ()], [(0,), (), ()]]


def test_without_a_pool_for_prompts_attention_and_experts_read_them(tmp_path: Path) -> None:
    """With a table of words a pass ends when the head has its scores."""
    pools = "attention: {ranks: [0, 1], gpu: {preset: h20}}\nexperts: {ranks: [2, 3], gpu: {preset: l40s}}"
    ((made, about),) = steps(with_requests(tmp_path, pools, "0,20,2\n", EXPERTS + ", vocab: 512"))
    (batch,) = about["pools"]
    assert made.name == "serve m=1, m2n" and (about["gpus"], about["cost"]) == (4, None)
    assert (batch["reads"], batch["end"], batch["where"]) == (True, "m0.{}.end", {"0": 0})
    assert batch["iterations"] == [[(0,), (0,), ()], [(0,), (), ()]]
