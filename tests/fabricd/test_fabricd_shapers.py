"""Shapers of a switch's classes: what one may have at most, and has in any case, from their definition."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from hardware.client import FabricdError
from hardware.config import Hardware
from testbed.live.views.config import qos
from tests.parts.timing_model import RETH, Model, wire_ps
from tests.parts.traffic_fabric import frame_bytes, nic, send, star, switch

RATE, SIZE, MTU = 400e9, 12_000_000, 4096
WIRE = frame_bytes() + 24
ALONE = SIZE / MTU * WIRE * 8e9 / RATE
NINE = {"weights": {"0": 1, "3": 9}}
DSCPS = {0: 0, 3: 26, 6: 48}


def hardware(shapers: Mapping[str, Any], **more: Any) -> Hardware:
    of = switch(headroom=0, lossless=[], alpha=64, strict=[6, 7], shapers=shapers, **more)
    return Hardware(switch_buffer_bytes=10**9, switch=of, nic=nic(), timeout_ns=1e9)


def shares(shapers: Mapping[str, Any], classes: tuple[int, int], **more: Any) -> tuple[float, float]:
    """What two classes that always have something to send have of a port, until the first of them is through."""

    def of_classes(config: dict[str, Any]) -> None:
        for rank, c in zip((1, 2), classes, strict=True):
            config["nics"][rank] |= {"data_dscp": DSCPS[c], "data_class": c}

    h = hardware(shapers, **more)
    with star(3, h, of_classes) as f:
        times = send(f, [(1, 0, SIZE, 0), (2, 0, SIZE, 0)])
    idle = Model(h, 1).long_sent(SIZE) / 1000 - ALONE  # of which nothing is spent on the port
    first, last = min(times) - idle, max(times) - idle
    slower = classes[times.index(max(times))]
    behind = (last - first) * shapers.get(str(slower), {}).get("max", 1.0)  # by itself
    ahead, other = ALONE / first, (ALONE - behind) / first
    return (ahead, other) if times[0] <= times[1] else (other, ahead)


@pytest.mark.parametrize("burst", [10_000, 100_000])
@pytest.mark.parametrize("most", [0.5, 0.9, 0.01])
def test_a_class_alone_sends_its_burst_and_then_at_its_rate(most: float, burst: int) -> None:
    """A token bucket that was full: each frame is due when those before it are worth their time, less the burst."""
    size = 400 * MTU
    times = {}
    for key, shapers in (("free", {}), ("shaped", {"3": {"max": most, "burst_bytes": burst}})):
        with star(2, hardware(shapers)) as f:
            times[key] = send(f, [(1, 0, size, 0)])[0]
    sers = [wire_ps(RATE, MTU, RETH), *[wire_ps(RATE, MTU, 0)] * 398]  # of all but the last
    due = sum(round(ser / most) for ser in sers) - burst * 8e12 / RATE / most
    late = max(due - sum(sers), 0)  # a burst that is longer than the flow costs it nothing
    assert times["shaped"] - times["free"] == pytest.approx(late / 1000, abs=0.4)


@pytest.mark.parametrize(
    ("shapers", "more", "classes", "expected"),
    [
        ({}, {}, (3, 0), (0.5, 0.5)),
        ({"3": {"max": 0.2}}, {}, (3, 0), (0.2, 0.8)),
        ({"3": {"max": 0.6}}, NINE, (3, 0), (0.6, 0.4)),
        ({"6": {"max": 0.7}}, {}, (6, 0), (0.7, 0.3)),
        ({"0": {"min": 0.3}}, {}, (6, 0), (0.7, 0.3)),
        ({"0": {"min": 0.3, "max": 0.35}, "3": {"min": 0.6}}, NINE, (3, 0), (0.69, 0.31)),
        ({"0": {"min": 0.4}}, NINE, (3, 0), (0.54, 0.46)),
        ({"0": {"min": 0.2}, "3": {"min": 0.2}}, NINE, (3, 0), (0.74, 0.26)),
        ({"0": {"max": 0.25}, "3": {"max": 0.5}}, NINE, (3, 0), (0.5, 0.25)),
        ({"0": {"min": 0.2, "max": 0.3}, "3": {"min": 0.2}}, {}, (3, 0), (0.7, 0.3)),
    ],
)
def test_long_run_shares(
    shapers: Mapping[str, Any], more: Mapping[str, Any], classes: tuple[int, int], expected: tuple[float, float]
) -> None:
    """Most shares hold whatever else there is; least ones go before strictness and weights; these share the rest.

    Those with weights of 1 and 9 Linux was asked, too (tc's htb on a veth, 100 Mbit/s, rate and ceil, quantum 3000 and
    27000): it gave 69.7 and 31.3, 54.1 and 45.9, 74.3 and 26.2, 49.3 and 24.6 in 2.5 s.
    """
    assert shares(shapers, classes, **more) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("shaper", [{"max": 1.5}, {"min": -0.1}, {"burst_bytes": "x"}])
def test_what_is_no_shaper_is_refused(shaper: dict[str, Any]) -> None:
    with star(2, hardware({})) as f, pytest.raises(FabricdError, match="shapers"):
        f.fabricd.request("inject", fault="s", primitive="params", switch="sw0", values={"shapers": {"3": shaper}})


def test_an_operator_sees_them_where_there_are_some() -> None:
    usual = {"Switch", "Queue", "type", "weight"}
    for shapers, more in (({}, set()), ({"3": {"min": 0.2, "max": 0.5}}, {"min", "max"})):
        with star(2, hardware(shapers)) as f:
            look = SimpleNamespace(parameters=f.fabricd.request("parameters"), fabric=f.fabric)
            rows = qos(look)[1].rows  # type: ignore[arg-type]
        assert {*rows[3]} == usual | more
        if shapers:
            assert [rows[3][key] for key in ("min", "max")] == ["20%", "50%"] and rows[0]["max"] == "N/A"
