"""Marking and scheduling against their formulas."""

from __future__ import annotations

import math

import pytest

from hardware.config import Hardware
from tests.parts.traffic_fabric import frame_bytes, nic, port, send, star, switch

FRAME = frame_bytes()
SLOW = {"timeout_ns": 1e9}  # queues of milliseconds are no loss


def _marked(seed: int, kmin: int, kmax: int, pmax: float, packets: int) -> tuple[int, int]:
    """Frames marked, and sent, when two senders share one link without any control."""
    ecn = {"3": {"kmin_bytes": kmin, "kmax_bytes": kmax, "pmax": pmax}}
    h = Hardware(
        switch_buffer_bytes=10**9, switch=switch(headroom=0, lossless=[], alpha=64, ecn=ecn), nic=nic(), timeout_ns=1e9
    )

    def seeded(config: dict) -> None:
        config["seed"] = seed

    with star(3, h, seeded) as f:
        send(f, [(1, 0, packets // 2 * 4096, 0), (2, 0, packets // 2 * 4096, 0)])
        counted = port(f, "sw0", 1)["priorities"]
        return counted.get("ecn_marked_prio3", 0), counted["tx_prio3_packets"]


def test_marks_follow_the_line_from_kmin_to_kmax() -> None:
    """The queue grows by one frame a frame sent, and shrinks likewise: the sum of p over all its lengths is known."""
    packets = 100_000
    kmin, kmax, pmax = 20_000_000, 180_000_000, 0.3
    marked, sent = _marked(1, kmin, kmax, pmax, packets)
    assert sent == packets
    depths = [k * FRAME for k in range(packets // 2)]  # growing at half the rate, then falling at all of it
    p = [1.0 if d > kmax else max(pmax * (d - kmin) / (kmax - kmin), 0) for d in depths]
    expected, variance = 2 * sum(p), 2 * sum(x * (1 - x) for x in p)
    assert abs(marked - expected) < 4 * math.sqrt(variance) + 0.002 * packets
    assert _marked(1, kmin, kmax, pmax, 2000) == _marked(1, kmin, kmax, pmax, 2000)


def test_nothing_below_kmin_and_everything_above_kmax() -> None:
    assert _marked(1, 10**9, 10**9, 1.0, 2000)[0] == 0
    marked, sent = _marked(1, 0, 0, 1.0, 2000)
    assert sent - marked <= 2  # a frame that leaves nothing behind is not marked


def test_thresholds_are_met_to_the_byte() -> None:
    """A queue of just that length is left behind twice, growing and falling; it is not above the threshold."""
    never = {"3": {"kmin_bytes": 10**9, "kmax_bytes": 10**9, "pmax": 1.0}}
    h = Hardware(switch_buffer_bytes=10**9, switch=switch(headroom=0, lossless=[], alpha=64, ecn=never), nic=nic())
    with star(3, h) as f:

        def marked(kmin: int, kmax: int, pmax: float) -> int:
            values = {"ecn": {"3": {"kmin_bytes": kmin, "kmax_bytes": kmax, "pmax": pmax}}}
            f.fabricd.request("inject", fault="e", primitive="params", switch="sw0", values=values)
            before = port(f, "sw0", 1)["priorities"].get("ecn_marked_prio3", 0)
            send(f, [(1, 0, 16 * 4096, 0), (2, 0, 16 * 4096, 0)])
            f.fabricd.request("heal", fault="e")
            return int(port(f, "sw0", 1)["priorities"].get("ecn_marked_prio3", 0)) - before

        at = 3 * FRAME
        assert marked(at - 1, at - 1, 1.0) - 2 == marked(at, at, 1.0) > 10
        assert marked(0, at - 1, 0.0) - 2 == marked(0, at, 0.0) > 10


def test_a_port_marks_by_its_own_thresholds_and_a_fault_of_its_switch_goes_before_them() -> None:
    never, always = ({"3": {"kmin_bytes": k, "kmax_bytes": k, "pmax": 1.0}} for k in (10**9, 0))
    more = {"ecn": never, "port_ecn": [always, never, never]}
    h = Hardware(switch_buffer_bytes=10**9, switch=switch(headroom=0, lossless=[], alpha=64, **more), nic=nic())
    with star(3, h) as f:

        def marked(to: int) -> int:
            send(f, [(rank, to, 200 * 4096, 0) for rank in range(3) if rank != to])
            return port(f, "sw0", to + 1)["priorities"].get("ecn_marked_prio3", 0)

        assert (marked(0) > 300, marked(1)) == (True, 0)
        before = marked(0)
        f.fabricd.request("inject", fault="e", primitive="params", switch="sw0", values={"ecn": {"3": None}})
        assert marked(0) == before
        f.fabricd.request("heal", fault="e")
        assert marked(0) > before


def test_weights_share_a_link() -> None:
    """Classes 0 and 3 with weights 1 and 3, both always busy: three of four bytes are class 3's."""
    more = {"strict": [6, 7], "weights": {"0": 1, "3": 3}}
    h = Hardware(
        switch_buffer_bytes=10**9, switch=switch(headroom=0, lossless=[], alpha=64, **more), nic=nic(), timeout_ns=1e9
    )

    def other_class(config: dict) -> None:
        config["nics"][2] |= {"data_dscp": 0, "data_class": 0}

    with star(3, h, other_class) as f:
        three, zero = send(f, [(1, 0, 12_000_000, 0), (2, 0, 12_000_000, 0)])
        alone = 12_000_000 * (FRAME + 24) / 4096 * 8e9 / 400e9
        assert three == pytest.approx(alone * 4 / 3, rel=0.02)
        assert zero == pytest.approx(alone * 2, rel=0.02)
        f.fabricd.request("inject", fault="w", primitive="params", switch="sw0", values={"weights": {"0": 3, "3": 1}})
        three, zero = send(f, [(1, 0, 12_000_000, 0), (2, 0, 12_000_000, 0)])
        assert zero == pytest.approx(alone * 4 / 3, rel=0.02)
        f.fabricd.request("heal", fault="w")
        three, zero = send(f, [(1, 0, 12_000_000, 0), (2, 0, 12_000_000, 0)])
        assert three == pytest.approx(alone * 4 / 3, rel=0.02)
