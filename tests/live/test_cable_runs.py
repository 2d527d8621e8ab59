"""Whole runs over cables under credits that send damaged frames once more: figures with the fast path and without, and
what a room leaves of a cable's rate, in `ideal_ns` and in predictions.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from results import load
from testbed.experiment import loads
from testbed.predict.predict import predict
from testbed.run.run import run

MIXED = """
name: mixed
control: {fast_path: %s}
fabric:
  topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 3}}
  cable: {flow_control: {credits: {resync: 20us}}, retry: {}}
  host_cable: {retry: {buffer: 9KB}}
workload:
  - {collective: all_to_all, sizes: [256KiB]}
  - flows: [{from: 0, to: 5, size: 1MB}, {from: 1, to: 5, size: 1MB}, {from: 3, to: 5, size: 1MB}]
inject:
  - {fault: loss, on: all, rate: 0.01}
  - {fault: credit_leak, on: "cable:leaf0-spine0", rate: 0.05}
"""


def test_the_same_figures_with_the_fast_path_and_without_and_nothing_is_lost(tmp_path: Path) -> None:
    off, on = (run(loads(MIXED % way), tmp_path / str(k)) for k, way in enumerate(("off", "{sample: 64}")))
    assert on.fidelity.verdict == "exact" and on.metrics_sha256 == off.metrics_sha256
    found = load(tmp_path / "1")
    assert found.ports["drops"].sum() == 0 and found.qps["retransmitted"].sum() == 0
    assert found.ports["llr_replays"].sum() > 30 and found.priorities["tx_wait"].sum() > 0
    leaked = found.priorities[found.priorities["credits_found_bytes"] > 0]
    assert set(zip(leaked["node"], leaked["port"], strict=True)) <= {("leaf0", 4), ("spine0", 1)} and len(leaked)


@pytest.mark.parametrize(
    ("cable", "off"),
    [
        ("{}", 1e-4),
        ("{flow_control: credits, retry: {}}", 2e-4),
        ("{flow_control: {credits: {room: 20KB}}}", 0.01),
        ("{retry: {buffer: 20KB}}", 0.01),
    ],
)
def test_ideal_times_and_predictions_know_what_a_room_leaves_of_the_rate(
    cable: str, off: float, tmp_path: Path
) -> None:
    """But for the beginning: until a room is full nobody waits, and the closed form has the mean from the first on."""
    steps = "[{flows: [{from: 0, to: 1, size: 1MB}]}, {collective: all_reduce, algorithm: ring, sizes: [4MiB]}]"
    head = f"name: room\nfabric: {{topology: {{clos: {{leaves: 2, spines: 1, hosts_per_leaf: 1}}}}, cable: {cable}}}\n"
    result = run(loads(f"{head}workload: {steps}\n"), tmp_path / "run")
    flow, collective = result.results
    assert flow["slowdown"] == pytest.approx(1, rel=off)
    (figure,) = predict(
        loads(f"{head}workload: {steps.replace('{flows: [{from: 0, to: 1, size: 1MB}]}, ', '')}\n")
    ).figures
    assert collective["time_ns"] == pytest.approx(figure.time_ns, rel=max(off, 0.01))
