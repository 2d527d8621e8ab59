"""Drawn training steps carried out on the fake fabric: gradients are summed right, experts get their tokens.

The executor checks what every collective and message leaves behind; here nothing of that is wrong, whatever the plan.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parts import task_graphs
from tests.parts.training_steps import GPU, SMALL, graph_of
from workloads.steps.plan.experts import Gating
from workloads.steps.plan.model import Model
from workloads.steps.plan.parallel import DIMENSIONS, Parallel
from workloads.steps.plan.training import SHARDS, Training, problems


@st.composite
def small_steps(draw: st.DrawFn) -> Training:
    """On up to 8 ranks, with sizes that do not divide."""
    plans = st.tuples(*(st.sampled_from([1, 2, 3, 4]) for _ in DIMENSIONS)).filter(lambda sizes: 2 <= prod(sizes) <= 8)
    tensor, context, data, pipeline = draw(plans)
    experts = draw(st.sampled_from([0, 4]))
    sequence = tensor > 1 and (experts > 0 or draw(st.booleans()))
    model = Model(
        layers=pipeline, hidden=12, heads=12, kv_heads=12, ffn=24, seq=24, vocab=draw(st.sampled_from([0, 7])),
        experts=experts, bias=draw(st.booleans()), tied=draw(st.booleans()),
        dtype=draw(st.sampled_from(["float32", "bfloat16"])),
    )  # fmt: skip
    return Training(
        model=model,
        gpu=GPU,
        parallel=Parallel(
            tensor=tensor, context=context, data=data, pipeline=pipeline, sequence=sequence,
            expert=draw(st.sampled_from([1, data] if data in (2, 4) else [1])) if experts else 1,
        ),
        count=pipeline * draw(st.integers(1, 2)),
        schedule=draw(st.sampled_from(["gpipe", "1f1b", "zero_bubble"])),
        shard=draw(st.sampled_from(SHARDS)),
        bucket_bytes=draw(st.sampled_from([1 << 10, 1 << 20])),
        gating=Gating(zipf=draw(st.sampled_from([0.0, 1.0]))),
    )  # fmt: skip


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(small_steps())
def test_data_is_right(t: Training) -> None:
    assert not list(problems(t))
    graph = graph_of(t)
    lines = task_graphs.run(t.parallel.ranks, graph)
    done = task_graphs.times(lines, graph)
    assert len(done) == sum(map(len, graph.tasks.values()))


@pytest.mark.parametrize("plan", [{"pipeline": 2}, {"pipeline": 4}, {"pipeline": 2, "data": 2, "expert": 2}])
@pytest.mark.parametrize("schedule", ["zb_v", "dualpipe"])
def test_data_is_right_where_stages_have_two_parts(schedule: str, plan: dict[str, int]) -> None:
    p = Parallel(**plan)
    model = replace(SMALL, layers=2 * p.pipeline, vocab=32, tied=True, experts=4 if p.expert > 1 else 0)
    t = Training(
        model=model, gpu=GPU, parallel=p, count=2 * p.pipeline, schedule=schedule, chunks=2, shard="zero2",
        bucket_bytes=1 << 14,
    )  # fmt: skip
    test_data_is_right.hypothesis.inner_test(t)
