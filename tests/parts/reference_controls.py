"""Congestion controls for incast_model, each written from its source alone; `p` are its parameters by name."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tests.parts.incast_model import NEVER, Ack, Control, Net, Stamp

BLOCK, HOP = 16, 16  # telemetry on the wire (docs/congestion-control.md): there with room for five hops, back with one


class Unlimited(Control):
    """No control; with a window if `p` has one."""

    def __init__(self, net: Net, p: Mapping[str, float]) -> None:
        super().__init__(net)
        self.window_bytes = p.get("window") or None


class Telemetry(Control):
    telemetry = (BLOCK, BLOCK)

    def __init__(self, net: Net, p: Mapping[str, float]) -> None:
        super().__init__(net)
        self.p = p
        self.bdp = net.rate_bps / 8 * p.get("base_rtt", net.base_rtt_ns) * 1e-9

    def paced(self, bps: float) -> float:
        return max(min(bps, self.line_bps), self.p["min_rate"])


class Hpcc(Telemetry):
    """Li et al., SIGCOMM 2019, algorithm 1; bounds of the rate as in the authors' rdma-hw.cc (UpdateRateHp)."""

    telemetry = (BLOCK + 5 * HOP, BLOCK + HOP)

    def __init__(self, net: Net, p: Mapping[str, float]) -> None:
        super().__init__(net, p)
        self.base = p["base_rtt"] * 1e-9
        self.window_bytes = self.wc = self.bdp
        self.u, self.stage = 1.0, 0
        self.last: Stamp | None = None

    def may_send(self, under_way: int) -> bool:
        """IsWinBound of rdma-queue-pair.cc."""
        assert self.window_bytes is not None
        return under_way < self.window_bytes

    def measure(self, old: Stamp, new: Stamp) -> float:
        tau = (new.time_ns - old.time_ns) * 1e-9
        if tau <= 0:
            return self.u
        capacity = self.line_bps / 8
        u = min(new.queue_bytes, old.queue_bytes) / (capacity * self.base)
        u += (new.sent_bytes - old.sent_bytes) / tau / capacity
        tau = min(tau, self.base)
        self.u = (1 - tau / self.base) * self.u + tau / self.base * u
        return self.u

    def acked(self, now: float, ack: Ack) -> None:
        old, self.last = self.last, ack.stamp
        round_over = self.round_over(ack)
        if old is None:
            return
        u, eta, step = self.measure(old, ack.stamp), self.p["eta"], self.p["ai"] / 8 * self.base
        multiply = u >= eta or self.stage >= self.p["max_stage"]
        w = (self.wc / (u / eta) if multiply else self.wc) + step
        self.rate_bps = self.paced(w * 8 / self.base)
        self.window_bytes = self.rate_bps / 8 * self.base
        if round_over:
            self.stage = 0 if multiply else self.stage + 1
            self.wc = self.window_bytes


class Timely(Telemetry):
    """Mittal et al., SIGCOMM 2015, algorithm 1, once a round trip (HPCC authors' rdma-hw.cc: UpdateRateTimely).

    From the authors' published snippet: five steps at once from the fifth negative gradient in a row, in whatever
    region it falls; one step takes at most half.
    """

    before, diff, row = 0.0, 0.0, 0

    def __init__(self, net: Net, p: Mapping[str, float]) -> None:
        super().__init__(net, p)
        self.window_bytes = p.get("window") or None

    def acked(self, now: float, ack: Ack) -> None:
        if not self.round_over(ack):
            return
        p, rtt = self.p, ack.rtt_ns
        self.diff = (1 - p["ewma"]) * self.diff + p["ewma"] * (rtt - (self.before or rtt))
        self.before = rtt
        gradient = self.diff / p["min_rtt"]
        self.row = self.row + 1 if gradient < 0 else 0
        if rtt < p["t_low"]:
            rate = self.rate_bps + p["ai"]
        elif rtt > p["t_high"]:
            rate = self.rate_bps * (1 - p["beta"] * (1 - p["t_high"] / rtt))
        elif gradient <= 0:
            rate = self.rate_bps + (5 if self.row >= p["hai_after"] else 1) * p["ai"]
        else:
            rate = self.rate_bps * (1 - p["beta"] * gradient)
        self.rate_bps = self.paced(max(rate, self.rate_bps * (1 - p["max_decrease"])))


class Swift(Telemetry):
    """Kumar et al., SIGCOMM 2020, algorithm 1 (the fabric's window alone; a window below one packet paces)."""

    def __init__(self, net: Net, p: Mapping[str, float]) -> None:
        super().__init__(net, p)
        self.w, self.cut = self.bdp / net.mtu, -NEVER  # in packets
        self.window_bytes = self.bdp

    def target(self) -> float:
        p = self.p
        a = p["flow_range"] / (p["flow_min_window"] ** -0.5 - p["flow_max_window"] ** -0.5)
        b = -a / math.sqrt(p["flow_max_window"])
        return p["base_target"] + p["hop_scale"] + max(0.0, min(a / math.sqrt(self.w) + b, p["flow_range"]))

    def acked(self, now: float, ack: Ack) -> None:
        p, rtt, target, before = self.p, ack.rtt_ns, self.target(), self.w
        if rtt < target:
            self.w += ack.packets * p["ai_packets"] / (self.w if self.w >= 1 else 1)
        elif now - self.cut >= rtt - self.clock_ns:
            self.w *= max(1 - p["beta"] * (rtt - target) / rtt, 1 - p["max_decrease"])
        self.w = max(min(self.w, p["window"] / self.net.mtu), p["min_window"])
        if self.w < before:
            self.cut = now
        self.window_bytes = self.w * self.net.mtu
        self.rate_bps = self.line_bps
        if self.w < 1:
            wire = self.net.mtu + 58 + BLOCK + 24
            self.rate_bps = min(wire * 8e9 * self.w / rtt, self.line_bps)


class Dctcp(Telemetry):
    """RFC 8257, section 3.3; the increase of RFC 5681's congestion avoidance; at most one cut a window (RFC 3168)."""

    def __init__(self, net: Net, p: Mapping[str, float]) -> None:
        super().__init__(net, p)
        self.w = self.bdp
        self.alpha, self.all, self.marked, self.recover = 1.0, 0.0, 0.0, 0
        self.window_bytes = self.w

    def acked(self, now: float, ack: Ack) -> None:
        p, mss = self.p, self.net.mtu
        self.all += ack.seen
        self.marked += ack.marked
        if self.round_over(ack):
            self.alpha = (1 - p["g"]) * self.alpha + p["g"] * self.marked / self.all
            self.all = self.marked = 0
        if ack.acked >= self.recover:
            if ack.marked:
                self.w *= 1 - self.alpha / 2
                self.recover = ack.next
            else:
                self.w += p["ai_packets"] * ack.packets * mss * mss / self.w
        self.w = max(mss, min(self.w, p["window"]))
        self.window_bytes = self.w


class Nscc(Telemetry):
    """UEC 1.0, 3.6.13, as in htsim's uec.cpp (updateCwndOnAck_NSCC, updateCwndOnNack_NSCC, update_base_rtt)."""

    def __init__(self, net: Net, p: Mapping[str, float]) -> None:
        super().__init__(net, p)
        self.w = self.window_bytes = self.most = p["window"]
        self.base = p["base_rtt"]
        self.average, self.cut, self.adjusted = 0.0, 0.0, 0.0
        self.gained, self.came, self.idle, self.fast = 0.0, 0.0, 0.0, False
        self.achieved, self.adapt_at, self.ignore, self.ignored = 0.0, 0.0, 0.0, 0.0
        self.trigger, self.full = False, True

    def acked(self, now: float, ack: Ack) -> None:
        network, new, ce = self.p["base_rtt"], ack.packets * self.net.mtu, ack.marked > 0
        if self.full and ack.rtt_ns < self.base:
            self.base, self.most = ack.rtt_ns, self.most * ack.rtt_ns / self.base
        self.achieved, self.came, self.ignored = self.achieved + new, self.came + new, self.ignored + new
        delay = ack.rtt_ns - self.base
        if delay >= 0:
            self.update_delay(delay, ce)
        else:
            delay = self.average
        if self.quick_adapt(now, delay, ce, (ack.next - ack.acked) * self.net.mtu):
            self.gained = self.came = 0.0
        else:
            self.quadrant(now, delay, ce, new)
            self.bound()
            if self.came > 8 * self.net.mtu or now - self.adjusted > network:
                self.fulfill(now)
            self.bound()
        self.window_bytes = self.w

    def nacked(self, now: float, under_way: float, *, granted_there: bool = False) -> None:
        """A packet was trimmed: update_delay(base + network, true, true), _trigger_qa, quick_adapt(true, true, 0).
        `granted_there`: _receiver_based_cc && last_hop."""
        size = self.net.mtu
        self.ignored += size
        self.update_delay(self.p["base_rtt"], True)
        self.trigger = True
        if self.quick_adapt(now, 0.0, True, under_way):
            self.gained = self.came = 0.0
        elif not granted_there:
            self.w -= size
            self.bound()
        self.window_bytes = self.w

    def update_delay(self, delay: float, ce: bool) -> None:
        weight = self.p["ewma"]
        sample = self.base / 4 if not ce and delay > self.p["target_queue"] else delay
        self.average = weight * sample + (1 - weight) * self.average

    def quadrant(self, now: float, delay: float, ce: bool, new: float) -> None:
        p, target = self.p, self.p["target_queue"]
        if not ce and delay >= target:
            self.gained += p["ai_packets"] * self.net.mtu * new
        elif not ce:
            self.proportional(delay, new)
        elif delay >= target:
            self.fast, self.idle = False, 0.0
            if self.average > target and now - self.cut > self.base:
                self.w *= max(1 - p["beta"] * (self.average - target) / self.average, 1 - p["max_decrease"])
                self.cut = now

    def proportional(self, delay: float, new: float) -> None:
        p, target = self.p, self.p["target_queue"]
        if delay < 1000:
            self.idle += new
            if self.idle > self.w or self.fast:
                self.w += p["fast"] * new
                self.fast = True
                return
        else:
            self.idle = 0.0
        self.fast = False
        self.gained += p["proportional_packets"] * self.net.mtu * new * (target - delay) / target

    def fulfill(self, now: float) -> None:
        self.w += self.gained / self.w
        if now - self.adjusted >= self.p["base_rtt"]:
            self.w += self.p["period_packets"] * self.net.mtu
            self.adjusted = now
        self.gained = self.came = 0.0

    def quick_adapt(self, now: float, delay: float, ce: bool, under_way: float) -> bool:
        p, acted = self.p, False
        if self.ignored < self.ignore and ce:
            acted = True
        elif now > self.adapt_at:
            if self.adapt_at and (self.trigger or delay > p["quick_adapt"]) and self.achieved < self.most / 8:
                # there "this shouldn't happen: might increase the cwnd": it came in more periods than one
                periods = 1 + (now - self.adapt_at) // (self.base + p["target_queue"]) if self.trigger else 1
                self.w = max(self.achieved / periods, float(self.net.mtu))
                self.ignore, self.ignored, acted = under_way, 0.0, True
                self.trigger = False
            self.achieved = 0.0
            self.adapt_at = now + self.base + p["target_queue"]
        return acted

    def bound(self) -> None:
        self.w = max(float(self.net.mtu), min(self.w, self.most))


class Dcqcn(Control):
    """Zhu et al., SIGCOMM 2015, sections 3.2 and 5, or with `first_cut` 1 the NIC's form of it: rdma-hw.cc of the HPCC
    authors (cnp_received_mlx, UpdateAlphaMlx, CheckRateDecreaseMlx, RateIncEventMlx), whose timers tick from the first
    notification on.  There the byte counter of the paper is 0, and one additive step precedes the hyper ones.
    """

    def __init__(self, net: Net, p: Mapping[str, float]) -> None:
        super().__init__(net)
        self.p, self.cnp_gap_ns, self.cnp_gap_at_most = p, p["cnp_gap"], p["first_cut"] > 0
        self.target, self.alpha = self.line_bps, 1.0
        self.t = self.b = 0  # increases since the last cut, by timer and by bytes
        self.bytes = 0.0
        self.alpha_at = self.rate_at = self.cut_at = NEVER
        self.told_alpha = self.told_cut = False

    def next_timer_ns(self) -> float:
        return min(self.rate_at, self.cut_at)

    def advance(self, now: float) -> None:
        while (first := min(self.alpha_at, self.rate_at, self.cut_at)) <= now:
            if self.alpha_at == first:
                self.update_alpha()
                self.alpha_at += self.p["alpha_timer"]
            elif self.cut_at == first:
                self.cut_at += self.p["decrease_gap"]
                if self.told_cut:
                    self.cut(first)
            else:
                self.rate_at += self.p["rate_timer"]
                self.t += 1
                self.increase()

    def update_alpha(self) -> None:
        g = self.p["g"]
        self.alpha = (1 - g) * self.alpha + (g if self.told_alpha else 0)
        self.told_alpha = False

    def notified(self, now: float) -> None:
        p = self.p
        if not p["first_cut"]:
            self.cut(now)
            self.alpha = (1 - p["g"]) * self.alpha + p["g"]
            self.alpha_at = now + p["alpha_timer"]
            return
        self.told_cut = True
        if self.alpha_at == NEVER:  # the first one
            self.alpha_at, self.cut_at = now + p["alpha_timer"], now + p["decrease_gap"] + 1e-3
        else:
            self.told_alpha = True

    def cut(self, now: float) -> None:
        by_timer_only, by_bytes_only = self.p["clamp_target"] == 1, self.p["clamp_target"] == 2
        if (self.t or not by_timer_only) and (self.b or not by_bytes_only):
            self.target = self.rate_bps
        self.rate_bps = max(self.rate_bps * (1 - self.alpha / 2), self.p["min_rate"])
        self.t = self.b = 0
        self.bytes, self.told_cut = 0.0, False
        self.rate_at = now + self.p["rate_timer"]

    def increase(self) -> None:
        f = self.p["fast_recovery"]
        if self.p["byte_counter"]:
            hyper, additive = min(self.t, self.b) > f, max(self.t, self.b) > f
        else:
            hyper, additive = self.t > f + 1, self.t == f + 1
        self.target += self.p["hai"] if hyper else self.p["ai"] if additive else 0
        self.target = min(self.target, self.line_bps)
        self.rate_bps = (self.rate_bps + self.target) / 2

    def sent(self, now: float, wire_bytes: float) -> None:
        if self.p["byte_counter"] and self.rate_bps < self.line_bps:
            self.bytes += wire_bytes - 24  # frames: without FCS, preamble and gap
            while self.bytes >= self.p["byte_counter"]:
                self.bytes -= self.p["byte_counter"]
                self.b += 1
                self.increase()
