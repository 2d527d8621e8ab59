"""What queue pairs do about loss and refusal: timeouts, go-back-N, RNR, access errors; exact times, counters."""

from __future__ import annotations

import os
from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, Pair, as_they_end, bare_fabric, post_recv
from tests.parts.timing_model import PS, RETH, Model, one, timed_write, wire_ps
from workloads.verbs import wire

FLUSHED, REMOTE_INVALID, REMOTE_ACCESS, RETRY_EXCEEDED, RNR_EXCEEDED = 5, 9, 10, 12, 13


def statuses(pair: Pair, count: int) -> list[tuple[int, int]]:
    """Of the next `count` completions at a: request and status, in the order of time and then of number."""
    pair.park()
    return [(r.wr_id, r.status) for r in pair.a.wait(count)]


def drops(f: BareFabric, reason: str, node: str | None = None) -> int:
    """At all ports, or at those of one node."""
    here = (d for d in f.counters()["drops"] if node in (None, d["node"]))
    return sum(int(d["count"]) for d in here if d["reason"] == reason)


def sent_by(f: BareFabric, node: str) -> int:
    return sum(int(p["tx_frames"]) for p in f.counters()["ports"] if p["node"] == node)


def test_receiver_not_ready_is_tried_again_until_it_is() -> None:
    h = Hardware()
    model = Model(h, 1)
    with bare_fabric("star", {"hosts": 2}, h) as f:
        pair = f.pair(0, 1)
        pair.memory_a[:4] = b"good"
        start = pair.a.time_ps
        pair.b.begin_wait(1, start + 25_000_000)
        pair.a.begin_wait(1, wire.FOREVER, pair.write(4, opcode=wire.SEND))
        assert pair.b.end_wait() == []
        pair.b.begin_wait(1, wire.FOREVER, post_recv(pair.qp_b, pair.key_b, 16, wr_id=5))
        received = one(pair.b.end_wait())
        pair.park()
        sent = one(pair.a.end_wait())
        # each try: out, the RNR NAK back, and the pause from then on; fetched anew every time
        again = model.pcie_ps(4) + model.pcie + model.travel(4, 0) + model.travel(0, 4) + int(h.rnr_timeout_ns * PS)
        tries = -(-25_000_000 // again)  # the receive reaches the NIC 600 ns after that time, before the next try
        assert sent.time_ps - start == model.sent(4, 0) + tries * again
        assert received.time_ps - start == model.received(4, 0) + tries * again
        assert (sent.status, received.wr_id, received.nbytes, pair.memory_b[:4]) == (0, 5, 4, b"good")
        assert f.nic(0)["rnr_nak_retry_err"] == tries == f.nic(0)["retransmitted"]
        assert [q["retransmitted"] for q in f.counters()["qps"] if q["rank"] == 0] == [tries]
        assert f.counters()["fidelity"]["events"] < 200  # no timer multiplies
        pair.done()


def test_a_slow_receivers_request_is_of_use_when_its_time_has_come() -> None:
    delay_ns = 30_000
    h = Hardware(nic={"recv_delay_ns": delay_ns}, rnr_retry=4)
    model = Model(h, 1)
    with bare_fabric("star", {"hosts": 2}, h) as f:
        pair = f.pair(0, 1)
        start = pair.a.time_ps
        pair.b.begin_wait(1, wire.FOREVER, post_recv(pair.qp_b, pair.key_b, 16, wr_id=5))
        pair.a.begin_wait(1, wire.FOREVER, pair.write(4, opcode=wire.SEND))
        received = one(pair.b.end_wait())
        pair.park()
        sent = one(pair.a.end_wait())
        again = model.pcie_ps(4) + model.pcie + model.travel(4, 0) + model.travel(0, 4) + int(h.rnr_timeout_ns * PS)
        tries = -(-(model.doorbell + delay_ns * PS - model.arrival(4, 0)) // again)
        assert tries == 3 == f.nic(0)["rnr_nak_retry_err"]
        assert sent.time_ps - start == model.sent(4, 0) + tries * again
        assert received.time_ps - start == model.received(4, 0) + tries * again
        (late,) = pair.a.wait(1, wire.FOREVER, pair.write(4, opcode=wire.SEND))
        assert late.status == RNR_EXCEEDED, "it was of use once"
        pair.done()


@pytest.mark.parametrize("opcode", [wire.SEND, wire.WRITE_IMM])
def test_receiver_never_ready(opcode: int) -> None:
    with bare_fabric("star", {"hosts": 2}, Hardware(rnr_retry=2)) as f:
        pair = f.pair(0, 1)
        pair.a.send(pair.write(8, wr_id=1, opcode=opcode), pair.write(8, wr_id=2, opcode=opcode))
        assert statuses(pair, 2) == [(1, RNR_EXCEEDED), (2, FLUSHED)]
        assert f.nic(0)["rnr_nak_retry_err"] == 3 == sent_by(f, "h1"), "what is behind is dropped (IB 9.7.5.2.8)"
        assert f.events("qp_error")[0].items() >= {"rank": 0, "peer": 1, "status": RNR_EXCEEDED}.items()
        pair.done()


@pytest.mark.parametrize(
    ("key", "remote", "length"),
    [(99, 0, 8), (0, 0, 8), (1, 4090, 8), (1, 2**64 - 4, 8), (1, 2**63, 8), (1, 4096, 1), (1, 0, 4097)],
)
def test_remote_access_error(key: int, remote: int, length: int) -> None:
    """A write outside the peer's memory writes nothing and breaks the queue pair: what was posted later is flushed."""
    with bare_fabric("star", {"hosts": 2}) as f:
        f.start(0, 1)
        a, b = f.worker(0), f.worker(1)
        key_a, _ = a.region(8192)
        pair = f.connect(a, b)
        pair.key_a, pair.key_b = key_a, key
        commands = [pair.write(length, wr_id=7, remote=remote), pair.write(8, wr_id=8), pair.write(8, wr_id=9)]
        pair.a.send(post_recv(pair.qp_a, key_a, 8, wr_id=6), *commands)
        assert statuses(pair, 4) == [(7, REMOTE_ACCESS), (8, FLUSHED), (9, FLUSHED), (6, FLUSHED)]
        pair.a.send(pair.write(8, wr_id=10), post_recv(pair.qp_a, key_a, 8, wr_id=11))
        assert statuses(pair, 2) == [(10, FLUSHED), (11, FLUSHED)]
        assert pair.memory_b[:] == bytes(4096)
        assert sent_by(f, "h1") == 1, "what is behind the refused request is dropped (IB 9.9.3, class C)"
        pair.done()


def test_requests_beyond_what_a_queue_pair_keeps_are_flushed() -> None:
    """16384 of each kind (docs/fabricd-protocol.md); the first one is the first to be used."""
    kept = 16384
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1)
        for first in range(0, kept + 1, 1000):
            numbers = range(first, min(first + 1000, kept + 1))
            pair.b.send(*(post_recv(pair.qp_b, pair.key_b, 8, wr_id=n) for n in numbers))
        pair.a.begin_wait(9, pair.a.time_ps + 10**10)
        flushed = one(pair.b.wait(1))
        assert (flushed.wr_id, flushed.status) == (kept, FLUSHED)
        pair.b.begin_wait(1)
        assert pair.a.end_wait() == []
        pair.a.begin_wait(1, wire.FOREVER, pair.write(8, opcode=wire.SEND))
        received = one(pair.b.end_wait())
        assert (received.wr_id, received.status) == (0, 0)
        pair.park()
        assert one(pair.a.end_wait()).status == 0
        pair.done()


def test_a_send_longer_than_the_receive_is_refused() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1, 16384)
        pair.b.begin_wait(9, 10**9, post_recv(pair.qp_b, pair.key_b, 5000))
        pair.parked = True
        assert one(pair.a.wait(1, wire.FOREVER, pair.write(5001, opcode=wire.SEND))).status == REMOTE_INVALID
        pair.done()


def test_a_cable_that_stays_down_exceeds_the_retries() -> None:
    h = Hardware(timeout_ns=40_000, retry=3)
    model = Model(h, 1)
    with bare_fabric("star", {"hosts": 2}, h) as f:
        pair = f.pair(0, 1)
        pair.park()
        start = pair.a.time_ps
        f.fabricd.request("cable", cable="sw0-h1", up=False)
        pair.a.send(pair.write(4096, wr_id=1))
        pair.a.send(pair.write(4096, wr_id=2))
        first, second = pair.a.wait(2)
        assert [(r.wr_id, r.status) for r in (first, second)] == [(1, RETRY_EXCEEDED), (2, FLUSHED)]
        assert first.time_ps - start == model.doorbell + 4 * int(h.timeout_ns * PS) + model.pcie
        assert f.nic(0)["local_ack_timeout_err"] == 4
        assert drops(f, "cable") == f.nic(0)["tx_vport_rdma_unicast_packets"] == 8
        error = f.events("qp_error")[0]
        assert error.items() >= {"rank": 0, "peer": 1, "status": RETRY_EXCEEDED}.items()
        pair.done()


def test_an_acknowledgement_that_comes_after_the_timeout_is_heeded() -> None:
    """The timeout is shorter than a round trip, and the NIC has room for one packet: it has gone back too far."""
    with bare_fabric("star", {"hosts": 2}, Hardware(timeout_ns=3000, tx_buffer_bytes=4200, ack_every=1)) as f:
        pair = f.pair(0, 1, 1 << 15)
        pair.memory_a[:] = os.urandom(1 << 15)
        half = [pair.write(1 << 14, wr_id=n, local=n << 14, remote=n << 14) for n in (0, 1)]
        pair.park()
        assert [(r.wr_id, r.status) for r in pair.a.wait(2, wire.FOREVER, *half)] == [(0, 0), (1, 0)]
        assert pair.memory_b[:] == pair.memory_a[:]
        pair.done()
        f.fabricd.request("quiesce")
        again = f.nic(0)["retransmitted"]
        assert 0 < again == f.nic(1)["duplicate_request"] + f.nic(1)["out_of_sequence"]


@pytest.mark.parametrize("pauses", [False, True])
def test_what_finds_no_room_in_the_receiver_is_dropped_unless_it_pauses(pauses: bool) -> None:
    """PCIe takes a quarter of what the cable brings: a burst fills the buffer. What comes ahead needs no room in it."""
    packets, room, pcie = 60, 16 * 4096, 100e9
    receiver: dict[str, Any] = {
        "pcie_rate_bps": pcie,
        "rx_buffer_bytes": room,
        "rx_xoff_bytes": room // 8,
        "rx_xon_bytes": room // 16,
    }
    receiver |= {"lossless": [3] if pauses else [], "pfc": True}
    h = Hardware(of_nic={"h1": receiver}, switch={"pfc": True}, timeout_ns=50_000)
    came_ns, free_ns, lost = 0.0, 0.0, 0
    for _ in range(packets):
        if (max(free_ns - came_ns, 0) * pcie / 8e9) + 4096 > room:
            lost += 1
        elif not lost:
            free_ns = max(free_ns, came_ns) + 4096 * 8e9 / pcie
        came_ns += wire_ps(h.cable_rate_bps, 4096, 0) / PS
    with bare_fabric("star", {"hosts": 2}, h) as f:
        pair = f.pair(0, 1, packets * 4096)
        pair.b.begin_wait(9, pair.a.time_ps + Model(h, 1).arrival(4096, RETH) + int(came_ns * PS))
        pair.a.begin_wait(1, wire.FOREVER, pair.write(packets * 4096))
        assert pair.b.end_wait() == []
        nic1, dropped = f.nic(1), drops(f, "no_receive_buffer")
        shown = sum(one.get("rx_full", 0) for one in f.counters()["shown"] if one["node"] == "h1")
        pair.park()
        assert one(pair.a.end_wait()).status == 0
        pair.done()
        sent = next(p for p in f.counters()["ports"] if p["node"] == "h1")["priorities"].get("tx_prio3_pause", 0)
    assert lost > 1 and dropped == nic1["rx_out_of_buffer"] == shown == (0 if pauses else lost)
    assert (sent > 0) == pauses


@pytest.mark.parametrize("cable", ["sw0-h0", "sw0-h1"])
def test_a_cable_that_flaps_costs_a_timeout_at_most(cable: str) -> None:
    h = Hardware(timeout_ns=50_000)
    model = Model(h, 1)
    size = 1 << 20
    with bare_fabric("star", {"hosts": 2}, h) as f:
        pair = f.pair(0, 1, size)
        pair.memory_a[:] = os.urandom(size)
        now = pair.a.time_ps / PS
        f.fabricd.request("cable", cable=cable, up=False, at_ns=now + 10_000)
        f.fabricd.request("cable", cable=cable, up=True, at_ns=now + 15_000.5)
        took, record = timed_write(pair, size)
        assert record.status == 0
        assert pair.memory_b[:] == pair.memory_a[:]
        assert model.long_sent(size) < took < model.long_sent(size) + int((h.timeout_ns + 10_000) * PS)
        sender, receiver, lost = f.nic(0), f.nic(1), drops(f, "cable")
        assert lost > 0
        assert sender["retransmitted"] > 0
        never_sent = drops(f, "cable", "h0")  # what waits at a port whose cable is cut
        assert sender["tx_vport_rdma_unicast_packets"] == size // h.mtu + sender["retransmitted"] - never_sent
        assert (never_sent > 0) == (cable == "sw0-h0")
        # every packet has come in or was lost: data at one end, answers at the other
        answers = receiver["rx_vport_rdma_unicast_packets"] - receiver["out_of_sequence"]
        assert sender["tx_vport_rdma_unicast_packets"] - receiver["rx_vport_rdma_unicast_packets"] <= lost - never_sent
        assert receiver["duplicate_request"] + size // h.mtu == answers
        assert f.counters()["fidelity"]["flagged"] == 0
        pair.done()


def test_incast_into_a_tiny_buffer() -> None:
    """Incast into a buffer of two frames and a few acknowledgements: go-back-N gets all bytes through."""
    frame = 14 + 20 + 8 + 12 + 4 + RETH + 1024
    h = Hardware(mtu=1024, switch_buffer_bytes=2 * frame + 400, timeout_ns=30_000, retry=50)
    size = 256 * 1024
    with bare_fabric("star", {"hosts": 4}, h) as f:
        for i, delay_ns in enumerate((500, 517.3, 508.1, 531.7)):  # out of step, so that each gets its share
            f.fabricd.request("cable", cable=f"sw0-h{i}", delay_ns=delay_ns)
        for i, bps in enumerate((400e9, 390e9, 370e9, 350e9)):
            f.fabricd.request("cable", cable=f"sw0-h{i}", rate_bps=bps)
        f.start(*range(4))
        sink, *sources = [f.worker(i) for i in range(4)]
        pairs = [f.connect(w, sink, size) for w in sources]
        sink.begin_wait(9, 10**12)
        for p in pairs:
            p.memory_a[:] = os.urandom(size)
            p.a.begin_wait(1, wire.FOREVER, p.write(size))
        assert [r.status for r in as_they_end([p.a for p in pairs])] == [0, 0, 0]
        for p in pairs:
            assert p.memory_b[:] == p.memory_a[:]
        sink.end_wait()
        sink.bye()
        counters = f.counters()
        lost = drops(f, "tail")
        assert lost > 100
        assert sum(n["packet_seq_err"] for n in counters["nics"]) > 3
        sent = sum(n["tx_vport_rdma_unicast_packets"] for n in counters["nics"][1:])
        assert sent - counters["nics"][0]["rx_vport_rdma_unicast_packets"] == lost
