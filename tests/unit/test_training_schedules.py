"""Schedules of pipelines, buckets and prefetching against the closed forms, by the longest path."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.parts.training_steps import GPU, SMALL, constant, graph_of
from workloads.steps.memory import memory
from workloads.steps.plan.parallel import Parallel
from workloads.steps.plan.schedules import (
    BACKWARD,
    CHUNKS,
    FORWARD,
    SCHEDULES,
    SPLIT,
    WEIGHTS,
    apart,
    held,
    part,
    parts,
    schedule,
)
from workloads.steps.plan.training import Training
from workloads.tasks.oracle import oracle, step_ns
from workloads.tasks.task import Collective, Compute, Recv, Send, Task

TF, TB, TC = 100_000.0, 200_000.0, 8_660.0


def _took(t: Training, forward: float, backward: float, weights: float = 0.0, message: float = 0.0) -> float:
    """`forward`, ..: of a stage (of a chunk, where it has several)."""
    its = constant(forward / t.layers, backward / t.layers, weights / t.layers)
    return step_ns(oracle(graph_of(t, its), lambda rank, task: message))


def _step(name: str, p: int, m: int, chunks: int = 1) -> Training:
    return Training(model=SMALL, gpu=GPU, parallel=Parallel(pipeline=p), count=m, schedule=name, chunks=chunks)


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("m", [8, 16])
def test_gpipe_takes_its_closed_form(p: int, m: int) -> None:
    form = (m + p - 1) * (TF + TB) + 2 * (p - 1) * TC
    assert _took(_step("gpipe", p, m), TF, TB, message=TC) == pytest.approx(form, rel=1e-9)


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("m", [8, 16])
def test_bubbles_without_messages(p: int, m: int) -> None:
    """(p - 1) / m of the ideal time, a chunk's share of it when interleaved, a third for ZB-H1 with equal passes."""
    ideal = m * (TF + TB)
    assert _took(_step("1f1b", p, m), TF, TB) / ideal - 1 == pytest.approx((p - 1) / m, rel=1e-9)
    if p < 8:
        took = _took(_step("interleaved", p, m, 2), TF / 2, TB / 2)
        assert took / ideal - 1 == pytest.approx((p - 1) / (2 * m), rel=1e-9)
    took = _took(_step("zero_bubble", p, m), TF, TF, TF)
    assert took / (3 * m * TF) - 1 == pytest.approx((p - 1) / (3 * m), rel=1e-9)


@pytest.mark.parametrize(("tf", "tb", "tw"), [(10, 11, 9), (10, 12, 10), (10, 14, 7)])
def test_zb_h1s_bubble_with_unequal_passes(tf: float, tb: float, tw: float) -> None:
    """Qi et al., table 2: (p - 1)(TF + TB - TW)."""
    for p, m in ((2, 2), (4, 4), (4, 9), (8, 16)):
        bubble = _took(_step("zero_bubble", p, m), tf, tb, tw) - m * (tf + tb + tw)
        assert bubble == pytest.approx((p - 1) * (tf + tb - tw), abs=0.1)


@pytest.mark.parametrize(("p", "m"), [(4, 1), (4, 3), (8, 5)])
def test_fewer_micro_batches_than_stages(p: int, m: int) -> None:
    """The same forms, of which none asks for m >= p; 1F1B's is without messages."""
    form = (m + p - 1) * (TF + TB)
    assert _took(_step("gpipe", p, m), TF, TB, message=TC) == pytest.approx(form + 2 * (p - 1) * TC, rel=1e-9)
    assert _took(_step("1f1b", p, m), TF, TB) == pytest.approx(form, rel=1e-9)


def test_1f1b_exposes_more_messages_than_gpipe() -> None:
    """With p = 4, m = 8: 3351.96 us by GPipe, 3438.6 by 1F1B."""
    assert _took(_step("gpipe", 4, 8), TF, TB, message=TC) == pytest.approx(3_351_960, abs=1)
    assert _took(_step("1f1b", 4, 8), TF, TB, message=TC) == pytest.approx(3_438_600, rel=1e-4)


@st.composite
def plans(draw: st.DrawFn) -> tuple[str, int, int, int]:
    """Schedule, stages, micro-batches, chunks: all that is allowed."""
    name, p = draw(st.sampled_from(SCHEDULES)), draw(st.integers(2, 6))
    if name == "interleaved":
        return name, p, p * draw(st.integers(1, 4)), draw(st.integers(2, 3))
    if name == "dualpipe":
        p = 2 * draw(st.integers(1, 3))
        return name, p, 2 * draw(st.integers(p, 2 * p)), 2
    return name, p, draw(st.integers(1, 16)), CHUNKS.get(name, 1)


@given(plans())
def test_every_micro_batch_passes_every_part_once_and_in_order(plan: tuple[str, int, int, int]) -> None:
    name, p, m, chunks = plan
    many = parts(name, p, chunks)
    through: dict[tuple[str, int], list[int]] = {}
    for stage in range(p):
        passes = schedule(name, p, m, stage, chunks)
        assert len(set(passes)) == len(passes)
        at = {(step.kind, step.micro_batch, step.chunk): k for k, step in enumerate(passes)}
        for kind, j, c in at:
            through.setdefault((kind, j), []).append(part(name, p, stage, c))
            assert (kind != BACKWARD) or at[FORWARD, j, c] < at[BACKWARD, j, c]
            assert (kind != WEIGHTS) or at[BACKWARD, j, c] < at[WEIGHTS, j, c]
        for k, step in enumerate(passes):
            assert not step.beside or (passes[k - 1].kind, step.kind) == (FORWARD, BACKWARD)
        assert bool(apart(passes)) == (name in SPLIT)
        if name in SPLIT - {"dualpipe"}:
            assert len(apart(passes)) == m * chunks
    for j in range(m):
        for kind in (FORWARD, BACKWARD):
            assert sorted(through[kind, j]) == list(range(many))


@given(plans())
def test_no_schedule_waits_in_a_circle_and_none_beats_its_computations(plan: tuple[str, int, int, int]) -> None:
    """The graph has no circle, and the step is as long as a stage computes and the first micro-batch's way at least."""
    name, p, m, chunks = plan
    t = replace(_step(name, p, m, chunks), model=replace(SMALL, layers=2 * p * chunks))
    took = _took(t, 10.0, 10.0, 10.0, message=1.0)
    each = 30 if name in SPLIT else 20
    assert took >= each * m * t.parts / p - 1e-6


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 11), (8, 16)])
def test_zb_v_has_no_bubble_and_holds_no_more_than_1f1b(p: int, m: int) -> None:
    """Qi et al., arXiv 2401.10241, section 6: with equal passes a stage never waits once it has begun, and all hold
    what 1F1B's first stage does, p micro-batches, here 2 p of half a stage."""
    chunk = 50_000.0
    t = replace(_step("zb_v", p, m, 2), model=replace(SMALL, layers=2 * p))
    graph = graph_of(t, constant(chunk, chunk, chunk))
    times = oracle(graph, lambda rank, task: 0.0)
    for rank in range(p):
        spans = [times[rank, task.id] for task in graph.tasks[rank] if isinstance(task, Compute)]
        assert max(e for _, e in spans) - min(s for s, _ in spans) == pytest.approx(6 * m * chunk)
    assert step_ns(times) == pytest.approx((6 * m + p - 1) * chunk)  # the last stage begins behind the others
    assert [held(schedule("zb_v", p, m, stage, 2)) for stage in range(p)] == [2 * p] * p


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 10), (8, 16), (8, 20)])
@pytest.mark.parametrize("weights", [1.0, 0.5, 0.25])
def test_dualpipes_bubble_and_what_it_holds(p: int, m: int, weights: float) -> None:
    """DeepSeek-V3, table 2: (PP/2 - 1)(F&B + B - 3 W), PP + 1 micro-batches.  F&B is F + B here, without messages, and
    F is as long as the gradients of inputs."""
    f = 80_000.0
    b, w = (1 + weights) * f, weights * f
    t = replace(_step("dualpipe", p, m, 2), model=replace(SMALL, layers=2 * p))
    bubble = _took(t, f, b - w, w) - m * (f + b)
    assert bubble == pytest.approx((p // 2 - 1) * (f + b + b - 3 * w), abs=1)
    assert {held(schedule("dualpipe", p, m, stage, 2)) for stage in range(p)} == {p + 1}


def test_dualpipe_twice_as_many_parameters_and_sums_them_over_both_ends() -> None:
    """Table 2, "parameter 2x"."""
    model = replace(SMALL, vocab=64)
    plain, both = (
        Training(model=model, gpu=GPU, parallel=Parallel(pipeline=4, data=2), count=8, schedule=name, chunks=chunks)
        for name, chunks in (("1f1b", 1), ("dualpipe", 2))
    )
    for stage in range(4):
        mirrored = memory(plain, stage).parameters + memory(plain, 3 - stage).parameters
        assert memory(both, stage).parameters == mirrored
    graph = graph_of(both)
    assert graph.groups["data"] == ((0, 1, 6, 7), (2, 3, 4, 5))
    summed = [sum(x.size_bytes for x in its if isinstance(x, Collective)) for its in graph.tasks.values()]
    assert sum(summed) / 4 == 4 * model.parameters  # four ranks sum each


@pytest.mark.parametrize(("name", "times"), [("1f1b", 1), ("zb_v", 2), ("dualpipe", 1)])
def test_what_goes_between_stages(name: str, times: int) -> None:
    """ZB-V sends twice what 1F1B does (its authors' table), DualPipe as much, half of it from either end."""
    t = replace(_step(name, 4, 8, CHUNKS.get(name, 1)), model=SMALL)
    for rank, its in graph_of(t).tasks.items():
        sent = [task for task in its if isinstance(task, Send)]
        inner = (rank > 0) + (rank < 3)
        assert len(sent) == times * 8 * inner and all(abs(task.peer - rank) == 1 for task in sent)


@pytest.mark.parametrize("m", [1, 4, 8])
def test_scatter_and_gather_between_stages(m: int) -> None:
    """Narayanan et al. (SC'21), section 4.1: b s h / t instead of b s h from rank to rank, and an all-gather over the
    ranks of tensor.  GPipe's form, with both in place of a message; and as Megatron gathers behind what it has
    computed, that comes between a stage's passes, too."""
    p, t, whole = 4, 2, SMALL.seq * SMALL.hidden * SMALL.width
    plan = Training(model=SMALL, gpu=GPU, parallel=Parallel(pipeline=p, tensor=t), count=m, schedule="gpipe")
    split = replace(plan, parallel=replace(plan.parallel, scatter_gather=True))
    sizes = {
        kind: [task.size_bytes for task in graph_of(split).tasks[2] if isinstance(task, kind)] for kind in (Send, Recv)
    }
    assert sizes == {Send: [whole // t] * 2 * m, Recv: [whole // t] * 2 * m}
    gathered = _named(graph_of(split).tasks[2], "all_gather")
    assert [task.size_bytes for task in gathered] == [whole] * 2 * m and not _named(
        graph_of(plan).tasks[2], "all_gather"
    )

    def duration(rank: int, task: Task) -> float:
        if isinstance(task, Collective):
            return 900.0 if task.collective == "all_gather" else 0.0
        return TC * task.size_bytes / whole if isinstance(task, Send | Recv) else 0.0

    for one, message, between in ((plan, TC, 0), (split, TC / t + 900, 900)):
        graph = graph_of(one, constant(TF / one.layers, TB / one.layers))
        form = (m + p - 1) * (TF + TB) + 2 * (p - 1) * message + 2 * (m - 1) * between
        assert step_ns(oracle(graph, duration)) == pytest.approx(form, rel=1e-9)


def test_dualpipe_computes_while_tokens_are_under_way() -> None:
    """What a micro-batch adds when the pipeline is full, with an all-to-all of a twentieth of a layer, and of more than
    all that is computed: DeepSeek-V3's point is that it is the longer of the two, and not their sum."""
    model = replace(SMALL, experts=4)

    def added(name: str, message: float) -> float:
        def took(m: int) -> float:
            parallel, chunks = Parallel(pipeline=2, data=2, expert=2), CHUNKS.get(name, 1)
            t = Training(model=model, gpu=GPU, parallel=parallel, count=m, schedule=name, chunks=chunks)
            its = {"all_to_all": message}
            return step_ns(oracle(graph_of(t), _alone(0, **its)))

        return (took(16) - took(8)) / 8

    exchanges, computed = 4 * model.layers // 2, added("1f1b", 0)
    assert added("dualpipe", 0) == pytest.approx(computed)
    short, long = computed / 30, 2 * computed / exchanges
    assert added("1f1b", short) == pytest.approx(computed + exchanges * short)
    assert computed <= added("dualpipe", short) < computed + 0.1 * exchanges * short
    assert added("dualpipe", long) == pytest.approx(exchanges * long)


# Gradients and parameters


def _alone(compute_ns: float, **took: float):  # type: ignore[no-untyped-def]
    return lambda rank, task: took.get(task.collective, 0.0) if isinstance(task, Collective) else 0.0


def test_ddp_takes_its_computation_and_the_last_bucket() -> None:
    """A bucket for each layer, shorter than a layer's backward pass."""
    elements = SMALL.layer_parameters
    t = Training(model=SMALL, gpu=GPU, parallel=Parallel(data=4), bucket_bytes=4 * elements)
    times = oracle(graph_of(t, constant(50_000, 100_000)), _alone(0, all_reduce=61_300.0))
    assert step_ns(times) == pytest.approx(SMALL.layers * 150_000 + 61_300)


def test_ddp_waits_for_its_buckets_when_they_are_longer() -> None:
    """They follow each other then, from the first layer's gradients on."""
    t = Training(model=SMALL, gpu=GPU, parallel=Parallel(data=4), bucket_bytes=4 * SMALL.layer_parameters)
    times = oracle(graph_of(t, constant(50_000, 100_000)), _alone(0, all_reduce=300_000.0))
    assert step_ns(times) == pytest.approx(SMALL.layers * 50_000 + 100_000 + SMALL.layers * 300_000)


def test_a_first_bucket_of_its_own_sets_off_sooner() -> None:
    """A quarter of a layer's gradients; the others then have a whole layer's each, and the last one what is left."""
    layer = 4 * SMALL.layer_parameters
    t = Training(model=SMALL, gpu=GPU, parallel=Parallel(data=4), bucket_bytes=layer, first_bucket_bytes=layer // 4)
    sizes = [task.size_bytes for task in graph_of(t).tasks[0] if isinstance(task, Collective)]
    assert sizes == [layer // 4, *[layer] * (SMALL.layers - 1), layer - layer // 4]


@pytest.mark.parametrize("gather", [20_000.0, 50_000.0, 90_000.0])
@pytest.mark.parametrize("shard", ["fsdp", "zero3"])
def test_sharded_parameters_take_their_closed_form(gather: float, shard: str) -> None:
    """FSDP's forward pass: AG1 + sum of max(Ci, AGi+1) + CL.  Without prefetching: every gather is waited for."""
    t = Training(model=SMALL, gpu=GPU, parallel=Parallel(data=4), shard=shard)
    compute, layers = 50_000.0, SMALL.layers
    times = oracle(graph_of(t, constant(compute, 2 * compute)), _alone(0, all_gather=gather, reduce_scatter=1.0))
    forward = max(end for (rank, name), (_, end) in times.items() if rank == 0 and name.startswith("f0"))
    form = layers * (gather + compute)
    if shard == "fsdp":
        form = gather + (layers - 1) * max(compute, gather) + compute
    assert forward == pytest.approx(form, rel=0.01)


def _named(graph_tasks: tuple[Task, ...], collective: str) -> list[Collective]:
    return [x for x in graph_tasks if isinstance(x, Collective) and x.collective == collective]


def test_zero1_gathers_what_it_has_scattered() -> None:
    t = Training(model=SMALL, gpu=GPU, parallel=Parallel(data=4), shard="zero1", bucket_bytes=1 << 16, count=3)
    tasks = graph_of(t).tasks[0]
    scattered, gathered = _named(tasks, "reduce_scatter"), _named(tasks, "all_gather")
    assert sorted(x.size_bytes for x in scattered) == sorted(x.size_bytes for x in gathered)
    assert sum(x.size_bytes for x in scattered) == 4 * SMALL.parameters


def test_zero2_scatters_in_every_micro_batch() -> None:
    t = Training(model=SMALL, gpu=GPU, parallel=Parallel(data=4), shard="zero2", bucket_bytes=1 << 16, count=3)
    tasks = graph_of(t).tasks[0]
    assert sum(x.size_bytes for x in _named(tasks, "reduce_scatter")) == 3 * 4 * SMALL.parameters
    assert sum(x.size_bytes for x in _named(tasks, "all_gather")) == 4 * SMALL.parameters


def test_fsdp_asks_for_the_next_parameters_before_it_scatters_these_gradients() -> None:
    """Zhao et al. (VLDB'23), section 3.3.2, backward prefetching."""
    tasks = graph_of(Training(model=SMALL, gpu=GPU, parallel=Parallel(data=4), shard="fsdp")).tasks[0]
    order = [x.collective for x in tasks if isinstance(x, Collective)]
    gather, scatter = "all_gather", "reduce_scatter"
    assert order == [gather] * 10 + [scatter, gather] * 6 + [scatter] * 2


def test_fsdps_root_unit_is_gathered_once_and_scattered_last() -> None:
    """Two micro-batches: of embedding and head one gathering each and one scattering, of a layer two and one."""
    model = replace(SMALL, vocab=64)
    t = Training(model=model, gpu=GPU, parallel=Parallel(data=4), shard="fsdp", count=2)
    own, apart = (graph_of(replace(t, root_unit=root)).tasks[0] for root in (True, False))
    outside = 4 * (model.parameters - SMALL.layers * SMALL.layer_parameters)
    gathered, scattered = _named(own, "all_gather"), _named(own, "reduce_scatter")
    assert [x.size_bytes for x in gathered].count(outside) == 2 == [x.size_bytes for x in scattered].count(outside)
    assert gathered[0].size_bytes == outside == scattered[-1].size_bytes

    def total(tasks: tuple[Task, ...]) -> int:
        return sum(x.size_bytes for x in tasks if isinstance(x, Collective))

    assert total(own) == 2 * (3 * 4 * model.parameters - outside) == total(apart) - 2 * outside
    step_ns(oracle(graph_of(replace(t, root_unit=True)), _alone(0, all_gather=1.0, reduce_scatter=1.0)))


@pytest.mark.parametrize("shard", ["fsdp", "zero3"])
def test_one_process_group_gathers_and_scatters_in_turn(shard: str) -> None:
    """As above: "its collectives run sequentially in the process group's internal NCCL stream"."""
    t = Training(model=SMALL, gpu=GPU, parallel=Parallel(data=4), shard=shard)
    times = oracle(graph_of(t, constant(1, 2)), _alone(0, all_gather=20_000.0, reduce_scatter=30_000.0))
    assert step_ns(times) == pytest.approx(2 * SMALL.layers * 20_000 + SMALL.layers * 30_000, rel=1e-3)


def test_gradients_of_norms_and_of_the_table_come_last() -> None:
    """Megatron's finalize_model_grads: those of data, with sequence parallelism norms, the table's, the optimizer."""
    model = replace(SMALL, vocab=64, tied=True)
    parallel = Parallel(tensor=2, sequence=True, data=2, pipeline=2)
    gpu = replace(GPU, hbm=1e12)  # the optimizer takes time
    tasks = graph_of(Training(model=model, gpu=gpu, parallel=parallel, count=2, shard="zero1")).tasks[0]
    after = {x.id: x.after for x in tasks}
    norms, table = "gradients.norms", "gradients.embedding"
    assert {x.id for x in tasks if x.id.startswith("gradients.data")} <= set(after[norms])
    assert norms in after[table] and {norms, table} <= set(after["optimizer"])


def test_experts_gradients_of_weights_come_before_the_sum_of_their_inputs() -> None:
    """Their matrices know nothing of tensor parallelism: what was gathered around them is scattered behind them."""
    model = replace(SMALL, experts=4)
    parallel = Parallel(tensor=2, sequence=True, data=2, expert=2)
    tasks = graph_of(Training(model=model, gpu=GPU, parallel=parallel)).tasks[0]
    half = [x for x in tasks if x.id.startswith("b0.l7.mlp")]
    assert [x.id for x in half] == ["b0.l7.mlp.b.all_gather", "b0.l7.mlp.column", "b0.l7.mlp.b.reduce_scatter"]
    forward = next(x for x in tasks if x.id.startswith("f0.l7.experts"))
    assert half[1].duration_ns == pytest.approx(2 * forward.duration_ns, rel=1e-6)  # type: ignore[union-attr]
