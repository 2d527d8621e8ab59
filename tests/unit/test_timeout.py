"""How long NICs wait for an acknowledgement by default: as long as a packet may wait in full buffers on its path."""

from __future__ import annotations

import pytest

from testbed.checklist import figures, review
from testbed.experiment import Experiment, loads
from testbed.plan.hardware import hardware_of, written_control

STAR, CLOS = "star: {hosts: 2}", "clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}"


def experiment(topology: str = STAR, cable: str = "", fabric: str = "", rest: str = "") -> Experiment:
    return loads(f"name: waits\nfabric: {{topology: {{{topology}}}, cable: {{{cable}}}{fabric}}}\n{rest}")


@pytest.mark.parametrize(
    ("topology", "cable", "fabric", "ms"),
    [
        # one switch: 32 MB leave in 256 Mbit / rate
        (STAR, "rate: 10Gbps", "", 26),  # 25.6
        (STAR, "rate: 25Gbps", "", 11),  # 10.24
        (STAR, "rate: 100Gbps", "", 3),  # 2.56
        (STAR, "rate: 400Gbps", "", 2),  # 0.64
        (STAR, "rate: 800Gbps", "", 2),  # 0.32
        (STAR, "rate: 25Gbps", ", switch: {buffer: 16MB}", 6),  # 5.12
        # three
        (CLOS, "rate: 25Gbps", "", 31),  # 30.72
        (CLOS, "rate: 400Gbps", "", 2),  # 1.92
        # the slowest cable counts
        (CLOS, "", ", host_cable: {rate: 100Gbps}", 8),  # 7.68
        (CLOS, "", ", cables: {cable:leaf0-spine0: {rate: 50Gbps}}", 16),  # 15.36
        # nothing is paused: a queue holds alpha / (1 + alpha) of the buffer, a ninth
        (STAR, "rate: 25Gbps", ", switch: {pfc: false}", 2),  # 1.14
        (CLOS, "rate: 25Gbps", ", switch: {pfc: false}", 4),  # 3.41
        (CLOS, "rate: 25Gbps", ", switch: {lossless: [], alpha: 1}", 16),  # 15.36
        # cables of 10 ms, there and back over two of them
        (STAR, "rate: 400Gbps, delay: 10ms", "", 41),  # 40.64
    ],
)
def test_the_default_is_what_full_buffers_take_to_leave(topology: str, cable: str, fabric: str, ms: int) -> None:
    assert hardware_of(experiment(topology, cable, fabric)).timeout_ns == ms * 1e6


def test_what_is_written_holds() -> None:
    assert hardware_of(experiment(cable="rate: 25Gbps", fabric=", nic: {timeout: 100us}")).timeout_ns == 100e3


def test_the_folder_has_what_the_file_leaves_open() -> None:
    slow = experiment(cable="rate: 25Gbps", rest="transport: {recovery: selective_repeat}")
    written = written_control(slow)
    assert written["timeout"] == "11ms" and written["reorder_packets"] == hardware_of(slow).nic["reorder_packets"]
    again = experiment(cable="rate: 25Gbps", fabric=f", nic: {{timeout: {written['timeout']}}}")
    assert hardware_of(again).timeout_ns == hardware_of(slow).timeout_ns


def test_the_checklist_says_how_long_senders_wait_and_finds_what_is_too_short() -> None:
    (line,) = figures(experiment(cable="rate: 25Gbps"))["timeout"]
    assert line == "11ms, longer than packets may wait in full buffers on the longest way (10.2 ms)"
    short = experiment(cable="delay: 100us", fabric=", nic: {timeout: 100us}")
    (line,) = figures(short)["timeout"]
    assert line.startswith("100us, shorter than")
    (found,) = (f for f in review(short) if f.check == "timeout")
    assert "an idle path takes 40" in found.what and found.where.endswith("fabric.nic.timeout")
    assert not [f for f in review(experiment(cable="delay: 100us")) if f.check == "timeout"]
