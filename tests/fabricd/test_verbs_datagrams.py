"""Unreliable datagrams, by the InfiniBand specification: what arrives, what is dropped, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.dissected import dissect
from tests.parts.fabricd_fixture import BareFabric, SessionOver, bare_fabric
from tests.parts.verbs_program import ERR, INIT, RESET, RTR, RTS, UD, Attributes, Program, address_of
from workloads.verbs import wire

SUCCESS, LOCAL_LENGTH, LOCAL_OPERATION, LOCAL_PROTECTION, FLUSHED = 0, 1, 2, 4, 5
QKEY, OWN_QKEY = 0x1234567, 0x80000000
GRH = 40
BYTES, REST_PS = 1 << 16, 10**11


@pytest.fixture
def fabric() -> Iterator[BareFabric]:
    with bare_fabric("star", {"hosts": 3}, Hardware(nic={"data_dscp": 26})) as f:
        f.start(0, 1)
        yield f


class End:
    """A program of a rank with a queue pair for datagrams and memory."""

    def __init__(self, f: BareFabric, rank: int, qkey: int = QKEY, **attributes: int) -> None:
        self.f, self.program = f, Program(f.worker_socket(rank))
        self.qp = self.program.queue_pair(kind=UD)
        its = Attributes(qkey=qkey, **attributes)
        self.program.send(*(its.command(self.qp, state) for state in (INIT, RTR, RTS)))
        self.memory = self.program.memory(BYTES)
        self.memory.bytes[:] = bytes((7 * k + rank) % 251 for k in range(BYTES))

    def post(self, to: End, at: int = 0, nbytes: int = 100, *, opcode: int = wire.SEND, **how: Any) -> bytes:
        where = address_of(self.f, to.program.rank) | to.qp << 32
        fields: dict[str, Any] = {"remote": where, "rkey": QKEY, **how}
        return self.program.send_list(self.qp, opcode, [self.memory.piece(at, nbytes)], **fields)

    def receive(self, at: int, nbytes: int, **how: Any) -> bytes:
        return self.program.recv_list(self.qp, [self.memory.piece(at, nbytes)], **how)

    def done(self, count: int, *posts: bytes) -> list[wire.Record]:
        return self.program.wait(count, wire.FOREVER, *posts)


def came(sender: End, receiver: End) -> list[wire.Record]:
    """What the receiver, at rest, has heard of meanwhile."""
    sender.program.begin_wait(10_000, 2 * REST_PS)
    return receiver.program.end_wait()


def rest(end: End, *posts: bytes) -> None:
    end.program.begin_wait(10_000, REST_PS, *posts)


def over(*ends: End) -> None:
    for end in ends:
        end.program.socket.close()


def test_it_arrives_behind_the_header_of_its_packet(fabric: BareFabric) -> None:
    """40 bytes, of which the last 20 are the IPv4 header as it came in; who has sent it stands in the completion."""
    a, b = End(fabric, 0), End(fabric, 1)
    rest(b, b.receive(1000, 4096, wr_id=8))
    (sent,) = a.done(1, a.post(b, 5, 333, opcode=wire.SEND_IMM, imm=0xCAFE, wr_id=4))
    (record,) = came(a, b)
    assert (sent.status, sent.wr_id, record.kind, record.wr_id) == (SUCCESS, 4, wire.RECEIVED_DATAGRAM_IMM, 8)
    assert (record.imm, record.nbytes & 0xFFFFFFFF, record.nbytes >> 32) == (0xCAFE, GRH + 333, a.qp)
    got = b.memory.bytes[1000 : 1000 + GRH + 333]
    header = got[20:40]
    assert got[GRH:] == a.memory.bytes[5:338] and not any(got[:20])
    assert header[0] == 0x45 and header[1] == 26 << 2 and header[9] == 17
    ends = [IPv4Address(header[at : at + 4]) for at in (12, 16)]
    assert ends == [IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")]
    total = sum(int.from_bytes(header[k : k + 2], "big") for k in range(0, 20, 2))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF  # RFC 791: its checksum is right
    assert b.memory.bytes[1000 + GRH + 333 : 5096] == bytes((7 * k + 1) % 251 for k in range(1000 + GRH + 333, 5096))
    over(b, a)


def test_it_takes_its_packet_there_and_its_sender_no_round_trip(fabric: BareFabric) -> None:
    """By hand: 100 ns post, 500 ns doorbell, a fetch of 500 ns and 1,000 B at 512 Gb/s; then it starts on the cable,
    and its completion takes 500 ns.  1,090 B (UDP/IP 28, BTH 12, DETH 8, ICRC 4, Ethernet 14 and 24) over two cables of
    500 ns and a switch of 500 ns; at its end 1,040 B and 500 ns over PCIe."""
    a, b = End(fabric, 0), End(fabric, 1)
    rest(b, b.receive(0, 4096))
    began = a.program.time_ps
    (sent,) = a.done(1, a.post(b, 0, 1000))
    pcie = 500_000 + 1000 * 8 / 512e9 * 1e12
    assert sent.time_ps - began == 100_000 + 500_000 + pcie + 500_000
    (record,) = came(a, b)
    there = 2 * (8 * (1000 + 28 + 12 + 8 + 4 + 14 + 24) * 2.5 + 500_000) + 500_000
    assert record.time_ps - began == 600_000 + pcie + there + 500_000 + 1040 * 8 / 512e9 * 1e12
    over(b, a)


@pytest.mark.parametrize("why", ["Q_Key", "number", "no receive", "not ready", "connected"])
def test_it_is_dropped_and_its_sender_does_not_hear_of_that(fabric: BareFabric, why: str) -> None:
    a, b = End(fabric, 0), End(fabric, 1)
    how: dict[str, int] = {}
    if why == "Q_Key":
        how["rkey"] = QKEY + 1
    elif why == "number":
        how["remote"] = address_of(fabric, 1) | 999 << 32
    elif why == "not ready":
        b.program.send(Attributes(qkey=QKEY).command(b.qp, RESET), Attributes(qkey=QKEY).command(b.qp, INIT))
    elif why == "connected":
        other = b.program.queue_pair()
        its = Attributes(address=address_of(fabric, 0), peer=a.qp, qkey=QKEY)
        b.program.send(*(its.command(other, state) for state in (INIT, RTR, RTS)))
        how["remote"] = address_of(fabric, 1) | other << 32
    rest(b, *([] if why == "no receive" else [b.receive(0, 4096)]))
    (sent,) = a.done(1, a.post(b, **how))
    assert sent.status == SUCCESS and not came(a, b)
    nic = fabric.nic(1)
    assert nic.get("qkey_viol_cntr", 0) == (why == "Q_Key")
    assert nic["rx_out_of_buffer"] == (why == "no receive")
    assert sum(sum(p["drops"].values()) for p in fabric.counters()["ports"]) == 1
    over(b, a)


@pytest.mark.parametrize("what", ["length", "memory"])
def test_one_that_its_receive_cannot_take_breaks_that_queue_pair(fabric: BareFabric, what: str) -> None:
    a, b = End(fabric, 0), End(fabric, 1)
    bad = b.receive(0, GRH + 99) if what == "length" else b.program.recv_list(b.qp, [b.memory.piece(0, 4096, key=5)])
    rest(b, bad, b.receive(0, 4096, wr_id=3))
    first, second = a.done(2, a.post(b), a.post(b))
    assert first.status == second.status == SUCCESS
    expected = LOCAL_LENGTH if what == "length" else LOCAL_PROTECTION
    assert [(r.wr_id, r.status) for r in came(a, b)] == [(2, expected), (3, FLUSHED)]
    over(b, a)


def test_of_one_longer_than_the_mtu_no_packet_is_sent_and_that_is_no_error(fabric: BareFabric) -> None:
    """C10-93.1.1; requests end in the order in which they were posted."""
    a, b = End(fabric, 0), End(fabric, 1)
    rest(b, *(b.receive(0, 8192) for _ in range(9)))
    sizes = [4097, 4096, 5000, 0, 9000, 9000]
    records = a.done(6, *(a.post(b, 0, n, wr_id=k) for k, n in enumerate(sizes)))
    assert [(r.wr_id, r.status) for r in records] == [(k, SUCCESS) for k in range(6)]
    assert [r.nbytes & 0xFFFFFFFF for r in came(a, b)] == [GRH + 4096, GRH]
    assert fabric.nic(0)["tx_vport_rdma_unicast_packets"] == 2
    over(b, a)


def test_one_to_itself_does_not_leave_the_nic(fabric: BareFabric) -> None:
    a, b = End(fabric, 0), End(fabric, 1)
    rest(b)
    posts = [a.receive(9000, 4096), a.receive(20_000, 4096), a.post(a, 1, 4000, rkey=OWN_QKEY), a.post(a, 2, 0)]
    records = a.done(4, *posts)
    assert sorted(r.kind for r in records) == [wire.SENT] * 2 + [wire.RECEIVED_DATAGRAM] * 2
    assert a.memory.bytes[9040:13_040] == a.memory.bytes[1:4001]
    assert fabric.nic(0)["tx_vport_rdma_unicast_packets"] == 0
    over(b, a)


def test_one_queue_pair_sends_to_many_in_pieces(fabric: BareFabric) -> None:
    a, b, c = (End(fabric, rank) for rank in (0, 1, 2))
    for end in (b, c):
        pieces = [end.memory.piece(0, 50), end.memory.piece(4000, 3), end.memory.piece(100, 500)]
        rest(end, *(end.program.recv_list(end.qp, pieces) for _ in range(2)))
    both = [a.memory.piece(10, 20), a.memory.piece(1000, 30)]
    posts = []
    for to in (b, c, b, c):
        where = address_of(fabric, to.program.rank) | to.qp << 32
        posts.append(a.program.send_list(a.qp, wire.SEND, both, remote=where, rkey=QKEY))
    assert [r.status for r in a.done(4, *posts)] == [SUCCESS] * 4
    a.program.begin_wait(10_000, 2 * REST_PS)
    for end in (b, c):
        assert len(end.program.end_wait()) == 2
        end.program.begin_wait(10_000, 2 * REST_PS)  # or its memory, which others may write to, holds the clock
        got = end.memory.bytes[40:50] + end.memory.bytes[4000:4003] + end.memory.bytes[100:137]
        assert got == a.memory.bytes[10:30] + a.memory.bytes[1000:1030]
    over(b, c, a)


@pytest.mark.parametrize("bad", ["opcode", "address", "lkey"])
def test_a_request_that_cannot_be_breaks_its_queue_pair_after_all_before_it(fabric: BareFabric, bad: str) -> None:
    a, b = End(fabric, 0), End(fabric, 1)
    rest(b, *(b.receive(0, 4096) for _ in range(4)))
    if bad == "opcode":
        wrong = a.post(b, opcode=wire.WRITE, wr_id=2)
    elif bad == "address":
        wrong = a.post(b, remote=1 | b.qp << 32, wr_id=2)
    else:
        wrong = a.program.send_list(
            a.qp, wire.SEND, [a.memory.piece(0, 8, key=5)], remote=address_of(fabric, 1) | b.qp << 32, wr_id=2
        )
    records = a.done(3, a.post(b, wr_id=1), wrong, a.post(b, wr_id=3))
    status = LOCAL_PROTECTION if bad == "lkey" else LOCAL_OPERATION
    assert [(r.wr_id, r.status) for r in records] == [(1, SUCCESS), (2, status), (3, FLUSHED)]
    assert len(came(a, b)) == 1
    over(b, a)


def test_it_begins_anew_after_reset_and_flushes_in_error(fabric: BareFabric) -> None:
    a, b = End(fabric, 0), End(fabric, 1)
    its = Attributes(qkey=QKEY)
    rest(b, *(b.receive(0, 4096) for _ in range(9)))
    a.program.send(a.receive(0, 4096, wr_id=7), its.command(a.qp, ERR))
    records = a.done(2, a.post(b, wr_id=6))
    assert sorted((r.wr_id, r.status) for r in records) == [(6, FLUSHED), (7, FLUSHED)]
    a.program.send(*(its.command(a.qp, state) for state in (RESET, INIT, RTR, RTS)))
    assert a.done(1, a.post(b))[0].status == SUCCESS
    a.program.send(wire.command(wire.DESTROY_QP, a.qp, 0))
    with pytest.raises(SessionOver, match="no such queue pair"):
        a.program.wait(1, a.program.time_ps + 10**9)
        a.done(1, a.post(b))
    over(b)


def test_wireshark_reads_it(fabric: BareFabric, tmp_path: Path) -> None:
    path = tmp_path / "cable.pcapng"
    fabric.fabricd.request("capture", port="h0:1", path=str(path))
    a, b = End(fabric, 0, send_psn=0xFFFFFF), End(fabric, 1)
    rest(b)
    a.done(2, a.post(b, 0, 5, imm=77, opcode=wire.SEND_IMM), a.post(b, 0, 8, compare=1 | 46 << 8))
    fabric.fabricd.request("capture_stop", path=str(path))
    bth, deth = "infiniband.bth", "infiniband.deth"
    names = [f"{bth}.opcode", f"{bth}.destqp", f"{bth}.psn", f"{bth}.padcnt", f"{deth}.q_key", f"{deth}.srcqp"]
    frames = dissect(path, *names, "infiniband.immdt", "ip.dsfield.dscp", "infiniband.invariant.crc", "_ws.malformed")
    numbers = [[int(frame[name], 0) for name in names] for frame in frames]
    assert numbers == [[101, b.qp, 0xFFFFFF, 3, QKEY, a.qp], [100, b.qp, 0, 0, QKEY, a.qp]]
    assert [frame["ip.dsfield.dscp"] for frame in frames] == ["26", "46"]
    assert int(frames[0]["infiniband.immdt"], 16) == 77 and not any("_ws.malformed" in frame for frame in frames)
    over(b, a)


def test_those_who_only_send_are_not_slowed_by_marks() -> None:
    """Nothing is answered: not with an acknowledgement, nor with a congestion notification."""
    with bare_fabric("star", {"hosts": 3}, Hardware(nic={"cc": "dcqcn"})) as f:
        f.start(0, 1, 2)
        a, b, c = (End(f, rank) for rank in (0, 1, 2))
        rest(c, *(c.receive(0, 8192) for _ in range(400)))
        for end in (a, b):
            end.program.begin_wait(200, wire.FOREVER, *(end.post(c, 0, 4096) for _ in range(200)))
        for end in (a, b):
            assert len(end.program.end_wait()) == 200
            end.program.begin_wait(10_000, 2 * REST_PS)
        assert f.nic(2)["tx_vport_rdma_unicast_packets"] == 0
        over(c, a, b)


def test_access_is_asked_of_memory_that_receives(fabric: BareFabric) -> None:
    a, b = End(fabric, 0), End(fabric, 1)
    only = b.program.memory(8192, 0, address=0x10000)
    rest(b, b.program.recv_list(b.qp, [only.piece()], wr_id=1))
    assert a.done(1, a.post(b))[0].status == SUCCESS
    (record,) = came(a, b)
    assert record.status == LOCAL_PROTECTION
    over(b, a)
