"""Serving: who sends how much, how long a layer takes, and MegaScale-Infer's formulas, worked out a second time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.base.vocabulary import DTYPES
from workloads.collectives.shape import shape_of
from workloads.registry import find
from workloads.serving.balance import Balance
from workloads.serving.exchange import EXCHANGES
from workloads.serving.ping_pong import PingPong, ping_pong_graph
from workloads.serving.pools import Pool, attention_ns, cache_bytes, experts_ns
from workloads.serving.routing import Routing, of_ranks
from workloads.steps.plan.experts import Gating
from workloads.steps.plan.gpu import Gpu
from workloads.steps.plan.model import PRESETS, Model
from workloads.tasks.graph import Graph
from workloads.tasks.oracle import oracle, step_ns
from workloads.tasks.task import Collective, Compute, Task

GPU = Gpu(flops=100e12, hbm=1e12)
SMALL = Model(layers=3, hidden=64, heads=4, kv_heads=2, seq=32, ffn=128, experts=8, top_k=2)


def small(m: int = 2, **more: object) -> PingPong:
    told: dict[str, object] = {
        **{"model": SMALL, "attention": Pool(ranks=(0, 1, 2), layer_ns=40e3), "tokens": 16, "context": 8},
        **{"experts": Pool(ranks=(3, 4), layer_ns=40e3), "micro_batches": m},
    }
    return PingPong(**{**told, **more})  # type: ignore[arg-type]


def sent(graph: Graph, rank: int, kind: str) -> dict[int, int]:
    """Bytes that a rank sends to each other in one exchange of a kind, as its algorithm cuts them."""
    task = next(t for t in graph.tasks[rank] if t.kind == kind)
    assert isinstance(task, Collective)
    members, entry = graph.groups[task.group][0], find(task.collective, None)
    width, options = DTYPES[task.dtype], {**graph.settings[task.group].options, "parts": task.parts}
    shape = shape_of(entry, len(members), task.size_bytes, width, options, 1)
    row = shape.counts[members.index(rank)] if shape.counts else [shape.count // len(members)] * len(members)
    return {other: n * width for other, n in zip(members, row, strict=True) if n}


@st.composite
def served(draw: st.DrawFn) -> PingPong:
    ranks = draw(st.permutations(range(12)))
    experts = draw(st.sampled_from([1, 2, 4, 8]))
    attention = draw(st.integers(1, 4))
    gating = Gating(zipf=draw(st.sampled_from([0.0, 1.0])), hot=draw(st.sampled_from([None, 0.4])))
    return small(
        draw(st.integers(1, 4)),
        model=replace(SMALL, top_k=draw(st.integers(1, 3)), hidden=draw(st.sampled_from([64, 68]))),
        attention=Pool(ranks=tuple(ranks[:attention]), layer_ns=1e3),
        experts=Pool(ranks=tuple(ranks[attention : attention + experts]), layer_ns=1e3),
        tokens=draw(st.integers(8, 40)),
        routing=Routing(gating=gating, draw=draw(st.booleans()), seed=draw(st.integers(0, 99))),
        exchange=draw(st.sampled_from(EXCHANGES)),
    )


@given(served())
def test_every_rank_sends_what_its_tokens_are(p: PingPong) -> None:
    """T k h elements there and as much back, to each expert rank what its experts were chosen for."""
    graph, m = ping_pong_graph(p), p.model
    token = m.hidden * 2
    there = {a: sent(graph, a, "expert_dispatch") for a in p.attention.ranks}
    back = {e: sent(graph, e, "expert_combine") for e in p.experts.ranks}
    for a, row in zip(p.attention.ranks, p.parts, strict=True):
        assert sum(row) == p.tokens * m.top_k
        for e, tokens in zip(p.experts.ranks, row, strict=True):
            if p.exchange == "all_to_all":
                most = max(map(max, p.parts))
                assert there[a][e] == back[e][a] == most * token
            else:
                assert there[a].get(e, 0) == back[e].get(a, 0) == tokens * token
        if p.exchange != "all_to_all":
            assert sum(there[a].values()) == p.tokens * m.top_k * m.hidden * m.width


@given(served())
def test_all_micro_batches_pass_all_layers(p: PingPong) -> None:
    graph = ping_pong_graph(p)
    each = p.micro_batches * p.model.layers
    for rank, tasks in graph.tasks.items():
        kinds = [task.kind for task in tasks]
        assert kinds.count("attention" if rank in p.attention.ranks else "expert") == each
        assert kinds.count("expert_dispatch") == kinds.count("expert_combine") == each


@given(st.integers(1, 60), st.integers(1, 4), st.integers(4, 16), st.integers(0, 9), st.booleans())
def test_a_token_takes_different_experts(tokens: int, top_k: int, experts: int, seed: int, drawn: bool) -> None:
    for gating in (Gating(), Gating(zipf=2.0), Gating(hot=1.0)):
        table = Routing(gating=gating, draw=drawn, seed=seed).table(3, tokens, top_k, experts)
        for row in table:
            assert sum(row) == tokens * top_k and max(row) <= tokens
        assert Routing(gating=gating, draw=drawn, seed=seed).table(3, tokens, top_k, experts) == table


@pytest.mark.parametrize("gating", [Gating(hot=0.5), Gating(hot=0.9), Gating(zipf=1.0), Gating()])
@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_tokens_draw_by_the_stated_shares(gating: Gating, top_k: int) -> None:
    experts, tokens = 16, 3000
    (row,) = Routing(gating=gating, draw=True, seed=3).table(1, tokens, top_k, experts)
    stated = sorted(gating.shares(experts, top_k), reverse=True)
    drawn = sorted((n / tokens / top_k for n in row), reverse=True)
    assert drawn[0] == pytest.approx(stated[0], abs=0.03 if gating != Gating() else 0.01)
    assert sum(drawn[:4]) == pytest.approx(sum(stated[:4]), abs=0.04)


@pytest.mark.parametrize("gating", [Gating(), Gating(zipf=1.0), Gating(hot=0.3)])
def test_all_ranks_together_divide_their_tokens_exactly(gating: Gating) -> None:
    """Also where a rank's own tokens cannot be divided: no expert gets every rank's remainder."""
    for ranks, tokens, top_k, experts in ((8, 16, 2, 64), (3, 5, 2, 8), (4, 7, 3, 16), (5, 1, 1, 4)):
        table = Routing(gating=gating, seed=2).table(ranks, tokens, top_k, experts)
        assert {sum(row) for row in table} == {tokens * top_k} and max(map(max, table)) <= tokens
        loads = sorted((sum(column) for column in zip(*table, strict=True)), reverse=True)
        exact = [ranks * tokens * top_k * share for share in sorted(gating.shares(experts, top_k), reverse=True)]
        assert max(abs(n - x) for n, x in zip(loads, exact, strict=True)) < 1
    assert {sum(column) for column in zip(*Routing().table(8, 16, 2, 64), strict=True)} == {4}


def test_the_hot_expert_follows_from_the_seed() -> None:
    tables = [Routing(gating=Gating(hot=0.4), seed=seed).table(2, 100, 2, 8) for seed in range(8)]
    hot = {row.index(80) for table in tables for row in table}
    assert len(hot) > 2 and {max(row) for table in tables for row in table} == {80}
    assert of_ranks(((1, 2, 3, 4), (5, 6, 7, 8)), 2) == ((3, 7), (11, 15))


# MegaScale-Infer's formulas


def steps(p: PingPong, exchange_ns: float) -> float:
    """The longest path with exchanges that take a stated time from the last sender's begin to all receivers."""

    def ends(task: Collective, starts: dict[int, float]) -> dict[int, float]:
        senders = p.attention.ranks if task.kind == "expert_dispatch" else p.experts.ranks
        through = max(starts[rank] for rank in senders) + exchange_ns
        return {rank: starts[rank] if rank in senders else through for rank in starts}

    def duration(rank: int, task: Task) -> float:
        assert isinstance(task, Compute)
        return task.duration_ns

    return step_ns(oracle(ping_pong_graph(p), duration, ends))  # type: ignore[arg-type]


@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 90), st.integers(1, 90), st.integers(1, 120))
def test_ping_pong_takes_what_the_paper_says(m: int, layers: int, ta: int, te: int, tc: int) -> None:
    """Enough micro-batches, m Tf >= Ta + Te + 2 Tc: (Ta + Te + 2 Tc) + Tf (m L - 1); else more.

    The paper's m >= 2 (1 + Tc/Tf) is enough for that, and what is needed where Ta = Te.
    """
    pools = {"attention": Pool(ranks=(0,), layer_ns=float(ta)), "experts": Pool(ranks=(1,), layer_ns=float(te))}
    p = small(m, model=replace(SMALL, layers=layers), **pools)
    measured, tf = steps(p, float(tc)), max(ta, te)
    paper = (ta + te + 2 * tc) + tf * (m * layers - 1)
    enough = m * tf >= ta + te + 2 * tc
    if enough:
        assert measured == pytest.approx(paper, rel=1e-9)
    elif layers > 1:
        assert measured >= paper + 1
    assert measured >= paper - 1e-6
    if m == 2 and ta == te and m * tf < 2 * (tf + tc):
        assert measured == pytest.approx(layers * (ta + te + 2 * tc) + tf)
    balance = Balance(float(ta), float(te), float(tc))
    assert balance.time_ns(layers, m) == pytest.approx(measured, rel=1e-9)
    assert balance.full(m) == enough
    assert balance.needed is not None and balance.needed <= balance.bound
    if ta == te:
        assert balance.needed == pytest.approx(balance.bound)


def test_two_micro_batches_hide_what_the_papers_bound_would_want_three_for() -> None:
    balance = Balance(514.35, 428.71, 35.40)
    assert balance.needed == pytest.approx(1.971, abs=0.001) and balance.bound == pytest.approx(2.138, abs=0.001)
    assert balance.full(2) and not balance.full(1)


@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(1, 60), st.integers(1, 60), st.integers(1, 90), st.integers(0, 90)
)
def test_the_wire_sets_the_pace_where_it_is_slower(m: int, layers: int, ta: int, te: int, tc: int, wire: int) -> None:
    """Micro-batches pass attention, the wire, experts and the wire one after the other, and come again."""
    wire = min(wire, tc)
    free, back, end = [0.0] * 4, [0.0] * m, 0.0
    for _ in range(layers):
        for j in range(m):
            at = back[j]
            for station, (keeps, takes) in enumerate([(ta, ta), (wire, tc), (te, te), (wire, tc)]):
                begin = max(at, free[station])
                free[station], at = begin + keeps, begin + takes
            back[j] = end = at
    balance = Balance(float(ta), float(te), float(tc), float(wire))
    assert balance.time_ns(layers, m) == pytest.approx(end)
    assert balance.full(m) == (wire <= max(ta, te) and m * max(ta, te) >= ta + te + 2 * tc)
    assert balance.least_ns(layers, m) <= end + 1e-6


def test_more_micro_batches_hide_messages() -> None:
    """The paper's shape: two give nearly twice the throughput of one, a third less than half again."""
    rates = [m / Balance(40.0, 40.0, 10.0).time_ns(40, m) for m in (1, 2, 3, 4)]
    gains = [b / a for a, b in zip(rates, rates[1:], strict=False)]
    assert gains[0] == pytest.approx(2 / (1 + 40 / (40 * 100)))
    assert 1.1 <= gains[1] <= 1.38 and gains[2] == pytest.approx(1, abs=0.01)


def test_the_busiest_expert_takes_its_share_of_the_time() -> None:
    p = small(routing=Routing(gating=Gating(hot=0.5), seed=1))
    loads = [sum(row[k] for row in p.parts) for k in range(2)]
    assert sum(loads) == 3 * 16 * 2 and sum(p.expert_ns) == pytest.approx(2 * 40e3)
    assert p.expert_ns[0] / p.expert_ns[1] == pytest.approx(loads[0] / loads[1])


# What a layer takes


def test_decoding_reads_keys_values_and_weights() -> None:
    """Llama-7B, one sequence of 1000 tokens, 1 TB/s and no end of FLOP/s: bytes over rate."""
    m = PRESETS["llama-7b"]
    gpu = Gpu(flops=1e30, hbm=1e12)
    weights = (4096 * 3 * 4096 + 4096 * 4096) * 2
    activations = (4096 + 3 * 4096 + 4096 + 4096) * 2 + (2 + 3) * 4096 * 2 + 2 * 4096 * 2
    cache = 2 * 1000 * 4096 * 2
    assert attention_ns(m, gpu, [1], [1000]) == pytest.approx((weights + activations + cache) / 1e12 * 1e9)
    assert cache_bytes(m, 1000) == 32 * cache


def test_arithmetic_counts_where_it_is_more() -> None:
    """Llama-7B, a prompt of 100 tokens, no end of memory: 2 FLOPs a parameter and token, 4 a query, key and element."""
    m = PRESETS["llama-7b"]
    gpu = Gpu(flops=1e12)
    flops = 2 * 100 * (4096 * 3 * 4096 + 4096 * 4096) + 4 * 100 * 100 * 4096
    assert attention_ns(m, gpu, [100], [100]) == pytest.approx(flops / 1e12 * 1e9)
    assert attention_ns(m, gpu, [100], [100], 4) == pytest.approx(flops / 4 / 1e12 * 1e9)


def test_experts_without_tokens_are_not_read() -> None:
    m = PRESETS["mixtral-8x7b"]
    gpu = Gpu(flops=1e30, hbm=1e12)
    one = experts_ns(m, gpu, [1])
    assert one == pytest.approx(3 * 4096 * 14336 * 2 / 1e12 * 1e9, rel=0.001)
    assert experts_ns(m, gpu, [1, 0, 1]) == 2 * one
