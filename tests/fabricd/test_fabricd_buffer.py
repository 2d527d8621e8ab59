"""A switch's buffer and PFC against arithmetic: thresholds, headroom, drain time, what a pause leaves to others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardware import bounds
from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric
from tests.parts.traffic_fabric import drops, frame_bytes, nic, port, send, star, switch
from tests.parts.wire_view import watched
from topologies.graph.frames import ACK_FRAME, SHORTEST_BYTES, ser_ns

FRAME = frame_bytes()
QUIET = {"ack_every": 1 << 20}


def test_xoff_comes_at_the_threshold_and_not_before() -> None:
    """Two senders fill one port's queue; XOFF goes out when a group is at alpha x what is free."""
    buffer, headroom, alpha = 2_000_000, 60_000, 0.125
    h = Hardware(switch_buffer_bytes=buffer, switch=switch(headroom=headroom), nic=nic(), **QUIET)
    aside = 3 * 2 * (4000 + headroom)
    with star(3, h) as f:
        send(f, [(1, 0, 2_000_000, 0), (2, 0, 2_000_000, 0)])
        first = port(f, "sw0", 2)["priorities"]
        assert first["tx_prio3_pause"] > 0 and not drops(f)
        # at equal shares x of both groups: x - reserve = alpha (buffer - aside - 2 (x - reserve)), in whole frames
        shared = alpha * (buffer - aside) / (1 + 2 * alpha)
        bound = headroom_frames(400e9, 500, FRAME, 0) * (FRAME + 16)
        for number in (2, 3):
            most = port(f, "sw0", number)["priorities"]["ingress_max_prio3_bytes"]
            assert shared + 4000 <= most <= shared + 4000 + bound + FRAME
    # below the threshold there is not one pause
    with star(3, h) as f:
        send(f, [(1, 0, int(shared), 0), (2, 0, int(shared), 0)])
        assert "tx_prio3_pause" not in port(f, "sw0", 2)["priorities"]


def headroom_frames(rate_bps: float, delay_ns: float, frame_bytes: int, reverse_bytes: int) -> int:
    """Frames that may still come in from the one that makes a switch send XOFF, that one included.

    XOFF waits for a frame of `reverse_bytes` that has just started in its direction, then takes its own serialization
    and the cable's delay. Frames that are then on the cable, and the one that has just started, still come.
    """
    wait = ser_ns(reverse_bytes, rate_bps) if reverse_bytes else 0.0
    pause = SHORTEST_BYTES * 8e9 / rate_bps
    return int((2 * delay_ns + wait + pause) / ser_ns(frame_bytes, rate_bps)) + 2


def test_64_to_1_with_the_computed_headroom_loses_nothing() -> None:
    headroom = bounds.headroom_bytes(400e9, 500, 4096)
    h = Hardware(switch_buffer_bytes=32_000_000, switch=switch(headroom=headroom), nic=nic())
    with star(65, h) as f:
        send(f, [(n, 0, 400_000, 0) for n in range(1, 65)])
        assert not drops(f)
        assert sum(port(f, "sw0", n)["priorities"].get("tx_prio3_pause", 0) for n in range(2, 66)) >= 64


def test_headroom_is_needed_to_the_last_frame() -> None:
    """With nothing the other way and nothing that leaves, the bound is exact; with one frame less one is lost."""
    frames = headroom_frames(400e9, 500, FRAME, 0)
    for room, lost in ((frames, 0), (frames - 1, 1)):
        part = switch(headroom=room * FRAME)
        h = Hardware(switch_buffer_bytes=2_000_000, switch=part, nic=nic(), timeout_ns=1e8, **QUIET)
        with star(3, h) as f:
            # the receiver pauses the switch: what comes in stays
            f.fabricd.request("inject", fault="storm", primitive="params", nic=0, values={"storm": [3]}, for_ns=100_000)
            send(f, [(1, 0, 4096 * 400, 5000)])
            assert drops(f).get("headroom", 0) == lost, (room, drops(f))
            assert port(f, "sw0", 2)["priorities"]["headroom_max_prio3_bytes"] == room * FRAME


@pytest.mark.parametrize("headroom", [0, 1000])
def test_xoff_comes_at_the_threshold_without_headroom(headroom: int) -> None:
    """The frame that crosses the threshold finds no room and is lost, and so is what is on its way; then all wait."""
    part = switch(headroom=headroom)
    h = Hardware(switch_buffer_bytes=2_000_000, switch=part, nic=nic(), timeout_ns=50_000, retry=100)
    with star(3, h) as f:
        send(f, [(1, 0, 2_000_000, 0), (2, 0, 2_000_000, 0)])
        pauses = sum(port(f, "sw0", n)["priorities"].get("tx_prio3_pause", 0) for n in (2, 3))
        # for each pause: the frame that crosses, and what comes until it is heeded
        most = pauses * headroom_frames(400e9, 500, FRAME, FRAME)
        assert pauses > 0 and 0 < drops(f).get("headroom", 0) <= most


def test_a_group_that_holds_nothing_is_let_go_by_what_others_free() -> None:
    """Another holds all of the shared part: the first frame of a newcomer is refused, and XON leaves with the first one
    that makes room. Of what is free a group may have 64 times as much."""
    part = switch(headroom=0, reserve_bytes=100, alpha=64)
    h = Hardware(switch_buffer_bytes=60_000, switch=part, nic=nic(), timeout_ns=50_000, retry=100)
    with star(4, h) as f:
        f.fabricd.request("inject", fault="storm", primitive="params", nic=0, values={"storm": [3]}, for_ns=60_000)
        with watched(f, "h3:1") as seen:
            send(f, [(1, 0, 100_000, 1000), (3, 0, 100_000, 20_000)])
        assert f.counters()["switches"][0]["buffer_used_bytes"] == 0
    begin, end = (seen["pauses"][seen["pauses"]["on"] == on].groupby("node")["time_ns"].first() for on in (1, 0))
    assert 20_000 < begin["h3"] < 23_000 and end["sw0"] > 60_000  # where the receiver's pause ends
    assert end["h3"] - end["sw0"] == pytest.approx(ser_ns(60, 400e9) + h.cable_delay_ns, abs=0.01)


@pytest.mark.parametrize("missing", [0, 1])
def test_who_needs_all_of_the_shared_part_waits_and_who_needs_more_does_not(missing: int) -> None:
    """A frame that would fit once the others are gone is waited for, by XOFF; one that never fits is only lost."""
    alone, reserve = FRAME + 16, 100  # a write of one packet
    part = switch(headroom=0, reserve_bytes=reserve, alpha=1)
    shared = alone - reserve - missing
    h = Hardware(
        switch_buffer_bytes=3 * 2 * reserve + shared, switch=part, nic=nic(), timeout_ns=50_000, retry=1, **QUIET
    )
    with star(3, h) as f:
        storm = {"primitive": "params", "nic": 0, "values": {"storm": [3]}}
        f.fabricd.request("inject", fault="storm", **storm, for_ns=20_000)
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[(1, 0, 256, 1000), (2, 0, 4096, 5000)])
        f.fabricd.request("quiesce", 120.0)
        done = [flow[4] is not None for flow in f.fabricd.request("traffic_results", fault="t")["flows"]]
        assert "tx_prio3_pause" not in port(f, "sw0", 2)["priorities"]
        said = port(f, "sw0", 3)["priorities"].get("tx_prio3_pause", 0)
    assert done == [True, not missing]
    assert said == (0 if missing else 2)


def test_parameters_that_are_laid_over_themselves_change_nothing() -> None:
    """While frames stand in the buffer: they are counted as before."""
    found = []
    for anew in (False, True):
        h = Hardware(switch_buffer_bytes=2_000_000, switch=switch(headroom=60_000), nic=nic(), timeout_ns=1e8)
        with star(3, h) as f:
            until(f, 1)
            storm = {"primitive": "params", "nic": 0, "values": {"storm": [3]}}
            f.fabricd.request("inject", fault="storm", **storm, for_ns=100_000)
            flows = [[1, 0, 30 * 4096, 0], [2, 0, 400 * 4096, 20_000]]
            f.fabricd.request("inject", fault="t", primitive="traffic", flows=flows)
            until(f, 10_000)
            if anew:
                same = {"xon_offset_bytes": 3000, "buffer_bytes": 2_000_000}
                f.fabricd.request("inject", fault="p", primitive="params", switch="sw0", values=same)
            until(f, 50_000)
            if anew:
                f.fabricd.request("heal", fault="p")
            until(f, 1e6)
            counters = f.counters()
            found.append(
                (counters["ports"], counters["switches"], f.fabricd.request("traffic_results", fault="t")["flows"])
            )
            said = port(f, "sw0", 3)["priorities"]["tx_prio3_pause"]
    assert found[0] == found[1]
    assert said == 2  # when the threshold is reached, and 42 us later; the storm is over before the next
    assert counters["switches"][0]["buffer_used_bytes"] == 0


def test_who_is_over_a_new_threshold_is_paused_at_once_and_let_go_when_it_is_healed() -> None:
    h = Hardware(switch_buffer_bytes=2_000_000, switch=switch(headroom=60_000), nic=nic(), timeout_ns=1e8)
    with star(2, h) as f:
        until(f, 1)
        storm = {"primitive": "params", "nic": 0, "values": {"storm": [3]}}
        f.fabricd.request("inject", fault="storm", **storm, for_ns=100_000)
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[1, 0, 30 * 4096, 0]])
        until(f, 10_000)
        assert "tx_prio3_pause" not in port(f, "sw0", 2)["priorities"]
        f.fabricd.request("inject", fault="p", primitive="params", switch="sw0", values={"alpha": 1 / 1024})
        until(f, 20_000)
        f.fabricd.request("heal", fault="p")
        until(f, 40_000)
        paused = port(f, "h1", 1)["priorities"]
        assert (paused["rx_prio3_pause"], paused["rx_prio3_pause_duration"]) == (1, 10)


def test_a_queue_drains_at_the_rate_of_its_cable() -> None:
    """n flows that come in at once leave one after the other: the last is done n serializations of its bytes later."""
    h = Hardware(
        switch_buffer_bytes=64_000_000,
        switch=switch(headroom=0, lossless=[], alpha=64, strict=list(range(8))),
        nic=nic(),
        **QUIET,
    )
    size, n = 16 * 4096, 8
    wire = (15 * (frame_bytes() + 24) + frame_bytes() + 24 + 16) * 8e9 / 400e9
    with star(n + 1, h) as f:
        alone = send(f, [(1, 0, size, 0)])[0]
        together = send(f, [(k, 0, size, 0) for k in range(1, n + 1)])
        assert max(together) == pytest.approx(
            alone + (n - 1) * wire, abs=n * 0.01 + 85
        )  # 85 ns: one frame, whose turn it is


def test_a_paused_class_leaves_the_others_at_full_rate() -> None:
    """A NIC pauses class 3 for ever; class 0 to the same NIC goes on as if class 3 were not there."""
    h = Hardware(switch=switch(headroom=60_000), nic=nic())

    def other_class(config: dict) -> None:
        config["nics"][2] |= {"data_dscp": 0, "data_class": 0}

    with star(4, h, other_class) as f:
        alone = send(f, [(2, 0, 4_000_000, 0)])[0]
        f.fabricd.request("inject", fault="storm", primitive="params", nic=0, values={"storm": [3]}, for_ns=200_000)
        times = send(f, [(1, 0, 100_000, 1000), (2, 0, 4_000_000, 1000)])
        assert times[1] == pytest.approx(alone, rel=0.002)
        assert times[0] > 199_000
        assert port(f, "sw0", 1)["priorities"]["rx_prio3_pause_transition"] >= 1


def test_a_port_counts_what_comes_and_goes_of_each_class() -> None:
    """A hundred packets in class 3, in by one port and out by the other; nothing in the others'."""
    with star(2) as f:
        send(f, [(1, 0, 100 * 4096, 0)])
        came, went = port(f, "sw0", 2)["priorities"], port(f, "sw0", 1)["priorities"]
        nic, answers = f.nic(1), f.nic(0)["tx_vport_rdma_unicast_packets"]
        assert f.counters()["switches"][0]["frames_in"] == 100 + answers
    assert came["rx_prio3_packets"] == went["tx_prio3_packets"] == 100 == nic["tx_vport_rdma_unicast_packets"]
    assert came["rx_prio3_bytes"] == went["tx_prio3_bytes"] >= 100 * (4096 + 14 + 20 + 8 + 12 + 4 + 4)
    assert not {f"rx_prio{c}_packets" for c in range(8) if c != 3} & came.keys()


DETECT, RESTORE = 20_000, 50_000
XOFF_NS = ser_ns(60, 400e9) + 500  # until it has come over a cable
REFRESH_NS = 32767 * 512 / 400  # half of the longest pause, in quanta of 512 bit times


def watchdogs(f: BareFabric, action: str) -> list[tuple[bool, float]]:
    """What watchdogs have said, and when."""
    events = [e for e in f.fabricd.request("log")["events"] if e["event"] == "pfc_watchdog"]
    assert {(e["switch"], e["port"], e["class"], e["action"]) for e in events} <= {("sw0", 1, 3, action)}
    return [(e["on"], e["time_ns"]) for e in events]


@contextmanager
def stormy(
    action: str, size: int, *storms: tuple[float, float], detect: float | None = DETECT
) -> Iterator[tuple[BareFabric, float]]:
    """h0 pauses class 3 from and for so long (ns); h1 sends to it at 1 us. With when the first packet waits for h0."""
    says = {"watchdog": {"detect_ns": detect, "restore_ns": RESTORE, "action": action}} if detect else {}
    h = Hardware(switch=switch(headroom=100_000, **says), nic=nic(), timeout_ns=100_000)
    with star(2, h) as f:
        until(f, 1)
        for i, (at_ns, for_ns) in enumerate(storms):
            storm = {"primitive": "params", "nic": 0, "values": {"storm": [3]}}
            f.fabricd.request("inject", fault=f"s{i}", **storm, at_ns=at_ns, for_ns=for_ns)
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[1, 0, size, 1000]])
        yield f, 1001 + bounds.fetch_ns(4096, 512e9, 500) + ser_ns(FRAME + 16, 400e9) + 2 * 500


def until(f: BareFabric, time_ns: float) -> None:
    f.fabricd.request("run_until", time_ns=time_ns)
    f.events("held")


@pytest.mark.parametrize("action", ["drop", "forward"])
def test_watchdog_ends_a_storm(action: str) -> None:
    """It steps in `detect` after a frame has met the pause, and out `restore` after the last XOFF, the fourth."""
    packets = 24
    with stormy(action, packets * 4096, (10, 150_000)) as (f, waits):
        until(f, 500_000)
        on, off = waits + DETECT, 10 + 3 * REFRESH_NS + XOFF_NS + RESTORE
        told = watchdogs(f, action)
        assert told == [(True, pytest.approx(on, abs=0.01)), (False, pytest.approx(off, abs=0.01))]
        ((*_, start, took),) = f.fabricd.request("traffic_results", fault="t")["flows"]
        now = port(f, "sw0", 1)["priorities"]
        assert now["pfcwd_storms_prio3"] == 1 and "rx_prio3_pause_duration" in now
        assert now["rx_prio3_pause_duration"] == int((on - 10 - XOFF_NS) / 1000)
        if action == "forward":  # at once, all of them, and the acknowledgement comes back
            left = on + (packets - 1) * ser_ns(FRAME, 400e9) + ser_ns(FRAME + 16, 400e9) + 500
            assert took == pytest.approx(left + 2 * (ser_ns(ACK_FRAME, 400e9) + 500) + 500, abs=0.1) and not drops(f)
        else:  # all of them, then what the timeout sends; the second timeout is behind the storm
            assert drops(f) == {"watchdog": 2 * packets} and took > off


def test_a_watchdog_counts_from_the_pause_that_there_is() -> None:
    """Of two pauses the first is over before `detect`; and when it is switched off in a storm, pauses count again."""
    with stormy("forward", 2_000_000, (10, 12_000), (15_000, 200_000)) as (f, _):
        until(f, 60_000)
        f.fabricd.request("inject", fault="off", primitive="params", switch="sw0", values={"watchdog": None})
        until(f, 300_000)
        on = 15_000 + XOFF_NS + DETECT
        assert watchdogs(f, "forward") == [(True, pytest.approx(on, abs=0.01)), (False, 60_000)]
        paused = 12_000 + DETECT + 15_000 + 200_000 - (15_000 + 2 * REFRESH_NS)
        assert port(f, "sw0", 1)["priorities"]["rx_prio3_pause_duration"] == int(paused / 1000)


def test_a_watchdog_ends_the_next_storm_as_well() -> None:
    """Each of two pauses of 60 us: its second XOFF, half of the longest pause later, is the last.

    Between them is a pause that is over before `detect`.
    """
    with stormy("forward", 12_000_000, (10, 60_000), (120_000, 12_000), (160_000, 60_000)) as (f, waits):
        until(f, 300_000)
        ends = REFRESH_NS + XOFF_NS + RESTORE
        told = [(True, waits + DETECT), (False, 10 + ends), (True, 160_000 + XOFF_NS + DETECT), (False, 160_000 + ends)]
        assert watchdogs(f, "forward") == [(on, pytest.approx(t, abs=0.01)) for on, t in told]


@pytest.mark.parametrize("detect", [None, 1e6])
def test_a_watchdog_counts_from_when_it_is_switched_on(detect: float | None) -> None:
    """Or from when it is another: it has nothing to do with the one before."""
    with stormy("drop", 1_000_000, (10, 200_000), detect=detect) as (f, _):
        until(f, 60_000)
        values = {"watchdog": {"detect_ns": DETECT, "restore_ns": RESTORE, "action": "drop"}}
        f.fabricd.request("inject", fault="on", primitive="params", switch="sw0", values=values)
        until(f, 100_000)
        assert watchdogs(f, "drop") == [(True, 60_000 + DETECT)]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 300_000), st.integers(0, 20_000)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([400_000, 1_000_000, 32_000_000]),
)
def test_the_buffer_is_empty_when_the_fabric_is(flows: list[tuple[int, int, int, int]], buffer: int) -> None:
    h = Hardware(switch_buffer_bytes=buffer, switch=switch(headroom=20_000), nic=nic(), timeout_ns=200_000)
    with star(4, h) as f:
        send(f, [flow for flow in flows if flow[0] != flow[1]] or [(0, 1, 1000, 0)])
        counters = f.counters()
        assert counters["switches"][0]["buffer_used_bytes"] == 0
        assert 0 < counters["switches"][0]["buffer_max_bytes"] <= buffer
