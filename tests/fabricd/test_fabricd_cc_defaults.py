"""Congestion controls as a default file has them: that nobody starves, and the queue is what its source aims at."""

from __future__ import annotations

import pytest

from tests.parts.control_case import Case, measure
from tests.parts.traffic_fabric import send, star
from tests.parts.wire_view import watched


@pytest.mark.parametrize(("gbps", "ack_every"), [(25, 64), (100, 1), (400, 16), (800, 64)])
def test_nscc_keeps_the_queue_that_it_aims_at(gbps: float, ack_every: int) -> None:
    """Eight to one: the mean queueing delay is target_queue, the idle round trip, however often is acknowledged."""
    case = Case("nscc", gbps=gbps, ack_every=ack_every)
    found = measure(case, 2e6)
    assert found.queue * 8 / gbps == pytest.approx(case.setting.network_rtt_ns, rel=0.1)
    assert found.used > 0.99 and not found.timeouts and not found.lost


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
    from testbed.plan.hardware import hardware_of

    with star(3, hardware_of(case.experiment)) as f, watched(f, "h1:1") as seen:
        send(f, [(n, 0, 3_000_000, 0) for n in (1, 2)])
    answers = [fr for fr in seen["frames"] if not fr.out and fr.seen]
    assert any(fr.seen > 1 for fr in answers)
    assert all(fr.marked <= 1 for fr in answers) and sum(fr.marked for fr in answers) > 100
