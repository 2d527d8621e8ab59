"""Pacing at the cable: a cut acts on the very next frame, what is left of a gap is rescaled, and nobody waits for a
slow queue pair of the same NIC."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import bare_fabric, plain
from tests.parts.traffic_fabric import bounds, drops, frame_bytes, nic, send, star, switch
from tests.parts.wire_view import ACK, CNP, WireFrame, of_rank, watched
from tests.parts.wire_view import frames as captured
from topologies.graph import frames

LINE, MTU = 100e9, 4096
BITS = (frame_bytes() + 24) * 8
SER = BITS / LINE * 1e9
ALWAYS = {"3": {"kmin_bytes": 1, "kmax_bytes": 1, "pmax": 1.0}}
STILL = {"rate_timer": 1e12, "alpha_timer": 1e12, "byte_counter": 0, "g": 0}  # nothing but the cuts


def hardware(control: str = "dcqcn paper", pfc: bool = False, line: float = LINE, **values: float) -> Hardware:
    more = {"headroom": 200_000, "alpha": 1 / 1024} if pfc else {"headroom": 0, "lossless": [], "alpha": 64}
    return Hardware(
        cable_rate_bps=line, pcie_rate_bps=512e9, switch_buffer_bytes=4 * 10**6 if pfc else 10**9, timeout_ns=1e9,
        switch=switch(ecn=ALWAYS, **more), nic=nic(control, rate_bps=line, **values),
    )  # fmt: skip


def starts(frames: Sequence[WireFrame], qp: int | None = None) -> list[int]:
    return [fr.time_ns for fr in frames if fr.out and fr.opcode != ACK and (qp is None or fr.dst_qp == qp)]


def test_a_cut_spaces_the_very_next_frame_though_much_is_fetched() -> None:
    """Two senders of a full buffer each: what waits behind the first notification was fetched at the cable's rate."""
    with star(3, hardware(**STILL, cnp_gap=1e9)) as f, watched(f, "h1:1") as seen:
        send(f, [(1, 0, 2_000_000, 0), (2, 0, 200_000, 0)])
        (qp,) = [q for q in f.counters()["qps"] if q["rank"] == 1]
    (cut,) = [fr.time_ns for fr in seen["frames"] if fr.opcode == CNP and not fr.out]
    left = starts(seen["frames"])
    before, after = [t for t in left if t <= cut][1:], [t for t in left if t > cut]
    assert qp["rate_bps"] == LINE / 2
    assert all(b - a == pytest.approx(SER, abs=1) for a, b in zip(before, before[1:], strict=False))
    # what was left of the gap takes twice as long, and so does each one from then on: the fetched ones, too
    assert after[0] - cut == pytest.approx(2 * (SER - (cut - before[-1])), abs=2)
    assert all(b - a == pytest.approx(2 * SER, abs=1) for a, b in zip(after, after[1:], strict=False))


def test_what_is_left_of_a_gap_scales_with_every_change_of_rate() -> None:
    """Cuts, increases by a timer that runs out within a gap: bits that may go are the integral of the rate."""
    values = {"min_rate": 1e9, "rate_timer": 1700, "alpha_timer": 1e12, "byte_counter": 0, "g": 0, "fast_recovery": 100}
    with star(3, hardware(**values, cnp_gap=4000)) as f, watched(f, "h1:1", 100) as seen:
        send(f, [(1, 0, 400_000, 0), (2, 0, 400_000, 0)])
    rate, target, timer = LINE, LINE, float("inf")
    changes: list[tuple[float, float]] = [(0.0, LINE)]
    cnps = [fr.time_ns for fr in seen["frames"] if fr.opcode == CNP and not fr.out]
    end = starts(seen["frames"])[-1]
    while min([timer, *cnps[:1]]) < end:
        if cnps and cnps[0] < timer:
            timer = cnps.pop(0)
            rate, target = max(rate / 2, 1e9), rate
            changes.append((timer, rate))
            timer += 1700
        else:
            rate = (rate + target) / 2
            changes.append((timer, rate))
            timer += 1700
    changes.append((float("inf"), 0))

    def bits(a: float, b: float) -> float:
        pieces = zip(changes, changes[1:], strict=False)
        return sum(r * 1e-9 * max(0.0, min(b, until) - max(a, since)) for (since, r), (until, _) in pieces)

    left = starts(seen["frames"])
    gaps = [bits(a, b) for a, b in zip(left, left[1:], strict=False)]
    assert min(b - a for a, b in zip(left, left[1:], strict=False)) < 1.1 * SER and len(set(changes)) > 10
    inside = [t for t, _ in changes for a, b in zip(left, left[1:], strict=False) if a + 2 * SER < t < b - SER]
    assert len(inside) >= 3
    assert all(g == pytest.approx(BITS, abs=2 * LINE * 1e-9) for g in gaps), str([round(g - BITS) for g in gaps])


@pytest.mark.parametrize("cut_first", [True, False])
def test_a_fast_queue_pair_does_not_wait_for_a_slow_one(cut_first: bool) -> None:
    """One NIC, one queue pair at 1 Gb/s with a full buffer fetched; the other gets the rest of the cable."""
    flows = [(1, 0, 1_000_000, 0.0), (2, 0, 60_000, 0.0), (2, 3, 4096, 0.0)]  # meet at h0, so that 1 -> 0 is cut
    with star(4, hardware(**STILL, min_rate=1e9, cnp_gap=50)) as f, watched(f, "h1:1") as seen:
        send(f, [*flows, (1, 3, 3_000_000, 20_000.0 if cut_first else 10.0)])
        qps = {q["peer"]: q for q in f.counters()["qps"] if q["rank"] == 1}
    assert qps[0]["rate_bps"] < 0.05 * LINE and qps[3]["rate_bps"] == LINE
    assert qps[0]["peer_qp"] != qps[3]["peer_qp"]
    slow, fast = (starts(seen["frames"], qps[n]["peer_qp"]) for n in (0, 3))
    quiet = [t for t in fast if t > (25_000 if cut_first else 15_000)]
    taken = [sum(a < t < b for t in slow) for a, b in zip(quiet, quiet[1:], strict=False)]
    gaps = [b - a for a, b in zip(quiet, quiet[1:], strict=False)]
    assert len(gaps) > 500 and sum(taken) > 2
    assert all(g == pytest.approx(SER * (1 + n), abs=2) for g, n in zip(gaps, taken, strict=True))


@pytest.mark.parametrize(("share", "gap"), [(0.99, 1), (1.01, 16), (0.01, 1)])
def test_each_packet_of_a_slow_queue_pair_is_answered(share: float, gap: int) -> None:
    """Where sixteen, the usual gap, take more than a quarter of the timeout; here at 1 Gb/s.

    If one takes longer than the timeout, that waits for the rate, too.
    """
    h = replace(hardware(**STILL, min_rate=1e9, cnp_gap=50), timeout_ns=share * 4 * 16 * BITS)
    with star(3, h) as f, watched(f, "h1:1") as seen:
        send(f, [(1, 0, 400_000, 0), (2, 0, 60_000, 0)])
        (qp,) = [q for q in f.counters()["qps"] if q["rank"] == 1]
        assert f.nic(1)["local_ack_timeout_err"] == 0
    slow = [t for t in starts(seen["frames"]) if t > 50_000]
    answers = [fr.time_ns for fr in seen["frames"] if not fr.out and fr.opcode == ACK and fr.time_ns > 50_000]
    assert qp["rate_bps"] == 1e9 and len(slow) > 40
    assert len(answers) == pytest.approx(len(slow) / gap, abs=1.1)


def rates(line: float, packets: int, times: Sequence[float]) -> list[float]:
    """Of flows that took so long, as shares of the cable."""
    idle = bounds.base_rtt_ns(
        1, rate_bps=line, delay_ns=500, latency_ns=500, mtu=MTU, pcie_bps=512e9, pcie_ns=500
    )  # fmt: skip
    return [packets * frames.ser_ns(frame_bytes(), line) / (t - idle) for t in times]


@pytest.mark.parametrize("line", [25e9, 100e9, 400e9])
@pytest.mark.parametrize(("rate", "beside"), [(0.996, 1), (0.4, 1), (0.996, 3), (0.2, 3)])
def test_a_paced_queue_pair_gets_its_rate_or_its_turns_beside_others_at_full_rate(
    line: float, rate: float, beside: int
) -> None:
    """Max-min fair: queue pairs of a NIC take turns, and one of them wants no more than its rate."""
    packets, later = 1500, 8e15 / line
    flows = [(2, 0, 60_000, 0.0), (1, 0, 3 * packets * MTU, 0.0)]  # meet at h0, so that 1 -> 0 is cut to min_rate
    flows += [(1, 3 + i, packets * MTU, later) for i in range(beside)]
    with star(3 + beside, hardware(line=line, **STILL, min_rate=rate * line, cnp_gap=50)) as f:
        times = send(f, flows)
        qps = {q["peer"]: q["rate_bps"] / line for q in f.counters()["qps"] if q["rank"] == 1}
    assert qps == {0: rate, **{3 + i: 1.0 for i in range(beside)}}
    paced = min(rate, 1 / (beside + 1))
    others = rates(line, packets, times[2:])
    # the first of the others finds room for a whole buffer before the paced one's turn: 31 of 1500 packets
    assert others == pytest.approx([(1 - paced) / beside] * beside, rel=0.035)
    assert 1 - sum(others) == pytest.approx(paced, abs=0.03)


def test_paced_queue_pairs_beside_each_other_all_get_their_rates() -> None:
    flows = [(n, to, 1500 * MTU, 0.0) for to in (0, 3, 4, 5) for n in (1, 2)]
    with star(6, hardware(**STILL, min_rate=0.24 * LINE, cnp_gap=50)) as f:
        times = send(f, flows)
    got = rates(LINE, 1500, times)
    assert min(got) >= 0.238 and max(got) < 0.26, got  # a little more than their rate: they begin at the cable's


@pytest.mark.parametrize("cnp_gap", [1e9, 2e3])
def test_a_pause_holds_what_is_fetched_and_its_pace_goes_on_after_it(cnp_gap: float) -> None:
    """Three senders at half the cable's rate each, or less yet: the switch pauses them, and nothing is lost."""
    with star(4, hardware(pfc=True, **STILL, min_rate=0.2 * LINE, cnp_gap=cnp_gap)) as f, watched(f, "h1:1") as seen:
        send(f, [(n, 0, 1_000_000, 0) for n in (1, 2, 3)])
        assert not drops(f) and f.nic(1)["retransmitted"] == f.nic(1)["local_ack_timeout_err"] == 0
        (p,) = [p for p in f.counters()["ports"] if p["node"] == "h1" and p["port"] == 1]
    assert p["priorities"]["rx_prio3_pause"] > 0
    cut, *more = [fr.time_ns for fr in seen["frames"] if fr.opcode == CNP and not fr.out]
    assert bool(more) == (cnp_gap < 1e9)
    gaps = [b - a for a, b in zip(starts(seen["frames"]), starts(seen["frames"])[1:], strict=False) if a > cut]
    assert min(gaps) > 2 * SER - 2 and max(gaps) > 3 * SER


def test_go_back_n_takes_back_what_is_deferred_and_keeps_the_pace() -> None:
    """One packet is lost: those that wait for their time are fetched anew, and the cable sees no gap but the rate's."""
    rate, lost_ns = 5e9, 150_000.0
    with star(3, hardware(**STILL, min_rate=rate, cnp_gap=50)) as f, watched(f, "h1:1") as seen:
        drop = {"primitive": "frames", "effect": "drop", "ports": ["h1:1"], "select": {"first": 1}}
        f.fabricd.request("inject", fault="l", **drop, at_ns=lost_ns)
        send(f, [(1, 0, 300_000, 0), (2, 0, 60_000, 0)])
        nic1 = f.nic(1)
    left = [t for t in starts(seen["frames"]) if t > 50_000]
    gaps = [b - a for a, b in zip(left, left[1:], strict=False)]
    assert gaps[:-1] == pytest.approx([BITS / rate * 1e9] * (len(gaps) - 1), abs=2) and left[-1] > 2 * lost_ns
    assert nic1["local_ack_timeout_err"] == 0 and nic1["retransmitted"] == 2  # and the next one waited


def test_what_go_back_n_takes_back_leaves_the_transmit_buffer_to_others() -> None:
    """That has room for what PCIe keeps the cable busy with, and no more: another queue pair is as fast as before."""
    h = replace(hardware(**STILL, min_rate=5e9, cnp_gap=50), tx_buffer_bytes=2 * frame_bytes())
    with star(3, h) as f:
        (before,) = send(f, [(1, 2, 100_000, 0)])
        drop = {"primitive": "frames", "effect": "drop", "ports": ["h1:1"], "select": {"first": 1}}
        f.fabricd.request("inject", fault="l", **drop, at_ns=150_000.0)
        send(f, [(1, 0, 300_000, 0), (2, 0, 60_000, 0)])
        assert f.nic(1)["retransmitted"] == 2
        (after,) = send(f, [(1, 2, 100_000, 0)])
    assert after == pytest.approx(before, abs=1e-3)


def test_nothing_leaves_a_queue_pair_that_has_failed() -> None:
    """At a packet each 6.7 us all is lost from 150 us on: the last timeout begins with the last answer (IB 9.7.6.1.3,
    10.3.1: in the error state nothing is sent), and what waits for its time then never leaves.
    """
    rate, timeout = 5e9, 40_000.0
    h = replace(hardware(**STILL, min_rate=rate, cnp_gap=50), timeout_ns=timeout, retry=1)
    with star(3, h) as f, watched(f, "h1:1") as seen:
        drop = {"primitive": "frames", "effect": "drop", "ports": ["h1:1"], "select": {"first": 1 << 20}}
        f.fabricd.request("inject", fault="l", **drop, at_ns=150_000.0)
        flows = [(1, 0, 300_000, 0), (2, 0, 60_000, 0)]
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=flows)
        f.fabricd.request("quiesce", 120.0)
        assert f.nic(1)["local_ack_timeout_err"] == 2
    heard = max(fr.time_ns for fr in seen["frames"] if fr.opcode == ACK and not fr.out)
    assert 0 <= heard + 2 * timeout - starts(seen["frames"])[-1] <= BITS / rate * 1e9


@pytest.mark.parametrize(("packets", "gap"), [(8, 2), (16, 4)])
def test_a_window_brings_four_acknowledgements(packets: int, gap: int) -> None:
    """With a window below 4 x ack_every packets: else it would wait for the last of its packets to be answered."""
    with star(2, hardware("swift", window=packets * MTU)) as f, watched(f, "h1:1") as seen:
        send(f, [(1, 0, 1024 * MTU, 0)])
    numbers = [fr.psn for fr in seen["frames"] if fr.opcode == ACK and not fr.out]
    assert statistics.mode(b - a for a, b in zip(numbers, numbers[1:], strict=False)) == gap


def test_who_asks_because_a_round_trip_is_over_counts_for_those_behind() -> None:
    """HPCC acts once a round trip, on the answer to a packet that asks at the cable: the next one that asks for its
    turn is a whole gap behind that, if it was not built before.
    """
    with star(2, hardware("hpcc", window=64 * MTU)) as f, watched(f, "h1:1") as seen:
        send(f, [(1, 0, 1024 * MTU, 0)])
    numbers = [fr.psn for fr in seen["frames"] if fr.opcode == ACK and not fr.out]
    gaps = [b - a for a, b in zip(numbers, numbers[1:], strict=False)][20:]
    assert statistics.mode(gaps) == 5 and 1 in gaps
    assert not [gap for gap in gaps if 1 < gap < 5], gaps


def test_what_comes_late_while_its_second_time_waits_is_not_sent_again() -> None:
    """Selective repeat at a packet each 6.7 us: one comes 9 us late, when the next one has shown that it is missing."""
    h = hardware(**STILL, min_rate=5e9, cnp_gap=50)
    h = replace(h, nic={**h.nic, "recovery": "selective_repeat", "reorder_packets": 64})
    with star(3, h) as f, watched(f, "h1:1") as seen:
        late = {"primitive": "frames", "effect": "delay", "delay_ns": 9000, "reorder": True, "select": {"first": 1}}
        f.fabricd.request("inject", fault="l", **late, ports=["h1:1"], at_ns=150_000)
        send(f, [(1, 0, 300_000, 0), (2, 0, 60_000, 0)])
        nic0, nic1 = f.counters()["nics"][:2]
    assert (nic0["out_of_sequence"], nic0["duplicate_request"], nic1["retransmitted"]) == (1, 0, 0)
    left = [t for t in starts(seen["frames"]) if t > 50_000]
    assert all(b - a == pytest.approx(BITS / 5, abs=2) for a, b in zip(left, left[1:-1], strict=False))


def test_what_has_been_sent_is_counted_at_the_cable() -> None:
    with star(3, hardware(**STILL, min_rate=1e9, cnp_gap=1e9)) as f, watched(f, "h1:1", 500) as seen:
        send(f, [(1, 0, 1_000_000, 0), (2, 0, 200_000, 0)])
    left = starts(seen["frames"])
    for time, sent in of_rank(seen["qp_sent"], 1, "bytes"):
        whole = sum(t < time for t in left)
        assert sent in (whole * MTU, (whole + 1) * MTU, 1_000_000), (time, sent)


def test_what_has_waited_for_its_rate_waits_at_the_switch_like_all_others() -> None:
    """A queue pair at 0.4 of the cable's rate, and another one that brings a queue before it is cut: first in, first
    out, and both have equal ways to the switch.
    """
    flows = [(2, 0, 60_000, 0.0), (1, 0, 1_000_000, 0.0), (3, 0, 200_000, 40_000.0)]
    h = hardware(**STILL, min_rate=0.4 * LINE, cnp_gap=50)
    with bare_fabric("star", {"hosts": 4}, h, binary=plain(), sample=10**9) as f:  # along the fast path
        f.fabricd.request("start", ranks=[])
        paths = {rank: f.directory / f"h{rank}.pcapng" for rank in (0, 1, 3)}
        for rank, path in paths.items():
            f.fabricd.request("capture", port=f"h{rank}:1", path=str(path))
        send(f, flows)
        for path in paths.values():
            f.fabricd.request("capture_stop", path=str(path))
        seen = {rank: captured(path) for rank, path in paths.items()}
    sent = [fr for rank in (1, 3) for fr in seen[rank] if fr.out and fr.time_ns > 40_000]
    left = [(fr.dst_qp, fr.psn) for fr in sorted(sent, key=lambda fr: fr.time_ns)]
    came = [(fr.dst_qp, fr.psn) for fr in seen[0] if not fr.out and fr.opcode != ACK]
    assert came[-len(left) :] == left and len(left) > 200
