"""Collectives by NICs, in whole runs: right on every topology, by the hosts where NICs cannot, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.run import run as running
from testbed.run.outcome import RunResult


def run(tmp_path: Path, topology: str, *steps: dict[str, Any], nic: str = "{}", more: str = "") -> RunResult:
    workload = "\n".join(f"  - {json.dumps(step)}" for step in steps)
    text = f"name: direct\nfabric: {{topology: {topology}, nic: {nic}}}\n{more}\nworkload:\n{workload}\n"
    return running.run(loads(text), tmp_path / "run")


def step(collective: str = "all_reduce", algorithm: str = "direct_reduce", **more: Any) -> dict[str, Any]:
    return {"collective": collective, "algorithm": algorithm, "sizes": ["4B", "1028B", "64KiB"], **more}


def by_nics(result: RunResult) -> bool:
    return all(row["wrong"] == 0 and not row["fallback"] for row in result.results)


@pytest.mark.parametrize(
    "topology",
    ["{ring: {nodes: 5}}", "{torus: {dims: [2, 3]}}", "{rail: {servers: 2, gpus: 2, spines: 1}}",
     "{clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}"],
)  # fmt: skip
def test_right_on_every_topology(topology: str, tmp_path: Path) -> None:
    steps = [step(c, dtype=t) for c in ("all_reduce", "reduce_scatter", "all_gather") for t in ("float32", "bfloat16")]
    result = run(tmp_path, topology, *steps, step(op="avg", compression="bfp"), step("optimizer_step", "optimus_nic"))
    assert by_nics(result) and result.fidelity.verdict == "exact"


def test_under_loss(tmp_path: Path) -> None:
    more = "inject:\n  - {fault: loss, on: all, rate: 0.01, direction: both, at: 0ns}"
    sizes = ["1KiB", "1MiB"]
    result = run(tmp_path, "{star: {hosts: 4}}", step(sizes=sizes), step("all_gather", sizes=sizes), more=more)
    assert by_nics(result)


@pytest.mark.parametrize(
    ("nic", "why"),
    [
        ("{kind: plain}", "the NIC of rank 0 has no engine"),
        ("{kind: on_path, engine: {memory: 256KiB}}", "has 262144 of 262144 bytes free, at least"),
    ],
)
def test_the_hosts_do_it_where_the_nics_cannot(nic: str, why: str, tmp_path: Path) -> None:
    steps = [step(), step("all_gather"), step("optimizer_step", "optimus_nic", iterations=2, optimizer="adam")]
    result = run(tmp_path, "{star: {hosts: 3}}", *steps, nic=nic)
    assert len(result.results) == 12
    assert all(row["wrong"] == 0 and why in row["fallback"] for row in result.results)


def test_too_much_state_for_the_nic(tmp_path: Path) -> None:
    """16 MiB of parameters on 4 ranks are 8 MiB with their momentum at each, and the FPGA has 6.5."""
    result = run(
        tmp_path, "{star: {hosts: 4}}", step("optimizer_step", "optimus_nic", sizes=["64KiB", "16MiB", "32KiB"])
    )
    assert {row["size_bytes"] for row in result.results if row["fallback"]} == {16 << 20}, (
        "and afterwards they can again"
    )
    assert all(row["wrong"] == 0 for row in result.results)


def test_host_and_nic_give_the_same_parameters(tmp_path: Path) -> None:
    """Both are held to the same reference, bit by bit, over steps that follow from each other."""
    steps = [
        step("optimizer_step", a, optimizer=o, iterations=4) for a in ("host", "optimus_nic") for o in ("sgd", "adam")
    ]
    assert by_nics(run(tmp_path, "{star: {hosts: 3}}", *steps))


@pytest.mark.parametrize(
    ("topology", "loss"),
    [
        ("{rail: {servers: 4, gpus: 2, spines: 1}}", 0.0),
        ("{clos: {leaves: 2, spines: 2, hosts_per_leaf: 4}}", 0.0),
        ("{star: {hosts: 4}}", 0.01),
    ],
)
@pytest.mark.parametrize(("algorithm", "nic"), [("host", "{}"), ("optimus_nic", "{kind: plain}")])
def test_a_rank_that_is_ahead_gathers_while_others_still_reduce(
    algorithm: str, nic: str, topology: str, loss: float, tmp_path: Path
) -> None:
    """A rank has one completion queue for the reduce-scatter's connections and the all-gather's."""
    more = f"inject:\n  - {{fault: loss, on: all, rate: {loss}}}" if loss else ""
    result = run(tmp_path, topology, step("optimizer_step", algorithm, iterations=2), nic=nic, more=more)
    assert [row["wrong"] for row in result.results] == [0] * 6
    assert all(("no engine" in (row["fallback"] or "")) == (algorithm != "host") for row in result.results)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (step(compression="zip"), "compression"),
        (step(compression="bfp", dtype="int32"), "compression is of float32"),
        (step(algorithm="ring", compression="bfp"), "has no compression"),
        (step("all_gather", compression="bfp"), "has no compression"),
        (step(dtype="int64"), "int64"),
        (step("optimizer_step", "optimus_nic", dtype="float16"), "float16"),
        (step("optimizer_step", "optimus_nic", optimizer="lion"), "optimizer"),
    ],
)
def test_bad_input_is_named(changed: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        run(tmp_path, "{star: {hosts: 3}}", changed)
    assert words in str(refused.value)


def test_runs_are_alike(tmp_path: Path) -> None:
    more = "inject:\n  - {fault: loss, on: all, rate: 0.01, direction: both, at: 0ns}"
    sums = {
        run(tmp_path / str(i), "{star: {hosts: 4}}", step(sizes=["1MiB"]), more=more).metrics_sha256 for i in range(2)
    }
    assert len(sums) == 1
