"""Training steps from the file to the table: their times against closed forms, their data, their offloads, scaling."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from results.figures.scaled import scaled
from results.figures.timeline import steps
from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.plan.ideal import costs_of
from testbed.plan.steps.plan import plan
from tests.parts.drawn_training import RANKS, Drawn, drawn, shares_a_link
from tests.parts.training_runs import checked, compared, experiment_of
from workloads.times.messages import Path as Way
from workloads.times.messages import received_ns

FLOAT = "model: {layers: 4, hidden: 256, heads: 4, seq: 128, dtype: float32}, gpu: {preset: h100}"
MODEL = "model: {layers: 4, hidden: 128, heads: 4, seq: 128}, gpu: {preset: h100}"
VOCAB = "model: {layers: 4, hidden: 128, heads: 4, seq: 128, vocab: 256}, gpu: {preset: h100}"
EXPERTS = "model: {layers: 2, hidden: 128, heads: 4, seq: 128, experts: 8}, gpu: {preset: h100}"

EXPLORE = "RAILBED_EXPLORE" in os.environ
TRIED = (Phase.explicit, Phase.reuse, Phase.generate)
"""A case costs seconds: none is made simpler."""
MODES = ("sync", "async")
STAR, RAIL = "{star: {hosts: 4}}", "{rail: {servers: 4, gpus: 2}}"


def test_steps_whose_messages_do_not_meet_take_what_closed_forms_say(tmp_path: Path) -> None:
    found = compared(
        tmp_path / "run",
        STAR,
        [
            f"{{{FLOAT}, batch: {{count: 8}}, parallel: {{pipeline: 4}}, schedule: gpipe}}",
            f"{{{FLOAT}, batch: {{count: 8}}, parallel: {{pipeline: 4}}}}",
            f"{{{MODEL}, parallel: {{data: 4}}, buckets: 256KiB}}",
            f"{{{MODEL}, batch: {{count: 2}}, parallel: {{data: 4}}, shard: zero2}}",
            f"{{{MODEL}, parallel: {{data: 4}}, shard: fsdp}}",
            f"{{{MODEL}, parallel: {{data: 4}}, shard: zero3}}",
            f"{{{MODEL}, parallel: {{context: 4}}}}",
            f"{{{EXPERTS}, parallel: {{data: 4, expert: 4}}}}",
        ],
    )
    assert [round(one.off, 4) for one in found if abs(one.off) > 0.005] == []


def test_bubbles_of_pipelines_are_the_papers(tmp_path: Path) -> None:
    """Short messages: (p - 1) / (v m) of the ideal (Narayanan et al.), (p - 1)(TF + TB - TW) by ZB-H1."""
    b, s, h, p, m, v = 1, 64, 128, 4, 8, 2
    pipeline = "model: {layers: 8, hidden: 128, heads: 4, seq: 64}, gpu: {flops: 10G, efficiency: 1}, "
    pipeline += "batch: {count: 8}, parallel: {pipeline: 4}, schedule: "
    schedules = ("{interleaved: 2}", "zero_bubble", "zb_v", "dualpipe")
    found = compared(tmp_path / "run", STAR, [f"{{{pipeline}{one}}}" for one in schedules])
    weights, core = 24 * b * s * h**2 / 10, 4 * b * s**2 * h / 10  # of a layer, ns
    forward, backward = 2 * (weights + core), 2 * (weights + 2 * core)  # of a stage
    ideal = m * (forward + backward + 2 * weights)
    interleaved, zero, v_shaped, dual = (one.measured_ns - ideal for one in found)
    assert interleaved == pytest.approx((p - 1) / (v * m) * ideal, rel=0.01)
    assert zero == pytest.approx((p - 1) * (forward + backward - 2 * weights), rel=0.01)
    assert 0 < v_shaped < dual < zero  # as their authors rank them
    assert all(0 <= one.off < 0.005 for one in found), found


def test_hybrid_plans_on_rails_take_what_closed_forms_say(tmp_path: Path) -> None:
    found = compared(
        tmp_path / "run",
        RAIL,
        [
            f"{{{VOCAB}, batch: {{count: 4}}, parallel: {{tensor: 2, pipeline: 2, data: 2}}, "
            "place: {tensor: scale_up, pipeline: rail, data: rail}}",
            f"{{{VOCAB}, parallel: {{tensor: 2, sequence: true, data: 4}}, shard: zero1}}",
            f"{{{MODEL}, parallel: {{tensor: 2, context: 2, data: 2}}, place: {{tensor: scale_up}}}}",
        ],
    )
    assert [round(one.off, 4) for one in found if abs(one.off) > 0.005] == []


@settings(
    max_examples=20 if EXPLORE else 3, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(drawn(RANKS if EXPLORE else (8, 16)))
def test_drawn_plans_are_never_faster_and_exact_where_no_link_is_shared(
    tmp_path_factory: pytest.TempPathFactory, case: Drawn
) -> None:
    folder = tmp_path_factory.mktemp("drawn") / "run"
    (one,) = compared(folder, case.topology, [case.train], "", "workers: {ranks_per_process: 16}")
    shared = shares_a_link(one.graph, one.times, one.fabric)
    assert -0.005 < one.off < (1 if shared else 0.005), (round(one.off, 4), shared)


def test_steps_whose_messages_meet_are_never_faster(tmp_path: Path) -> None:
    """Activations beside their gradients, many tokens for one expert."""
    found = compared(
        tmp_path / "run",
        STAR,
        [
            f"{{{FLOAT}, batch: {{count: 8}}, parallel: {{pipeline: 4}}, schedule: zero_bubble}}",
            f"{{{EXPERTS}, parallel: {{data: 4, expert: 4}}, gating: {{hot: 0.5, capacity: 1.5}}}}",
        ],
    )
    assert [round(one.off, 4) for one in found if not 0 <= one.off < 0.4] == []


def test_gradients_by_whoever_adds_them_up(tmp_path: Path) -> None:
    """Data is right with every offload, and each is faster than the hosts' ring."""
    named = ["ring", "in_network", "direct_reduce", "optimus_nic"]
    model = "model: {layers: 2, hidden: 128, heads: 4, seq: 64, dtype: float32}, gpu: {preset: h100}"
    trains = [f"{{{model}, parallel: {{data: 4}}, groups: {{data: {{algorithm: {name}}}}}}}" for name in named]
    done = checked(experiment_of(STAR, trains, "nic: {kind: on_path}"), tmp_path / "run")
    times = {name: row["time_ns"] for name, row in zip(named, done.rows("results"), strict=True)}
    assert all(times[name] < times["ring"] for name in named[1:]), times
    assert [one["ways"][0]["algorithm"] for one in done.steps] == named


def test_a_few_layers_tell_of_many_within_the_bound(tmp_path: Path) -> None:
    model = "model: {layers: 8, hidden: 128, heads: 4, seq: 64, vocab: 256}, gpu: {preset: h100}"
    step = f"{model}, batch: {{count: 2}}, parallel: {{tensor: 2, data: 2}}, shard: fsdp"
    experiment = experiment_of(
        "{rail: {servers: 2, gpus: 2}}", [f"{{{step}, scale: {{layers: [1, 3]}}}}", f"{{{step}}}"]
    )
    done = checked(experiment, tmp_path / "run")
    few, more, whole = (one.time_ns for one in steps(done.rows("timeline")))
    said = scaled(done.steps[1], [few, more])
    assert said.layers == (1, 3, 8)
    assert abs(said.time_ns / whole - 1) < said.bound < 0.03
    about = done.steps[2]
    assert said.mfu == pytest.approx(about["ideal_ns"] / whole, rel=said.bound)
    assert said.tokens_per_s == pytest.approx(about["tokens"] * 1e9 / whole, rel=said.bound)
    assert done.summary["scaled"] == [{"step": 1, **said.row()}]


def test_a_fraction_of_everything_tells_of_all_within_the_bound(tmp_path: Path) -> None:
    model = "model: {layers: 4, hidden: 256, heads: 4, seq: 512}, gpu: {preset: h100}"
    trains = [
        f"{model}, parallel: {{data: 4}}, buckets: 2MiB",
        f"{model}, batch: {{count: 4}}, parallel: {{pipeline: 4}}",
        f"{model}, parallel: {{data: 4}}, shard: fsdp",
    ]
    mtu = "nic: {mtu: 1024}"
    whole = checked(experiment_of(STAR, [f"{{{one}}}" for one in trains], mtu), tmp_path / "whole")
    parts = [f"{{{one}, scale: {{by: 4}}}}" for one in trains]
    parts.append(f"{{{trains[2]}, scale: {{layers: [1, 2], by: 4}}}}")
    part = checked(experiment_of(STAR, parts, mtu), tmp_path / "part")
    times = [one.time_ns for one in steps(whole.rows("timeline"))]
    for said, true in zip(part.summary["scaled"], [*times, times[2]], strict=True):
        assert abs(said["time_ns"] / true - 1) < said["bound"] < 0.1, said
        assert (said["by"], said["layers"]) == (4, 4)
    assert all("1/4 of it" in row["algorithm"] for row in part.rows("results"))
    assert all("mfu" not in one or one["mfu"] is None for one in part.summary["steps"])


@pytest.mark.parametrize(
    ("step", "more", "what"),
    [
        ("train: {%s, parallel: {data: 4}, scale: {by: 64}}", "", "1/64 of what group 'data' sends at a time is"),
        ("train: {%s, parallel: {data: 4}, scale: {}}", "", "nothing is scaled"),
        ("train: {%s, parallel: {data: 4}, groups: {data: {algorithm: in_network}}, scale: {by: 4}}", "", "in_network"),
        ("train: {%s, parallel: {data: 4}, scale: {by: 4}}", "transport: {cc: dcqcn}", "timers and thresholds"),
        ("train: {%s, parallel: {data: 4}, scale: {by: 4}}\n- {collective: barrier}", "", "for all steps"),
        ("train: {%s, parallel: {data: 4}, scale: {by: 4}}", "inject: [{fault: ecn_off, on: all}]", "times and frames"),
    ],
)
def test_what_has_no_fraction_is_refused(step: str, more: str, what: str) -> None:
    text = f"name: t\nfabric: {{topology: {STAR}}}\nworkload:\n- {step % FLOAT}\n{more}\n"
    with pytest.raises(InputError, match=re.escape(what)):
        plan(loads(text))


def test_a_checkpoint_takes_its_message_and_its_disk(tmp_path: Path) -> None:
    """Each rank has a storage of its own here, so that nothing is shared."""
    told = "checkpoint: {to: [2, 3], every: 10, disk: 20GBps, copy_rate: 100GBps, restart: 1us, mode: "
    trains = [f"{{{FLOAT}, parallel: {{pipeline: 2}}, batch: {{count: 2}}, {told}{mode}}}}}" for mode in MODES]
    experiment = experiment_of(STAR, trains)
    done = checked(experiment, tmp_path / "run")
    behind, beside = done.summary["checkpoints"]
    assert (behind["step"], beside["step"]) == (0, 3)
    nbytes = done.steps[0]["checkpoint"]["bytes"]
    assert nbytes == 12 * 2 * (12 * 256 * 256 + 2 * 256)  # two layers; float32 and Adam's two moments
    costs = costs_of(experiment)
    message = costs.post_ns + received_ns(nbytes, Way.uniform(1, rate_bps=4e11, delay_ns=500, latency_ns=500), costs)
    assert behind["pause_ns"] == pytest.approx(message + nbytes / 20, rel=1e-3)
    assert 0 < behind["restore_ns"] - (message + nbytes / 20) < 2000, "until the storage has its acknowledgement"
    assert nbytes / 100 * 0.999 < beside["pause_ns"] < behind["pause_ns"] / 3
