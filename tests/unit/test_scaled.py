"""A large step's time from small ones, and how far it may be off."""

from __future__ import annotations

from typing import Any

import pytest

from results.figures.report import report
from results.figures.scaled import SLACK, scaled
from results.figures.summary import figure_label, of_steps
from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.plan.steps.plan import plan
from testbed.predict import predict
from testbed.run.sweep import check, impossible
from testbed.tables.results import _held
from workloads.steps.fraction import MIN_PACKETS


def step(by: int, layers: tuple[int, ...], *expected: float) -> dict[str, object]:
    return {"scale": {"layers": layers, "by": by, "expected_ns": expected, "whole": {"ideal_ns": 1.0, "tokens": 1}}}


def test_a_fraction_that_takes_what_it_should_tells_of_the_whole() -> None:
    """1/16 of 15,900 ns, of which single packets add 6.25 ns to the part."""
    its = scaled(step(16, (4,), 1000, 15_900), [1000])
    assert its.time_ns == 15_900
    assert its.bound == pytest.approx(SLACK + 100 / 15_900)


def test_a_fraction_whose_messages_meet_says_that_it_may_be_as_far_off() -> None:
    """It took twice what it should, by what queues add, and queues are not scaled."""
    its = scaled(step(16, (4,), 1000, 15_900), [2000])
    assert its.bound == pytest.approx(SLACK + 100 / 15_900 + 15 / 16)


def test_fewer_layers_are_off_by_what_two_ways_differ() -> None:
    its = scaled(step(1, (2, 4, 12), 100, 200, 600), [110, 220])
    assert its.time_ns == 660 and its.bound == pytest.approx(SLACK)


# Whole-model figures


def ran(*times_us: float) -> list[dict[str, Any]]:
    """A timeline: in each step one rank computes so long."""
    row = {"iteration": 0, "rank": 0, "stream": "gpu", "task": "a", "kind": "", "group": None, "size_bytes": None}
    return [
        row | {"step": k, "start_ns": 0.0, "end_ns": 1e3 * us, "operation": "compute"} for k, us in enumerate(times_us)
    ]


def about(expected: tuple[float, ...], ideal_us: float) -> list[dict[str, Any]]:
    """Two and four layers of ten, whose small steps have an MFU of their own."""
    whole = {"ideal_ns": 1e3 * ideal_us, "tokens": 1000, "memory": {"peak": 3_000_000_000, "rank": 0}}
    scale = {"layers": [2, 4, 10], "by": 1, "expected_ns": expected, "whole": whole}
    return [{"tokens": 1000, "ideal_ns": 1e3}, {"tokens": 1000, "ideal_ns": 2e3, "scale": scale}]


def test_a_summary_ranks_plans_by_the_whole_model() -> None:
    """One plan is quicker with two and four layers, as it begins sooner; with ten the other one is."""
    begins_soon = of_steps(ran(20, 40), about((20e3, 40e3, 100e3), 50))  # 10 us a layer
    begins_late = of_steps(ran(30, 46), about((30e3, 46e3, 94e3), 50))  # 14 us, and 8 us a layer
    assert begins_soon["step_us"] == pytest.approx(100) and begins_late["step_us"] == pytest.approx(94)
    assert begins_soon["small_step_us_0"] < begins_late["small_step_us_0"]
    assert begins_soon["mfu"] == pytest.approx(0.5) and begins_soon["tokens_per_s"] == pytest.approx(1e7)
    assert begins_soon["memory_GB"] == 3.0 and begins_soon["bound"] == pytest.approx(SLACK)
    assert next(iter(begins_soon)) == "step_us", "what a picture of a sweep shows unasked"
    assert not {"mfu_0", "mfu_1", "step_us_0", "step_us_1"} & set(begins_soon), "nobody is shown a part for the whole"


def test_beside_others_the_whole_has_the_number_of_its_last_step() -> None:
    rows = [*ran(20, 40), *({**row, "step": 2} for row in ran(7))]
    found = of_steps(rows, [*about((20e3, 40e3, 100e3), 50), {"memory": {"peak": 5_000_000, "rank": 1}}])
    assert (found["step_us_1"], found["step_us_2"], found["small_step_us_1"]) == (pytest.approx(100), 7, 40)
    assert found["memory_GB_2"] == 0.005
    assert figure_label("step_us_2") == "step (us), step 2"
    assert figure_label("small_exposed_us_1") == "small step 1: exposed communication (us)"


def test_a_run_of_which_only_the_first_small_step_ended_has_no_whole() -> None:
    found = of_steps(ran(20), about((20e3, 40e3, 100e3), 50))
    assert found["small_step_us_0"] == 20 and "step_us" not in found and "mfu" not in found


def test_a_report_has_the_whole_model() -> None:
    text = report(
        name="r", error=None, clock="virtual", fidelity={"verdict": "exact", "reasons": [], "advice": []}, results=[],
        tables={"drops": [], "ports": [], "timeline": ran(20, 40)}, events=[], hops={}, environment={},
        metrics_sha256="", about=about((20e3, 40e3, 100e3), 50),
    )  # fmt: skip
    assert "10 layers, from 2 and 4: 0.1000 ms, within 0.10 %; MFU 50.0 %, 1e+07 tokens/s" in text


STEP = """
name: t
fabric: {{topology: {{star: {{hosts: 4}}}}}}
workload:
- train:
    model: {{layers: 4, hidden: 1024, heads: 4, seq: 512}}
    gpu: {{flops: 100T, memory: 80GB}}
    parallel: {{data: 4}}
    scale: {{{scale}}}
"""


def test_of_a_training_step_tokens_peak_and_memory_are_described() -> None:
    (small, large) = plan(loads(STEP.format(scale="layers: [1, 2]"))).described()
    assert "memory" not in small, "nobody asks what a part would need"
    whole = large["scale"]["whole"]
    layer = 12 * 1024**2 + 13 * 1024  # matrices of a layer and their biases, as Megatron counts them
    held = whole["memory"]
    assert (held["rank"], held["parameters"]) == (0, pytest.approx(2 * 4 * layer, rel=0.01))
    assert held["peak"] == held["parameters"] + held["gradients"] + held["optimizer"] + held["activations"]


def test_each_rank_has_its_own_memory_and_each_step() -> None:
    """1F1B's stage s of p holds p - s micro-batches; ranks with the same stand in one line."""
    text = """name: t
fabric: {topology: {rail: {servers: 4, gpus: 2}}}
workload:
- train:
    model: {layers: 4, hidden: 64, heads: 4, seq: 64}
    gpu: {flops: 100T}
    batch: {count: 8}
    parallel: {pipeline: 4, data: 2}
- train: {model: {layers: 4, hidden: 64, heads: 4, seq: 64}, gpu: {flops: 100T}, parallel: {data: 8}}
"""
    piped, plain = (step["memory"] for step in plan(loads(text)).described())
    assert [its["ranks"] for its in piped["each"]] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    held = [its["activations"] for its in piped["each"]]
    assert [n / held[-1] for n in held] == [4, 3, 2, 1]
    assert [its["ranks"] for its in plain["each"]] == [[*range(8)]]
    lines = [str(line) for line in _held([{"memory": piped}, {"memory": plain}])]
    who = [*(f"step 0: ranks {ranks}" for ranks in ("0-1", "2-3", "4-5", "6-7")), "step 1: ranks 0-7"]
    assert [line.partition(" have")[0] for line in lines] == [f"# {one}" for one in who]


FITS = """
name: t
fabric: {{topology: {{star: {{hosts: 4}}}}}}
workload:
- train:
    model: {{layers: 4, hidden: 1024, heads: 4, seq: 512}}
    gpu: {{flops: 100T, memory: {room}B}}
    parallel: {{data: 4}}
    {more}
"""


def test_what_just_fits_its_gpus_is_taken_and_what_does_not_is_told_what_would() -> None:
    """The least change of sharding: of the states of optimizers first, then of gradients, then of parameters."""
    shards = {f"shard: {shard}": 0 for shard in ("none", "zero1", "zero2", "zero3")}
    for more in shards:
        (one,) = plan(loads(FITS.format(room=80 * 10**9, more=more))).steps
        shards[more] = one.about_step["memory"]["peak"]
    sizes = list(shards.values())
    assert sizes == sorted(sizes, reverse=True)
    loads(FITS.format(room=sizes[0], more=""))
    for room, fits in ((sizes[0] - 1, 1), (sizes[1], 1), (sizes[1] - 1, 2), (sizes[2], 2), (sizes[2] - 1, 3)):
        with pytest.raises(InputError) as told:
            loads(FITS.format(room=room, more=""))
        assert (told.value.hint or "").startswith(f"with {list(shards)[fits]} it needs")


def test_a_prediction_has_the_whole_models_figures() -> None:
    figures = predict(loads(STEP.format(scale="layers: [1, 2]"))).figures
    whole = figures[-1].to_dict()
    tokens, flops = 4 * 512, 72 * 4 * 512 * 4 * 1024**2 * (1 + 512 / (6 * 1024))  # 72 b s l h^2 (1 + s / 6h)
    assert whole["tokens_per_s"] == pytest.approx(tokens * 1e9 / whole["time_ns"], rel=1e-6)
    assert whole["mfu"] == pytest.approx(flops / (4 * 100e12) * 1e9 / whole["time_ns"], rel=1e-3)
    assert whole["memory_bytes"] > 2 * 4 * 12 * 1024**2
    assert "mfu" in predict(loads(STEP.format(scale="layers: [1, 2]").replace("    scale", "#"))).figures[0].to_dict()


def test_parts_that_are_too_small_are_said_before_a_sweep_begins_and_with_what_is_large_enough() -> None:
    """25 MiB of gradients to four ranks are 1,600 packets each: 1/64 is 25, and 1/25 leaves 64."""
    sweep = STEP.format(scale="by: 4") + "sweep: {workload.0.train.scale.by: [8, 64]}\n"
    with pytest.raises(InputError) as wrong:
        check(loads(sweep, "s.yaml"))
    assert wrong.value.what.startswith("1/64 of what group 'data' sends at a time is 25 packets at most")
    assert wrong.value.where == "s.yaml:10: sweep.workload.0.train.scale.by[1]"
    assert wrong.value.hint == f"by: 25 leaves {MIN_PACKETS}"
    assert impossible(wrong.value)["error"].endswith("by: 25 leaves 64"), "nor is it lost where a point fails"


def test_the_hint_is_large_enough_for_every_group() -> None:
    """Of activations a rank of `tensor` sends 512 x 1024 elements of 2 bytes to two: 128 packets."""
    text = STEP.format(scale="by: 32").replace("{data: 4}", "{tensor: 2, data: 2}")
    with pytest.raises(InputError) as wrong:
        loads(text)
    assert wrong.value.hint == "by: 2 leaves 64"
    loads(text.replace("by: 32", "by: 2"))
