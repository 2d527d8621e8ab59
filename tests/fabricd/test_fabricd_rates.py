"""A controller that asks for it hears of cables' rates: when they change, and of all that are not as configured."""

from __future__ import annotations

import time
from typing import Any

from hardware.client import Fabricd
from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, bare_fabric
from tests.parts.traffic_fabric import send

LEFT, RIGHT = ("sw0", "sw1")


def told(control: Fabricd, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    end = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < end, found
        found += [e for e in control.events(0.1) if e["event"] in ("rate", "port")]
    return found


def ends(f: BareFabric, rate_bps: int) -> list[tuple[str, int, int, bool]]:
    return [(LEFT, f.port_to(LEFT, RIGHT), rate_bps, True), (RIGHT, f.port_to(RIGHT, LEFT), rate_bps, False)]


def seen(events: list[dict[str, Any]]) -> list[tuple[str, int, int, bool]]:
    return [(e["switch"], e["port"], e["rate_bps"], e["more"]) for e in events]


def test_a_new_rate_is_told_a_reaction_later_and_the_clock_waits() -> None:
    with bare_fabric("ring", {"nodes": 3}, Hardware(reaction_ns=20_000, tells_rates=True)) as f:
        control = Fabricd(f.fabricd.control)
        control.subscribe(settles=True)
        f.fabricd.request("cable", cable="sw0-sw1", rate_bps=40e9, at_ns=1000)
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[0, 2, 10**6, 0]])
        f.fabricd.request("start", ranks=[])
        events = told(control, 2)
        assert seen(events) == ends(f, 40_000_000_000) and {e["time_ns"] for e in events} == {21_000}
        assert f.counters()["time_ns"] == 21_000
        for event in events:
            control.request("settled", event=event["id"])
        f.fabricd.request("quiesce", 60.0)
        later = Fabricd(f.fabricd.control)  # one that starts anew
        later.subscribe(settles=True)
        assert seen(told(later, 2)) == ends(f, 40_000_000_000)


def test_who_does_not_ask_hears_nothing() -> None:
    with bare_fabric("ring", {"nodes": 3}, Hardware(reaction_ns=20_000)) as f:
        control = Fabricd(f.fabricd.control)
        control.subscribe(settles=True)
        f.fabricd.request("start", ranks=[])
        f.fabricd.request("cable", cable="sw0-sw1", rate_bps=40e9)
        send(f, [(0, 2, 10**6, 0)])
        assert not [e for e in control.events(0.1) if e["event"] == "rate"]
