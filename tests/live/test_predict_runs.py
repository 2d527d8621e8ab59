"""`testbed predict` against the emulation: a few small cases; `./setup.sh prove predict` draws many."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.experiment import loads
from testbed.predict import predict
from testbed.run.run import run

LIMIT = 0.03
STEPS = {
    "star": ("{star: {hosts: 8}}", ["all_reduce/halving_doubling", "broadcast/multicast", "all_reduce/in_network"]),
    "clos": (
        "{clos: {leaves: 4, spines: 1, hosts_per_leaf: 2}}",
        ["all_reduce/ring", "all_to_all/spread", "reduce_scatter/direct_reduce", "optimizer_step/host"],
    ),
    "torus": (
        "{torus: {dims: [2, 3, 2]}}",
        ["all_reduce/torus", "all_gather/multicast", "all_reduce/direct_reduce", "all_reduce/in_network"],
    ),
    "rail": ("{rail: {servers: 3, gpus: 4}}", ["all_reduce/hierarchical", "broadcast/chain", "all_gather/multicast"]),
}


@pytest.mark.parametrize("name", STEPS)
def test_within_3_percent_of_the_emulation(name: str, tmp_path: Path) -> None:
    topology, ways = STEPS[name]
    text = "".join(
        f"  - {{collective: {way.split('/')[0]}, algorithm: {way.split('/')[1]}, sizes: [4KiB, 300KB]}}\n"
        for way in ways
    )
    experiment = loads(f"name: p\nfabric: {{topology: {topology}}}\nworkload:\n{text}")
    measured = run(experiment, tmp_path / "run").results
    predicted = predict(experiment).figures
    off = {
        (f.name, f.algorithm, f.size_bytes): f.time_ns / row["time_ns"] - 1
        for f, row in zip(predicted, measured, strict=True)
    }
    assert {key: value for key, value in off.items() if abs(value) > LIMIT} == {}
    assert not any(row["fallback"] for row in measured)
