"""Messages between hosts and compute complexes, on the real fabric: the time that arithmetic gives, and the data."""

from __future__ import annotations

import pytest

from results import load
from testbed.experiment import loads
from testbed.run.outcome import RunResult, printed
from testbed.run.run import run

TEXT = """
name: ends
fabric:
  topology: {star: {hosts: 2}}
  cable: {rate: 100Gbps}
  nic: {kind: off_path, profile: bluefield2}
workload:
- flows: [{from: 0, to: nic:0.complex, size: 4KiB}]
- flows: [{from: nic:0.complex, to: 0, size: 4KiB}]
- flows: [{from: 0, to: nic:1.complex, size: 1MiB}, {from: nic:0.complex, to: 1, size: 1000B, start: 1ms}]
- {collective: ping_pong, ranks: [0, nic:0.complex], sizes: [4KiB]}
capture: ["nic:0.complex"]
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(loads(TEXT), tmp_path_factory.mktemp("ends") / "run")


def test_flows_take_what_pcie_bridge_and_cables_take(ran: RunResult) -> None:
    """By hand, as in tests/unit/test_endpoints.py: frames on both links, the bridge, both memories; the ack's way."""
    frame, ack = 4096 + 82 + 16 + 4, 86
    both = (frame + ack) * 8 / 100 + (frame + ack) * 8 / 200 + 2 * (300 + 150)
    there, back, *others = ran.results[:4]
    assert [row["flow"] for row in (there, back)] == ["0->nic:0.complex", "nic:0.complex->0"]
    assert there["time_ns"] == pytest.approx(100 + 3 * 500 + 4096 * 8 / 252 + both, abs=0.02)
    assert back["time_ns"] == pytest.approx(200 + 3 * 300 + 4096 * 8 / 200 + both, abs=0.02)
    assert [row["flow"] for row in others] == ["0->nic:1.complex", "nic:0.complex->1"]
    assert [row["slowdown"] for row in others] == pytest.approx([1, 1], abs=1e-5)
    assert {row["wrong"] for row in ran.results} == {0} and ran.fidelity.verdict == "exact"


def test_a_round_trip_to_the_hosts_own_complex(ran: RunResult) -> None:
    """Each way: posting, the doorbell, the fetch, both links, into memory."""
    row = ran.results[4]
    links = (4096 + 82 + 16 + 4) * 8 * (1 / 100 + 1 / 200) + 300 + 150
    there = 100 + 500 + 500 + 4096 * 8 / 252 + links + 4096 * 8 / 200 + 300
    back = 200 + 300 + 300 + 4096 * 8 / 200 + links + 4096 * 8 / 252 + 500
    assert row["time_ns"] == pytest.approx(there + back, abs=0.02)


def test_it_is_stored_printed_and_captured_by_its_name(ran: RunResult) -> None:
    assert printed(ran.results[0])["flow"] == "0->nic:0.complex"
    assert load(ran.folder).steps[0]["names"] == {"2": "nic:0.complex"}
    assert (ran.folder / "captures" / "arm0-1.pcapng").stat().st_size > 4096
