"""Cut-through switches: times to the picosecond, from the definition (Kermani, Kleinrock 1979), and what bad frames do.

Over n switches with cables of one rate a frame takes one serialization, and at each switch its header and a latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, bare_fabric
from tests.parts.timing_model import AETH, RETH, Model, ps_on, timed_write, wire_ps
from tests.parts.traffic_fabric import drops, nic, port, send, star, switch

HEADER = 72  # preamble and 64 bytes
CLOS = {"leaves": 2, "spines": 1, "hosts_per_leaf": 1}


class CutThrough(Model):
    def travel(self, payload: int, extension: int) -> int:
        rate = self.h.cable_rate_bps
        return wire_ps(rate, payload, extension) + self.switches * ps_on(rate, HEADER) + self.passing


@pytest.mark.parametrize("latency", [0.0, 100.0, 500.0])  # shorter than the serialization of 330 ns, and longer
@pytest.mark.parametrize(("kind", "params", "switches"), [("star", {"hosts": 2}, 1), ("clos", CLOS, 3)])
def test_one_serialization_and_n_headers(kind: str, params: Mapping[str, Any], switches: int, latency: float) -> None:
    h = Hardware(cable_rate_bps=100e9, switch_latency_ns=latency, cut_through=True)
    model = CutThrough(h, switches)
    for sample in (0, 16):  # through Open vSwitch, and by the fast path
        with bare_fabric(kind, params, h, sample=sample) as f:
            pair = f.pair(0, len(f.fabric.nics) - 1, 1 << 20)
            for size in (1, 4096):
                assert timed_write(pair, size)[0] == model.sent(size, RETH)
            # the packets of a message follow each other without a gap, and each cuts through
            packets = model.packets(1 << 20)
            first = sum(wire_ps(100e9, *p) for p in packets)
            passing = switches * ps_on(100e9, HEADER) + model.passing
            fetched = model.doorbell + model.pcie_ps(4096) + model.pcie
            assert timed_write(pair, 1 << 20)[0] == fetched + first + passing + model.ack()
            pair.done()
            counters = f.counters()
            assert counters["drops"] == []
            most = {s["buffer_max_bytes"] for s in counters["switches"]}  # acknowledgements, with a latency
            full = model.h.mtu + 58  # of which each is in before it is known where it leaves, if that takes longer
            assert all(m >= full if latency > 330 else m < full / 4 for m in most), most
            assert all(s["buffer_used_bytes"] == 0 for s in counters["switches"])


def test_as_inet_has_it_but_for_gap_and_header() -> None:
    """INET 4.6, showcases/tsn/cutthroughswitching: two switches, 1 Gb/s, 50 ns, frames of 1,254 bytes with preamble.

    It takes 30.246 us stored and 10.534 us cut through, by its page.  There a frame ends before the gap, and a switch
    waits for 22 bytes; here the gap belongs to the frame, and the header is 72 bytes.
    """
    for cut, inet_ns in ((False, 30_246), (True, 10_534)):
        h = Hardware(cable_rate_bps=1e9, cable_delay_ns=50.0, switch_latency_ns=0.0, cut_through=cut)
        model = (CutThrough if cut else Model)(h, 2)
        with bare_fabric("ring", {"nodes": 2}, h) as f:
            pair = f.pair(0, 1)
            took = timed_write(pair, 1168)[0] - model.ack()  # 1,266 bytes of cable
            way = took - model.doorbell - model.pcie_ps(1168) - model.pcie
            gap, header = 12 * 8, (72 - 22) * 8
            assert way == 1000 * (inet_ns + (gap + 2 * header if cut else 3 * gap))
            pair.done()


@pytest.mark.parametrize("rates", [(100e9, 400e9), (400e9, 100e9)])
def test_into_a_faster_cable_it_stores_and_into_a_slower_one_it_cuts(rates: tuple[float, float]) -> None:
    """Of a star's two cables; the acknowledgement goes the other way, so one of the two is stored in either case."""
    h = Hardware(switch_latency_ns=100.0, cut_through=True)
    with bare_fabric("star", {"hosts": 2}, h) as f:
        for host, rate in enumerate(rates):
            f.fabricd.request("cable", cable=f"sw0-h{host}", rate_bps=rate)
        pair = f.pair(0, 1)
        model = Model(h, 1)

        def way(first: float, second: float, payload: int, extension: int) -> int:
            begins = ps_on(first, HEADER) if second <= first else wire_ps(first, payload, extension)
            return begins + wire_ps(second, payload, extension) + model.passing

        ends = model.pcie + way(*rates, 4096, RETH) + way(*rates[::-1], 0, AETH)
        assert timed_write(pair, 4096)[0] == model.doorbell + model.pcie_ps(4096) + model.pcie + ends
        pair.done()


def test_a_way_out_that_is_taken_makes_it_store() -> None:
    """Two frames at one time into one port: the second one is in as a whole before the first has left."""
    h = Hardware(cable_rate_bps=100e9, switch_latency_ns=100.0, cut_through=True, nic=nic(rate_bps=100e9))
    header, frame = ps_on(100e9, HEADER) / 1000, wire_ps(100e9, 4096, RETH) / 1000
    with star(3, h) as f:
        alone = send(f, [(1, 0, 4096, 0.0)])[0]
        first, second = sorted(send(f, [(1, 0, 4096, 0.0), (2, 0, 4096, 0.0)]))
        assert (first, second) == (alone, pytest.approx(alone + frame, abs=1e-3))
        stored = frame - header - 100.0  # what still comes in when it is known where it goes
        for after in (frame / 8, frame / 2, frame - 0.08):  # one byte's time before the cable is free it is stored, too
            late = send(f, [(1, 0, 4096, 0.0), (2, 0, 4096, after)])[1]
            assert late == pytest.approx(alone + max(frame - after, stored), abs=1e-3)
        assert send(f, [(1, 0, 4096, 0.0), (2, 0, 4096, frame)])[1] == pytest.approx(alone, abs=1e-3)


def bad_at_the_first_switch(f: BareFabric) -> None:
    rule = {"ports": ["h0:1"], "effect": "drop", "shown": "crc", "select": {"first": 1}}
    f.fabricd.request("inject", fault="dirty", primitive="frames", **rule)


@pytest.mark.parametrize("sample", [0, 16])
@pytest.mark.parametrize("latency", [100.0, 500.0])
def test_a_bad_frame_is_carried_on_and_counted_at_the_far_end(latency: float, sample: int | None) -> None:
    h = Hardware(cable_rate_bps=100e9, switch_latency_ns=latency, cut_through=True, timeout_ns=1e5, nic=nic())
    with bare_fabric("clos", CLOS, h, sample=sample) as f:
        f.fabricd.request("start", ranks=[])
        bad_at_the_first_switch(f)
        send(f, [(0, 1, 3 * 4096, 0.0)])
        assert [(s["node"], s["port"], s["crc"]) for s in f.counters()["shown"]] == [("leaf0", 1, 1)]
        counted = {(p["node"], p["port"]): p["rx_stomped_crc"] for p in f.counters()["ports"] if "rx_stomped_crc" in p}
        lost = {(d["node"], d["port"], d["reason"], d["count"]) for d in f.counters()["drops"]}
        if latency < 330:
            assert counted == {("spine0", 1): 1, ("leaf1", 2): 1, ("h1", 1): 1}
            assert lost == {("h1", 1, "stomped", 1)}
        else:  # it was in as a whole before it was known where it would leave
            assert (counted, lost) == ({}, {("leaf0", 1, "fault", 1)})
        assert all(s["buffer_used_bytes"] == 0 for s in f.counters()["switches"])


def test_a_frame_that_a_cut_cable_ends_is_stomped_too() -> None:
    """While a chain of switches carries it: its beginning goes on, its end never comes."""
    h = Hardware(cable_rate_bps=1e9, switch_latency_ns=100.0, cut_through=True, timeout_ns=1e7, nic=nic())
    with bare_fabric("clos", CLOS, h) as f:
        for up, at_ns in ((False, 20e3), (True, 1e6)):
            f.fabricd.request("cable", cable="leaf0-h0", up=up, at_ns=at_ns)
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[0, 1, 4096, 0.0]])
        f.fabricd.request("start", ranks=[])
        f.fabricd.request("quiesce", 60.0)
        assert drops(f) == {"cable": 1, "stomped": 1}
        assert port(f, "h1", 1)["rx_stomped_crc"] == 1


def test_an_incast_keeps_its_order_and_its_buffer() -> None:
    """15 to 1 with pauses: nothing is lost, and after it nothing is left in the buffer."""
    times = {}
    for cut in (False, True):
        h = Hardware(
            cable_rate_bps=100e9, switch_latency_ns=100.0, cut_through=cut, switch_buffer_bytes=4_000_000,
            switch=switch(headroom=100_000), nic=nic(rate_bps=100e9),
        )  # fmt: skip
        with star(16, h) as f:
            times[cut] = max(send(f, [(rank, 0, 500_000, 0.0) for rank in range(1, 16)]))
            counters = f.counters()
            assert counters["drops"] == [] and sum(n["out_of_sequence"] for n in counters["nics"]) == 0
            assert counters["switches"][0]["buffer_used_bytes"] == 0
            assert sum(p["priorities"].get("tx_prio3_pause", 0) for p in counters["ports"]) > 0
    assert times[True] == pytest.approx(times[False], rel=0.01)
