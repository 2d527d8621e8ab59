"""The hosts' collectives on the real fabric: in peace, and under loss, duplication and reordering on every cable."""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from testbed.experiment import loads
from testbed.run.outcome import RunResult
from testbed.run.run import run
from workloads.base.entry import Algorithm
from workloads.base.vocabulary import DTYPES, combines
from workloads.registry import ALGORITHMS

SCHEDULED = [e for e in ALGORITHMS.values() if e.schedule]
FAULTS = """
transport: {recovery: selective_repeat}
inject:
  - {fault: loss, on: all, rate: 0.01}
  - {fault: duplication, on: all, rate: 0.01}
  - {fault: reordering, on: all, rate: 0.01}
"""


def written(entry: Algorithm, ranks: list[int] | None, counts: list[int], dtype: str, **more: object) -> str:
    told: dict[str, object] = {"collective": entry.collective.name, "algorithm": entry.name}
    if entry.collective.sized:
        told |= {"sizes": [f"{n * DTYPES[dtype]}B" for n in counts], "dtype": dtype}
    told |= {"ranks": ranks} if ranks else {}
    return json.dumps(told | more)


def carried_out(folder: Path, topology: str, steps: list[str], more: str = "") -> RunResult:
    lines = "\n".join(f"  - {step}" for step in steps)
    return run(loads(f"name: live\nfabric: {{topology: {topology}}}\nworkload:\n{lines}\n{more}"), folder)


def every_step(ranks: int) -> list[str]:
    """Each algorithm, with a type and reduction of its own, on one element, an odd number and a few packets."""
    types, steps = cycle(DTYPES), []
    for k, entry in enumerate(e for e in SCHEDULED if not e.shaped):
        if not entry.fits(ranks):
            continue
        group = list(range(min(ranks, entry.max_ranks or ranks)))
        dtype = next(types)
        ops = [op for op in entry.ops if combines(op, dtype)]
        more: dict[str, Any] = {"op": ops[k % len(ops)]} if ops else {}
        more |= {"chunk": "8KiB"} if "chunk" in entry.extra and k % 2 else {}
        steps.append(written(entry, group, [1, 1237, 30_011], dtype, **more))
    return steps


def test_every_algorithm_and_group(tmp_path: Path) -> None:
    steps = [step for ranks in (2, 3, 8) for step in every_step(ranks)]
    result = carried_out(tmp_path / "star", "{star: {hosts: 8}}", steps)
    assert {row["wrong"] for row in result.results} == {0}
    assert result.fidelity.verdict == "exact"
    assert not any(result.counters["drops"].values())


def test_grids_of_torus_and_rail(tmp_path: Path) -> None:
    torus = ALGORITHMS["all_reduce", "torus"]
    groups = [None, [0, 1, 2], [0, 1, 3, 4], [5, 3, 4]]
    steps = [
        written(torus, g, [1, 1237, 30_011], "bfloat16", op="avg", chunk=c) for g in groups for c in ("4KiB", None)
    ]
    assert {r["wrong"] for r in carried_out(tmp_path / "t", "{torus: {dims: [3, 3]}}", steps).results} == {0}
    groups = [[0, 1, 2, 3, 4, 5], [0, 1], [2, 3, 4, 5]]
    steps = [written(torus, g, [1, 1237, 30_011], "float16", op="max") for g in groups]
    grids = (e for e in SCHEDULED if e.layout == "grid" and e is not torus)
    steps += [written(e, None, [1, 1237, 30_011], "bfloat16", **({"op": "sum"} if e.ops else {})) for e in grids]
    for entry in (e for e in SCHEDULED if e.layout == "rails"):
        more = {"op": "max"} if entry.ops else {}
        steps += [written(entry, g, [1237, 30_011], "float16", **more) for g in (None, [2, 3, 4, 5])]
    by_channel = "costs: {reduce_by: channel}"
    result = carried_out(tmp_path / "r", "{rail: {servers: 4, gpus: 2}}", steps, by_channel)
    assert {r["wrong"] for r in result.results} == {0}


def test_under_loss_duplication_and_reordering_on_every_cable_and_twice_the_same(tmp_path: Path) -> None:
    results = [carried_out(tmp_path / name, "{star: {hosts: 7}}", every_step(7), FAULTS) for name in ("a", "b")]
    assert {row["wrong"] for row in results[0].results} == {0}
    assert results[0].counters["retransmitted"] > 0
    assert results[0].metrics_sha256 == results[1].metrics_sha256


def test_grids_under_the_same(tmp_path: Path) -> None:
    torus, rails = (ALGORITHMS["all_reduce", name] for name in ("torus", "rails"))
    steps = [written(torus, None, [1, 1237, 30_011], "int32", op="prod", chunk=c) for c in ("4KiB", None)]
    assert {r["wrong"] for r in carried_out(tmp_path / "t", "{torus: {dims: [3, 3]}}", steps, FAULTS).results} == {0}
    steps = [written(rails, None, [1, 1237, 30_011], "bfloat16", op="avg", chunk=c) for c in ("4KiB", None)]
    result = carried_out(tmp_path / "r", "{rail: {servers: 3, gpus: 2}}", steps, FAULTS)
    assert {row["wrong"] for row in result.results} == {0}
    assert result.counters["retransmitted"] > 0


def test_auto_is_as_fast_as_the_fastest(tmp_path: Path) -> None:
    sizes = [256, 16_384, 262_144]
    entries = [e for e in SCHEDULED if e.collective.name == "all_reduce" and e.layout != "ports"]
    steps = [written(e, None, sizes, "float32") for e in entries]
    steps.append(json.dumps(json.loads(steps[0]) | {"algorithm": "auto"}))
    steps.append(
        '{"collective": "broadcast", "algorithm": "auto", "offloads": true, "sizes": ["1MiB"], "ranks": [0, 2, 4, 6]}'
    )
    result = carried_out(tmp_path / "run", "{rail: {servers: 4, gpus: 2}}", steps)
    times: dict[int, dict[str, float]] = {}
    for row in result.results[: len(entries) * len(sizes)]:
        times.setdefault(row["size_bytes"], {})[row["algorithm"]] = row["time_ns"]
    *auto, offloaded = result.results[len(entries) * len(sizes) :]
    assert len({row["algorithm"] for row in auto}) > 1, "not the same for small and large"
    for row in auto:
        assert row["time_ns"] <= 1.02 * min(times[row["size_bytes"]].values())
    events = [json.loads(line) for line in (Path(result.folder) / "events.jsonl").read_text().splitlines()]
    chosen = [e for e in events if e["event"] == "algorithm_chosen"]
    said, of_offload = {e["size_bytes"]: e for e in chosen[:-1]}, chosen[-1]
    for row in auto:
        event = said[row["size_bytes"]]
        taken = min(event["expected_ns"], key=event["expected_ns"].get)
        assert event["algorithm"] == row["algorithm"] == taken.partition("[")[0]
        assert row["time_ns"] == pytest.approx(event["expected_ns"][taken], rel=0.02)
        if "chunk" not in event:
            assert row["time_ns"] == pytest.approx(times[row["size_bytes"]][row["algorithm"]], rel=1e-3)
    assert "chunk" not in said[1024] and said[1 << 20]["chunk"] < 1 << 20, "pieces of its own for each size"
    assert offloaded["algorithm"] == "multicast" and not offloaded.get("fallback")
    assert offloaded["time_ns"] == pytest.approx(of_offload["expected_ns"]["multicast"], rel=0.01)
    assert "algorithm_chosen" in (Path(result.folder) / "report.md").read_text()
