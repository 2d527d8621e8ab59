"""Requests on pools of attention and experts: who is taken in when, what is sent, and how long it takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.chakra import record, replay
from workloads.serving.apart import Apart, PlannedPasses, apart_graph
from workloads.serving.batching import Iteration, Limits
from workloads.serving.passing import ExchangeTimes, plan_passes
from workloads.serving.pools import Pool, cache_bytes
from workloads.serving.requests import Request
from workloads.serving.routing import Routing
from workloads.serving.tensor_parallel import Shared, Work
from workloads.steps.plan.experts import Gating
from workloads.steps.plan.gpu import Gpu
from workloads.steps.plan.model import Model
from workloads.tasks.oracle import oracle, step_ns
from workloads.tasks.task import Collective, Compute, Recv, Send, Task

MODEL = Model(layers=3, hidden=64, heads=4, kv_heads=2, seq=32, ffn=128, experts=8, top_k=2)
GPU = Gpu(flops=1e12, hbm=1e11)
TOKEN = 64 * 2  # bytes of a token's vector


def pools(attention: int = 2, experts: int = 2, micro_batches: int = 2, **more: object) -> Apart:
    told: dict[str, object] = {
        **{"model": MODEL, "micro_batches": micro_batches},
        "attention": Pool(ranks=tuple(range(attention)), gpu=GPU),
        "experts": Pool(ranks=tuple(range(attention, attention + experts)), gpu=GPU),
    }
    return Apart(**{**told, **more})  # type: ignore[arg-type]


def at_once(of: Apart, requests: list[Request], limits: Limits, *, prompts: bool) -> PlannedPasses:
    come = {r: one.arrival_ns for r, one in enumerate(requests) if prompts or one.output > 1}
    return plan_passes(of, requests, come, limits, lambda _: ExchangeTimes(100.0, 200.0, 10.0), prompts=prompts)


@st.composite
def asked(draw: st.DrawFn) -> list[Request]:
    count = draw(st.integers(1, 14))
    at = sorted(draw(st.lists(st.integers(0, 20000), min_size=count, max_size=count)))
    return [Request(float(a - at[0]), draw(st.integers(1, 9)), draw(st.integers(1, 5))) for a in at]


@st.composite
def served(draw: st.DrawFn) -> tuple[Apart, list[Request], Limits, bool]:
    of = pools(
        draw(st.integers(1, 3)),
        draw(st.sampled_from([1, 2, 4])),
        draw(st.integers(1, 3)),
        routing=Routing(gating=Gating(zipf=draw(st.sampled_from([0.0, 1.0]))), draw=draw(st.booleans())),
    )
    limits = Limits(draw(st.integers(of.micro_batches, 12)), draw(st.integers(1, 20)))
    return of, draw(asked()), limits, draw(st.booleans())


@settings(deadline=None)
@given(served())
def test_every_request_gets_its_tokens_on_one_rank_and_in_one_micro_batch(
    drawn: tuple[Apart, list[Request], Limits, bool],
) -> None:
    of, requests, limits, prompts = drawn
    p = at_once(of, requests, limits, prompts=prompts)
    for r, one in enumerate(requests):
        mine = [(one.micro_batch, k, it) for one in p.passes for k, it in enumerate(one.its) if r in it.gives]
        assert len(mine) == one.output - (not prompts)
        assert len({(j, k) for j, k, _ in mine}) == (1 if mine else 0)
        seen = [(it.new[it.gives.index(r)], it.contexts[it.gives.index(r)]) for _, _, it in mine]
        first = [(one.prompt, one.prompt)] if prompts else []
        assert seen == first + [(1, one.prompt + n) for n in range(1, one.output)]
    by_batch = Counter(one.micro_batch for one in p.passes)
    assert all(sorted(q.number for q in p.passes if q.micro_batch == j) == list(range(n)) for j, n in by_batch.items())
    room = -(-limits.sequences // of.micro_batches)
    for one in p.passes:
        assert 0 < len(one.gives) <= room
        if prompts and one.joined:
            assert set(one.gives) == set(one.joined), "prompts come first"
            assert sum(requests[r].prompt for r in one.joined) <= limits.prompt_tokens or len(one.joined) == 1
        tokens = [it.tokens for it in one.its]
        assert [sum(row) for row in one.table] == [n * MODEL.top_k for n in tokens]
        assert all(entry <= n for row, n in zip(one.table, tokens, strict=True) for entry in row)
    each = {(number, layer) for number in range(len(p.passes)) for layer in range(MODEL.layers)}
    assert set(p.attention) == set(p.experts) == each and len(p.attention) == len(each)


@settings(deadline=None, max_examples=15)
@given(served())
def test_ranks_send_what_their_sequences_and_caches_are(drawn: tuple[Apart, list[Request], Limits, bool]) -> None:
    of, requests, limits, prompts = drawn
    p, prefill = at_once(of, requests, limits, prompts=prompts), None
    if not prompts:
        ranks = range(10, 12)
        reads = Shared(model=MODEL, pool=Pool(ranks=tuple(ranks), gpu=GPU))
        its = [Iteration((r,), (one.prompt,), (one.prompt,), (r,)) for r, one in enumerate(requests)]
        prefill = Work(name="prefill", shared=reads, iterations=its)
    graph = apart_graph(p, requests, prefill)
    for k, rank in enumerate(of.attention.ranks):
        there = [t for t in graph.tasks[rank] if isinstance(t, Collective) and t.kind == "expert_dispatch"]
        assert len(there) == len(p.attention)
        for task, (number, _) in zip(there, p.attention, strict=True):
            one = p.passes[number]
            assert task.parts is not None
            assert sum(task.parts[k]) == one.its[k].tokens * MODEL.top_k
            assert task.size_bytes == max(it.tokens for it in one.its) * MODEL.top_k * TOKEN
    if prefill:
        sent = [t for rank in (10, 11) for t in graph.tasks[rank] if isinstance(t, Send)]
        whole = sum(cache_bytes(MODEL, one.prompt) for one in requests if one.output > 1)
        assert sum(t.size_bytes for t in sent) == whole
        for k, rank in enumerate(of.attention.ranks):
            begins = [t for t in graph.tasks[rank] if isinstance(t, Compute) and t.id.endswith(".begin")]
            came = [t.id for t in graph.tasks[rank] if isinstance(t, Recv)]
            waited = [w for t in begins for w in t.after if w.startswith("cache")]
            assert sorted(waited) == sorted(came), "nobody generates before its cache is there"
            assert len(came) == 2 * sum(p.at[r] == k for r, one in enumerate(requests) if one.output > 1)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_a_steady_load_takes_what_megascale_infers_formula_says(m: int) -> None:
    """m L n layers, one after the other: (Ta + Te + 2 Tc) + Tf (m L n - 1), if m Tf >= Ta + Te + 2 Tc."""
    ta, te, tc, tokens, outputs = 50.0, 40.0, 10.0, 3, 4
    of = replace(
        pools(micro_batches=m),
        attention=Pool(ranks=(0, 1), layer_ns=ta),
        experts=Pool(ranks=(2, 3), layer_ns=te),
    )
    requests = [Request(0.0, 1, outputs + 1)] * (2 * m * tokens)
    come = dict.fromkeys(range(len(requests)), 0.0)
    p = plan_passes(of, requests, come, Limits(64, 64), lambda _: ExchangeTimes(tc, tc, 0.0), prompts=False)
    assert len(p.passes) == m * outputs and {one.its[0].tokens for one in p.passes} == {tokens}

    def ends(task: Collective, starts: dict[int, float]) -> dict[int, float]:
        senders = (0, 1) if task.kind == "expert_dispatch" else (2, 3)
        through = max(starts[rank] for rank in senders) + tc
        return {rank: starts[rank] if rank in senders else max(starts[rank], through) for rank in starts}

    def duration(rank: int, task: Task) -> float:
        assert isinstance(task, Compute)
        return task.duration_ns

    graph = apart_graph(p, requests)
    measured, rounds = step_ns(oracle(graph, duration, ends)), ta + te + 2 * tc  # type: ignore[arg-type]
    layers = MODEL.layers * outputs
    if m * ta >= rounds:
        assert measured == pytest.approx(rounds + ta * (m * layers - 1))
    else:
        assert measured == pytest.approx(layers * rounds + (m - 1) * ta)


def test_requests_go_where_the_fewest_are() -> None:
    """Six at a time on two micro-batches and two ranks; a seventh when the two shortest are through."""
    of = pools()
    requests = [Request(0.0, 1, 2)] * 2 + [Request(0.0, 1, 9)] * 4 + [Request(1e9, 1, 1)]
    p = at_once(of, requests, Limits(64, 64), prompts=True)
    (first,) = (one for one in p.passes if one.micro_batch == 0 and one.number == 0)
    assert [it.gives for it in first.its] == [(0, 4), (2,)]
    assert [sorted(r for r in range(6) if p.at[r] == k) for k in (0, 1)] == [[0, 1, 4, 5], [2, 3]]


def test_an_idle_rank_computes_nothing_and_holds_nobody_up() -> None:
    of = pools(attention=3, micro_batches=1)
    p = at_once(of, [Request(0.0, 5, 2)], Limits(8, 64), prompts=True)
    graph = apart_graph(p, [Request(0.0, 5, 2)])
    assert [any(isinstance(t, Compute) for t in graph.tasks[rank]) for rank in range(3)] == [True, False, False]
    loads = [sum(column) for column in zip(*p.passes[1].table, strict=True)]
    assert sorted(loads) == [0] * 6 + [1, 1]


def test_a_graph_of_requests_is_the_same_after_it_was_a_trace() -> None:
    """Its parts differ from exchange to exchange, and are written with each."""
    requests = [Request(0.0, 5, 3), Request(2e3, 2, 2), Request(3e3, 9, 4)]
    graph = apart_graph(at_once(pools(), requests, Limits(8, 64), prompts=True), requests)
    sizes = {t.parts for t in graph.tasks[0] if isinstance(t, Collective)}
    assert len(sizes) > 3
    assert replay.graph(record.record(graph)) == graph
