"""What is said of a ping-pong's tokens: the time between them is not the time until everybody has one."""

from __future__ import annotations

from typing import Any

import pytest

from results.figures.serving import served
from results.figures.timeline import steps
from workloads.serving.balance import Balance
from workloads.serving.ping_pong import PingPong, ping_pong_graph
from workloads.serving.pools import Pool
from workloads.steps.plan.model import Model
from workloads.tasks.oracle import oracle
from workloads.tasks.task import Collective, Compute, Task

MODEL = Model(layers=4, hidden=64, heads=4, kv_heads=4, seq=32, ffn=128, experts=8, vocab=0)
BALANCE = Balance(50e3, 40e3, 4e3)


def _figures(m: int, output: int) -> dict[str, Any]:
    """Of the longest path, as if it had been run."""
    pools = (Pool(ranks=(0,), layer_ns=BALANCE.attention), Pool(ranks=(1,), layer_ns=BALANCE.expert))
    p = PingPong(model=MODEL, attention=pools[0], experts=pools[1], tokens=8, context=8, micro_batches=m, output=output)

    def ends(task: Collective, starts: dict[int, float]) -> dict[int, float]:
        sender = 0 if task.kind == "expert_dispatch" else 1
        through = starts[sender] + BALANCE.exchange
        return {rank: starts[rank] if rank == sender else max(starts[rank], through) for rank in starts}

    def duration(rank: int, task: Task) -> float:
        assert isinstance(task, Compute)
        return task.duration_ns

    graph = ping_pong_graph(p)
    times = oracle(graph, duration, ends)  # type: ignore[arg-type]
    rows = [
        {
            "step": 0, "iteration": 0, "rank": rank, "task": task.id, "kind": task.kind, "stream": task.stream,
            "operation": "compute" if isinstance(task, Compute) else "collective", "group": "", "size_bytes": 0,
            "start_ns": times[rank, task.id][0], "end_ns": times[rank, task.id][1],
        }
        for rank, its in graph.tasks.items()
        for task in its
    ]  # fmt: skip
    serving = {"kind": "ping_pong", "answers": [0], "output": output, "gpus": 2, "cost": 4.0}
    (one,) = steps(rows)
    return served(one, {"tokens": m * 8 * output, "serving": serving})


@pytest.mark.parametrize("m", [1, 2, 3, 4])
@pytest.mark.parametrize("output", [2, 3])
def test_the_time_between_tokens_has_no_filling_of_the_pipeline_in_it(m: int, output: int) -> None:
    found = _figures(m, output)
    steady = 4 * max(BALANCE.round, m * BALANCE.slower)
    assert found["between_tokens_ns"] == pytest.approx(steady) == BALANCE.between_ns(4, m)
    assert found["batch_ns"] == pytest.approx(BALANCE.time_ns(4, m))
    assert found["tokens_per_s_gpu"] == pytest.approx(m * 8 / 2 / steady * 1e9)
    assert found["tokens_per_cost"] == pytest.approx(m * 8 / steady * 1e9 * 3600 / 4)


def test_of_one_token_each_nobody_knows_the_time_between_tokens() -> None:
    found = _figures(2, 1)
    assert found["between_tokens_ns"] is None
    assert found["batch_ns"] == pytest.approx(BALANCE.time_ns(4, 2))


def _of_two_requests(second_ns: float, where: dict[str, int] | None = None) -> dict[str, Any]:
    """Iterations of 10 ns. The first request has the tokens of the first two, the second those of the last two.

    A second rank is through 2 ns sooner each time. `where`: on which of them a request is, if not on both.
    """

    def row(task: str, start: float, end: float, rank: int) -> dict[str, Any]:
        return {
            "step": 0, "iteration": 0, "rank": rank, "task": task, "kind": "forward", "stream": "main",
            "operation": "compute", "group": "", "size_bytes": 0, "start_ns": start, "end_ns": end,
        }  # fmt: skip

    begun = 100.0  # of the step: all times count from here
    rows = [
        row(f"p{k}.{name}", begun + 10 * k + first, begun + 10 * k + last, rank)
        for rank in (0, 1)
        for k in range(3)
        for name, first, last in (("begin", 0, 1), ("end", 1, 10 - 2 * rank))
    ]
    iterations = [
        ([0], [0], []),
        ([0, 1], [1], []),
        ([1], [], []),
    ]  # who gets a token, who is taken in, for whom there is no room
    pool = {
        "name": "p", "ranks": [0, 1], "end": "p{}.end", "reads": True, "answers": True, "where": where or {},
        "iterations": iterations,
    }  # fmt: skip
    requests = [(0.0, 8, 2), (second_ns, 8, 2)]
    serving = {"kind": "requests", "gpus": 1, "cost": None, "requests": requests, "pools": [pool]}
    (one,) = steps(rows)
    return served(one, {"tokens": 4, "serving": serving})


def test_requests_wait_from_their_coming_to_their_tokens() -> None:
    """Tokens at 10 and 20 ns, and at 20 and 30 of the one that came at 5; percentiles lie between these two."""
    found = _of_two_requests(5.0)
    assert {found[f"between_tokens_p{share}_ns"] for share in (50, 90, 99)} == {10.0} == {found["between_tokens_ns"]}
    assert (found["first_token_p50_ns"], found["first_token_p99_ns"]) == pytest.approx((12.5, 14.95))
    assert (found["latency_p50_ns"], found["latency_p99_ns"]) == pytest.approx((22.5, 24.95))


def test_a_request_that_is_on_one_rank_waits_for_that_one_alone() -> None:
    found = _of_two_requests(5.0, {"0": 1})  # its first token at 8, the other request's at 20
    assert found["first_token_p50_ns"] == pytest.approx((8 + 20 - 5) / 2)
    assert found["latency_p50_ns"] == pytest.approx((18 + 30 - 5) / 2)


@pytest.mark.parametrize(
    ("second_ns", "otherwise"),
    [(5.0, 0), (10.0, 0), (12.0, 1), (0.0, 1)],  # in time for 1; at its begin; too late for it; in time for 0
)
def test_requests_that_would_have_been_taken_in_otherwise_are_counted(second_ns: float, otherwise: int) -> None:
    assert _of_two_requests(second_ns)["otherwise"] == otherwise
