"""Buffers that wait for each other in a circle, for longer than a pause lasts, are told of; a jam is no deadlock."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from hardware import bounds
from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, bare_fabric, plain
from tests.parts.traffic_fabric import nic, switch

LINE = 400e9
REFRESH_NS = 32767 * 512e9 / LINE
"""XOFF asks for 65535 quanta of 512 bit times, and is sent again when half of them are over (docs/buffers.md)."""
NODES = 4
HARDWARE = Hardware(
    switch_buffer_bytes=700_000,
    switch=switch(headroom=bounds.headroom_bytes(LINE, 500, 4096)),
    nic=nic(),
    timeout_ns=1e9,
)


def ring() -> AbstractContextManager[BareFabric]:
    return bare_fabric("ring", {"nodes": NODES}, HARDWARE, binary=plain())


def clockwise(f: BareFabric) -> None:
    """Everything goes the same way round."""
    for n in range(NODES):
        out = f.port_to(f"sw{n}", f"sw{(n + 1) % NODES}")
        others = [each.mac for each in f.fabric.nics if each.rank != n]
        f.ofctl("add-flows", f.bridge(f"sw{n}"), "-", flows=[f"dl_dst={mac},actions=output:{out}" for mac in others])


def until(f: BareFabric, time_ns: float) -> None:
    f.fabricd.request("run_until", time_ns=time_ns)
    f.events("held")


def paused_us(f: BareFabric, switch: str, port: int) -> int:
    """How long its class 3 has been paused so far, in whole us."""
    (found,) = (p for p in f.counters()["ports"] if (p["node"], p["port"]) == (switch, port))
    return int(found["priorities"]["rx_prio3_pause_duration"])


@pytest.mark.parametrize("action", ["drop", "forward"])
def test_a_circle_of_pauses_is_told_of_once(action: str) -> None:
    """Everybody sends two hops ahead. The third XOFF in a row is the first later than one lasts."""
    end = 400_000
    with ring() as f:
        f.fabricd.request("start", ranks=[])
        until(f, 1)
        clockwise(f)
        watchdog = {"detect_ns": 1e9, "restore_ns": 1e9, "action": action}
        f.fabricd.request("inject", fault="w", primitive="params", switch="sw3", values={"watchdog": watchdog})
        f.fabricd.request(
            "inject", fault="t", primitive="traffic", flows=[[n, (n + 2) % NODES, 10**6, 0] for n in range(NODES)]
        )
        until(f, end)
        (told,) = (e for e in f.fabricd.request("log")["events"] if e["event"] == "deadlock")
        circle = {(p["switch"], p["port"], p["class"]) for p in told["ports"]}
        assert circle == {(f"sw{n}", f.port_to(f"sw{n}", f"sw{(n + 1) % NODES}"), 3) for n in range(NODES)}
        assert len(told["ports"]) == NODES and told["watchdog"] == (action == "drop")
        since = end - 1000 * max(paused_us(f, name, port) for name, port, _ in circle)
        assert 0 <= since + 3 * REFRESH_NS - told["time_ns"] < 1000
        assert f.counters()["deadlocks"] == 1


def test_who_waits_beside_a_circle_is_none_of_it() -> None:
    """Around one column of a torus as above, and in its second switch, by a port that is looked at first, frames wait
    for a host of the other column, which takes none.
    """
    column = [f"sw0-{n}" for n in range(NODES)]
    with bare_fabric("torus", {"dims": [2, NODES]}, HARDWARE, binary=plain()) as f:
        f.fabricd.request("start", ranks=[])
        until(f, 1)
        onward = {name: f.port_to(name, column[(n + 1) % NODES]) for n, name in enumerate(column)}
        aside = f.port_to(column[1], "sw1-1")
        assert aside < onward[column[1]]
        for n, name in enumerate(column):
            flows = [
                f"dl_dst={each.mac},actions=output:{aside if n == 1 and each.rank == 5 else onward[name]}"
                for each in f.fabric.nics
                if each.rank != n
            ]
            f.ofctl("add-flows", f.bridge(name), "-", flows=flows)
        f.ofctl("add-flow", f.bridge("sw1-1"), f"dl_dst={f.fabric.nics[5].mac},actions=output:1")
        f.fabricd.request("inject", fault="s", primitive="params", nic=5, values={"storm": [3]})
        late = 20_000
        around = [[n, (n + 2) % NODES, 10**6, late] for n in range(NODES)]
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[0, 5, 84_000, 0], *around])
        until(f, 600_000)
        assert paused_us(f, column[1], aside) > 3 * REFRESH_NS / 1000
        told = [e for e in f.fabricd.request("log")["events"] if e["event"] == "deadlock"]
        assert {(p["switch"], p["port"], p["class"]) for p in told[0]["ports"]} == {
            (n, o, 3) for n, o in onward.items()
        }


def test_a_jam_that_leads_to_a_host_is_no_deadlock() -> None:
    """Two neighbours send to each other, and neither takes anything: each direction is paused for its own sake."""
    with ring() as f:
        f.fabricd.request("start", ranks=[])
        until(f, 1)
        for n in (0, 1):
            f.fabricd.request("inject", fault=f"s{n}", primitive="params", nic=n, values={"storm": [3]})
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[0, 1, 10**6, 0], [1, 0, 10**6, 0]])
        until(f, 400_000)
        for a, b in (("sw0", "sw1"), ("sw1", "sw0")):
            assert paused_us(f, a, f.port_to(a, b)) > 3 * REFRESH_NS / 1000
        assert f.counters()["deadlocks"] == 0
