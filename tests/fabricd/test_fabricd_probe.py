"""Selective repeat's probe for a lost end (RFC 8985, section 7): when it is sent, and what it repairs.

Times follow from the round trip of a packet of the MTU on an idle star, counted from its start on the cable.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hardware.config import Hardware
from tests.parts.lost_ends import ACK_EVERY, FETCH, FIRST_START, LAST, MTU, ROUND_TRIP, T, lose, lose_last, lossy, sent
from tests.parts.traffic_fabric import drops, nic, send, star, switch
from tests.parts.wire_view import WireFrame, watched


def timeout_ns(answers: int) -> float:
    """After so many round trips of one length: RFC 6298, section 2, its 4 RTTVAR being SRTT at least."""
    return ROUND_TRIP * (1 + max(1.0, 4 * 0.5 * 0.75 ** (answers - 1)))


def last_news(frames: Sequence[WireFrame]) -> float:
    """When the last packet had left, and the last answer had come, before the first probe."""
    end = sent(frames)[LAST].time_ns
    return max([end, *(fr.time_ns for fr in frames if not fr.out and fr.time_ns < end + ROUND_TRIP)])


def test_who_has_heard_of_nothing_probes_where_packets_may_overtake() -> None:
    """All of a first window is lost: 16 times what a hole waits after its end the last packet goes again."""
    after, packets = 5000, 16
    for extra, probes in (({"loss_after_ns": after}, True), ({}, False)):
        hardware = lossy()
        hardware.nic.update(extra)
        with star(2, hardware) as f, watched(f, "h1:1") as seen:
            lose(f, "x", 0, 10_000 + 1000 + (packets + 2) * T)
            send(f, [(1, 0, packets * MTU, 10_000)])
            assert drops(f) == {"fault": packets} and f.nic(1)["retransmitted"] == packets
            assert f.nic(1)["local_ack_timeout_err"] == (not probes)
        if probes:
            frames = sent(seen["frames"])
            assert frames[packets].psn == packets - 1
            probe = frames[packets - 1].time_ns + 16 * after + FETCH
            assert frames[packets].time_ns == pytest.approx(probe, abs=2 * T)


@pytest.mark.parametrize("lost", [1, 2, 8, 40])
def test_a_probe_repairs_the_end_of_a_message(lost: int) -> None:
    """Two round trips after all else the last packet goes again; all others are lost when it has come."""
    with star(2, lossy()) as f, watched(f, "h1:1") as seen:
        lose_last(f, lost)
        (took,) = send(f, [(1, 0, (LAST + 1) * MTU, 10_000)])
        sender = f.nic(1)
        assert drops(f) == {"fault": lost} and sender["retransmitted"] == lost
        assert sender["local_ack_timeout_err"] == 0 and f.nic(0)["duplicate_request"] == 0
    frames = sent(seen["frames"])
    assert [fr.psn for fr in frames[LAST + 1 :]] == [LAST, *range(LAST + 1 - lost, LAST)]
    probe = last_news(seen["frames"]) + timeout_ns((LAST + 1 - lost) // ACK_EVERY) + FETCH
    assert frames[LAST + 1].time_ns == pytest.approx(probe, abs=2 * T)
    others = ROUND_TRIP + FETCH + (lost - 2) * T if lost > 1 else 0
    assert 10_000 + took == pytest.approx(probe + others + ROUND_TRIP, abs=4 * T)


def test_who_has_heard_of_round_trips_goes_by_them_where_packets_may_overtake() -> None:
    hardware = lossy()
    hardware.nic.update({"loss_after_ns": 5000})
    with star(2, hardware) as f, watched(f, "h1:1") as seen:
        lose_last(f, 1)
        send(f, [(1, 0, (LAST + 1) * MTU, 10_000)])
    probe = last_news(seen["frames"]) + timeout_ns(LAST // ACK_EVERY) + FETCH
    assert sent(seen["frames"])[LAST + 1].time_ns == pytest.approx(probe, abs=2 * T)


def test_probes_without_an_answer_double_their_distance() -> None:
    """RFC 9002, section 6.2; no timeout meanwhile."""
    with star(2, lossy()) as f, watched(f, "h1:1") as seen:
        lose(f, "x", FIRST_START + (LAST - 3) * T - T / 2, 30 * ROUND_TRIP)
        send(f, [(1, 0, (LAST + 1) * MTU, 10_000)])
        assert f.nic(1)["local_ack_timeout_err"] == 0
    frames = sent(seen["frames"])
    assert [fr.psn for fr in frames[LAST + 1 :]] == [LAST] * 4 + [LAST - 3, LAST - 2, LAST - 1]
    times = [last_news(seen["frames"]), *(fr.time_ns for fr in frames[LAST + 1 : LAST + 5])]
    waits = [b - a - FETCH for a, b in zip(times, times[1:], strict=False)]
    assert waits == pytest.approx([timeout_ns(3) * 2**n for n in range(4)], abs=2 * T)


def test_what_was_sent_again_last_is_the_probe() -> None:
    """Packets 60 to 62 are lost, and then, sent again, once more: of these 62 was the last one sent."""
    with star(2, lossy()) as f, watched(f, "h1:1") as seen:
        lose(f, "x", FIRST_START + 60 * T - T / 2, 3 * T)
        lose(f, "again", FIRST_START + 64 * T, ROUND_TRIP + FETCH + 4 * T)
        send(f, [(1, 0, (LAST + 1) * MTU, 10_000)])
        sender = f.nic(1)
        assert sender["local_ack_timeout_err"] == 0 and f.nic(0)["duplicate_request"] == 0
    assert [fr.psn for fr in sent(seen["frames"])[LAST + 1 :]] == [60, 61, 62, 62, 60, 61]


def test_a_full_window_is_probed_by_a_new_packet() -> None:
    """RFC 8985, section 7.3: new data, if there is any, even beyond the window."""
    its_nic = {**nic(window=16 * MTU), "recovery": "selective_repeat", "lossless": []}
    hardware = Hardware(switch=switch(headroom=0, lossless=[], alpha=64), nic=its_nic)
    with star(2, hardware) as f, watched(f, "h1:1") as seen:
        lose(f, "x", 20_000, ROUND_TRIP)
        send(f, [(1, 0, 400 * MTU, 10_000)])
        sender, lost = f.nic(1), drops(f)["fault"]
        assert sender["retransmitted"] == lost > 10 and sender["local_ack_timeout_err"] == 0
    frames = sent(seen["frames"])
    probe = next(b for a, b in zip(frames, frames[1:], strict=False) if b.time_ns - a.time_ns > 2 * ROUND_TRIP)
    assert probe.psn == 1 + max(fr.psn for fr in frames if fr.time_ns < probe.time_ns)


def test_a_probe_says_nothing_of_loss() -> None:
    """The last answers are lost, no packet is: NSCC, which takes what is lost out of its window, leaves it."""
    its_nic = {**nic("nscc", rtt_ns=ROUND_TRIP + FETCH), "recovery": "selective_repeat", "lossless": []}
    with star(2, Hardware(switch=switch(headroom=0, lossless=[], alpha=64), nic=its_nic)) as f:
        f.fabricd.request("run_until", time_ns=1)
        f.events("held")
        lost = {"primitive": "frames", "effect": "drop", "ports": ["h0:1"], "for_ns": 2 * ROUND_TRIP}
        f.fabricd.request("inject", fault="x", **lost, at_ns=FIRST_START + 40 * T + ROUND_TRIP)
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[1, 0, (LAST + 1) * MTU, 10_000]])
        windows = []
        for step in range(10):
            f.fabricd.request("run_until", time_ns=10_000 + 2 * (step + 1) * ROUND_TRIP)
            f.events("held")
            windows += [q["window_bytes"] for q in f.counters()["qps"] if q["rank"] == 1]
        assert f.nic(1)["retransmitted"] >= 1 and f.nic(1)["local_ack_timeout_err"] == 0 < drops(f)["fault"]
    assert min(windows) > windows[0] - MTU / 2 > 0


@pytest.mark.parametrize("ack_every", [1, 16, 64])
@pytest.mark.parametrize("senders", [1, 2, 16])
def test_nothing_is_sent_for_nothing(senders: int, ack_every: int) -> None:
    """Queues of up to 1 ms, nothing is lost, and each sender hears of its packets seldom."""
    hardware = lossy(ack_every=ack_every, cable_rate_bps=100e9, timeout_ns=1e8)
    with star(senders + 1, hardware) as f:
        send(f, [(n, 0, 1_000_000 + n, 1000 * n) for n in range(1, senders + 1)])
        assert not drops(f)
        assert [n["retransmitted"] for n in f.counters()["nics"]] == [0] * (senders + 1)


@pytest.mark.parametrize("lossless", [[3], []])
def test_a_pause_is_no_loss(lossless: list[int]) -> None:
    """Packets wait in the switch for 300 us, after round trips of 4: where that can be, nobody probes."""
    its_switch = switch(headroom=100_000, lossless=[3])
    its_nic = {**nic(), "recovery": "selective_repeat", "lossless": lossless}
    hardware = Hardware(switch=its_switch, nic=its_nic, switch_buffer_bytes=10_000_000)
    with star(2, hardware) as f:
        send(f, [(1, 0, 64 * MTU, 0)])
        f.fabricd.request("inject", fault="storm", primitive="params", nic=0, values={"storm": [3]}, for_ns=300_000)
        send(f, [(1, 0, 16 * MTU, 10_000)])
        spurious = f.nic(1)["retransmitted"]
    assert (spurious == 0) if lossless else (1 <= spurious <= 6)
