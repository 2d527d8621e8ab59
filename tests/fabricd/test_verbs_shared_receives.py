"""Shared receive queues of programs, by the InfiniBand specification (10.2.9): who gets which receive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, SessionOver, bare_fabric
from tests.parts.verbs_program import ERR, INIT, RC, RESET, RTR, RTS, UD, Attributes, Program, address_of
from workloads.verbs import wire

SUCCESS, FLUSHED, RNR_RETRY = 0, 5, 13
LAST_WQE_REACHED, ACCESS_ERROR = 16, 3  # of ibv_event_type
BYTES, REST_PS = 1 << 16, 10**11


@pytest.fixture
def fabric() -> Iterator[BareFabric]:
    with bare_fabric("star", {"hosts": 2}, Hardware()) as f:
        f.start(0, 1)
        yield f


class Ends:
    """`a` sends over several queue pairs to those of `b`, which share receives."""

    def __init__(self, f: BareFabric, pairs: int = 2, **attributes: int) -> None:
        self.a, self.b = Program(f.worker_socket(0)), Program(f.worker_socket(1))
        self.near, self.far = self.a.memory(BYTES), self.b.memory(BYTES)
        self.srq = self.b.shared_queue()
        self.qps = [(self.a.queue_pair(), self.b.queue_pair(shared=self.srq)) for _ in range(pairs)]
        for mine, its in self.qps:
            for program, number, peer, other in ((self.a, mine, its, 1), (self.b, its, mine, 0)):
                what = Attributes(**{"peer": peer, "address": address_of(f, other), **attributes})
                program.send(*(what.command(number, state) for state in (INIT, RTR, RTS)))

    def receives(self, *wr_ids: int, room: int = 4096) -> list[bytes]:
        return [
            self.b.recv_list(self.srq, [self.far.piece(4096 * k, room)], wr_id=k, op=wire.POST_SRQ_RECV) for k in wr_ids
        ]

    def post(self, pair: int, nbytes: int = 100, opcode: int = wire.SEND, **how: int) -> bytes:
        return self.a.send_list(self.qps[pair][0], opcode, [self.near.piece(0, nbytes)], **how)

    def done(self, count: int, *posts: bytes) -> list[wire.Record]:
        return self.a.wait(count, wire.FOREVER, *posts)

    def rest(self, *commands: bytes) -> None:
        self.b.begin_wait(10_000, REST_PS, *commands)

    def came(self) -> list[wire.Record]:
        self.a.begin_wait(10_000, 2 * REST_PS)
        return self.b.end_wait()

    def over(self) -> None:
        for p in (self.b, self.a):
            p.socket.close()


def test_messages_take_the_oldest_receive_whoever_they_are_for(fabric: BareFabric) -> None:
    ends = Ends(fabric, 3)
    ends.near.bytes[:] = bytes(k % 251 for k in range(BYTES))
    ends.rest(*ends.receives(3, 1, 2, 5))
    for pair in (2, 0, 1, 0):  # one after another
        ends.done(1, ends.post(pair))
    came = ends.came()
    assert [(r.wr_id, r.qp) for r in came] == [(w, ends.qps[p][1]) for w, p in ((3, 2), (1, 0), (2, 1), (5, 0))]
    assert all(ends.far.bytes[4096 * k : 4096 * k + 100] == ends.near.bytes[:100] for k in (1, 2, 3, 5))
    ends.over()


def test_a_long_message_keeps_its_receive_while_others_take_theirs() -> None:
    """The receive is taken with the first packet: messages that begin later and end before it have others."""
    with bare_fabric("star", {"hosts": 2}, Hardware(nic={"tx_buffer_bytes": 8192})) as f:
        f.start(0, 1)
        ends = Ends(f, 2)
        ends.near.bytes[:] = bytes((5 * k) % 253 for k in range(BYTES))
        ends.rest(*ends.receives(0, 8, room=20_000))
        ends.done(2, ends.post(0, 20_000), ends.post(1, 10))
        first, second = ends.came()
        assert (first.wr_id, first.qp, first.nbytes) == (8, ends.qps[1][1], 10)
        assert (second.wr_id, second.qp, second.nbytes) == (0, ends.qps[0][1], 20_000)
        assert ends.far.bytes[:20_000] == ends.near.bytes[:20_000]
        ends.over()


def test_an_empty_queue_is_not_ready_and_a_post_helps(fabric: BareFabric) -> None:
    ends = Ends(fabric, 1, rnr_retry=7, rnr_timer=1)
    ends.a.begin_wait(1, wire.FOREVER, ends.post(0))
    assert not ends.b.wait(1, ends.b.time_ps + 10**8)
    ends.rest(*ends.receives(4))
    (sent,) = ends.a.end_wait()
    assert sent.status == SUCCESS and fabric.nic(0)["rnr_nak_retry_err"] > 5  # every 10 us, and a round trip
    ends.over()


def test_without_any_the_sender_gives_up_as_it_was_told(fabric: BareFabric) -> None:
    ends = Ends(fabric, 1, rnr_retry=2)
    ends.rest()
    assert ends.done(1, ends.post(0))[0].status == RNR_RETRY
    assert fabric.nic(0)["rnr_nak_retry_err"] == 3
    ends.over()


def test_its_limit_is_said_once_and_at_once_if_there_are_fewer(fabric: BareFabric) -> None:
    ends = Ends(fabric, 1)
    limit = wire.command(wire.MODIFY_SRQ, ends.srq, 3)
    ends.rest(*ends.receives(0, 1, 2, 3, 4), limit)
    for _ in range(4):
        ends.done(1, ends.post(0))
    records = ends.came()
    kinds = [r.kind for r in records]
    assert kinds.count(wire.SRQ_LIMIT) == 1 and kinds.index(wire.SRQ_LIMIT) == 2  # with the third message 2 are left
    assert records[2].qp == ends.srq
    assert [r.kind for r in ends.b.wait(2, ends.b.time_ps + 10**7, limit)] == [wire.SRQ_LIMIT]
    ends.over()


def test_one_that_breaks_takes_no_more_and_the_others_go_on(fabric: BareFabric) -> None:
    ends = Ends(fabric, 2)
    ends.rest(*ends.receives(0, 1))
    assert ends.done(1, ends.post(0, 8, wire.WRITE, remote=1, rkey=5))[0].status != SUCCESS
    assert ends.done(1, ends.post(1))[0].status == SUCCESS
    *events, received = ends.came()
    assert {(r.kind, r.qp, r.imm) for r in events} == {
        (wire.QP_EVENT, ends.qps[0][1], imm) for imm in (LAST_WQE_REACHED, ACCESS_ERROR)
    }
    assert (received.wr_id, received.qp, received.status) == (0, ends.qps[1][1], SUCCESS)
    ends.over()


def test_what_a_queue_pair_had_taken_is_there_for_others_when_it_is_reset(fabric: BareFabric) -> None:
    """Of a message of ten packets the second is lost for good: its receive is taken, and never used."""
    ends = Ends(fabric, 2, retry=0)
    fabric.fabricd.request(
        "inject", fault="loss", primitive="frames", effect="drop", ports=["h0:1"],
        select={"every": 1}, match={"opcodes": ["SEND_MIDDLE"]},
    )  # fmt: skip
    ends.b.send(*ends.receives(7, room=40_960))
    ends.rest()
    assert ends.done(1, ends.post(0, 40_960))[0].status != SUCCESS
    ends.b.send(Attributes().command(ends.qps[0][1], RESET))
    ends.b.end_wait()
    ends.rest()
    assert ends.done(1, ends.post(1))[0].status == SUCCESS
    (received,) = ends.came()
    assert (received.wr_id, received.qp) == (7, ends.qps[1][1])
    ends.over()


@pytest.mark.parametrize("kind", [RC, UD])
def test_a_receive_is_flushed_only_when_a_message_had_it(fabric: BareFabric, kind: int) -> None:
    ends = Ends(fabric, 0)
    qp = ends.b.queue_pair(kind=kind, shared=ends.srq)
    its = Attributes(address=address_of(fabric, 0), peer=16)
    ends.a.begin_wait(10_000, REST_PS)
    states = [its.command(qp, state) for state in (INIT, RTR, RTS, ERR)]
    records = ends.b.wait(3, ends.b.time_ps + 10**7, *ends.receives(0, 1), *states)
    assert [(r.kind, r.imm) for r in records] == [(wire.QP_EVENT, LAST_WQE_REACHED)]
    ends.over()


def test_numbers_that_are_not_there_end_the_session(fabric: BareFabric) -> None:
    ends = Ends(fabric, 1)
    gone = wire.command(wire.DESTROY_SRQ, ends.srq, 0)
    ends.a.begin_wait(10_000, REST_PS)
    assert not ends.b.wait(1, ends.b.time_ps + 10**7, *ends.receives(0), gone)
    with pytest.raises(SessionOver, match="no such shared receive queue"):
        ends.b.wait(1, ends.b.time_ps + 10**7, gone)
    other = Program(fabric.worker_socket(1))
    with pytest.raises(SessionOver, match="no such shared receive queue"):  # it is another's, and gone
        other.queue_pair(shared=1)
    ends.a.socket.close()
