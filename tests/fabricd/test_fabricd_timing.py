"""Emulated times are exact: flows and completions against closed forms derived from the documented model.

A post takes post_ns of its worker's time and reaches the NIC a PCIe latency later.  Payload is fetched at the PCIe
rate, a PCIe latency behind.  A frame takes its wire bytes on each cable, the cable's delay, and a switch's latency
behind its last bit.  The acknowledgement takes the same way back, and a completion is visible a PCIe latency later.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, Pair, RawWorker, as_they_end, bare_fabric, post_recv, post_send
from tests.parts.timing_model import AETH, HEADERS, IMM, PS, RETH, Model, one, timed_write, wire_ps
from workloads.verbs import wire

ONE, TWO, THREE = (
    ("star", {"hosts": 2}, 1),
    ("ring", {"nodes": 2}, 2),
    ("clos", {"leaves": 2, "spines": 1, "hosts_per_leaf": 1}, 3),
)


@pytest.mark.parametrize("mtu", [256, 1024, 4096, 9000])
@pytest.mark.parametrize(("kind", "params", "switches"), [ONE, TWO, THREE])
def test_one_packet(kind: str, params: dict[str, int], switches: int, mtu: int) -> None:
    h = Hardware(mtu=mtu)
    model = Model(h, switches)
    with bare_fabric(kind, params, h) as f:
        pair = f.pair(0, len(f.fabric.nics) - 1, 16384)
        for size in (0, 1, 2, 3, 4, 5, 63, 255, mtu - 1, mtu):
            pair.memory_a[:size] = os.urandom(size)
            took, record = timed_write(pair, size, wr_id=size)
            assert (took, record.status, record.wr_id, record.nbytes) == (model.sent(size, RETH), 0, size, size)
            assert pair.memory_b[:size] == pair.memory_a[:size]
        pair.done()


@pytest.mark.parametrize(("kind", "params", "switches"), [ONE, THREE])
def test_what_the_receiver_sees_and_when(kind: str, params: dict[str, int], switches: int) -> None:
    model = Model(Hardware(), switches)
    with bare_fabric(kind, params) as f:
        pair = f.pair(0, len(f.fabric.nics) - 1)
        for opcode, extension in ((wire.WRITE_IMM, RETH + IMM), (wire.SEND, 0)):
            for size in (0, 1, 4096):
                pair.memory_a[:size] = os.urandom(size)
                until = pair.a.time_ps + 100_000_000
                pair.b.begin_wait(99, until)  # both at the same time again
                pair.a.wait(99, until)
                pair.b.end_wait()
                start = pair.a.time_ps
                assert start == pair.b.time_ps
                pair.b.begin_wait(1, wire.FOREVER, post_recv(pair.qp_b, pair.key_b, 4096, wr_id=77))
                pair.a.begin_wait(1, wire.FOREVER, pair.write(size, opcode=opcode, imm=0xABCD1234))
                received = one(pair.b.end_wait())
                pair.b.begin_wait(99, start + 10_000_000)
                sent = one(pair.a.end_wait())
                pair.a.begin_wait(99, start + 10_000_000)
                pair.b.end_wait()
                pair.a.end_wait()
                assert sent.time_ps - start == model.sent(size, extension)
                assert received.time_ps - start == model.received(size, extension)
                assert (received.wr_id, received.nbytes) == (77, size)
                if opcode == wire.WRITE_IMM:
                    assert (received.kind, received.imm) == (wire.RECEIVED_IMM, 0xABCD1234)
                else:
                    assert received.kind == wire.RECEIVED
                assert pair.memory_b[:size] == pair.memory_a[:size]
        pair.done()


@pytest.mark.parametrize(("kind", "params", "switches"), [ONE, TWO, THREE])
def test_a_long_flow_runs_at_the_cables_rate(kind: str, params: dict[str, int], switches: int) -> None:
    h = Hardware()
    model = Model(h, switches)
    with bare_fabric(kind, params, h) as f:
        pair = f.pair(0, len(f.fabric.nics) - 1, 8 << 20)
        pair.memory_a[:] = os.urandom(len(pair.memory_a))
        times = {}
        for size in (1 << 20, 8 << 20, (1 << 20) + 4097):
            times[size], record = timed_write(pair, size)
            assert record.status == 0
            assert times[size] == model.long_sent(size)
        assert pair.memory_b[:] == pair.memory_a[:]
        bps = (7 << 20) * 8 * 10**12 / (times[8 << 20] - times[1 << 20])
        assert bps == pytest.approx(h.cable_rate_bps * h.mtu / (h.mtu + HEADERS + 24), rel=0.001)
        pair.done()
        assert f.counters()["drops"] == []


def test_pcie_slower_than_the_wire_sets_the_rate() -> None:
    h = Hardware(pcie_rate_bps=100e9)
    model = Model(h, 1)
    with bare_fabric("star", {"hosts": 2}, h) as f:
        pair = f.pair(0, 1, 1 << 20)
        took, _ = timed_write(pair, 1 << 20)
        last = model.doorbell + 256 * model.pcie_ps(4096) + model.pcie + model.travel(4096, 0)
        assert took == last + model.ack()
        pair.done()


def test_a_small_transmit_buffer_lets_one_packet_at_a_time_out() -> None:
    h = Hardware(tx_buffer_bytes=1)
    model = Model(h, 1)
    with bare_fabric("star", {"hosts": 2}, h) as f:
        pair = f.pair(0, 1, 40960)
        took, _ = timed_write(pair, 40960)
        # the next fetch starts when the frame before starts on the wire
        each = model.pcie_ps(4096) + model.pcie
        assert took == model.doorbell + 10 * each + model.travel(4096, 0) + model.ack()
        pair.done()


def test_scale_up_domain() -> None:
    h = Hardware()
    with bare_fabric("rail", {"servers": 2, "gpus": 2, "spines": 1}, h) as f:
        f.start(0, 1)
        a, b = f.worker(0), f.worker(1)
        inside, outside = f.connect(a, b, 1 << 20), f.connect(a, b, 1 << 20, tag=6, network_only=True)
        assert (inside.scale_up, outside.scale_up) == (True, False)
        up = Model(replace(h, cable_rate_bps=h.scale_up_rate_bps, cable_delay_ns=h.scale_up_delay_ns), 0)
        for size in (1, 4096, 1 << 20):
            packets = up.packets(size)
            data = sum(wire_ps(h.scale_up_rate_bps, *p) for p in packets) + up.passing
            assert timed_write(inside, size)[0] == up.doorbell + data + up.ack()
        assert f.counters()["fidelity"]["frame_hops"] == 0
        # two rails joined by a spine: rail switch, spine, rail switch
        outside.parked = inside.parked
        assert timed_write(outside, 4096)[0] == Model(h, 3).sent(4096, RETH)
        inside.done()


def at_once(pairs: Sequence[Pair], sink: RawWorker, start_ps: int, size: int) -> None:
    """Each pair's sender posts a write at `start_ps` and waits for it; so does the sink, for longer."""
    for p in pairs:
        p.a.begin_wait(9, start_ps)
    sink.begin_wait(9, start_ps + 10**9)
    for p in pairs:
        p.a.end_wait()
        p.a.begin_wait(1, wire.FOREVER, p.write(size))


def test_flows_into_one_port_share_it() -> None:
    """Two flows into one port get half of it each, to within a frame; three get a third."""
    size = 1 << 20
    for senders in (2, 3):
        h = Hardware()
        with bare_fabric("star", {"hosts": 4}, h) as f:
            f.start(*range(senders + 1))
            sink, *sources = [f.worker(i) for i in range(senders + 1)]
            pairs = [f.connect(w, sink, size) for w in sources]
            start = max(p.a.time_ps for p in pairs) + 1_000_000
            at_once(pairs, sink, start, size)
            ends = [r.time_ps for r in as_they_end([p.a for p in pairs])]
            sink.end_wait()
            frame = wire_ps(h.cable_rate_bps, 4096, RETH)
            assert max(ends) - min(ends) <= senders * frame
            alone = Model(h, 1).long_sent(size)
            shared = max(ends) - start
            assert shared == pytest.approx(alone + (senders - 1) * 256 * wire_ps(h.cable_rate_bps, 4096, 0), rel=1e-4)
            sink.bye()
            assert f.counters()["drops"] == []


def test_a_full_buffer_drops_what_arithmetic_says() -> None:
    """Seven frames come in at one time: two fit into the buffer, where they are from then on, and five are lost.

    Their queue pairs send again a timeout later, all at one time: two get through, and so on.
    """
    frame = HEADERS + RETH + 4096
    h = Hardware(switch_buffer_bytes=2 * frame, timeout_ns=50_000)
    model = Model(h, 1)
    with bare_fabric("star", {"hosts": 8}, h) as f:
        f.start(*range(8))
        sink, *sources = [f.worker(i) for i in range(8)]
        pairs = [f.connect(w, sink) for w in sources]
        start = max(p.a.time_ps for p in pairs) + 1_000_000
        at_once(pairs, sink, start, 4096)
        took = [r.time_ps - start for r in as_they_end([p.a for p in pairs])]
        sink.end_wait()
        ser, timeout = wire_ps(h.cable_rate_bps, 4096, RETH), int(h.timeout_ns * PS)
        expected = [model.sent(4096, RETH) + again * timeout + place * ser for again in range(4) for place in range(2)]
        assert took == expected[:7]  # places in order of port number
        counters = f.counters()
        lost = [(d["node"], d["port"], d["reason"], d["count"]) for d in counters["drops"]]
        assert lost == [("sw0", port, "tail", times) for port, times in zip(range(4, 9), (1, 1, 2, 2, 3), strict=True)]
        assert "RoCE RC WRITE_ONLY" in counters["drops"][0]["headers"]
        for key, count in (("retransmitted", 9), ("local_ack_timeout_err", 9)):
            assert sum(n[key] for n in counters["nics"]) == count
        assert counters["switches"][0]["buffer_max_bytes"] == 2 * frame
        sink.bye()


def test_a_rate_changes_at_its_time() -> None:
    """Frames that start at that time or later take the new rate, to the picosecond."""
    h, slow = Hardware(), 100e9
    model = Model(h, 1)
    size = 1 << 20
    with bare_fabric("star", {"hosts": 2}, h) as f:
        pair = f.pair(0, 1, size)
        pair.park()
        start = pair.a.time_ps
        at = start + 15_000_000
        f.fabricd.request("cable", cable=f.fabric.cables[0].name, rate_bps=slow, at_ns=at / PS)
        end = one(pair.a.wait(1, wire.FOREVER, pair.write(size))).time_ps
        t = start + model.doorbell + model.pcie_ps(4096) + model.pcie
        for packet in model.packets(size):
            t += wire_ps(h.cable_rate_bps if t < at else slow, *packet)
        # over the second cable, which is as it was; the acknowledgement's last cable is slow as well
        expected = t + wire_ps(h.cable_rate_bps, 4096, 0) + model.passing + model.ack()
        expected += wire_ps(slow, 0, AETH) - wire_ps(h.cable_rate_bps, 0, AETH)
        assert end == expected
        pair.done()


def test_a_delay_changes_at_its_time() -> None:
    h = Hardware()
    model = Model(h, 1)
    with bare_fabric("star", {"hosts": 2}, h) as f:
        pair = f.pair(0, 1, 1 << 20)
        before, _ = timed_write(pair, 4096)
        assert before == model.sent(4096, RETH)
        f.fabricd.request("cable", cable="sw0-h1", delay_ns=2500)
        f.fabricd.request("cable", cable="sw0-h1", delay_ns=100.5, at_ns=pair.a.time_ps / PS + 20_000)
        longer, _ = timed_write(pair, 4096)
        assert longer == model.sent(4096, RETH) + 2 * 2_000_000
        # and becomes shorter in the middle of a flow: nothing overtakes
        _, record = timed_write(pair, 1 << 20)
        assert record.status == 0
        shorter, _ = timed_write(pair, 4096)
        assert shorter == model.sent(4096, RETH) - 2 * 399_500
        assert f.nic(1)["out_of_sequence"] == 0
        pair.done()


def test_compute_runs_beside_communication() -> None:
    model = Model(Hardware(), 1)
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1)
        pair.park()
        start = pair.a.time_ps
        commands = [
            wire.command(wire.COMPUTE, 1, 5_000_000, 0, 0),
            pair.write(4096, wr_id=3),
            wire.command(wire.SPEND, 250_000),
            wire.command(wire.COMPUTE, 2, 1_000_000, 0, 0),
        ]
        records = pair.a.wait(3, wire.FOREVER, *commands)
        assert [(r.kind, r.wr_id, r.time_ps - start) for r in records] == [
            (wire.SENT, 3, model.sent(4096, RETH)),
            (wire.COMPUTED, 1, 5_000_000),
            (wire.COMPUTED, 2, 6_000_000),
        ]
        pair.done()


def test_compute_streams_run_side_by_side() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1)
        pair.park()
        start = pair.a.time_ps
        commands = [
            wire.command(wire.COMPUTE, 1, 5_000_000, 7, 0),
            wire.command(wire.COMPUTE, 2, 1_000_000, 255, 0),
            wire.command(wire.COMPUTE, 3, 1_000_000, 7, 0),
            wire.command(wire.COMPUTE, 4, 3_000_000, 255, 0),
        ]
        records = pair.a.wait(4, wire.FOREVER, *commands)
        found = [(r.wr_id, r.time_ps - start) for r in records]
        assert found == [(2, 1_000_000), (4, 4_000_000), (1, 5_000_000), (3, 6_000_000)]
        pair.done()


def posted_in_a_row(f: BareFabric, pair: Pair, count: int) -> list[int]:
    pair.park()
    start = pair.a.time_ps
    commands = [post_send(pair.qp_a, pair.key_a, pair.key_b, 64, wr_id=i) for i in range(count)]
    return [r.time_ps - start for r in pair.a.wait(count, wire.FOREVER, *commands)]


def test_posts_take_the_hosts_time() -> None:
    model = Model(Hardware(), 1)
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1)
        assert posted_in_a_row(f, pair, 20) == [model.sent(64, RETH) + i * 100_000 for i in range(20)]
        pair.done()
