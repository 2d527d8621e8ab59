"""Selective repeat: placed on arrival, all lost at a timeout, patient with reordering, never behind go-back-N."""

from __future__ import annotations

from typing import Any

import pytest

from hardware import bounds
from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, bare_fabric, plain, post_recv
from tests.parts.recovery_model import Incast, hardware, lossy_flow, selective_ns
from tests.parts.timing_model import RETH, Model, one, wire_ps
from tests.parts.traffic_fabric import drops, frame_bytes, nic, send, star, switch
from tests.parts.wire_view import watched
from topologies.graph import frames
from workloads.verbs import wire

MTU, LINE, T = 4096, 400e9, frames.ser_ns(frame_bytes(), 400e9)
BOTH = ["go_back_n", "selective_repeat"]


def lossy(recovery: str, buffers: dict[str, Any] | None = None, **more: Any) -> Hardware:
    its_nic = {**nic(), "recovery": recovery, **(buffers or {})}
    return Hardware(switch=switch(headroom=0, lossless=[], alpha=64), nic=its_nic, **more)


def strike(f: BareFabric, *, effect: str = "drop", name: str = "x", **more: Any) -> None:
    f.fabricd.request("inject", fault=name, primitive="frames", effect=effect, **{"ports": ["h1:1"], **more})


@pytest.mark.parametrize("ordering", ["in_order", "any"])
@pytest.mark.parametrize("delay_ns", [1000, 5000])
def test_what_is_kept_needs_no_room_when_the_gap_closes(delay_ns: float, ordering: str) -> None:
    """What came ahead is in memory by then (IRN, section 5.3): a loss costs one packet's time, whatever is kept."""
    small = {"rx_buffer_bytes": 1 << 18, "rx_xoff_bytes": 200_000, "rx_xon_bytes": 190_000, "ordering": ordering}
    took = []
    for lost in (0, 5):
        with star(2, lossy("selective_repeat", small, cable_delay_ns=delay_ns)) as f:
            if lost:
                strike(f, select={"every": 900})
            took += send(f, [(1, 0, 5000 * MTU, 0)])
            assert drops(f) == ({"fault": lost} if lost else {})
            (qp,) = [q for q in f.counters()["qps"] if q["rank"] == 1]
            assert f.nic(1)["retransmitted"] == qp["retransmitted"] == qp["tx_packets"] - 5000 == lost
            assert f.nic(0)["pcie_write_bytes"] == 5000 * MTU
            assert not any(p["priorities"].get("tx_prio3_pause") for p in f.counters()["ports"])
    packet_ns = T if ordering == "in_order" else frames.ser_ns(frame_bytes() + frames.RETH_BYTES, LINE)
    assert took[1] - took[0] == pytest.approx(5 * packet_ns, abs=1)


def test_the_completion_waits_for_the_write_of_the_last_that_came() -> None:
    """Packet 1 of 8 is lost: all others are in memory when it comes for the second time."""
    h, size = lossy("selective_repeat"), 8 * MTU
    model = Model(h, 1)
    with bare_fabric("star", {"hosts": 2}, h, binary=plain()) as f:
        pair = f.pair(1, 0, size)
        pair.memory_a[:] = bytes(range(256)) * (size // 256)
        strike(f, select={"first": 1}, match={"opcodes": ["WRITE_MIDDLE"]})
        start = pair.a.time_ps
        pair.b.begin_wait(1, wire.FOREVER, post_recv(pair.qp_b, pair.key_b, 0))
        pair.a.begin_wait(1, wire.FOREVER, pair.write(size, opcode=wire.WRITE_IMM))
        received = one(pair.b.end_wait())
        pair.park()
        assert one(pair.a.end_wait()).status == 0 and pair.memory_b[:] == pair.memory_a[:]
        pair.done()
    fetched = model.doorbell + model.pcie_ps(MTU) + model.pcie
    second = fetched + wire_ps(LINE, MTU, RETH) + wire_ps(LINE, MTU, 0)  # packet 2 starts, which shows the loss
    noticed = second + model.travel(MTU, 0) + model.travel(0, 4)
    again = noticed + model.pcie_ps(MTU) + model.pcie + model.travel(MTU, 0)
    assert received.time_ps - start == again + model.pcie_ps(MTU) + model.pcie


def first_start_ns(start_ns: float, packet: int) -> float:
    """When a flow's packet starts on the cable, if nothing is lost before."""
    return start_ns + bounds.fetch_ns(MTU, 512e9, 500) + frames.ser_ns(frame_bytes() + 16, LINE) + (packet - 1) * T


def test_what_is_sent_again_is_of_the_request_that_it_belongs_to() -> None:
    """Five writes of two packets each: the second one of the third is lost."""
    with bare_fabric("star", {"hosts": 2}, lossy("selective_repeat"), binary=plain()) as f:
        pair = f.pair(1, 0, 10 * MTU)
        pair.memory_a[:] = b"".join(bytes([n]) * MTU for n in range(1, 11))
        strike(f, select={"every": 6})
        pair.park()
        writes = [pair.write(2 * MTU, wr_id=n, local=2 * n * MTU, remote=2 * n * MTU) for n in range(5)]
        assert [(r.wr_id, r.status) for r in pair.a.wait(5, wire.FOREVER, *writes)] == [(n, 0) for n in range(5)]
        assert pair.memory_b[:] == pair.memory_a[:]
        sender = f.nic(1)
        assert sender["retransmitted"] == drops(f)["fault"] == 1 and sender["local_ack_timeout_err"] == 0
        pair.done()


def test_a_receiver_that_is_not_ready_forgets_what_came_ahead() -> None:
    """The first of four packets is lost; when it comes, there is no receive request: all four go again, each time.

    Those behind it come ahead once more each time, and are kept; the last time they are there already.
    """
    h = lossy("selective_repeat", nic(window=16 * MTU))
    with bare_fabric("star", {"hosts": 2}, h, binary=plain()) as f:
        pair = f.pair(1, 0, 4 * MTU)
        pair.memory_a[:] = bytes(range(256)) * (4 * MTU // 256)
        strike(f, select={"first": 1}, match={"opcodes": ["SEND_FIRST"]})
        pair.b.begin_wait(1, pair.a.time_ps + 30_000_000)
        pair.a.begin_wait(1, wire.FOREVER, pair.write(4 * MTU, opcode=wire.SEND))
        assert pair.b.end_wait() == []
        pair.b.begin_wait(1, wire.FOREVER, post_recv(pair.qp_b, pair.key_b, 4 * MTU))
        assert one(pair.b.end_wait()).status == 0 and pair.memory_b[:] == pair.memory_a[:]
        pair.park()
        assert one(pair.a.end_wait()).status == 0
        receiver, sender = f.counters()["nics"]
        pair.done()
    tries = sender["rnr_nak_retry_err"]
    assert tries > 1 and sender["retransmitted"] == 1 + 4 * tries and sender["local_ack_timeout_err"] == 0
    assert (receiver["out_of_sequence"], receiver["duplicate_request"]) == (3 * tries, 3)


@pytest.mark.parametrize("lost", [1, 8])
def test_one_timeout_repairs_the_end_of_a_message(lost: int) -> None:
    """RFC 6675, section 5.1: after a timeout all that is not known to have come is sent again, as go-back-N does.

    The NIC's class is lossless: there are no probes (test_fabricd_probe.py).
    """
    took, again = {}, {}
    for recovery in BOTH:
        with star(2, lossy(recovery)) as f:
            strike(f, at_ns=first_start_ns(10_000, 64 - lost) - T / 2, for_ns=lost * T)
            (took[recovery],) = send(f, [(1, 0, 64 * MTU, 10_000)])
            sender = f.nic(1)
            again[recovery] = sender["retransmitted"]
            assert sender["local_ack_timeout_err"] == 1 and drops(f) == {"fault": lost}
    assert took["selective_repeat"] <= took["go_back_n"] < 2_100_000
    assert lost <= again["selective_repeat"] <= again["go_back_n"]


def test_what_was_sent_again_and_lost_again_is_missed_by_the_order_of_sending() -> None:
    """RFC 8985, section 6.2: packets 60 and 61 of 64 are lost, then 60 once more; nothing new shows that."""
    with star(2, lossy("selective_repeat")) as f, watched(f, "h1:1") as seen:
        strike(f, at_ns=first_start_ns(10_000, 60) - T / 2, for_ns=2 * T)
        strike(f, name="again", at_ns=first_start_ns(10_000, 64), for_ns=1_000_000, select={"first": 1})
        (took,) = send(f, [(1, 0, 64 * MTU, 10_000)])
        assert f.nic(1)["local_ack_timeout_err"] == 0
    left = [fr.psn for fr in seen["frames"] if fr.out]
    assert left[64:] == [60, 61, 60] and took < 30_000


def test_reordering_alone_is_waited_for() -> None:
    """One frame in 20 comes 1 us late: the first such show it, and then all are waited for (RFC 8985, section 6.2)."""
    late = {"effect": "delay", "delay_ns": 1000, "jitter_ns": 0, "reorder": True, "select": {"share": 0.05}}
    times = []
    for fault in (None, late):
        with star(2, lossy("selective_repeat")) as f:
            if fault:
                strike(f, **fault)
            times += send(f, [(1, 0, 20_000_000, 0)])
            sender, receiver = f.nic(1), f.nic(0)
    assert receiver["out_of_sequence"] > 1000
    assert sender["retransmitted"] == receiver["duplicate_request"] <= 4
    assert times[1] < 1.005 * times[0]


def test_patience_ends_when_nothing_is_late_any_more() -> None:
    """After 16 losses in a row the next is sent again at once; before, each waits 5/4 of the lateness."""
    with star(2, lossy("selective_repeat")) as f, watched(f, "h1:1", 1000) as seen:
        strike(f, effect="delay", delay_ns=1000, jitter_ns=0, reorder=True, select={"every": 40}, for_ns=20_000)
        strike(f, name="loss", at_ns=60_000, select={"every": 300})
        send(f, [(1, 0, 8000 * MTU, 0)])
    frames = [fr for fr in seen["frames"] if fr.out]
    first: dict[int, int] = {}
    waits = []
    for fr in frames:
        if fr.psn in first and first[fr.psn] > 60_000:
            waits.append(fr.time_ns - first[fr.psn])
        first.setdefault(fr.psn, fr.time_ns)
    assert len(waits) > 20
    patient, at_once = waits[:16], waits[16:]
    assert max(patient) - min(patient) < 2 * T and max(at_once) - min(at_once) < 2 * T
    assert min(patient) - max(at_once) == pytest.approx(1250, abs=4 * T)


def test_lost_notices_cost_one_packet_each() -> None:
    """A NAK that is lost leaves a packet unknown, which goes again for nothing; nothing else does, or waits."""
    with star(2, lossy("selective_repeat", timeout_ns=500_000)) as f:
        for port in ("h1:1", "h0:1"):
            strike(f, name=port, ports=[port], select={"share": 0.01})
        (took,) = send(f, [(1, 0, 20_000 * MTU, 0)])
        sender, lost = f.nic(1), drops(f)["fault"]
        assert sender["retransmitted"] - f.nic(0)["duplicate_request"] < lost
    assert sender["retransmitted"] < 2 * 0.011 * 20_000
    assert took < 1.03 * 20_000 * T + sender["local_ack_timeout_err"] * 500_000


@pytest.mark.parametrize(
    ("case", "most"),
    [
        (Incast(100, 4, 1_000_000, 1_000_000), 1.05),
        (Incast(400, 2, 1_000_000, 256_000), 1.2),
        (Incast(100, 8, 1_000_000, 256_000), 1.1),
        (Incast(25, 16, 1_000_000, 1_000_000), 1.1),
        (Incast(25, 8, 64_000, 256_000), None),  # one sender hears nothing until its timeout, under either recovery
    ],
)
def test_a_lossy_incast_is_not_slower_than_with_go_back_n(case: Incast, most: float | None) -> None:
    """And where each sender has heard of its packets before they are lost, the last cable is hardly ever idle."""
    selective = case.run("selective_repeat")
    assert selective.lost
    assert selective.time_ns <= 1.01 * case.run("go_back_n").time_ns + 2 * case.round_trip_ns
    assert most is None or selective.time_ns < most * case.ideal_ns


@pytest.mark.parametrize(
    ("rate", "delay", "loss"),
    [(25e9, 100, 1e-2), (100e9, 2000, 1e-4), (400e9, 1500, 1e-3), (400e9, 500, 1e-2), (800e9, 10_000, 1e-2)],
)
def test_time_follows_the_closed_form_and_is_not_above_go_back_ns(rate: float, delay: float, loss: float) -> None:
    """The whole grid: ./setup.sh prove recovery."""
    packets = 20_000 if delay == 10_000 else 5000
    h = hardware("selective_repeat", rate, delay)
    selective = lossy_flow(h, packets, loss)
    assert selective.time_ns <= lossy_flow(hardware("go_back_n", rate, delay), packets, loss).time_ns
    assert selective.time_ns == pytest.approx(selective_ns(h, packets, loss), rel=0.03)
    assert selective.retransmitted == selective.lost and selective.timeouts == 0
