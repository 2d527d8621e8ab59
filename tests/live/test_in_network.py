"""All-reduce by the switches, in whole runs: right in every type, on every topology, under loss and without means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.run.outcome import RunResult
from tests.parts.offload_runs import CLOS, FAULTS, STAR, by_the_network, counters, run


def step(**more: Any) -> str:
    return json.dumps({"collective": "all_reduce", "algorithm": "in_network", "sizes": ["64KiB"], **more})


def events(result: RunResult, kind: str) -> list[dict[str, Any]]:
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


@pytest.mark.parametrize("ranks", [2, 3, 7, 16])
def test_sums_are_right(ranks: int, tmp_path: Path) -> None:
    types = [(dtype, op) for dtype in ("float32", "float16", "bfloat16", "int32") for op in ("sum", "avg")]
    steps = [step(sizes=["4B", "1028B", "64KiB"], dtype=dtype, op=op) for dtype, op in types]
    result = run(tmp_path, STAR % ranks, *steps)
    assert by_the_network(result) and len(result.results) == 24
    assert all(a["slots_free"] == a["slots"] for a in counters(result)["accelerators"]), "slots leak"


@pytest.mark.parametrize(
    "topology",
    [CLOS, "{rail: {servers: 2, gpus: 2, spines: 1}}", "{torus: {dims: [2, 2, 2]}}", "{ring: {nodes: 5}}"],
)
def test_trees_of_every_topology(topology: str, tmp_path: Path) -> None:
    result = run(
        tmp_path, topology, step(sizes=["4B", "1MiB"]), step(ranks=[0, 3, 1]), step(ranks=[2, 3], dtype="int32")
    )
    assert by_the_network(result) and result.fidelity.verdict == "exact"


@pytest.mark.parametrize("topology", [CLOS, STAR % 4])
def test_loss_duplicates_and_disorder_change_no_sum(topology: str, tmp_path: Path) -> None:
    parts = [step(collective=collective, sizes=["4B", "100KB"]) for collective in ("reduce", "reduce_scatter")]
    whole = step(sizes=["4B", "256KiB"], iterations=2, dtype="int32")
    result = run(tmp_path, topology, whole, *parts, more=FAULTS)
    assert by_the_network(result)
    pools = counters(result)["accelerators"]
    assert sum(a["duplicates"] for a in pools) > 0
    again = run(tmp_path / "again", topology, whole, *parts, more=FAULTS)
    assert again.metrics_sha256 == result.metrics_sha256


@pytest.mark.parametrize("fault", ["accelerator_down", "missing_group"])
@pytest.mark.parametrize("switch", ["leaf1", "spine0", "spine1"])
def test_what_the_network_cannot_do_the_ranks_do(fault: str, switch: str, tmp_path: Path) -> None:
    """From the middle of a vector on: some ranks have their sums already, others never get them."""
    inject = f"inject: [{{fault: {fault}, on: 'switch:{switch}', at: 1015us}}]"
    result = run(tmp_path, CLOS, step(sizes=["1MiB"], iterations=2), more=inject)
    used = {e["root"] for e in events(result, "group") if not e["refused"]} | {"leaf1"}
    assert [row["wrong"] for row in result.results] == [0, 0]
    if switch in used:
        why = "no accelerator answers" if fault == "accelerator_down" else f"no rule sends its frames on at {switch}"
        assert all(why in row["fallback"] for row in result.results)
        drops = counters(result)["drops"]
        where, reason = (f"{switch}.acc", "fault") if fault == "accelerator_down" else (switch, "forwarding")
        assert any(d["node"] == where and d["reason"] == reason for d in drops), "the place can be seen"
    else:
        assert by_the_network(result)


@pytest.mark.parametrize("slots", [1024, 1500])
def test_leaked_slots_are_those_of_the_free_then_of_the_newest_job(slots: int, tmp_path: Path) -> None:
    inject = f"inject: [{{fault: slots_leaked, on: 'switch:leaf0', slots: {slots}}}]"
    more = f"inject: [{{fault: slots_leaked, on: 'switch:leaf0', at: 1015us, slots: {slots}}}]"
    before = run(tmp_path / "before", CLOS, step(sizes=["1MiB"], slots=64), more=inject)
    during = run(tmp_path / "during", CLOS, step(sizes=["1MiB"], slots=64), more=more)
    assert all("leaf0's accelerator has no slot free of 1024" in row["fallback"] for row in before.results)
    assert [row["wrong"] for row in during.results] == [0]
    assert all("no accelerator answers" in row["fallback"] for row in during.results)
    (leaf0,) = [a for a in counters(during)["accelerators"] if a["switch"] == "leaf0"]
    assert leaf0["unknown"] > 0


def test_slots_that_leak_among_the_free_ones_cost_nobody(tmp_path: Path) -> None:
    more = "inject: [{fault: slots_leaked, on: 'switch:leaf0', at: 1015us, slots: 960}]"
    result = run(tmp_path, CLOS, step(sizes=["1MiB"], slots=64), more=more)
    assert by_the_network(result)
    assert {a["switch"]: a["slots_free"] for a in counters(result)["accelerators"]}["leaf0"] == 64


def test_jobs_share_slots_and_who_gets_none_falls_back(tmp_path: Path) -> None:
    few = run(tmp_path, STAR % 4, step(slots=64), switch="{accelerator: {slots: 8}}")
    assert by_the_network(few), "fewer slots than wanted are slower, not wrong"
    pool = counters(few)["accelerators"][0]
    assert (pool["slots_used_max"], pool["slots_free"]) == (8, 8)


def test_no_accelerator_no_controller_too_small_a_bitmap(tmp_path: Path) -> None:
    none = run(tmp_path, STAR % 3, step(), switch="{accelerator: null}")
    assert {row["fallback"] for row in none.results} == {"no switch has an accelerator"}
    narrow = run(tmp_path / "b", STAR % 3, step(), switch="{accelerator: {fan_in: 2}}")
    assert {row["fallback"] for row in narrow.results} == {"sw0's accelerator has a bitmap of 2 bits, not of 3"}
    dead = run(tmp_path / "c", STAR % 3, step(), more="inject: [{fault: controller_dead, on: controller}]")
    assert {row["fallback"] for row in dead.results} == {"there is no controller"}
    assert all(row["wrong"] == 0 for r in (none, narrow, dead) for row in r.results)


def test_rules_are_few(tmp_path: Path) -> None:
    result = run(tmp_path, CLOS, step())
    (group,) = events(result, "group")
    assert group["rules"] == {"leaf0": 3, "leaf1": 3, group["root"]: 4}
