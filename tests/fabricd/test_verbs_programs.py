"""Programs at a rank's NIC: side by side and one after another, with memory and queue pairs of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, SessionOver, as_they_answer, bare_fabric, sealed_memfd, wait_until
from tests.parts.timing_model import RETH, Model, one
from tests.parts.verbs_program import (
    ERR,
    INIT,
    LOCAL_WRITE,
    REMOTE_WRITE,
    RESET,
    RTR,
    RTS,
    WRITTEN,
    Attributes,
    Program,
    address_of,
    couple,
)
from workloads.verbs import wire

SUCCESS, LOCAL_LENGTH, LOCAL_PROTECTION, FLUSHED = 0, 1, 4, 5  # of ibv_wc_status
REMOTE_INVALID, REMOTE_ACCESS, REMOTE_OPERATION, RETRY, RNR_RETRY = 9, 10, 11, 12, 13
ACCESS_EVENT, INVALID_EVENT, FATAL_EVENT = 3, 2, 1  # of ibv_event_type
BYTES = 20_000
REST_PS = 10**11


@pytest.fixture
def fabric() -> Iterator[BareFabric]:
    with bare_fabric("star", {"hosts": 3}, Hardware(nic={"first_psn": 77})) as f:
        f.start(0, 1)
        yield f


def program(f: BareFabric, rank: int) -> Program:
    return Program(f.worker_socket(rank))


def pattern(nbytes: int, seed: int = 1) -> bytes:
    return bytes((seed * 31 + k * 7) % 251 for k in range(nbytes))


class Ends:
    """Two programs, `b` at rest until the clock has gone far, and a pair of queue pairs between them."""

    def __init__(self, f: BareFabric, rights: int = 15, **attributes: int) -> None:
        self.a, self.b = program(f, 0), program(f, 1)
        self.qp_a, self.qp_b = couple(f, self.a, self.b, **attributes)
        self.near, self.far = self.a.memory(BYTES), self.b.memory(BYTES, rights)

    def rest(self, *commands: bytes) -> None:
        """`b` says this, and waits until long after all that happens."""
        self.b.begin_wait(10_000, REST_PS, *commands)

    def came(self) -> list[wire.Record]:
        """What `b` has heard of meanwhile."""
        self.a.begin_wait(10_000, 2 * REST_PS)
        return self.b.end_wait()

    def write(self, nbytes: int, **how: Any) -> bytes:
        fields = {"remote": self.far.address, "rkey": self.far.key, **how}
        return self.a.send_list(self.qp_a, wire.WRITE, [self.near.piece(0, nbytes)], **fields)

    def over(self) -> None:
        for p in (self.b, self.a):
            p.socket.close()


def test_a_write_goes_from_address_to_address_and_its_owner_may_wait_for_it(fabric: BareFabric) -> None:
    """It wakes when the message has crossed its PCIe, long before the sender hears of it."""
    ends = Ends(fabric, LOCAL_WRITE | REMOTE_WRITE)
    ends.near.bytes[:] = pattern(BYTES)
    began = ends.a.time_ps
    ends.b.send(wire.command(wire.WAIT, 10_000, WRITTEN, 2 * REST_PS))
    ends.a.begin_wait(1, wire.FOREVER, ends.write(4_001, remote=ends.far.address + 4096, wr_id=2**63 + 5))
    assert ends.b.end_wait() == []
    assert ends.b.time_ps - began == Model(fabric.hardware, 1).received(4_001, RETH)
    assert ends.far.bytes[4096:8_097] == pattern(BYTES)[:4_001] and not any(ends.far.bytes[8_097:])
    ends.b.begin_wait(10_000, 2 * REST_PS)
    (sent,) = ends.a.end_wait()
    assert (sent.kind, sent.status, sent.wr_id, sent.nbytes) == (wire.SENT, SUCCESS, 2**63 + 5, 4_001)
    ends.over()


def test_keys_cannot_be_guessed_and_are_the_same_in_each_run() -> None:
    runs = []
    for _ in range(2):
        with bare_fabric("star", {"hosts": 2}) as f:
            f.start(0)
            runs.append([program(f, rank).memory(4096).key for rank in (0, 0, 1)])
    keys = set(runs[0])
    assert runs[0] == runs[1] and len(keys) == 3 and all(key > 1 << 16 for key in keys)


def test_a_send_is_gathered_and_scattered_with_its_immediate(fabric: BareFabric) -> None:
    ends = Ends(fabric)
    a, b, near, far = ends.a, ends.b, ends.near, ends.far
    near.bytes[:] = pattern(BYTES)
    pieces = [near.piece(7, 1), near.piece(1000, 5000), near.piece(0, 0), near.piece(9, 4096), near.piece(8000, 3)]
    room = [far.piece(0, 10), far.piece(100, 4500), far.piece(6000, 14_000)]
    ends.rest(b.recv_list(ends.qp_b, room, wr_id=8))
    (sent,) = a.wait(1, wire.FOREVER, a.send_list(ends.qp_a, wire.SEND_IMM, pieces, imm=0xDEADBEEF))
    (came,) = ends.came()
    text = b"".join(near.bytes[at - near.address : at - near.address + n] for at, n, _ in pieces)
    assert (sent.status, sent.nbytes) == (SUCCESS, len(text))
    assert (came.kind, came.wr_id, came.imm, came.nbytes) == (wire.RECEIVED_SEND_IMM, 8, 0xDEADBEEF, len(text))
    got = b"".join(far.bytes[at - far.address : at - far.address + n] for at, n, _ in room)
    assert got[: len(text)] == text and not any(got[len(text) :])
    ends.over()


def test_what_is_inline_needs_no_fetch(fabric: BareFabric) -> None:
    """The NIC has it with the doorbell: a read over PCIe less, of 500 ns and its bytes."""
    ends = Ends(fabric)
    ends.near.bytes[:] = pattern(BYTES)
    ends.rest()
    took = []
    for inline in (None, pattern(64, 3)):
        before = ends.a.time_ps
        pieces = [ends.near.piece(0, 64)] if inline is None else []
        post = ends.a.send_list(
            ends.qp_a, wire.WRITE, pieces, inline=inline, remote=ends.far.address, rkey=ends.far.key
        )
        took.append(one(ends.a.wait(1, wire.FOREVER, post)).time_ps - before)
    assert took[0] - took[1] == 500_000 + 64 * 8 * 10**12 // 512_000_000_000
    assert ends.far.bytes[:64] == pattern(64, 3)
    ends.over()


def test_programs_come_and_go_side_by_side(fabric: BareFabric) -> None:
    """Each has its own; the queue pairs of one that ends are gone, and their numbers do not come again."""
    first, second, peer = program(fabric, 0), program(fabric, 0), program(fabric, 1)
    qps = [couple(fabric, p, peer) for p in (first, second)]
    assert qps == [(16, 16), (17, 17)]
    far = peer.memory(BYTES)
    peer.begin_wait(1, REST_PS)
    for p, (qp, _) in zip((first, second), qps, strict=True):
        post = p.send_list(qp, wire.WRITE, [p.memory(4096).piece()], remote=far.address, rkey=far.key)
        p.begin_wait(1, wire.FOREVER, post)
    for k in as_they_answer([first, second]):
        p = (first, second)[k]
        assert one(p.end_wait()).status == SUCCESS
        p.begin_wait(1, 10**9 * (k + 1))  # its peers may write to its memory: the clock does not pass it while it runs
    assert not first.end_wait()
    first.bye()
    assert [(e["rank"], e["reason"]) for e in fabric.events("program_ended")] == [(0, "")]
    assert not second.end_wait()
    assert [(q["rank"], q["qp"]) for q in fabric.counters()["qps"]] == [(0, 17), (1, 16), (1, 17)]
    third = program(fabric, 0)
    assert third.queue_pair() == 18
    with pytest.raises(SessionOver, match="no such queue pair"):  # it is another program's
        third.send(third.send_list(17, wire.WRITE))
        third.packet(wire.RECORDS)
    for p in (peer, second):
        p.socket.close()
    wait_until(lambda: not fabric.counters()["qps"], "all queue pairs to go")


def test_a_rank_has_come_with_a_program_and_its_worker_may_still_come(fabric: BareFabric) -> None:
    p = program(fabric, 0)
    w = fabric.worker(0)
    assert w.region(4096)[0] == 1
    with pytest.raises(SessionOver, match="rank has a session already"):
        fabric.worker(0)
    for x in (p, w):
        x.bye()


@pytest.mark.parametrize("what", ["key", "range", "rights", "queue pair's rights", "domain"])
def test_a_peer_that_may_not_write_there_breaks_both_queue_pairs(fabric: BareFabric, what: str) -> None:
    only = {"access": LOCAL_WRITE} if what == "queue pair's rights" else {}
    ends = Ends(fabric, LOCAL_WRITE if what == "rights" else 15, **only)
    how: dict[str, int] = {}
    if what == "key":
        how["rkey"] = ends.far.key ^ 1
    elif what == "range":
        how["remote"] = ends.far.address + BYTES - 7
    elif what == "domain":
        how["rkey"] = ends.b.memory(4096, domain=2).key
    ends.rest(ends.b.recv_list(ends.qp_b, wr_id=5), ends.b.recv_list(ends.qp_b, wr_id=6))
    good = ends.write(0, wr_id=1)
    bad, later = ends.write(8, wr_id=2, flags=0, **how), ends.write(8, wr_id=3)
    sent = ends.a.wait(3, wire.FOREVER, good, bad, later)
    assert [(r.wr_id, r.status) for r in sent] == [(1, SUCCESS), (2, REMOTE_ACCESS), (3, FLUSHED)]
    event, *flushed = sorted(ends.came(), key=lambda r: -r.kind)
    assert (event.kind, event.imm, event.qp) == (wire.QP_EVENT, ACCESS_EVENT, ends.qp_b)
    assert [(r.wr_id, r.status) for r in flushed] == [(5, FLUSHED), (6, FLUSHED)]
    assert not any(ends.far.bytes[:])
    ends.over()


def test_what_is_not_its_memory_breaks_the_senders_queue_pair_after_all_before_it(fabric: BareFabric) -> None:
    ends = Ends(fabric)
    a = ends.a
    ends.rest()
    posts = [ends.write(8_000, wr_id=1), ends.write(4, wr_id=2, flags=0)]
    posts.append(a.send_list(ends.qp_a, wire.WRITE, [ends.near.piece(0, 8, key=5)], remote=ends.far.address, wr_id=3))
    posts.append(ends.write(8, wr_id=4))
    assert [(r.wr_id, r.status) for r in a.wait(3, wire.FOREVER, *posts)] == [
        (1, SUCCESS), (3, LOCAL_PROTECTION), (4, FLUSHED),
    ]  # fmt: skip
    assert [(r.wr_id, r.status) for r in a.wait(1, wire.FOREVER, ends.write(8, wr_id=9))] == [(9, FLUSHED)]
    ends.over()


@pytest.mark.parametrize("what", ["too short", "not its memory"])
def test_a_receive_that_does_not_fit_ends_with_its_error_on_both_sides(fabric: BareFabric, what: str) -> None:
    ends = Ends(fabric)
    short = what == "too short"
    piece = ends.far.piece(0, 5_000 if short else BYTES, None if short else 99)
    receives = [ends.b.recv_list(ends.qp_b, [piece], wr_id=k) for k in (1, 2)]
    ends.rest(*receives)
    sent = ends.a.wait(1, wire.FOREVER, ends.a.send_list(ends.qp_a, wire.SEND, [ends.near.piece(0, 9_000)]))
    assert [r.status for r in sent] == [REMOTE_INVALID if short else REMOTE_OPERATION]
    event, *ended = sorted(ends.came(), key=lambda r: -r.kind)
    assert event.imm == (INVALID_EVENT if short else FATAL_EVENT)
    assert [(r.wr_id, r.status) for r in ended] == [(1, LOCAL_LENGTH if short else LOCAL_PROTECTION), (2, FLUSHED)]
    ends.over()


def test_a_receiver_that_is_not_ready_is_tried_again_by_its_own_timer(fabric: BareFabric) -> None:
    """Timer 13 is 0.96 ms; three times in vain, and a fourth that fails."""
    ends = Ends(fabric, rnr_timer=13, rnr_retry=3)
    ends.rest()
    (sent,) = ends.a.wait(1, wire.FOREVER, ends.a.send_list(ends.qp_a, wire.SEND, [ends.near.piece(0, 8)]))
    assert sent.status == RNR_RETRY
    assert 3 * 960_000_000 < sent.time_ps < 3 * 960_000_000 + 20_000_000
    ends.over()


def test_a_peer_that_is_not_there_costs_all_timeouts_of_the_program(fabric: BareFabric) -> None:
    """Timeout 8 is 4.096 us times 2^8; the first and two more."""
    a = program(fabric, 0)
    qp, memory = a.queue_pair(), a.memory(4096)
    its = Attributes(peer=99, address=address_of(fabric, 2), timeout=8, retry=2)
    b = program(fabric, 1)
    b.begin_wait(1, 10**12)
    a.send(*(its.command(qp, state) for state in (INIT, RTR, RTS)))
    (sent,) = a.wait(1, wire.FOREVER, a.send_list(qp, wire.WRITE, [memory.piece()], rkey=1))
    assert sent.status == RETRY
    assert 0 < sent.time_ps - 3 * 4_096_000 * 2**8 < 5_000_000
    for p in (a, b):
        p.socket.close()


def test_states_are_gone_through_as_the_specification_has_them(fabric: BareFabric) -> None:
    """Receives in INIT; nothing is sent before RTS; ERR flushes; RESET forgets, and begins anew."""
    a, b = program(fabric, 0), program(fabric, 1)
    qp_a, qp_b = a.queue_pair(), b.queue_pair()
    to_b = Attributes(peer=qp_b, address=address_of(fabric, 1), send_psn=0xFFFFFE, expected_psn=5)
    to_a = Attributes(peer=qp_a, address=address_of(fabric, 0), send_psn=5, expected_psn=0xFFFFFE)
    near, far = a.memory(BYTES), b.memory(BYTES)
    near.bytes[:] = pattern(BYTES)
    b.send(to_a.command(qp_b, INIT), b.recv_list(qp_b, [far.piece()], wr_id=7), to_a.command(qp_b, RTR))
    b.begin_wait(10_000, 10**9)
    a.send(*(to_b.command(qp_a, state) for state in (INIT, RTR, RTS)))
    (sent,) = a.wait(1, wire.FOREVER, a.send_list(qp_a, wire.SEND, [near.piece()]))
    assert sent.status == SUCCESS
    a.begin_wait(10_000, REST_PS)
    (came,) = b.end_wait()
    assert (came.wr_id, came.nbytes) == (7, BYTES) and far.bytes[:] == pattern(BYTES)
    flush = [b.recv_list(qp_b, wr_id=1), to_a.command(qp_b, ERR), b.recv_list(qp_b, wr_id=2)]
    assert [(r.wr_id, r.status) for r in b.wait(2, wire.FOREVER, *flush)] == [(1, FLUSHED), (2, FLUSHED)]
    again = [to_a.command(qp_b, RESET), *(to_a.command(qp_b, state) for state in (INIT, RTR, RTS))]
    b.send(*again, wire.command(wire.DESTROY_QP, qp_b, 0))
    assert not b.wait(1, b.time_ps + 10**8)
    b.send(to_a.command(b.queue_pair(), RTR))
    assert "cannot go to that state" in b.reason()
    a.socket.close()


def test_memory_that_goes_breaks_what_names_it(fabric: BareFabric) -> None:
    ends = Ends(fabric)
    ends.rest()
    (sent,) = ends.a.wait(1, wire.FOREVER, ends.write(8_000))
    assert sent.status == SUCCESS
    posts = [wire.command(wire.DEREGISTER, ends.near.key, 0), ends.write(8)]
    assert [r.status for r in ends.a.wait(1, wire.FOREVER, *posts)] == [LOCAL_PROTECTION]
    ends.a.send(wire.command(wire.DEREGISTER, 12345, 0))
    assert ends.a.reason() == "DEREGISTER: unknown key"


def test_thousands_of_regions_and_more_than_a_program_may_have(fabric: BareFabric) -> None:
    p = program(fabric, 0)
    fd = sealed_memfd(4096)
    keys = set()
    for k in range(3000):
        p.send(wire.command(wire.REGISTER, 16, 16 * (k % 256), 16 * (k % 256), k, 15, 1, 0), fds=[fd])
        cookie, key = wire.REGION_BODY.unpack(p.packet(wire.REGION))
        assert cookie == k
        keys.add(key)
    assert len(keys) == 3000 and 0 not in keys
    p.send(wire.command(wire.REGISTER, 1 << 40, 0, 0, 1, 15, 1, 0), fds=[fd])
    assert wire.REGION_BODY.unpack(p.packet(wire.REGION)) == (1, 0)
    p.bye()


def test_a_nic_reaches_itself(fabric: BareFabric) -> None:
    a, b = program(fabric, 0), program(fabric, 0)
    other = program(fabric, 1)
    other.begin_wait(1, 10**12)
    qp, _ = couple(fabric, a, b)
    near, far = a.memory(BYTES), b.memory(BYTES)
    near.bytes[:] = pattern(BYTES)
    b.begin_wait(1, 10**12)
    post = a.send_list(qp, wire.WRITE, [near.piece()], remote=far.address, rkey=far.key)
    assert one(a.wait(1, wire.FOREVER, post)).status == SUCCESS
    assert far.bytes[:] == near.bytes[:]
    assert not fabric.nic(0)["tx_vport_rdma_unicast_packets"]
    for p in (a, b, other):
        p.socket.close()


def test_a_packet_of_another_thread_ends_a_wait(fabric: BareFabric) -> None:
    ends = Ends(fabric)
    ends.b.begin_wait(1)
    ends.a.begin_wait(2)
    ends.a.begin_wait(1, wire.FOREVER, ends.write(8))
    assert ends.a.end_wait() == []
    assert one(ends.a.end_wait()).status == SUCCESS
    ends.over()


def test_a_program_that_is_waited_for_is_shown_as_what_it_is(fabric: BareFabric) -> None:
    """It computes for long, and is judged by nobody. It was shown as gone, as nobody had looked at it."""
    p, b = program(fabric, 0), program(fabric, 1)
    b.begin_wait(1)

    def waits() -> list[dict[str, Any]]:
        return [w for w in fabric.fabricd.request("waits")["waits"] if w["who"] == "worker"]

    wait_until(lambda: bool(waits()), "the program to be silent for a second")
    (seen,) = waits()
    assert (seen["rank"], seen["pid"]) == (0, os.getpid()) and seen["state"] in "RSD"
    for each in (b, p):
        each.socket.close()
