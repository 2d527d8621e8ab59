"""What each rank of drawn plans sends, exactly, against the papers' formulas; and where ranks are placed."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.parts.training_steps import GPU, sent
from topologies.kinds import axes, build
from workloads.steps.build import step_graph
from workloads.steps.plan.experts import Gating
from workloads.steps.plan.model import Model
from workloads.steps.plan.parallel import DIMENSIONS, Parallel
from workloads.steps.plan.placement import CannotPlace, placed
from workloads.steps.plan.training import RECOMPUTE, SHARDS, Training, problems


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    """Models of even numbers, so that nothing is padded, on up to 16 ranks."""
    dims = {name: draw(st.sampled_from([1, 1, 2, 4])) for name in DIMENSIONS}
    assume(prod(dims.values()) <= 16)
    schedule = draw(st.sampled_from(["gpipe", "1f1b", "interleaved", "zero_bubble"]))
    chunks = draw(st.sampled_from([1, 2])) if schedule == "interleaved" else 1
    experts = draw(st.sampled_from([0, 0, 4]))
    p = Parallel(
        **dims,
        sequence=dims["tensor"] > 1 and draw(st.booleans()),
        expert=draw(st.sampled_from([1, 2, 4])) if experts else 1,
    )
    heads = draw(st.sampled_from([4, 8]))
    model = Model(
        layers=dims["pipeline"] * chunks * draw(st.integers(1, 2)),
        hidden=64,
        heads=heads,
        kv_heads=draw(st.sampled_from([4, heads])),
        ffn=draw(st.sampled_from([128, 256])),
        seq=64,
        vocab=draw(st.sampled_from([0, 128])),
        experts=experts,
        gated=draw(st.booleans()),
        tied=draw(st.booleans()),
        dtype=draw(st.sampled_from(["float32", "bfloat16"])),
    )
    t = Training(
        model=model,
        gpu=GPU,
        parallel=p,
        micro=draw(st.integers(1, 2)),
        count=dims["pipeline"] * draw(st.integers(1, 2)),
        schedule=schedule,
        chunks=chunks,
        shard=draw(st.sampled_from(SHARDS)),
        recompute=draw(st.sampled_from(RECOMPUTE)),
        bucket_bytes=draw(st.sampled_from([1 << 12, 1 << 14, 25 << 20])),
    )
    assume(not list(problems(t)))
    return t


@dataclass
class Formulas:
    """Per rank and step, in bytes, from the papers."""

    t: Training

    def __post_init__(self) -> None:
        t, m, p = self.t, self.t.model, self.t.parallel
        self.w = {"float32": 4, "bfloat16": 2}[m.dtype]
        self.bsh = Fraction(t.micro * m.seq * m.hidden, p.context)  # elements of a micro-batch's activations
        self.stage_layers = m.layers // p.pipeline

    def tensor(self, stage: int) -> Fraction:
        """Shoeybi et al.: 8 b s h (t - 1) / t elements a layer; with sequence parallelism 10 (Korthikanti et al.:
        as many, and the inputs gathered again).

        Experts' halves: `top_k` times as much, as each copy of a token goes, and never again: Megatron gathers around
        the experts (moe/token_dispatcher.py, dispatch_postprocess), whose matrices are not sequence parallel
        (tensor_parallel/layers.py: False if explicit_expert_comm)."""
        t, p = self.t, self.t.parallel
        again = 2 if t.recompute == "full" else 0
        half = (5 if p.sequence else 4) + again
        units = Fraction(self.stage_layers * (half + (t.model.top_k * (4 + again) if t.model.experts else half)))
        if t.model.vocab and stage == 0:
            units += 2
        if t.model.vocab and stage == p.pipeline - 1:
            units += 3 if p.sequence else 2
        bytes_of_norms = 2 * self.norms(stage) * self.w if p.sequence else 0
        return (t.count * units * self.bsh * self.w + bytes_of_norms) * Fraction(p.tensor - 1, p.tensor)

    def norms(self, stage: int) -> Fraction:
        """Megatron's finalize_model_grads: with sequence parallelism norms and routers are added up once a step; of
        sharded gradients, a rank's part."""
        t, m, p = self.t, self.t.model, self.t.parallel
        elements = self.stage_layers * (2 + m.experts) * m.hidden
        elements += m.hidden if m.vocab and stage == p.pipeline - 1 else 0
        return Fraction(elements, p.data * p.context if t.shard in ("zero2", "zero3", "fsdp") else 1)

    def pipeline(self, stage: int) -> Fraction:
        """b s h at each boundary, forward and backward; interleaved over all chunks, round the ends."""
        t, p = self.t, self.t.parallel
        boundaries = 2 * t.chunks - (stage == 0) - (stage == p.pipeline - 1) if p.pipeline > 1 else 0
        return t.count * boundaries * self.bsh * self.w / (p.tensor if p.sequence else 1)

    def context(self) -> Fraction:
        """Liu et al.: keys and values of c - 1 blocks; backward again, and their gradients."""
        t, m, p = self.t, self.t.model, self.t.parallel
        block = Fraction(2 * t.micro * m.seq * m.kv_heads * (m.hidden // m.heads), p.context * p.tensor)
        times = 4 if t.recompute == "full" else 3
        return t.count * self.stage_layers * times * (p.context - 1) * block * self.w

    def expert(self) -> Fraction:
        """T k h (EP - 1) / EP, there and back, forward and backward."""
        t, m, p = self.t, self.t.model, self.t.parallel
        if not m.experts:
            return Fraction(0)
        tokens = Fraction(t.micro * m.seq, p.context * (p.tensor if p.sequence else 1))
        ways = 6 if t.recompute == "full" else 4
        return t.count * self.stage_layers * ways * tokens * 2 * m.hidden * Fraction(p.expert - 1, p.expert) * self.w

    def states(self, stage: int) -> tuple[Fraction, Fraction]:
        """Rajbhandari et al.: 2 P (n - 1) / n, with parameters sharded 3 P, for each micro-batch then."""
        t, m, p = self.t, self.t.model, self.t.parallel
        d = m.hidden // m.heads
        one = (3 if m.gated else 2) * m.hidden * m.ffn // p.tensor
        dense = (2 * m.heads + 2 * m.kv_heads) * d * m.hidden // p.tensor + 2 * m.hidden
        dense += m.hidden * m.experts if m.experts else one
        dense *= self.stage_layers
        experts = self.stage_layers * (m.experts // p.expert) * one
        table = m.vocab * m.hidden // p.tensor
        if m.vocab and stage == 0:
            dense += table
        if m.vocab and stage == p.pipeline - 1:
            dense += m.hidden + (0 if m.tied and p.pipeline == 1 else table)
        if p.expert == 1:
            dense, experts = dense + experts, 0
        often = {"none": 2, "zero1": 2, "zero2": t.count + 1, "zero3": 3 * t.count, "fsdp": 3 * t.count}[t.shard]
        n, ne = p.data * p.context, p.data * p.context // p.expert
        return tuple(often * x * Fraction(k - 1, k) * self.w for x, k in ((dense, n), (experts, ne)))  # type: ignore[return-value]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(trainings())
def test_ranks_send_what_the_formulas_say(t: Training) -> None:
    """The graph is checked as it is made: everything that is sent is received, nobody waits for ever."""
    layout = placed(t.parallel, {}, [("ranks", t.parallel.ranks)])
    graph = step_graph(t, layout)
    form = Formulas(t)
    for place, rank in layout.ranks.items():
        got = sent(graph, rank)
        data, experts = form.states(place.pipeline)
        want = {
            "tensor": form.tensor(place.pipeline),
            "pipeline": form.pipeline(place.pipeline),
            "context": form.context(),
            "expert": form.expert(),
            "data": data,
            "expert_data": experts,
        }
        assert {k: v for k, v in got.items() if k != "embedding"} == {k: v for k, v in want.items() if v}


@pytest.mark.parametrize("gating", [Gating(zipf=1.0), Gating(hot=0.5), Gating(hot=0.5, capacity=1.25)])
def test_a_hot_experts_rank_receives_and_computes_what_goes_to_it(gating: Gating) -> None:
    model = Model(layers=1, hidden=64, heads=4, kv_heads=4, ffn=128, seq=64, experts=8, dtype="float32")
    t = Training(model=model, gpu=GPU, parallel=Parallel(data=4, expert=4), gating=gating)
    graph = step_graph(t, placed(t.parallel, {}, [("ranks", 4)]))
    loads = gating.loads(64, 2, 8)
    to = [sum(loads[2 * k : 2 * k + 2]) for k in range(4)]
    for rank in range(4):
        there = sum(n for k, n in enumerate(to) if k != rank)
        back = 3 * to[rank]
        assert sent(graph, rank)["expert"] == 2 * (there + back) * 64 * 4
    time = {rank: next(x.duration_ns for x in its if x.id == "f0.l0.experts") for rank, its in graph.tasks.items()}  # type: ignore[attr-defined]
    assert time[0] / time[3] == pytest.approx(to[0] / to[3], rel=1e-3)


def test_gatings() -> None:
    assert Gating().loads(100, 2, 8) == (25,) * 8
    assert Gating(hot=0.4).loads(100, 2, 5) == (80, 30, 30, 30, 30)
    assert Gating(hot=0.9).loads(100, 2, 5)[0] == 100  # a token takes an expert once
    zipf = Gating(zipf=1.0).loads(1200, 1, 4)
    assert zipf == (576, 288, 192, 144)  # 1, 1/2, 1/3, 1/4 of 25/12
    capped = Gating(zipf=1.0, capacity=1.0)
    assert capped.loads(1200, 1, 4) == (300, 288, 192, 144) and capped.dropped(1200, 1, 4) == 276


@given(st.integers(1, 500), st.integers(1, 8), st.integers(1, 4), st.floats(0, 3), st.none() | st.floats(0, 1))
def test_all_tokens_are_routed(tokens: int, experts: int, top_k: int, zipf: float, hot: float | None) -> None:
    top_k = min(top_k, experts)
    loads = Gating(zipf=zipf, hot=hot).loads(tokens, top_k, experts)
    assert sum(loads) == tokens * top_k and max(loads) <= tokens


# Where ranks stand

RAIL = [("rail", 4), ("scale_up", 8)]


@pytest.mark.parametrize(
    ("kind", "params", "names"),
    [
        ("rail", {"servers": 4, "gpus": 8}, (("rail", 4), ("scale_up", 8))),
        ("clos", {"leaves": 4, "spines": 2, "hosts_per_leaf": 3}, (("core", 1), ("spine", 4), ("leaf", 3))),
        (
            "clos",
            {"leaves": 2, "spines": 2, "hosts_per_leaf": 4, "pods": 2, "cores": 2},
            (("core", 2), ("spine", 2), ("leaf", 4)),
        ),
        ("torus", {"dims": [2, 3, 4]}, (("dim0", 2), ("dim1", 3), ("dim2", 4))),
        ("star", {"hosts": 5}, (("ranks", 5),)),
    ],
)
def test_axes_are_those_that_ranks_count(kind: str, params: dict[str, Any], names: tuple[tuple[str, int], ...]) -> None:
    fabric = build(kind, params)
    assert axes(fabric) == names and prod(n for _, n in names) == fabric.ranks


def test_an_axis_leads_where_its_name_says() -> None:
    """The innermost of rail is a server's GPUs, of clos a leaf's hosts; so are neighbours in tensor without a word."""
    rail = build("rail", {"servers": 4, "gpus": 8})
    assert [rail.nics[r].host for r in range(8)] == ["h0"] * 8
    clos = build("clos", {"leaves": 4, "spines": 2, "hosts_per_leaf": 3})
    above = {c.other(n.name).node for n in clos.nics[:3] for c in clos.cables if n.name in (c.a.node, c.b.node)}
    assert above == {"leaf0"}


def test_without_a_placement_ranks_are_megatrons() -> None:
    p = Parallel(tensor=2, context=2, data=2, pipeline=4)
    layout = placed(p, {}, RAIL)
    for at, rank in layout.ranks.items():
        assert rank == at.tensor + 2 * at.context + 4 * at.data + 8 * at.pipeline


def test_dimensions_lie_where_they_are_placed() -> None:
    p = Parallel(tensor=8, data=2, pipeline=2)
    groups = placed(p, {"tensor": "scale_up", "pipeline": "rail", "data": "rail"}, RAIL).groups()
    assert groups["tensor"][0] == tuple(range(8))
    assert groups["pipeline"][0] == (0, 8) and (0, 16) in groups["data"]
    wrong = placed(Parallel(tensor=4, data=8), {"tensor": "rail", "data": "scale_up"}, RAIL).groups()
    assert wrong["tensor"][0] == (0, 8, 16, 24) and wrong["data"][0] == tuple(range(8))


def test_what_is_not_placed_takes_what_is_left() -> None:
    groups = placed(Parallel(tensor=4, data=8), {"tensor": "scale_up"}, RAIL).groups()
    assert groups["tensor"][:2] == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert groups["data"][0] == (0, 4, 8, 12, 16, 20, 24, 28)


@pytest.mark.parametrize(
    ("parallel", "place", "key"),
    [
        (Parallel(tensor=8), {}, ""),
        (Parallel(tensor=8, data=4), {"tensor": "rail"}, "tensor"),
        (Parallel(tensor=8, data=4), {"tensor": "leaf"}, "tensor"),
        (Parallel(tensor=2, data=4, pipeline=4), {"data": "rail", "pipeline": "rail"}, "pipeline"),
    ],
)
def test_placements_that_cannot_be(parallel: Parallel, place: dict[str, str], key: str) -> None:
    with pytest.raises(CannotPlace) as raised:
        placed(parallel, place, RAIL)
    assert raised.value.key == key and raised.value.hint


@given(st.permutations([2, 2, 4, 2]), st.permutations(DIMENSIONS), st.data())
def test_every_rank_has_one_place(sizes: list[int], names: list[str], data: st.DataObject) -> None:
    p = Parallel(**dict(zip(names, sizes, strict=True)))
    place = {name: data.draw(st.sampled_from(["rail", "scale_up"])) for name in names[:2]}
    try:
        layout = placed(p, place, RAIL)
    except CannotPlace:
        assume(False)
    assert sorted(layout.ranks.values()) == list(range(32))
    for name, axis in place.items():
        if name == "data":
            continue  # its groups have the ranks of context, too
        for group in layout.groups()[name]:
            coordinates = {rank // 8 if axis == "scale_up" else rank % 8 for rank in group}
            assert len(coordinates) == 1, (name, axis, group)


@pytest.mark.parametrize(
    ("tensor", "context", "data", "pipeline", "expert"),
    [(8, 4, 2, 1, 4), (2, 2, 4, 2, 4), (1, 2, 3, 2, 3), (1, 4, 2, 1, 8), (2, 1, 4, 2, 2)],
)
def test_experts_divide_the_ranks_of_context_and_data_as_megatron_folds_them(
    tensor: int, context: int, data: int, pipeline: int, expert: int
) -> None:
    """Megatron numbers ranks twice: tensor, context, data, pipeline for attention; tensor, expert, the experts' copies,
    pipeline for experts, each from the inside (`RankGenerator` with the order tp-cp-ep-dp-pp, cp of 1 for experts)."""
    p = Parallel(tensor=tensor, context=context, data=data, pipeline=pipeline, expert=expert)
    groups = placed(p, {}, [("ranks", p.ranks)]).groups()
    numbers = np.arange(p.ranks).reshape(pipeline, -1, expert, tensor)
    assert set(groups["expert"]) == {tuple(row) for row in numbers.transpose(0, 1, 3, 2).reshape(-1, expert).tolist()}
    copies = {tuple(row) for row in numbers.transpose(0, 2, 3, 1).reshape(-1, p.expert_copies).tolist()}
    assert set(groups.get("expert_data", ())) == (copies if p.expert_copies > 1 else set())
