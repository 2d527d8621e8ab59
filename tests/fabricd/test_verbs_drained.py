"""Send queues that are drained (SQD) or broken by themselves (SQE): InfiniBand specification, 10.3.1.5 and 10.3.1.6."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, bare_fabric
from tests.parts.verbs_program import INIT, RC, RTR, RTS, UD, Attributes, Program, address_of
from workloads.verbs import wire

SUCCESS, LOCAL_PROTECTION, FLUSHED = 0, 4, 5  # of ibv_wc_status
SQ_DRAINED = 5  # of ibv_event_type
SQD, UC = 4, 3
LONG, SHORT, ROOM = 1 << 20, 4096, 1 << 22
REST_PS = 10**12
QKEY = 0x1234


class Ends:
    """`a` sends, `b` rests, with receives of SHORT bytes."""

    def __init__(self, f: BareFabric, kind: int, **attributes: int) -> None:
        self.a, self.b = Program(f.worker_socket(0)), Program(f.worker_socket(1))
        self.qp_a, self.qp_b = self.a.queue_pair(kind=kind), self.b.queue_pair(kind=kind)
        self.to_b = self.qp_b << 32 | address_of(f, 1)
        self.own = Attributes(peer=self.qp_b, address=address_of(f, 1), qkey=QKEY, **attributes)
        its = Attributes(peer=self.qp_a, address=address_of(f, 0), qkey=QKEY)
        self.a.send(*(self.own.command(self.qp_a, state) for state in (INIT, RTR, RTS)))
        self.b.send(*(its.command(self.qp_b, state) for state in (INIT, RTR, RTS)))
        self.near, self.far = self.a.memory(ROOM), self.b.memory(ROOM)
        self.near.bytes[:] = b"x" * ROOM
        rooms = [self.b.recv_list(self.qp_b, [self.far.piece(0, SHORT + 40)], wr_id=k) for k in range(4)]
        self.b.begin_wait(10_000, REST_PS, *rooms)

    def state(self, to: int) -> bytes:
        return self.own.command(self.qp_a, to)

    def write(self, wr_id: int, nbytes: int = LONG, opcode: int = wire.WRITE) -> bytes:
        near, far = self.near.piece(0, nbytes), self.far
        return self.a.send_list(self.qp_a, opcode, [near], wr_id=wr_id, remote=far.address, rkey=far.key)

    def send(self, wr_id: int, key: int | None = None) -> bytes:
        near = self.near.piece(0, SHORT, key)
        return self.a.send_list(self.qp_a, wire.SEND, [near], wr_id=wr_id, remote=self.to_b, rkey=QKEY)

    def until(self, ps: int, *commands: bytes) -> list[wire.Record]:
        """All that `a` hears of until then."""
        return self.a.wait(10_000, self.a.time_ps + ps, *commands)

    def over(self) -> None:
        for p in (self.b, self.a):
            p.socket.close()


@pytest.fixture
def fabric() -> Iterator[BareFabric]:
    with bare_fabric("star", {"hosts": 2}, Hardware()) as f:
        f.start(0, 1)
        yield f


def heard(records: list[wire.Record]) -> list[tuple[str, int]]:
    return [("event", r.imm) if r.kind == wire.QP_EVENT else (f"{r.wr_id}", r.status) for r in records]


@pytest.mark.parametrize("opcode", [wire.WRITE, wire.READ])
def test_what_has_begun_ends_and_what_has_not_is_kept(fabric: BareFabric, opcode: int) -> None:
    """Of three long requests, one READ of which may be under way, the first has begun; one is posted meanwhile."""
    ends = Ends(fabric, RC, reads_out=1)
    first = ends.until(10**9, *(ends.write(k, opcode=opcode) for k in (1, 2, 3)), ends.state(SQD))
    assert heard(first) == [("1", SUCCESS), ("event", SQ_DRAINED)]
    assert first[0].time_ps <= first[1].time_ps <= first[0].time_ps + 10**6
    assert heard(ends.until(10**9, ends.write(4, opcode=opcode))) == []
    rest = ends.until(10**9, ends.state(RTS))
    assert heard(rest) == [("2", SUCCESS), ("3", SUCCESS), ("4", SUCCESS)]
    ends.over()


def test_a_queue_that_is_empty_is_drained_at_once_and_again(fabric: BareFabric) -> None:
    ends = Ends(fabric, RC)
    for _ in range(2):
        assert heard(ends.until(10**8, ends.state(SQD))) == [("event", SQ_DRAINED)]
        assert heard(ends.until(10**8, ends.state(SQD), ends.write(1))) == []
        assert heard(ends.until(10**9, ends.state(RTS))) == [("1", SUCCESS)]
    ends.over()


def test_a_bad_request_behind_the_drained_ones_is_kept_too(fabric: BareFabric) -> None:
    ends = Ends(fabric, RC)
    posts = [ends.write(1), ends.send(2, key=99)]
    assert heard(ends.until(10**9, *posts, ends.state(SQD))) == [("1", SUCCESS), ("event", SQ_DRAINED)]
    assert heard(ends.until(10**9, ends.state(RTS))) == [("2", LOCAL_PROTECTION)]
    ends.over()


@pytest.mark.parametrize("kind", [UD, UC])
def test_a_bad_request_breaks_the_sends_of_what_is_not_reliable(fabric: BareFabric, kind: int) -> None:
    """Those behind it are flushed, and so is what is posted then; messages come in all the while."""
    ends = Ends(fabric, kind)
    assert heard(ends.until(10**9, ends.send(1), ends.send(2, key=99), ends.send(3))) == [
        ("1", SUCCESS),
        ("2", LOCAL_PROTECTION),
        ("3", FLUSHED),
    ]
    assert heard(ends.until(10**9, ends.send(4))) == [("4", FLUSHED)]
    to_a, far = ends.qp_a << 32 | address_of(fabric, 0), ends.far.piece(0, SHORT)
    ends.b.begin_wait(10_000, REST_PS, ends.b.send_list(ends.qp_b, wire.SEND, [far], remote=to_a, rkey=QKEY))
    ends.b.end_wait()  # of its wait before: its message is on its way
    ends.a.begin_wait(1, REST_PS // 2, ends.a.recv_list(ends.qp_a, [ends.near.piece(0, SHORT + 40)], wr_id=9))
    assert heard(ends.a.end_wait()) == [("9", SUCCESS)]
    assert heard(ends.until(10**9, ends.state(RTS), ends.send(5))) == [("5", SUCCESS)]
    ends.over()


@pytest.mark.parametrize("kind", [UD, UC])
def test_what_is_not_reliable_is_drained_too(fabric: BareFabric, kind: int) -> None:
    ends = Ends(fabric, kind)
    posts = [ends.send(k) for k in (1, 2, 3)]
    first = heard(ends.until(10**9, *posts, ends.state(SQD)))
    assert first.count(("event", SQ_DRAINED)) == 1 and first[-1] == ("event", SQ_DRAINED)
    kept = [ends.send(4)]
    assert heard(ends.until(10**9, *kept)) == []
    rest = heard(ends.until(10**9, ends.state(RTS)))
    assert first[:-1] + rest == [(f"{k}", SUCCESS) for k in (1, 2, 3, 4)] and rest
    ends.over()
