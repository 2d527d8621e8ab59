"""Sweeps as they are written, drawn loads, and the figures of a summary (real sweeps: live/test_sweep_runs)."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from results.figures.summary import as_run, labels, summarize
from results.figures.values import jain, percentile
from testbed.base.errors import InputError
from testbed.experiment import load, loads
from testbed.run.sweep import points
from tests.parts.incast_experiment import INCAST
from workloads.traffic import burst, fixed, poisson, sizes_named

STUDIES = sorted((Path(__file__).parents[2] / "experiments").glob("*/*.yaml"))


def test_several_keys_may_have_the_same_value() -> None:
    text = INCAST + "sweep: {'fabric.switch.buffer, fabric.switch.headroom': [100KB, 200KB], seed: [1, 2]}\n"
    made = [p.experiment for p in points(loads(text))]
    assert [(e.fabric.switch.buffer, e.fabric.switch.headroom, e.seed) for e in made] == [
        (100_000, 100_000, 1), (100_000, 100_000, 2), (200_000, 200_000, 1), (200_000, 200_000, 2),
    ]  # fmt: skip


def test_variants_change_keys_of_their_own_together() -> None:
    text = (
        INCAST
        + """
sweep:
  control:
    plain: {}
    marks: {transport.cc: dctcp, fabric.switch.ecn: {kmin: 10KB, kmax: 20KB}}
  seed: [1, 2]
"""
    )
    made = list(points(loads(text)))
    assert [p.values for p in made] == [
        {"control": "plain", "seed": 1}, {"control": "plain", "seed": 2},
        {"control": "marks", "seed": 1}, {"control": "marks", "seed": 2},
    ]  # fmt: skip
    assert [(p.experiment.transport.cc.name, p.experiment.seed) for p in made] == [
        ("dcqcn", 1), ("dcqcn", 2), ("dctcp", 1), ("dctcp", 2),
    ]  # fmt: skip
    assert made[2].keys == ["transport.cc", "fabric.switch.ecn", "seed"]


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ("{how: {a: {transport.c: none}}}", "sweep.how.a.transport.c"),
        ("{how: {a: {transport.cc: fast}}}", "sweep.how.a.transport.cc"),
        ("{how: {a: 3}}", "no variant"),
        ("{how: {}}", "nothing to sweep"),
        ("{how: 3}", "neither a list of values nor variants"),
        ("{transport.cc: {a: {seed: 2}}}", "its values are a list"),
        ("{transport: {cc: [none, dcqcn]}}", "no variant"),
        ("{fabric.topology.star.host: [2]}", "host"),
        ("{transport.cc: [fast]}", "fast"),
        ("{'seed, sed': [1]}", "sed"),
        ("{fabric.topology.star.hosts: []}", "nothing to sweep"),
    ],
)
def test_a_wrong_sweep_is_said_before_anything_runs(sweep: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        list(points(loads(INCAST + f"sweep: {sweep}\n")))
    assert said in error.value.what + error.value.where


@pytest.mark.parametrize("study", STUDIES, ids=lambda p: p.stem)
def test_every_study_is_a_valid_experiment(study: Path) -> None:
    assert load(study).name == study.stem
    assert list(points(load(study)))


def test_arrivals_have_the_load_and_sizes_asked_for() -> None:
    sizes = sizes_named("web_search", 0, None)
    asked = {"ranks": range(16), "pattern": "random", "load": 0.6, "line_rate_bps": 400e9, "flows": 20_000, "seed": 3}
    drawn = poisson(sizes, **asked)
    total, seconds = sum(a.size_bytes for a in drawn), drawn[-1].start_ns / 1e9
    assert total * 8 / seconds / 16 == pytest.approx(0.6 * 400e9, rel=0.05)
    assert total / len(drawn) == pytest.approx(sizes.mean_bytes, rel=0.05)
    assert sum(a.size_bytes <= 10_000 for a in drawn) / len(drawn) == pytest.approx(0.15, abs=0.01)
    assert all(a.source != a.target for a in drawn)
    assert drawn == poisson(
        sizes, ranks=range(16), pattern="random", load=0.6, line_rate_bps=400e9, flows=20_000, seed=3
    )
    gaps = [b.start_ns - a.start_ns for a, b in zip(drawn, drawn[1:], strict=False)]
    mean = sum(gaps) / len(gaps)
    assert math.sqrt(sum((g - mean) ** 2 for g in gaps) / len(gaps)) == pytest.approx(mean, rel=0.05)  # exponential
    assert {a.target for a in burst(fixed(10), ranks=range(5), to=2)} == {2}


def test_algorithms_are_not_averaged_with_each_other() -> None:
    rows = [
        {"collective": "all_reduce", "algorithm": a, "size_bytes": 1000, "time_ns": t, "busbw_Bps": 1e12 / t}
        for a, t in (("ring", 2000.0), ("tree", 500.0), ("tree", 1500.0))
    ]
    both = summarize(rows, {})
    assert (both["time_us_1000_ring"], both["time_us_1000_tree"], both["busbw_GBps_ring"]) == (2.0, 1.0, 0.5)
    assert "time_us_1000" not in both and both["fallbacks"] == 0
    assert summarize([{**rows[0], "fallback": "no slots"}, *rows[1:]], {})["fallbacks"] == 1
    assert summarize(rows[1:], {})["time_us_1000"] == 1.0


def test_steps_are_called_by_what_tells_them_apart() -> None:
    ring = {"collective": "all_reduce", "algorithm": "ring", "sizes": ["1KiB"], "ranks": None, "chunk": None}
    steps = [
        ring,
        {**ring, "chunk": "64KiB", "sizes": ["2KiB"]},
        {**ring, "algorithm": "tree", "chunk": "1KiB"},
        {"flows": []},
        {"program": ["/usr/bin/ib_write_bw", "-a"]},
        {"tasks": {}},
    ]
    assert labels(steps) == ["ring", "ring[chunk=64KiB]", "tree", "write", "ib_write_bw", "tasks"]
    rows = [
        {"step": k, "collective": "all_reduce", "algorithm": "ring", "size_bytes": 1, "time_ns": t, "busbw_Bps": 1.0}
        for k, t in ((0, 1000.0), (1, 500.0))
    ]
    both = summarize(rows, {}, labels(steps))
    assert (both["time_us_1_ring"], both["time_us_1_ring[chunk=64KiB]"]) == (1.0, 0.5)


@pytest.mark.parametrize(("train", "steps"), [({}, 1), ({"scale": {"by": 16}}, 1), ({"scale": {"layers": [2, 4]}}, 2),
                                               ({"checkpoint": {}}, 3)])  # fmt: skip
def test_steps_behind_one_that_becomes_several_keep_their_names(train: dict[str, object], steps: int) -> None:
    ring = {"collective": "all_reduce", "algorithm": "ring", "chunk": None}
    workload = [{"train": train}, ring, {"flows": []}, {**ring, "chunk": "64KiB"}]
    kinds = [*["tasks"] * steps, "collective", "flows", "collective"]
    names = as_run(labels(workload), workload, [{"kind": kind} for kind in kinds])
    assert names == [*["tasks"] * steps, "ring", "flows", "ring[chunk=64KiB]"]


def test_summary_figures() -> None:
    assert jain([1, 1, 1, 1]) == 1 and jain([1, 0, 0, 0]) == 0.25
    assert percentile([1, 2, 3, 4, 5], 0.5) == 3 and percentile([0, 10], 0.99) == pytest.approx(9.9)
    row = summarize(
        [{"flow": "1->0", "size_bytes": 1000, "start_ns": 0, "time_ns": 1000, "algbw_Bps": 1e9, "slowdown": 2.0}],
        {"drops": {"tail": 2}, "pause_rx": 3},
    )
    assert (row["goodput_Gbps"], row["slowdown_p99"], row["drops"], row["pause_rx"]) == (8.0, 2.0, 2, 3)


def test_the_mean_bus_bandwidth_is_that_of_mean_times_as_in_the_table() -> None:
    """1,000 bytes in 1 and in 3 us, of a factor of 1.5: in 2 us, 0.75 GB/s, not the mean of 1.5 and 0.5."""
    same = {"step": 0, "collective": "all_reduce", "algorithm": "ring", "size_bytes": 1000}
    rows = [{**same, "time_ns": ns, "busbw_Bps": 1.5e12 / ns} for ns in (1000.0, 3000.0)]
    assert summarize(rows, {})["busbw_GBps"] == pytest.approx(0.75)
    other = {**same, "size_bytes": 2000, "time_ns": 2000.0, "busbw_Bps": 1.5e9}
    assert summarize([*rows, other], {})["busbw_GBps"] == pytest.approx((0.75 + 1.5) / 2)
