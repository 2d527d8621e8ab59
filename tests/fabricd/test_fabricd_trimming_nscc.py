"""NSCC's answer to trimmed packets against the reference, which is fed with the frames that the sender's NIC saw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from hardware import bounds, cc
from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric
from tests.parts.incast_model import Ack, Net, Stamp
from tests.parts.reference_controls import Nscc
from tests.parts.traffic_fabric import DSCP, nic, star, switch
from tests.parts.wire_view import ACK, WireFrame, watched

LINE, MTU, NAK_TRIMMED, NAK_TRIMMED_LAST_HOP = 400e9, 4096, 0x7F, 0x7E
RTT = bounds.base_rtt_ns(1, rate_bps=LINE, delay_ns=500, latency_ns=500, mtu=MTU, pcie_bps=512e9, pcie_ns=500)
NET = Net(rate_bps=LINE, delay_ns=500, latency_ns=500, mtu=MTU)
ECN = {"3": {"kmin_bytes": 37_000, "kmax_bytes": 149_000, "pmax": 1.0}}


def hardware(control: str, last_hop: int, **values: float) -> Hardware:
    lossy = switch(headroom=0, lossless=[], alpha=0.125, ecn=ECN, dscp=DSCP | {"36": 6})
    return Hardware(
        switch_buffer_bytes=2_000_000, timeout_ns=1e9, ack_every=4,
        switch={**lossy, "trimming": {"classes": [3], "bytes": 128, "dscp": 36, "last_hop_dscp": last_hop, "queue": 6}},
        nic={**nic(control, rate_bps=LINE, rtt_ns=RTT, **values), "lossless": [], "recovery": "selective_repeat",
             "sack_bits": 64, "sack_every": 4, "trimmed_dscp": 36, "trimmed_last_hop_dscp": last_hop},
    )  # fmt: skip


def follow(model: Nscc, frames: Sequence[WireFrame], control: str) -> Iterator[tuple[float, str]]:
    """Feeds the model; after each answer, its time and what it was."""
    come: set[int] = set()
    acked = following = 0
    for fr in frames:
        if fr.out and fr.opcode != ACK:
            following = max(following, fr.psn + 1)
        if fr.out or fr.opcode != ACK:
            continue
        if fr.syndrome in (NAK_TRIMMED, NAK_TRIMMED_LAST_HOP):
            granted_there = fr.syndrome == NAK_TRIMMED_LAST_HOP and control == "uec"
            model.nacked(fr.time_ns, (following - acked) * MTU, granted_there=granted_there)
            yield fr.time_ns, "trimmed"
            continue
        assert not fr.syndrome & 0x60
        told = set(range(acked, fr.psn + 1)) - come
        if fr.sack:
            first, bits = fr.sack
            told |= {first + i for i in range(64) if bits >> i & 1} - come
        come |= told
        acked = max(acked, fr.psn + 1)
        model.full = not fr.sack
        rtt = fr.time_ns - (fr.sent_ns or 0)
        model.acked(fr.time_ns, Ack(len(told), acked, following, rtt, fr.seen, fr.marked, Stamp(0, 0, 0)))
        yield fr.time_ns, "acked"


def window_at(f: BareFabric, time_ns: float) -> float:
    f.fabricd.request("run_until", time_ns=time_ns)
    f.events("held")
    return next((q["window_bytes"] for q in f.counters()["qps"] if q["rank"] == 1), 0)


@pytest.mark.parametrize(
    ("control", "last_hop", "values"),
    [
        ("nscc", 36, {}),
        ("nscc", 36, {"window": 2_000_000.0}),
        ("uec", 37, {}),
        ("nscc", 37, {}),
        ("nscc", 36, {"max_decrease": 1.0, "ewma": 0.3}),
    ],
    ids=["W falls", "quick adapt", "credit there", "no credit", "the average delay decides"],
)
def test_every_window_is_that_of_the_formulas(control: str, last_hop: int, values: dict[str, float]) -> None:
    with star(9, hardware(control, last_hop, **values)) as f:
        with watched(f, "h1:1", 500) as seen:
            window_at(f, 1)
            flows = [[k, 0, 400 * MTU, 37 * k] for k in range(1, 9)]
            f.fabricd.request("inject", fault="t", primitive="traffic", flows=flows)
            stops = {float(at): window_at(f, at) for at in range(2000, 120_000, 1000)}
        assert f.counters()["nics"][1]["trimmed_packets"] > 15
    model = Nscc(NET, cc.CONTROLS[control].values(cc.Setting(LINE, RTT, MTU), values))
    history, kinds, adapted, pulled = [(0.0, model.w)], set(), 0, False
    for time, what in follow(model, seen["frames"], control):
        adapted += pulled and not model.trigger
        pulled = model.trigger
        history.append((time, model.w))
        kinds.add(what)
    naks = {fr.syndrome for fr in seen["frames"] if not fr.out and fr.opcode == ACK} - {0x1F}
    assert naks == {NAK_TRIMMED if last_hop == 36 else NAK_TRIMMED_LAST_HOP}
    assert kinds == {"trimmed", "acked"} and (adapted > 0) == ("window" in values)
    for at, window in stops.items():  # a capture tells the nearest ns
        near = [w for t, w in history if abs(t - at) <= 1] + [w for t, w in history if t < at][-1:]
        assert any(window == pytest.approx(w, rel=2e-3, abs=2) for w in near), (at, window, near)
