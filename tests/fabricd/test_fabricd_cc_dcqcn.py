"""DCQCN against a model of its own: every notification, every timer, every byte event; fairness at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hardware import bounds, cc
from hardware.config import Hardware
from tests.pages import congestion_control
from tests.parts.incast_model import Net
from tests.parts.reference_controls import Dcqcn
from tests.parts.traffic_fabric import frame_bytes, nic, send, star, switch
from tests.parts.wire_view import ACK, CNP, of_rank, watched

LINE = 400e9
FRAME = frame_bytes()
RANDOM_ECN = {"3": {"kmin_bytes": 50_000, "kmax_bytes": 50_000, "pmax": 1.0}}
PLAIN = {"min_rate": 1e8, "ai": 2e9, "hai": 9e9, "g": 1 / 16, "alpha_timer": 11e3, "rate_timer": 7e3,
         "byte_counter": 0, "fast_recovery": 3, "decrease_gap": 0, "cnp_gap": 20e3, "first_cut": 0,
         "clamp_target": 0}  # fmt: skip


def lossy(ecn: dict[str, Any], **values: float) -> Hardware:
    """Nothing pauses and nothing is dropped: what is seen is the control's doing alone."""
    return Hardware(
        switch_buffer_bytes=10**9,
        switch=switch(headroom=0, lossless=[], alpha=64, ecn=ecn),
        nic=nic("dcqcn", **values),
        timeout_ns=1e9,
    )


class Model:
    """Zhu et al., figure 7 and section 5: written from the paper, not from fabricd."""

    def __init__(self, p: dict[str, float]) -> None:
        self.p, self.rc, self.rt, self.a = p, LINE, LINE, 1.0
        self.t = self.b = 0
        self.next_alpha = self.next_rate = self.last_cut = float("-inf")
        self.told = False

    def increase(self) -> None:
        counts = (self.t, self.b) if self.p["byte_counter"] else (self.t, self.t - 1)
        if max(counts) > self.p["fast_recovery"]:
            self.rt += self.p["hai"] if min(counts) > self.p["fast_recovery"] else self.p["ai"]
        self.rt = min(self.rt, LINE)
        self.rc = (self.rt + self.rc) / 2

    def until(self, now: float) -> None:
        while self.told and min(self.next_alpha, self.next_rate) <= now:
            if self.next_alpha <= self.next_rate:
                self.a *= 1 - self.p["g"]
                self.next_alpha += self.p["alpha_timer"]
            else:
                self.t += 1
                self.increase()
                self.next_rate += self.p["rate_timer"]

    def notified(self, now: float) -> None:
        self.until(now)
        if now - self.last_cut >= self.p["decrease_gap"]:
            self.rt, self.rc = self.rc, max(self.rc * (1 - self.a / 2), self.p["min_rate"])
            self.t = self.b = 0
            self.next_rate, self.last_cut = now + self.p["rate_timer"], now
        self.a = (1 - self.p["g"]) * self.a + self.p["g"]
        self.next_alpha = now + self.p["alpha_timer"]
        self.told = True


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= 2  # bits/s: samples are whole numbers


@pytest.mark.parametrize("change", [{}, {"decrease_gap": 45e3}, {"fast_recovery": 1, "g": 1 / 256}])
def test_the_rate_after_each_notification_and_each_timer(change: dict[str, float]) -> None:
    p = PLAIN | change
    with star(3, lossy(RANDOM_ECN, **p)) as f:
        with watched(f, "h1:1") as seen:
            send(f, [(1, 0, 24_000_000, 0), (2, 0, 6_000_000, 0)])
        nics = f.counters()["nics"]
        (qp,) = [q for q in f.counters()["qps"] if q["rank"] == 1]
    notifications = [fr.time_ns for fr in seen["frames"] if fr.opcode == CNP and not fr.out]
    assert len(notifications) > 5
    counted = {
        "cnps": len(notifications),
        "retransmitted": 0,
        "tx_bytes": 24_000_000,
        "tx_packets": -(-24_000_000 // 4096),
    }
    assert qp.items() >= counted.items()
    assert all(fr.dscp == 48 for fr in seen["frames"] if fr.opcode == CNP)
    gaps = [b - a for a, b in zip(notifications, notifications[1:], strict=False)]
    assert min(gaps) > p["cnp_gap"] * 0.9  # sent so far apart; the way back varies by a frame or two
    # every sampled rate, at each point of the grid, is the model's
    model, left, compared = Model(p), list(notifications), set()
    for time, rate in of_rank(seen["qp_rate"], 1, "rate_bps"):
        while left and left[0] < time - 1:
            model.notified(left.pop(0))
        if (left and abs(left[0] - time) <= 1) or abs(time - model.next_rate) <= 1:
            continue  # captures are in whole ns
        model.until(time)
        assert _close(rate, model.rc), (time, rate, model.rc)
        compared.add(round(rate))
    assert len(compared) > 20
    assert nics[1]["rp_cnp_handled"] + nics[1]["rp_cnp_ignored"] == len(notifications)
    assert (nics[1]["rp_cnp_ignored"] > 0) == (p["decrease_gap"] > p["cnp_gap"])
    assert nics[0]["np_cnp_sent"] == nics[1]["rp_cnp_handled"] + nics[1]["rp_cnp_ignored"] + sum(
        nics[2][k] for k in ("rp_cnp_handled", "rp_cnp_ignored")
    )


def test_increases_by_bytes_follow_the_bytes_sent() -> None:
    """No timer: after the last notification the rate's steps are those of the byte counter, so many bytes apart."""
    p = PLAIN | {"rate_timer": 1e12, "byte_counter": 96 * FRAME, "cnp_gap": 1e9}
    with star(3, lossy(RANDOM_ECN, **p)) as f, watched(f, "h1:1") as seen:
        send(f, [(1, 0, 6_000_000, 0), (2, 0, 1_000_000, 0)])
    assert sum(fr.opcode == CNP and not fr.out for fr in seen["frames"]) == 1
    model = Model(p)
    model.notified(0)
    rates, wanted = [r for _, r in of_rank(seen["qp_rate"], 1, "rate_bps")][1:], []
    for _ in rates:
        wanted.append(model.rc)
        model.b += 1
        model.increase()
    assert len(rates) > 8 and all(_close(r, w) for r, w in zip(rates, wanted, strict=True))
    sent = dict(of_rank(seen["qp_sent"], 1, "bytes"))
    times = [t for t, _ in of_rank(seen["qp_rate"], 1, "rate_bps")][1:]
    for before, after in zip(times[1:], times[2:], strict=False):
        between = [b for t, b in sent.items() if before <= t <= after]
        assert (between[-1] - between[0]) * FRAME / 4096 == pytest.approx(96 * FRAME, abs=2 * LINE / 8 * 1e-6)


TICKS = {"min_rate": 1e9, "ai": 2e9, "hai": 9e9, "g": 1 / 16, "alpha_timer": 1e3, "rate_timer": 9e3, "byte_counter": 0,
         "fast_recovery": 1, "decrease_gap": 4e3, "cnp_gap": 6e3, "first_cut": 1, "clamp_target": 1}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"clamp_target": 0},
        {"cnp_gap": 30e3},
        {"first_cut": 0, "decrease_gap": 0},
        {"clamp_target": 2, "byte_counter": 36 * FRAME},
    ],
)
def test_armed_cuts_and_targets_that_stay(change: dict[str, float]) -> None:
    """Ticks from the first notification on: no cut before the first, alpha falls between notifications, the target
    stays until the rate timer, or the byte counter, has run out; one additive step, then hyper ones.  Each sampled rate
    is the model's."""
    p = TICKS | change
    with star(3, lossy(RANDOM_ECN, **p)) as f, watched(f, "h1:1") as seen:
        send(f, [(1, 0, 12_000_000, 0), (2, 0, 4_000_000, 0)])
    events = [fr for fr in seen["frames"] if fr.opcode != ACK and fr.out != (fr.opcode == CNP)]
    first, *more = [fr.time_ns for fr in events if fr.opcode == CNP]
    for before, after in zip([first, *more], more[:3], strict=False):  # the flow's packets are near each other still
        assert after - before > 0.8 * p["cnp_gap"]
    model, compared = Dcqcn(Net(rate_bps=LINE), p), set()
    for time, rate in of_rank(seen["qp_rate"], 1, "rate_bps"):
        while events and events[0].time_ns < time - 1:
            event = events.pop(0)
            model.advance(event.time_ns)
            if event.opcode == CNP:
                model.notified(event.time_ns)
            else:
                model.sent(event.time_ns, FRAME + 24)
        near = min(abs(time - t) for t in (model.next_timer_ns(), model.alpha_at, *(fr.time_ns for fr in events[:1])))
        if near <= 1:
            continue  # captures tell the nearest ns
        model.advance(time)
        assert _close(rate, model.rate_bps), (time, rate, model.rate_bps)
        compared.add((time, round(rate)))
    cut = min(t for t, r in compared if r < LINE)
    assert (cut - first > 3e3) == bool(p["first_cut"])
    assert len(compared) > 8


def test_hyper_increase_needs_the_byte_counter_too() -> None:
    p = PLAIN | {"rate_timer": 5e3, "byte_counter": 10e6, "ai": 1e9, "hai": 50e9, "cnp_gap": 15e3}
    with star(3, lossy(RANDOM_ECN, **p)) as f, watched(f, "h1:1") as seen:
        send(f, [(1, 0, 8_000_000, 0), (2, 0, 3_000_000, 0)])
    cnps = [fr.time_ns for fr in seen["frames"] if fr.opcode == CNP and not fr.out]
    steps = [r for t, r in of_rank(seen["qp_rate"], 1, "rate_bps") if t > cnps[-1] + 5e3][:8]
    model = Model(p)
    for time in cnps:
        model.notified(time)
    assert model.rt < 0.7 * LINE and len(steps) == 8  # room to grow, and 10 MB have not gone: additive, never hyper
    for k, rate in enumerate(steps):
        model.until(cnps[-1] + 5e3 * (k + 1))
        assert _close(rate, model.rc)


@pytest.mark.parametrize(("gbps", "ms"), [(100, 40), (400, 10)])
def test_four_flows_share_fairly(gbps: int, ms: int) -> None:
    """Jain's index of the bytes that four flows get into one link in the second half of their time, set `scaled`."""
    rate = gbps * 1e9
    kmin, kmax, pmax = bounds.ecn_profile(rate)
    ecn = {"3": {"kmin_bytes": kmin, "kmax_bytes": kmax, "pmax": pmax}}
    headroom = bounds.headroom_bytes(rate, 500, 4096)
    h = Hardware(cable_rate_bps=rate, pcie_rate_bps=1.28 * rate, switch=switch(headroom=headroom, ecn=ecn),
                 nic=nic("dcqcn scaled", rate_bps=rate))  # fmt: skip
    size = int(rate / 8 * ms * 1e-3 / 4)
    with star(5, h) as f, watched(f, "h1:1", 10_000) as seen:
        times = send(f, [(n, 0, size, 20_000 * n) for n in range(1, 5)])
    end = min(t + 20_000 * n for n, t in enumerate(times, 1))
    got = []
    for rank in range(1, 5):
        sent = [(t, b) for t, b in of_rank(seen["qp_sent"], rank, "bytes") if end / 2 < t <= end]
        got.append(sent[-1][1] - sent[0][1])
    assert sum(got) ** 2 / (4 * sum(x * x for x in got)) >= 0.99, got
    assert sum(got) * 8e9 / (end / 2) > 0.8 * rate


def test_named_sets_are_those_of_the_literature() -> None:
    s = cc.Setting(100e9, 8000, 4096)
    dcqcn = cc.CONTROLS["dcqcn"]
    sets = {name: dcqcn.values(s, {}, name) for name in dcqcn.sets}
    assert sets["paper"].items() >= {
        "byte_counter": 10e6, "rate_timer": 55e3, "ai": 40e6, "g": 1 / 256, "cnp_gap": 50e3, "alpha_timer": 55e3,
        "fast_recovery": 5,
    }.items()  # fmt: skip
    assert sets["ns3_rdma"].items() >= {
        "rate_timer": 60e3, "byte_counter": 300_000, "ai": 40e6, "hai": 200e6, "cnp_gap": 50e3, "fast_recovery": 5,
    }.items()  # fmt: skip
    armed = {"first_cut": 1, "clamp_target": 1}
    assert sets["hpcc"].items() >= {
        "alpha_timer": 1e3, "decrease_gap": 4e3, "rate_timer": 300e3, "fast_recovery": 1, "ai": 20e6, "hai": 200e6,
        "min_rate": 1e9, "byte_counter": 0, **armed,
    }.items()  # fmt: skip
    assert sets["simai"].items() >= {
        "rate_timer": 900e3, "ai": 50e6, "hai": 100e6, "min_rate": 100e6, "decrease_gap": 4e3, **armed
    }.items()  # fmt: skip
    assert sets["paper"].items() >= {"first_cut": 0, "clamp_target": 0}.items() <= sets["scaled"].items()
    assert next(iter(sets)) == "hpcc"
    assert sets["connectx5"].items() >= {
        "rate_timer": 300e3, "byte_counter": 32767, "fast_recovery": 1, "ai": 5e6, "hai": 50e6, "decrease_gap": 4e3,
        "g": 5 / 1024, "cnp_gap": 2e3, "min_rate": 1e6, **armed,
    }.items()  # fmt: skip


def test_the_page_holds_every_parameter() -> None:
    page = Path(__file__).parents[2] / "docs" / "congestion-control.md"
    written = congestion_control.tables() in page.read_text()
    assert written, "python -m tests.pages.congestion_control prints what it should hold"
