"""DCTCP, TIMELY, Swift, HPCC and NSCC against reference_controls, fed with the frames that their NIC saw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from hardware import bounds, cc
from hardware.client import FabricdError
from hardware.config import Hardware
from tests.parts import reference_controls
from tests.parts.fabricd_fixture import BareFabric, bare_fabric, plain
from tests.parts.incast_model import Ack, Control, Net, Stamp
from tests.parts.traffic_fabric import frame_bytes, nic, send, star, switch
from tests.parts.wire_view import ACK, WireFrame, of_rank, watched
from topologies.graph.frames import ser_ns

LINE, MTU = 400e9, 4096
RTT = bounds.base_rtt_ns(
    1, rate_bps=LINE, delay_ns=500, latency_ns=500, mtu=MTU, pcie_bps=512e9, pcie_ns=500
)  # of the idle star
ECN = {"3": {"kmin_bytes": 100_000, "kmax_bytes": 100_000, "pmax": 1.0}}
BDP = LINE / 8 * RTT * 1e-9
NET = Net(rate_bps=LINE, delay_ns=500, latency_ns=500, mtu=MTU)


def hardware(control: str, **values: float) -> Hardware:
    return Hardware(
        switch_buffer_bytes=10**9,
        switch=switch(headroom=0, lossless=[], alpha=64, ecn=ECN),
        nic=nic(control, rate_bps=LINE, rtt_ns=RTT, **values),
        timeout_ns=1e9,
        ack_every=4,
    )


def follow(model: Control, frames: list[WireFrame]) -> Iterator[tuple[float, Control]]:
    """Feeds a model with what came in; after each acknowledgement, its time."""
    model.clock_ns = 1.0  # captures tell the nearest ns
    acked = following = 0
    for fr in frames:
        if fr.out and fr.opcode != ACK:
            following = max(following, fr.psn + 1)
        if fr.out or fr.opcode != ACK or fr.syndrome & 0x60:
            continue
        packets, acked = fr.psn + 1 - acked, fr.psn + 1
        stamps = [Stamp(h.seconds * 1e9, h.tx_bytes, h.queue_bytes) for h in fr.hops]
        stamp = (stamps or [Stamp(0, 0, 0)])[0]
        rtt = fr.time_ns - (fr.sent_ns or 0)
        model.acked(fr.time_ns, Ack(packets, acked, following, rtt, fr.seen, fr.marked, stamp))
        yield fr.time_ns, model


EVERY_REGION = {
    "t_low": 3.4e3, "t_high": 10e3, "min_rtt": 3e3, "beta": 0.9, "max_decrease": 0.7, "ai": 3e9, "hai_after": 2
}  # fmt: skip
"""Of TIMELY: round trips below, above and between its thresholds, of both gradients, one and several in a row."""

CASES: dict[str, tuple[type[reference_controls.Telemetry], dict[str, float]]] = {
    "timely": (reference_controls.Timely, EVERY_REGION),
    "swift": (reference_controls.Swift, {}),
    "swift below one packet": (reference_controls.Swift, {"base_target": 2e3, "flow_range": 0, "hop_scale": 100}),
    "swift by its window": (
        reference_controls.Swift,
        {"base_target": 3e3, "hop_scale": 100, "flow_range": 1e3, "flow_min_window": 4, "flow_max_window": 50},
    ),
    "nscc": (reference_controls.Nscc, {}),
    "nscc that adapts at once": (reference_controls.Nscc, {"window": 10 * BDP, "quick_adapt": 2e3}),
    "dctcp": (reference_controls.Dctcp, {}),
    "hpcc": (reference_controls.Hpcc, {}),
}


OTHERS = {"timely": 1465}
"""Packets that each of three other senders has, where it is not a third of the flow's."""


@pytest.mark.parametrize("case", CASES)
def test_every_step_is_the_formulas(case: str) -> None:
    """A flow alone, then with three others, then alone: each sampled rate, and the window at each stop of the clock, is
    the model's.

    A capture rounds to the nearest ns. Of a round trip of 3,172 ns that is 1.6e-4, and as much of each of Swift's cuts,
    which adds up where its target follows from its window.
    """
    kind, values = CASES[case]
    off = 1e-2 if "its window" in case else 2e-3
    control = kind.__name__.lower()
    with star(5, hardware(control, **values)) as f:
        with watched(f, "h1:1", 500) as seen:
            flows = [(1, 0, 1465 * MTU, 0), *((n, 0, OTHERS.get(case, 488) * MTU, 30_000) for n in (2, 3, 4))]
            _stopped_at(f, 1000)  # else it would go on between two requests
            f.fabricd.request("inject", fault="t", primitive="traffic", flows=[list(flow) for flow in flows])
            stops = [_stopped_at(f, at) for at in (2500, *range(12_500, 280_000, 12_500))]
            while any(flow[4] is None for flow in f.fabricd.request("traffic_results", fault="t")["flows"]):
                stops.append(_stopped_at(f, 2 * stops[-1][0]))
        (qp,) = [q for q in f.counters()["qps"] if q["rank"] == 1]
    sampled = dict(of_rank(seen["qp_rate"], 1, "rate_bps"))
    given = cc.CONTROLS[control].values(cc.Setting(LINE, RTT, MTU), values)
    begins = kind(NET, given)
    steps, windows, rates = 0, {0.0: round(begins.window_bytes or 0)}, {0.0: begins.rate_bps}
    for time, model in follow(begins, seen["frames"]):
        steps += 1
        windows[time] = round(model.window_bytes or 0)
        rates[time] = model.rate_bps
    assert steps > 200
    if model.window_bytes:
        assert qp["window_bytes"] == pytest.approx(max(model.window_bytes, MTU), rel=off, abs=2)
    for at, window in stops:
        near = [w for t, w in windows.items() if at - 1 <= t <= at + 1] + [w for t, w in windows.items() if t < at][-1:]
        assert not near or any(window == pytest.approx(max(w, MTU * bool(w)), rel=off, abs=2) for w in near), at
    assert qp["rate_bps"] == pytest.approx(model.rate_bps, rel=1e-3)
    for at, rate in sampled.items():
        known = [(t, r) for t, r in rates.items() if t < at + 1]
        if known and at < max(rates):
            near = [r for t, r in known if t > at - 1] + [r for t, r in known if t <= at - 1][-1:]
            assert any(rate == pytest.approx(r, rel=1e-3) for r in near), (at, rate, known[-1])
    assert len(set(windows.values())) > 10 or len(set(rates.values())) > 10  # it did something
    if control in ("timely", "hpcc") or "below" in case:
        assert len(sampled) > 10


def _stopped_at(f: BareFabric, time_ns: float) -> tuple[float, float]:
    """Lets time go on to there; there, and the window of rank 1."""
    f.fabricd.request("run_until", time_ns=time_ns)
    f.events("held")
    return time_ns, next((q["window_bytes"] for q in f.counters()["qps"] if q["rank"] == 1), 0)


@pytest.mark.parametrize("control", ["dcqcn", "dctcp", "swift", "hpcc", "nscc"])
def test_a_control_keeps_the_queue_below_what_none_builds(control: str) -> None:
    """Eight to one: less waits at the switch than without a control, and the link is still used.

    Not so TIMELY: it looks once a round trip, and the second is longer than such a burst.
    """
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
    h0, h1 = (n.mac for n in f.fabric.nics)
    assert {fr.macs for fr in data} == {(h0, h1)} and {fr.macs for fr in acks} == {(h1, h0)}
    assert {fr.sent_ns for fr in acks} <= {fr.sent_ns for fr in data}


def test_hpcc_forgets_the_stamps_of_another_path() -> None:
    """SIGCOMM 2019, section 4.1, pathID: stamps of the path before say nothing of this one, whose ports count anew."""
    size, at_ns = 10_000_000, 60_000.0
    took = []
    for moves in (False, True):
        with bare_fabric(
            "clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 1}, hardware("hpcc"), binary=plain()
        ) as f:
            f.fabricd.request("start", ranks=[])
            f.fabricd.request("run_until", time_ns=1.0)  # nothing runs before the next is asked for
            f.events("held")
            f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[0, 1, size, 0]])
            f.fabricd.request("run_until", time_ns=at_ns)
            f.events("held")
            used, other = sorted(("spine0", "spine1"), key=lambda name: -_sent_by(f, name))
            assert _sent_by(f, used) > 10 * _sent_by(f, other)
            if moves:
                way = f"dl_dst={f.fabric.nics[1].mac},actions=output:{f.port_to('leaf0', other)}"
                f.ofctl("mod-flows", f.bridge("leaf0"), way)
            f.fabricd.request("run_until", time_ns=3e6)
            f.events("held")
            ((*_, start, end),) = f.fabricd.request("traffic_results", fault="t")["flows"]
            took.append(end - start)
            assert (_sent_by(f, other) > size / 2) == moves and not f.nic(0)["retransmitted"]
    assert took[1] == pytest.approx(took[0], rel=0.01)


def _sent_by(f: BareFabric, node: str) -> int:
    return sum(p["tx_bytes"] for p in f.counters()["ports"] if p["node"] == node)


def test_nscc_measures_its_path_by_what_came_ahead_too() -> None:
    """uec.cpp, update_base_rtt: any acknowledgement of a full packet will do. The second of five is lost; what is sent
    after the NAKs has a longer way."""
    h = hardware("nscc", base_rtt=2 * RTT, window=10 * BDP)
    with star(2, replace(h, nic={**h.nic, "recovery": "selective_repeat"})) as f, watched(f, "h1:1") as seen:
        lost = {"effect": "drop", "match": {"opcodes": ["WRITE_MIDDLE"]}, "select": {"first": 1}}
        late = {"effect": "delay", "at_ns": 3000, "delay_ns": 2000, "jitter_ns": 0}
        for name, rule in (("lost", lost), ("late", late)):
            f.fabricd.request("inject", fault=name, primitive="frames", ports=["h1:1"], **rule)
        send(f, [(1, 0, 4 * MTU + 100, 0)])
        (qp,) = [q for q in f.counters()["qps"] if q["rank"] == 1]
    naks = [fr for fr in seen["frames"] if fr.opcode == ACK and fr.syndrome & 0x60]
    assert [fr.psn for fr in naks] == [1, 1, 1]
    trip = min(fr.time_ns - (fr.sent_ns or 0) for fr in naks[:2])
    assert trip < 1.2 * RTT and 0 < qp["window_bytes"] <= 10 * BDP * trip / (2 * RTT)


def test_another_window_holds_at_once() -> None:
    """A window of eight packets is acknowledged by halves: each goes once in a round trip of its last packet."""
    with star(2, hardware("none")) as f:
        _stopped_at(f, 1)
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[1, 0, 20_000_000, 0]])

        def packets(start_ns: float) -> int:
            """That leave in 100 us from then on."""
            before, after = (
                _stopped_at(f, at) and f.nic(1)["tx_vport_rdma_unicast_packets"] for at in (start_ns, start_ns + 1e5)
            )
            return int(after - before)

        assert packets(10_000) == pytest.approx(1e5 / ser_ns(frame_bytes(), LINE), abs=1)
        f.fabricd.request(
            "inject", fault="w", primitive="params", nic=1, values={"cc": {"params": {"window_bytes": 8 * MTU}}}
        )
        assert _stopped_at(f, 110_000)[1] == 8 * MTU
        assert packets(120_000) == pytest.approx(8e5 / (RTT + 3 * ser_ns(frame_bytes(), LINE)), abs=4)
        f.fabricd.request("heal", fault="w")
        assert packets(230_000) == pytest.approx(1e5 / ser_ns(frame_bytes(), LINE), abs=1)


def test_a_nic_takes_another_control_and_keeps_what_both_have() -> None:
    """Parameters of like name stay, those that only another control has are passed over, others are refused."""
    given = {"base_rtt": 5e3, "window": 1e6, "beta": 0.7, "max_decrease": 0.4, "min_window": 0.5, "hop_scale": 0}
    with star(2, hardware("swift", **given)) as f:

        def now() -> dict[str, Any]:
            return f.fabricd.request("parameters")["nics"][1]["cc"]

        def lay(name: str, cc: dict[str, Any]) -> None:
            f.fabricd.request("inject", fault=name, primitive="params", nic=1, values={"cc": cc})

        before = now()
        assert before["algorithm"] == "swift"
        wanted = {"base_rtt_ns": 5e3, "window_bytes": 1e6, "beta": 0.7, "max_decrease": 0.4, "min_window": 0.5}
        assert before["params"].items() >= wanted.items() and "hop_scale_ns" not in before["params"]
        lay("a", {"algorithm": "timely", "params": {"ai_bps": 1e15, "hai_bps": 7, "hops": 5, "ewma": 0}})
        kept = {"window_bytes": 1e6, "beta": 0.7, "max_decrease": 0.4}
        assert now() == {"algorithm": "timely", "params": kept | {"ai_bps": 1e15, "hops": 5}}
        lay("b", {"algorithm": "none"})
        assert now() == {"algorithm": "none", "params": {"window_bytes": 1e6, "hops": 5}}
        f.fabricd.request("heal", fault="b")
        lay("c", {"params": {"beta": 0.1}})
        assert now()["params"]["beta"] == 0.1
        f.fabricd.request("heal", fault="c")
        for wrong, why in (
            ({"algorithm": "tcp"}, "algorithm: unknown"),
            ({"params": {"speed": 1}}, "an unknown parameter"),
            ({"params": {"beta": -1}}, "numbers from 0 to 1e15"),
            ({"params": {"beta": 1.1e15}}, "numbers from 0 to 1e15"),
            ({"params": {"beta": "much"}}, "numbers from 0 to 1e15"),
        ):
            with pytest.raises(FabricdError, match=why):
                lay("d", wrong)
        f.fabricd.request("heal", fault="a")
        assert now() == before
