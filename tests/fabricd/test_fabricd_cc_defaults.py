"""Congestion controls as a default file has them: that nobody starves, and the queue is what its source aims at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.experiment import loads
from testbed.experiment.basis import Basis
from testbed.plan.hardware import hardware_of
from tests.parts.control_case import Case, incast_queue_ns, measure
from tests.parts.fabricd_fixture import FAST, bare_fabric, plain
from tests.parts.traffic_fabric import drops, send, star
from tests.parts.wire_view import watched


@pytest.mark.parametrize(("gbps", "ack_every"), [(25, 64), (100, 1), (400, 16), (800, 64)])
def test_nscc_keeps_the_queue_that_it_aims_at(gbps: float, ack_every: int) -> None:
    """Eight to one: the mean queueing delay is target_queue, the idle round trip, however often is acknowledged."""
    case = Case("nscc", gbps=gbps, ack_every=ack_every)
    found = measure(case, 2e6)
    assert found.queue * 8 / gbps == pytest.approx(case.setting.network_rtt_ns, rel=0.1)
    assert found.used > 0.99 and not found.timeouts and not found.lost


CLOS = "topology: {clos: {pods: 2, leaves: 2, spines: 2, cores: 2, hosts_per_leaf: 4}}, cable: {rate: 400Gbps}"
"""Ranks 0 to 3 are behind one switch; to the other pod it is five."""
LONG_AND_SHORT = """topology: {custom: {
  nodes: {s: switch, h0: host, h1: host, h2: host, h3: host, h4: host, h5: host, h6: host},
  cables: [h0-s, h1-s, h2-s, h3-s, h4-s, {between: h5-s, delay: 3us}, {between: h6-s, delay: 3us}]}}"""


@pytest.mark.parametrize(
    ("fabric", "senders", "within"),
    [
        (CLOS, [1, 2, 3], 0.1),
        (CLOS, [1, 2, 3, 8, 9, 10], 0.1),
        (LONG_AND_SHORT, [1, 2, 3, 4], 0.15),
        (LONG_AND_SHORT, [1, 2, 3, 5, 6], 0.15),
    ],
)
def test_nscc_keeps_it_for_senders_near_and_far(fabric: str, senders: list[int], within: float) -> None:
    """uec.cpp: base_rtt is that of the path; a near sender that took the longest one's would keep the difference too.

    Where cables differ it is measured, by senders that begin at once: with some packets of the others in it.
    """
    experiment = loads(f"name: x\nfabric: {{{fabric}}}\ntransport: {{cc: nscc}}")
    target = Basis(experiment).setting.network_rtt_ns
    assert incast_queue_ns(experiment, senders, 2e6) == pytest.approx(target, rel=within)


def test_swift_alone_on_long_cables_has_the_line() -> None:
    assert measure(Case("swift", delay_us=10, switches=3, senders=1), 1e6).used > 0.99


@pytest.mark.parametrize("switches", [3, 9])
def test_hpcc_sees_the_queue_behind_any_number_of_switches(switches: int) -> None:
    """The senders meet at the last of them."""
    found = measure(Case("hpcc", switches=switches, senders=2, far=True), 1e6)
    assert found.least > 0.9 and found.used > 0.88
    assert found.half_queue < Case("hpcc", switches=switches, senders=2).bdp_bytes / 2


def test_no_tick_goes_without_a_notification() -> None:
    """Twelve to one: a sender's packets are 2/3 us apart, its ticks and the gap between notifications 1 us.

    Its authors' code has marks with every acknowledgement: that is a gap of 0.
    """
    usual, each = (measure(Case(control, senders=12), 1e6) for control in ("dcqcn", "{dcqcn: {cnp_gap: 0us}}"))
    assert usual.longest_queue == pytest.approx(each.longest_queue, rel=0.02)


@pytest.mark.parametrize("control", ["dctcp", "swift", "hpcc", "nscc"])
def test_one_flow_fills_the_line_however_seldom_is_acknowledged(control: str) -> None:
    """Windows of a few packets at 25 Gb/s would wait for the 64th."""
    wanted = 0.92 if control == "hpcc" else 0.99
    assert measure(Case(control, gbps=25, senders=1, ack_every=64), 1e6).used > wanted


def test_nscc_hears_of_each_mark_at_once() -> None:
    """uec.cpp: an acknowledgement goes straight away if the packet is marked."""
    case = Case("nscc", senders=2)
    with star(3, hardware_of(case.experiment)) as f, watched(f, "h1:1") as seen:
        send(f, [(n, 0, 3_000_000, 0) for n in (1, 2)])
    answers = [fr for fr in seen["frames"] if not fr.out and fr.seen]
    assert any(fr.seen > 1 for fr in answers)
    assert all(fr.marked <= 1 for fr in answers) and sum(fr.marked for fr in answers) > 100


def test_nothing_times_out_behind_a_buffer_that_is_slow_to_leave() -> None:
    """DCQCN starts at the line rate: 32 senders fill a switch's buffer, which leaves in 8 ms at 25 Gb/s."""
    found = measure(Case("dcqcn", gbps=25, delay_us=0.1, senders=32), 12e6)
    assert found.longest_queue * 8 / 25e9 > 0.008 and not found.lost
    assert not found.timeouts


@pytest.mark.parametrize("patient", [True, False])
def test_a_flow_that_joins_behind_three_full_switches_waits_for_all_of_them(patient: bool) -> None:
    """Under PFC alone, over a Clos: a third of the default, what one switch takes to empty, is not enough.

    Each buffer of 2 MB takes 5.3 ms to leave at 3 Gb/s.
    """
    fabric = "topology: {clos: {leaves: 5, spines: 2, hosts_per_leaf: 8}}, cable: {rate: 3Gbps}, switch: {buffer: 2MB}"
    experiment = loads(f"name: late\nfabric: {{{fabric}}}")
    hardware, topology = hardware_of(experiment), experiment.fabric.topology
    if not patient:
        hardware = replace(hardware, timeout_ns=hardware.timeout_ns / 3)
    flows = [[rank, 0, 50_000_000, 0.0] for rank in range(8, 39)] + [[39, 0, 100_000, 25e6]]
    with bare_fabric(topology.kind, topology.params, hardware, binary=plain(), sample=FAST) as f:
        f.fabricd.request("start", ranks=[])
        f.fabricd.request("run_until", time_ns=1)
        f.events("held", 60.0)
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=flows)
        f.fabricd.request("run_until", time_ns=50e6)
        f.events("held", 60.0)
        assert not any(drops(f).values())
        assert patient == (sum(nic["local_ack_timeout_err"] for nic in f.counters()["nics"]) == 0)
