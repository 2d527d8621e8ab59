"""DCTCP, TIMELY, Swift, HPCC and NSCC against models of their own, fed with the frames that their NIC saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
from traffic_fabric import frame_bytes, nic, send, star, switch
from wire_view import ACK, Seen, of_rank, watched

from hardware import bounds, cc
from hardware.config import Hardware

LINE, MTU = 400e9, 4096
RTT = bounds.base_rtt_ns(
    1, rate_bps=LINE, delay_ns=500, latency_ns=500, mtu=MTU, pcie_bps=512e9, pcie_ns=500
)  # of the idle star
ECN = {"3": {"kmin_bytes": 100_000, "kmax_bytes": 100_000, "pmax": 1.0}}
BDP = LINE / 8 * RTT * 1e-9


def hardware(control: str, **values: float) -> Hardware:
    return Hardware(
        switch_buffer_bytes=10**9,
        switch=switch(headroom=0, lossless=[], alpha=64, ecn=ECN),
        nic=nic(control, rate_bps=LINE, rtt_ns=RTT, **values),
        timeout_ns=1e9,
        ack_every=4,
    )


class Model:
    """What all have in common: rate and window, and which packets an acknowledgement is about."""

    def __init__(self, **values: float) -> None:
        self.p = cc.CONTROLS[type(self).__name__.lower()].values(cc.Setting(LINE, RTT, MTU), values)
        self.rate, self.window, self.cut = LINE, 0.0, -math.inf
        self.acked = self.round_end = 0
        if "window" in self.p:
            self.set_window(BDP)

    def set_window(self, w: float) -> None:
        self.window = max(min(w, self.p["window"]), MTU)

    def set_rate(self, r: float) -> None:
        self.rate = max(min(r, LINE), self.p["min_rate"])

    def ack(self, fr: Seen, rtt: float, packets: int, new_round: Callable[[], bool]) -> None:
        raise NotImplementedError


class Timely(Model):
    before, diff, row = 0.0, 0.0, 0

    def ack(self, fr: Seen, rtt: float, packets: int, new_round: Callable[[], bool]) -> None:
        p = self.p
        self.diff = (1 - p["ewma"]) * self.diff + p["ewma"] * (rtt - (self.before or rtt))
        self.before = rtt
        gradient = self.diff / p["min_rtt"]
        calm = p["t_low"] <= rtt <= p["t_high"] and gradient <= 0
        self.row = self.row + 1 if calm else 0
        if rtt < p["t_low"]:
            self.set_rate(self.rate + p["ai"])
        elif rtt > p["t_high"]:
            self.set_rate(self.rate * (1 - p["beta"] * (1 - p["t_high"] / rtt)))
        elif calm:
            self.set_rate(self.rate + (5 if self.row >= p["hai_after"] else 1) * p["ai"])
        else:
            self.set_rate(self.rate * (1 - p["beta"] * min(gradient, 1)))


class Swift(Model):
    def __init__(self, **values: float) -> None:
        super().__init__(**values)
        self.w = BDP / MTU

    def ack(self, fr: Seen, rtt: float, packets: int, new_round: Callable[[], bool]) -> None:
        p = self.p
        a = p["flow_range"] / (1 / math.sqrt(p["flow_min_window"]) - 1 / math.sqrt(p["flow_max_window"]))
        scaling = a / math.sqrt(self.w) - a / math.sqrt(p["flow_max_window"])
        target = p["base_target"] + p["hop_scale"] * (64 - fr.ttl) + min(max(scaling, 0), p["flow_range"])
        if rtt < target:
            self.w += p["ai_packets"] / self.w * packets
        elif fr.time_ns - self.cut >= rtt - 1:
            self.w *= max(1 - p["beta"] * (rtt - target) / rtt, 1 - p["max_decrease"])
            self.cut = fr.time_ns
        self.w = max(min(self.w, p["window"] / MTU), 0.01)
        self.set_window(self.w * MTU)
        self.set_rate(self.w * MTU * 8e9 / rtt if self.w < 1 else LINE)


class Nscc(Model):
    def ack(self, fr: Seen, rtt: float, packets: int, new_round: Callable[[], bool]) -> None:
        p, w = self.p, self.window
        queue, target = max(rtt - p["base_rtt"], 0), p["target_queue"]
        if not fr.marked and queue < target:
            w += p["g"] * packets * MTU * (target - queue) / target
        elif not fr.marked:
            w += p["ai_packets"] * MTU * packets * MTU / w
        elif queue >= target and fr.time_ns - self.cut >= rtt - 1:
            w *= max(1 - p["beta"] * (queue - target) / queue, 1 - p["max_decrease"])
            self.cut = fr.time_ns
        self.set_window(w)


class Dctcp(Model):
    alpha, seen, marked = 0.0, 0, 0

    def ack(self, fr: Seen, rtt: float, packets: int, new_round: Callable[[], bool]) -> None:
        self.seen, self.marked = self.seen + fr.seen, self.marked + fr.marked
        if not self.seen or not new_round():
            return
        g = self.p["g"]
        self.alpha = (1 - g) * self.alpha + g * self.marked / self.seen
        self.set_window(self.window * (1 - self.alpha / 2) if self.marked else self.window + MTU)
        self.seen = self.marked = 0


class Hpcc(Model):
    u, stage, last = 1.0, 0, None

    def __init__(self, **values: float) -> None:
        super().__init__(**values)
        self.reference = BDP

    def ack(self, fr: Seen, rtt: float, packets: int, new_round: Callable[[], bool]) -> None:
        p, t = self.p, RTT * 1e-9
        round_over = new_round()
        if self.last:
            most, tau = 0.0, t
            for now, old in zip(fr.hops, self.last, strict=True):
                gone = (now.seconds - old.seconds) % (2**32 * 256e-12)
                if gone <= 0:
                    continue
                bps = (now.tx_bytes - old.tx_bytes) % 2**32 * 8 / gone
                u = bps / now.rate_bps + min(now.queue_bytes, old.queue_bytes) * 8 / (now.rate_bps * t)
                if u > most:
                    most, tau = u, gone
            tau = min(tau, t)
            self.u = (1 - tau / t) * self.u + tau / t * most
            step = p["ai"] / 8 * t
            multiply = self.u >= p["eta"] or self.stage >= p["max_stage"]
            self.set_window((self.reference / (self.u / p["eta"]) if multiply else self.reference) + step)
            if round_over:
                self.stage = 0 if multiply else self.stage + 1
                self.reference = self.window
            self.set_rate(self.window * 8 / t)
        self.last = fr.hops


def follow(model: Model, frames: list[Seen]) -> Iterator[tuple[int, Model]]:
    """Feeds a model with what came in; after each acknowledgement, its time.

    A round ends when what had been built when it began is acknowledged: the NIC builds a packet when `sent_ns` says.
    """
    data = [fr for fr in frames if fr.out and fr.sent_ns is not None and fr.opcode not in (ACK, 0x81)]
    built = [(fr.sent_ns, fr.psn + 1) for fr in data]

    for fr in frames:
        if fr.out or fr.opcode != ACK or fr.syndrome & 0x60:
            continue
        packets = fr.psn + 1 - model.acked
        model.acked = fr.psn + 1

        def new_round(now: float = fr.time_ns) -> bool:
            if model.acked < model.round_end:
                return False
            model.round_end = max((psn for sent, psn in built if sent < now - 1), default=0)
            return True

        model.ack(fr, fr.time_ns - (fr.sent_ns or 0), packets, new_round)
        yield fr.time_ns, model


CASES: dict[str, tuple[type[Model], dict[str, float]]] = {
    "timely": (Timely, {"t_low": 15e3, "t_high": 60e3, "min_rtt": 8e3}),
    "swift": (Swift, {}),
    "swift below one packet": (Swift, {"base_target": 3.4e3, "flow_range": 0, "hop_scale": 100}),
    "nscc": (Nscc, {}),
    "dctcp": (Dctcp, {}),
    "hpcc": (Hpcc, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_step_is_the_formulas(case: str) -> None:
    """A flow alone, then with three others, then alone: each sampled rate and window is the model's."""
    kind, values = CASES[case]
    control = kind.__name__.lower()
    with star(5, hardware(control, **values)) as f:
        with watched(f, "h1:1", 500) as seen:
            send(f, [(1, 0, 6_000_000, 0), *((n, 0, 2_000_000, 30_000) for n in (2, 3, 4))])
        (qp,) = [q for q in f.counters()["qps"] if q["rank"] == 1]
    sampled = dict(of_rank(seen["qp_rate"], 1, "rate_bps"))
    steps, windows, rates = 0, set(), {}
    for time, model in follow(kind(**values), seen["frames"]):
        steps += 1
        windows.add(round(model.window))
        rates[time] = model.rate
    assert steps > 200
    assert qp["window_bytes"] == pytest.approx(model.window, rel=2e-3, abs=2)
    assert qp["rate_bps"] == pytest.approx(model.rate, rel=2e-3)
    for at, rate in sampled.items():
        known = [(t, r) for t, r in rates.items() if t < at + 1]
        if known and at < max(rates):
            near = [r for t, r in known if t > at - 1] or [known[-1][1]]
            assert any(rate == pytest.approx(r, rel=3e-3) for r in [*near, known[-1][1]]), (at, rate, known[-1])
    assert len(windows) > 10 or len(set(rates.values())) > 10  # it did something
    if control in ("timely", "hpcc") or "below" in case:
        assert len(sampled) > 10


@pytest.mark.parametrize("control", ["dcqcn", "dctcp", "timely", "swift", "hpcc", "nscc"])
def test_a_control_keeps_the_queue_below_what_none_builds(control: str) -> None:
    """Eight to one: less waits at the switch than without a control, and the link is still used."""
    depth, time = {}, {}
    for name in ("none", control):
        with star(9, hardware(name)) as f, watched(f, "h1:1", 2000) as seen:
            time[name] = max(send(f, [(n, 0, 8_000_000, 0) for n in range(1, 9)]))
        queue = seen["queue_depth"]
        depth[name] = queue[(queue["node"] == "sw0") & (queue["port"] == 1)]["bytes"].max()
    assert depth[control] < 0.7 * depth["none"]
    assert time[control] < 4 * time["none"]


def test_hpcc_keeps_its_queue_below_one_bandwidth_delay_product() -> None:
    with star(5, hardware("hpcc")) as f, watched(f, "h1:1", 500) as seen:
        times = send(f, [(n, 0, 10_000_000, 0) for n in range(1, 5)])
    queue = seen["queue_depth"]
    steady = queue[(queue["node"] == "sw0") & (queue["port"] == 1) & (queue["time_ns"] > 20 * RTT)]["bytes"]
    assert len(steady) > 100 and steady.max() < BDP
    # and eta of the link is used: 95 %, less what headers and telemetry take
    wire = frame_bytes() + 16 + 5 * 16 + 24
    assert 4 * 10_000_000 * wire / MTU * 8 / max(times) > 0.85 * LINE / 1e9


def test_telemetry_leaves_the_packet_as_it_was() -> None:
    """It lies behind the IP packet: two switches' stamps on the way, and the checksum of what is before it holds."""
    with star(2, hardware("hpcc")) as f, watched(f, "h0:1") as seen:
        send(f, [(1, 0, 400_000, 0)])
        nic0 = f.counters()["nics"][0]
    data = [fr for fr in seen["frames"] if not fr.out]
    assert nic0["rx_icrc_encapsulated"] == 0 and len(data) == 98
    assert all(len(fr.hops) == 1 and fr.ttl == 63 and fr.hops[0].rate_bps == LINE for fr in data)
    sent = [fr.hops[0].tx_bytes for fr in data]
    assert sent == sorted(sent)
    acks = [fr for fr in seen["frames"] if fr.out]
    assert sum(fr.seen for fr in acks) == len(data)
    assert {fr.sent_ns for fr in acks} <= {fr.sent_ns for fr in data}
