"""Continuous batching of requests, and what ranks that share every matrix send: all-reduces, scores, caches."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.serving.batching import Iteration, Limits, PlannedIteration, iterations
from workloads.serving.pools import Pool, cache_bytes
from workloads.serving.requests import Request, poisson
from workloads.serving.tensor_parallel import Handed, Shared, Work, graph_of_work
from workloads.steps.plan.gpu import Gpu
from workloads.steps.plan.model import Model
from workloads.tasks.task import Collective, Compute, Recv, Send

MODEL = Model(layers=3, hidden=64, heads=8, kv_heads=8, seq=32, ffn=128, vocab=100)
GPU = Gpu(flops=1e12, hbm=1e11)


def shared(ranks: range, **more: object) -> Shared:
    return Shared(model=MODEL, pool=Pool(ranks=tuple(ranks), gpu=GPU), **more)  # type: ignore[arg-type]


@st.composite
def asked(draw: st.DrawFn) -> list[Request]:
    count = draw(st.integers(1, 12))
    at = sorted(draw(st.lists(st.integers(0, 60), min_size=count, max_size=count)))
    return [Request(float(a - at[0]), draw(st.integers(1, 9)), draw(st.integers(1, 5))) for a in at]


def by_tokens(it: Iteration) -> float:
    return 3.0 + it.tokens


def check(planned: list[PlannedIteration], ready: dict[int, float], limits: Limits) -> None:
    """One after the other; nobody before it is there; never idle while somebody waits and there is room."""
    for a, b in pairwise(planned):
        assert a.end_ns <= b.start_ns
        if a.end_ns < b.start_ns:
            assert b.start_ns == min(ready[r] for r in b.iteration.joined)
    for p in planned:
        it = p.iteration
        assert p.end_ns == p.start_ns + by_tokens(it) and 0 < len(it.gives) <= limits.sequences
        assert all(ready[r] <= p.start_ns for r in it.joined)


@given(asked(), st.integers(1, 4), st.integers(1, 20))
def test_a_pool_that_reads_and_generates(requests: list[Request], most: int, tokens: int) -> None:
    arrivals, limits = {r: one.arrival_ns for r, one in enumerate(requests)}, Limits(most, tokens)
    planned = iterations(requests, arrivals, limits, by_tokens, prompts=True, answers=True)
    check(planned, arrivals, limits)
    for r, one in enumerate(requests):
        mine = [p.iteration for p in planned if r in p.iteration.gives]
        assert len(mine) == one.output and [it for it in mine if r in it.joined] == [mine[0]]
        k = [it.gives.index(r) for it in mine]
        assert [it.new[i] for it, i in zip(mine, k, strict=True)] == [one.prompt] + [1] * (one.output - 1)
        assert [it.contexts[i] for it, i in zip(mine, k, strict=True)] == [one.prompt + n for n in range(one.output)]
    joined = [r for p in planned for r in p.iteration.joined]
    assert joined == sorted(joined, key=lambda r: (arrivals[r], r)), "first come, first served"
    for p in planned:
        its = p.iteration
        if its.joined:
            assert its.reads and its.gives == its.joined, "prompts come first"
            assert its.tokens <= tokens or len(its.joined) == 1
        waiting = {r for r in arrivals if arrivals[r] <= p.start_ns and not any(
            r in q.iteration.joined for q in planned if q.start_ns <= p.start_ns
        )}  # fmt: skip
        assert waiting == set(its.passed)


@given(asked(), st.integers(1, 4))
def test_a_pool_that_only_generates(requests: list[Request], most: int) -> None:
    ready = {r: one.arrival_ns + 5 for r, one in enumerate(requests) if one.output > 1}
    planned = iterations(requests, ready, Limits(most, 1), by_tokens, prompts=False, answers=True)
    check(planned, ready, Limits(most, 1))
    for r, one in enumerate(requests):
        mine = [p.iteration for p in planned if r in p.iteration.gives]
        assert len(mine) == one.output - 1
        assert [it.contexts[it.gives.index(r)] for it in mine] == [one.prompt + n for n in range(1, one.output)]


def test_requests_come_at_their_rate_and_are_the_same_again() -> None:
    drawn = poisson(2000, 1000.0, (3, 5), (7, 7), 4)
    assert drawn == poisson(2000, 1000.0, (3, 5), (7, 7), 4) != poisson(2000, 1000.0, (3, 5), (7, 7), 5)
    assert drawn[0].arrival_ns == 0
    gaps = [b.arrival_ns - a.arrival_ns for a, b in pairwise(drawn)]
    assert sum(gaps) / len(gaps) == pytest.approx(1e6, rel=0.1)
    assert sum(gap > 1e6 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.05)  # 1 / e
    assert {r.prompt for r in drawn} == {3, 4, 5} and {r.output for r in drawn} == {7}


def test_ranks_that_share_matrices_add_up_every_token_twice_a_layer() -> None:
    """2 all-reduces of n h elements a layer, and the scores of all words of each sequence."""
    its = [Iteration((0, 1), (5, 7), (5, 7), (0, 1)), Iteration((0, 1), (1, 1), (6, 8))]
    graph = graph_of_work(Work(name="decode", shared=shared(range(4)), iterations=its))
    for rank in range(4):
        done = [t for t in graph.tasks[rank] if isinstance(t, Collective)]
        sums = [t.size_bytes for t in done if t.collective == "all_reduce"]
        assert sums == [12 * 64 * 2] * 6 + [2 * 64 * 2] * 6
        assert [t.size_bytes for t in done if t.collective == "all_gather"] == [2 * 100 * 2] * 2
        computes = [t for t in graph.tasks[rank] if isinstance(t, Compute)]
        assert {t.kind for t in computes if t.id.startswith("decode0")} == {"prefill"}
        assert {t.kind for t in computes if t.id.startswith("decode1")} == {"decode"}
        whole = sum(map(shared(range(4)).compute_ns, its))
        assert sum(t.duration_ns for t in computes) == pytest.approx(whole, abs=0.1)


def test_a_first_token_without_a_context_is_generated() -> None:
    its = [Iteration((0,), (1,), (1,)), Iteration((0,), (1,), (1,), (0,))]
    assert [it.reads for it in its] == [False, True], "the latter is a prompt of one token"


def test_one_rank_alone_sends_nothing() -> None:
    its = [Iteration((0,), (5,), (5,), (0,))]
    graph = graph_of_work(Work(name="decode", shared=shared(range(1)), iterations=its))
    assert [type(t) for t in graph.tasks[0]] == [Compute, Compute] and not graph.groups


@pytest.mark.parametrize(("prefill", "decode"), [(1, 1), (2, 2), (4, 1), (1, 4), (4, 2), (2, 8)])
def test_caches_go_where_heads_overlap_to_the_byte(prefill: int, decode: int) -> None:
    requests = [Request(0.0, 10, 3), Request(0.0, 7, 1), Request(0.0, 4, 2)]
    arrivals, limits = dict.fromkeys(range(3), 0.0), Limits(8, 100)
    read = iterations(requests, arrivals, limits, by_tokens, prompts=True, answers=False)
    told = iterations(requests, {0: 50.0, 2: 60.0}, limits, by_tokens, prompts=False, answers=True)
    first, then = shared(range(prefill)), shared(range(8, 8 + decode))
    works = [
        Work(name=name, shared=of, iterations=[p.iteration for p in plan])
        for name, of, plan in (("prefill", first, read), ("decode", then, told))
    ]
    graph = graph_of_work(*works, requests=requests)
    sends = [(rank, t) for rank, its in graph.tasks.items() for t in its if isinstance(t, Send)]
    by_request: dict[str, int] = {}
    for rank, t in sends:
        by_request[t.tag] = by_request.get(t.tag, 0) + t.size_bytes
        mine, theirs = (rank / prefill, (rank + 1) / prefill), ((t.peer - 8) / decode, (t.peer - 7) / decode)
        share = min(mine[1], theirs[1]) - max(mine[0], theirs[0])
        assert share > 0 and t.size_bytes == pytest.approx(share * cache_bytes(MODEL, requests[int(t.tag[5:])].prompt))
    assert by_request == {"cache0": cache_bytes(MODEL, 10), "cache2": cache_bytes(MODEL, 4)}
    assert cache_bytes(MODEL, 10) == 2 * 3 * 64 * 2 * 10
    for rank in range(8, 8 + decode):  # nobody generates before its cache is there
        begins = {t.id: t.after for t in graph.tasks[rank] if isinstance(t, Compute) and t.id.endswith(".begin")}
        came = {t.id for t in graph.tasks[rank] if isinstance(t, Recv)}
        assert {waits for after in begins.values() for waits in after if waits.startswith("cache")} == came


def test_shares_of_keys_are_all_of_them() -> None:
    for a in (1, 2, 4, 8):
        for b in (1, 2, 4, 8):
            source = Work(name="prefill", shared=shared(range(a)), iterations=[])
            target = Work(name="decode", shared=shared(range(8, 8 + b)), iterations=[])
            assert sum(Handed.shared(source, target.shared, []).shares(0).values()) == MODEL.keys
