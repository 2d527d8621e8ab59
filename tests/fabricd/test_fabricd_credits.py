"""Credits against arithmetic: what a room lets through, classes of their own, leaks and what finds them, circles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, bare_fabric, plain
from tests.parts.traffic_fabric import drops, frame_bytes, nic, port, send, star, switch
from topologies.graph.frames import ser_ns

LINE, DELAY, LATENCY = 400e9, 500.0, 500.0
FRAME = frame_bytes()
BLOCKS = -(-(FRAME + 4) // 64)
"""A frame's, with its FCS, in blocks of 64 bytes (InfiniBand, volume 1, 7.9.4.4)."""
SER = ser_ns(FRAME, LINE)
NOTE = 64e9 / LINE
"""Of the 64 bits of a note."""
LOOP = SER + DELAY + LATENCY + NOTE + DELAY
"""From a frame's start to the news that it has left the switch: its last bit comes, it goes through, a note comes."""


def credits(room: int, *, resync_ns: float = 0.0, classes: tuple[int, ...] = (3, 4)) -> dict[str, Any]:
    return {"credits": {"room_bytes": room, "classes": list(classes), "resync_ns": resync_ns}}


def hardware(kind: dict[str, Any], names: list[str], **more: Any) -> Hardware:
    own = {"switch": switch(headroom=0), "nic": nic(), "timeout_ns": 1e9} | more
    return Hardware(of_cable=dict.fromkeys(names, kind), **own)


def of_star(hosts: int) -> list[str]:
    return [f"h{n}-sw0" for n in range(hosts)]


def later(f: BareFabric, ns: float) -> None:
    f.fabricd.request("run_until", time_ns=f.counters()["time_ns"] + ns)
    f.events("held")


def left(f: BareFabric, node: str, number: int, traffic_class: int = 3) -> int:
    """Bytes that a port may still send."""
    link = next(x for x in f.counters()["links"] if (x["node"], x["port"]) == (node, number))
    return int(link["credits"][str(traffic_class)]["left_bytes"])


@pytest.mark.parametrize("frames", [1, 3, 7, 18, 19, 40])
def test_a_room_lets_so_many_frames_through_each_round_trip_and_a_cable_no_more_than_its_rate(frames: int) -> None:
    """min(1, room / (rate x round trip)), in whole frames. What the room has besides helps nobody."""
    room = frames * BLOCKS * 64 + 64 * (BLOCKS - 1)
    few, many = 840, 1680
    with star(2, hardware(credits(room), of_star(2))) as f:
        (short,) = send(f, [(0, 1, few * 4096, 0)])
        (long,) = send(f, [(0, 1, many * 4096, 0)])
        # a note may wait for an acknowledgement
        assert (long - short) / (many - few) == pytest.approx(max(SER, LOOP / frames), rel=1e-3)
        counts = port(f, "h0", 1)["priorities"]
        if abs(frames * SER - LOOP) > SER:
            waits = 0 if frames * SER > LOOP else pytest.approx(few + many, abs=2 * frames)
            assert counts.get("tx_wait_prio3", 0) == waits
        assert not drops(f) and "tx_prio3_pause" not in port(f, "sw0", 1)["priorities"]
        assert left(f, "h0", 1) == left(f, "sw0", 2) == room


def test_a_nics_room_is_free_when_pcie_has_taken_the_frame() -> None:
    """PCIe at a tenth of the cable: its rate is the flow's, and the switch's queue waits for credits."""
    room, slow = 20 * BLOCKS * 64, LINE / 10
    h = hardware(credits(room), of_star(2), of_nic={"h1": {"pcie_rate_bps": slow}})
    with star(2, h) as f:
        short, long = (send(f, [(0, 1, n * 4096, 0)])[0] for n in (500, 1000))
        assert (long - short) / 500 == pytest.approx(4096 * 8e9 / slow, rel=1e-4)
        assert port(f, "sw0", 2)["priorities"]["tx_wait_prio3"] > 900
        assert port(f, "h0", 1)["priorities"]["tx_wait_prio3"] > 900  # and so back to the sender
        assert port(f, "sw0", 1)["priorities"]["ingress_max_prio3_bytes"] <= room
        assert not drops(f)


@contextmanager
def leaves(h: Hardware) -> Iterator[BareFabric]:
    """h0 and h1 on leaf0, h2 and h3 on leaf1, one spine."""
    with bare_fabric("clos", {"leaves": 2, "spines": 1, "hosts_per_leaf": 2}, h, binary=plain()) as f:
        f.fabricd.request("start", ranks=[])
        yield f


CLOS = ["h0-leaf0", "h1-leaf0", "h2-leaf1", "h3-leaf1", "leaf0-spine0", "leaf1-spine0"]


def test_a_class_without_credits_holds_up_no_other_but_all_of_its_own() -> None:
    """h0 sends to a NIC whose PCIe takes a fiftieth; h1 sends over the same cables to a NIC that is fast."""
    times = {}
    for of_h1 in (3, 4):
        own = {"h2": {"pcie_rate_bps": LINE / 50}, "h1": {"data_dscp": {3: 26, 4: 28}[of_h1], "data_class": of_h1}}
        with leaves(hardware(credits(30 * BLOCKS * 64), CLOS, of_nic=own)) as f:
            _, times[of_h1] = send(f, [(0, 2, 2_000_000, 0), (1, 3, 2_000_000, 0)])
            assert not drops(f)
            assert ("tx_wait_prio4" in port(f, "leaf0", 3)["priorities"]) is False
    alone = 2_000_000 / 4096 * SER
    assert alone < times[4] < 1.5 * alone < 10 * alone < times[3]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    frames=st.integers(1, 40),
    hosts=st.integers(2, 8),
    kilobytes=st.integers(1, 400),
    buffer=st.sampled_from([0, 1, 20_000, 200_000]),
    loss=st.sampled_from([0.0, 0.05]),
)
def test_whatever_the_room_nothing_is_lost_nor_held_beyond_it_and_all_credits_come_back(
    frames: int, hosts: int, kilobytes: int, buffer: int, loss: float
) -> None:
    room = frames * BLOCKS * 64
    kind = credits(room, resync_ns=20_000) | ({"retry": {"buffer_bytes": buffer}} if buffer else {})
    with star(hosts, hardware(kind, of_star(hosts), timeout_ns=200_000.0)) as f:
        if loss:
            ports = [f"h{n}:1" for n in range(hosts)]
            rule = {"primitive": "frames", "effect": "drop", "shown": "crc", "select": {"share": loss}}
            f.fabricd.request("inject", fault="f", ports=ports, **rule)
        send(f, [(n, 0, kilobytes * 1000, 0) for n in range(1, hosts)])
        assert set(drops(f)) <= ({"fault"} if loss and not buffer else set())
        for n in range(1, hosts + 1):
            assert port(f, "sw0", n)["priorities"].get("ingress_max_prio3_bytes", 0) <= room
        later(f, 100_000)
        assert {left(f, f"h{n}", 1) for n in range(hosts)} == {room}


def leak(f: BareFabric, first: int, of: str = "h0:1") -> None:
    select = {"first": first}
    f.fabricd.request("inject", fault="leak", primitive="frames", effect="leak_credits", ports=[of], select=select)


@pytest.mark.parametrize("how", ["leak_credits", "drop"])
def test_credits_that_are_lost_stay_lost_until_a_resync_finds_them(how: str) -> None:
    room, lost = 10 * BLOCKS * 64, 4
    for resync in (0.0, 50_000.0):
        h = hardware(credits(room, resync_ns=resync), of_star(2), timeout_ns=20_000.0)
        with star(2, h) as f:
            select, match = {"first": lost}, {"classes": [3]}
            f.fabricd.request(
                "inject", fault="leak", primitive="frames", effect=how, ports=["h0:1"], select=select, match=match
            )
            send(f, [(0, 1, 400 * 4096, 0)])
            later(f, 200_000)
            counts = port(f, "sw0", 1)["priorities"]
            found = counts.get("credits_found_prio3_bytes", 0)
            gone = (lost * BLOCKS + 1) * 64  # the first packet has an address of 16 bytes more
            assert found == (gone if resync else 0)
            assert left(f, "h0", 1) == room - gone + found


def test_a_cable_whose_credits_are_all_gone_stands_still_until_it_is_down_and_up_again() -> None:
    room = 4 * BLOCKS * 64
    with star(2, hardware(credits(room), of_star(2))) as f:
        later(f, 1)
        leak(f, 4)
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[0, 1, 100 * 4096, 0]])
        later(f, 500_000)
        assert left(f, "h0", 1) < BLOCKS * 64 and port(f, "h0", 1)["tx_frames"] == 3  # the first takes a block more
        f.fabricd.request("cable", cable="h0-sw0", up=False)
        later(f, 10_000)
        f.fabricd.request("cable", cable="h0-sw0", up=True)
        later(f, 10_000)
        assert left(f, "h0", 1) == room


def ring() -> AbstractContextManager[BareFabric]:
    names = [name for n in range(4) for name in (f"sw{n}-sw{(n + 1) % 4}", f"h{n}-sw{n}")]
    h = hardware(credits(60_000), names, switch_buffer_bytes=2_000_000)
    return bare_fabric("ring", {"nodes": 4}, h, binary=plain())


@pytest.mark.parametrize("watchdog", [None, "forward"])
def test_a_circle_of_credits_is_told_of_and_the_watchdog_takes_frames_away(watchdog: str | None) -> None:
    """Everything goes the same way round, two hops ahead: all rooms fill up, and none is free before another."""
    with ring() as f:
        f.fabricd.request("start", ranks=[])
        later(f, 1)
        for n in range(4):
            out = f.port_to(f"sw{n}", f"sw{(n + 1) % 4}")
            flows = [f"dl_dst={nic.mac},actions=output:{out}" for nic in f.fabric.nics if nic.rank != n]
            f.ofctl("add-flows", f.bridge(f"sw{n}"), "-", flows=flows)
            if watchdog:
                values = {"watchdog": {"detect_ns": 150_000, "restore_ns": 10_000, "action": watchdog}}
                f.fabricd.request("inject", fault=f"w{n}", primitive="params", switch=f"sw{n}", values=values)
        told = [[n, (n + 2) % 4, 10**6, 0] for n in range(4)]
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=told)
        later(f, 600_000)
        events = [e["event"] for e in f.fabricd.request("log")["events"]]
        assert events.count("deadlock") == 1
        assert bool(drops(f).get("watchdog")) == ("pfc_watchdog" in events) == bool(watchdog)
