"""Memory windows of programs, as the InfiniBand specification has them (10.6.7): what is bound, to whom, until when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.dissected import dissect
from tests.parts.fabricd_fixture import BareFabric, bare_fabric
from tests.parts.verbs_program import LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, Program, couple
from workloads.verbs import wire

SUCCESS, FLUSHED, BIND_ERROR, REMOTE_INVALID, REMOTE_ACCESS, RETRY = 0, 5, 6, 9, 10, 12  # of ibv_wc_status
SEND_INV, BIND, LOCAL_INV = 7, 8, 9  # opcodes
WINDOWS = 16  # of access
BYTES, REST_PS = 1 << 16, 10**9


@pytest.fixture
def fabric() -> Iterator[BareFabric]:
    with bare_fabric("star", {"hosts": 2}, Hardware()) as f:
        f.start(0, 1)
        yield f


class Ends:
    """`b` has a region and windows of it, and says what it does before it rests; `a` then writes and reads there."""

    def __init__(self, f: BareFabric, access: int = LOCAL_WRITE | WINDOWS, **attributes: int) -> None:
        self.a, self.b = Program(f.worker_socket(0)), Program(f.worker_socket(1))
        self.qp_a, self.qp_b = couple(f, self.a, self.b, **attributes)
        self.near, self.far = self.a.memory(BYTES), self.b.memory(BYTES, access)

    def window(self, kind: int, domain: int = 1) -> int:
        self.b.send(wire.command(wire.ALLOC_MW, 1, domain, kind, 0))
        _, key = wire.REGION_BODY.unpack(self.b.packet(wire.REGION))
        return int(key)

    def bind(self, key: int, nbytes: int = 4096, at: int = 8192, access: int = REMOTE_WRITE, **how: Any) -> bytes:
        fields = {"remote": self.far.address + at, "imm": self.far.key, "compare": nbytes, "swap": access, **how}
        return self.b.send_list(self.qp_b, BIND, rkey=key, **fields)

    def does(self, *commands: bytes) -> list[int]:
        """What `b`'s requests have ended with."""
        return [r.status for r in self.turn(self.b, self.a, *commands)]

    def turn(self, one: Program, other: Program, *commands: bytes) -> list[wire.Record]:
        """One acts and hears what comes of it, while the other rests."""
        other.begin_wait(10_000, wire.FOREVER)
        records = one.wait(10_000, one.time_ps + REST_PS, *commands)
        other.send(wire.command(wire.PROGRESS))
        other.end_wait()
        return records

    def asks(self, opcode: int, key: int, nbytes: int = 8, at: int = 8192) -> int:
        remote = {"remote": self.far.address + at, "rkey": key}
        post = self.a.send_list(self.qp_a, opcode, [self.near.piece(0, nbytes)], **remote)
        (record,) = self.turn(self.a, self.b, post)
        return int(record.status)

    def over(self) -> None:
        for p in (self.b, self.a):
            p.socket.close()


def again(key: int) -> int:
    """As ibv_inc_rkey."""
    return key & ~255 | (key + 1) & 255


@pytest.mark.parametrize("kind", [1, 2])
def test_a_peer_may_do_what_was_bound_and_no_more(fabric: BareFabric, kind: int) -> None:
    """The region itself gives it nothing."""
    ends = Ends(fabric)
    key = again(ends.window(kind))
    ends.near.bytes[:8] = b"windowed"
    assert ends.does(ends.bind(key)) == [SUCCESS]
    assert ends.asks(wire.WRITE, key) == ends.asks(wire.WRITE, key, at=8192 + 4088) == SUCCESS
    assert ends.far.bytes[8192:8200] == b"windowed"
    assert ends.asks(wire.WRITE, ends.far.key) == REMOTE_ACCESS
    ends.over()


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("what", ["before", "behind", "read", "unbound", "old key", "gone", "region gone"])
def test_what_a_peer_may_not_do(fabric: BareFabric, kind: int, what: str) -> None:
    ends = Ends(fabric)
    first = ends.window(kind)
    key = again(first)
    commands = [] if what == "unbound" else [ends.bind(key)]
    if what == "gone":
        commands.append(wire.command(wire.DEREGISTER, first, 0))
    elif what == "region gone":
        commands.append(wire.command(wire.DEREGISTER, ends.far.key, 0))
    assert ends.does(*commands) == [SUCCESS] * (what != "unbound")
    at = {"before": 8188, "behind": 8192 + 4092}.get(what, 8192)
    opcode = wire.READ if what == "read" else wire.WRITE
    assert ends.asks(opcode, first if what == "old key" else key, at=at) == REMOTE_ACCESS
    ends.over()


def test_that_of_type_2_is_its_queue_pairs_alone(fabric: BareFabric) -> None:
    ends = Ends(fabric)
    key = again(ends.window(2))
    other, of_b = couple(fabric, ends.a, ends.b)
    assert ends.does(ends.bind(key)) == [SUCCESS]
    assert ends.asks(wire.WRITE, key) == SUCCESS
    ends.qp_a = other
    assert of_b and ends.asks(wire.WRITE, key) == REMOTE_ACCESS
    ends.over()


@pytest.mark.parametrize(
    "what", ["no such region", "other domain", "range", "right", "no windows", "bound already", "not its queue pair"]
)
def test_what_cannot_be_bound_breaks_the_queue_pair(fabric: BareFabric, what: str) -> None:
    access = {"right": WINDOWS, "no windows": LOCAL_WRITE}.get(what, LOCAL_WRITE | WINDOWS)
    ends = Ends(fabric, access)
    key = again(ends.window(2, 2 if what == "other domain" else 1))
    how: dict[str, Any] = {"no such region": {"imm": 77}, "range": {"nbytes": BYTES - 8191}}.get(what, {})
    posts = [ends.bind(key, **how, wr_id=1)]
    expected = [BIND_ERROR]
    if what == "bound already":
        posts.append(ends.bind(again(key), wr_id=2))
        expected = [SUCCESS, BIND_ERROR]
    elif what == "not its queue pair":
        other, of_b = couple(fabric, ends.a, ends.b)
        posts.append(ends.b.send_list(of_b, LOCAL_INV, rkey=key, wr_id=2))
        expected = [SUCCESS, BIND_ERROR]
        assert other
    assert ends.does(*posts) == expected
    if what != "not its queue pair":
        assert ends.does(ends.bind(key)) == [FLUSHED]
    ends.over()


def test_a_window_of_type_1_goes_from_place_to_place_and_ends_with_none(fabric: BareFabric) -> None:
    ends = Ends(fabric)
    first = again(ends.window(1))
    second = again(first)
    assert ends.does(ends.bind(first), ends.bind(second, at=0)) == [SUCCESS] * 2
    assert ends.asks(wire.WRITE, second, at=0) == SUCCESS
    assert ends.does(ends.bind(again(second), 0, access=0)) == [SUCCESS]
    assert ends.asks(wire.WRITE, second, at=0) == REMOTE_ACCESS
    ends.over()


def test_requests_end_in_turn_and_a_window_is_there_when_what_is_behind_it_begins(fabric: BareFabric) -> None:
    """Binding takes no packet, but is done only when the write before it is."""
    ends = Ends(fabric)
    key, landing = again(ends.window(2)), ends.a.memory(BYTES)
    write = {"remote": landing.address, "rkey": landing.key}
    posts = [
        ends.b.send_list(ends.qp_b, wire.WRITE, [ends.far.piece(0, BYTES)], wr_id=1, **write),
        ends.bind(key, wr_id=2),
        ends.b.send_list(ends.qp_b, LOCAL_INV, rkey=key, wr_id=3),
        ends.bind(again(key), access=REMOTE_READ, wr_id=4),
    ]
    records = ends.turn(ends.b, ends.a, *posts)
    assert [(r.wr_id, r.status) for r in records] == [(k, SUCCESS) for k in (1, 2, 3, 4)]
    assert len({r.time_ps for r in records}) == 1
    assert ends.asks(wire.READ, again(key)) == SUCCESS
    assert ends.asks(wire.WRITE, key) == REMOTE_ACCESS
    ends.over()


def test_a_peer_takes_its_window_back_with_a_message(fabric: BareFabric, tmp_path: Path) -> None:
    path = tmp_path / "cable.pcapng"
    fabric.fabricd.request("capture", port="h0:1", path=str(path))
    ends = Ends(fabric)
    key = again(ends.window(2))
    assert ends.does(ends.bind(key), ends.b.recv_list(ends.qp_b, [ends.far.piece(0, 8192)], wr_id=5)) == [SUCCESS]
    assert ends.asks(wire.WRITE, key) == SUCCESS
    ends.b.begin_wait(1, wire.FOREVER)
    ends.a.begin_wait(1, wire.FOREVER, ends.a.send_list(ends.qp_a, SEND_INV, [ends.near.piece(0, 5000)], imm=key))
    (came,) = ends.b.end_wait()
    ends.b.begin_wait(10_000, wire.FOREVER)
    assert [r.status for r in ends.a.end_wait()] == [SUCCESS]
    ends.b.send(wire.command(wire.PROGRESS))
    ends.b.end_wait()
    assert (came.kind, came.wr_id, came.imm, came.nbytes) == (wire.RECEIVED_SEND_INV, 5, key, 5000)
    assert ends.asks(wire.WRITE, key) == REMOTE_ACCESS
    fabric.fabricd.request("capture_stop", path=str(path))
    opcode, ieth = "infiniband.bth.opcode", "infiniband.ieth"
    frames = dissect(path, opcode, ieth, "_ws.malformed")
    assert [int(x[opcode]) for x in frames if int(x[opcode]) < 0x20 and int(x[opcode]) != 17] == [10, 0, 0x16, 10]
    assert [int(x[ieth], 16) for x in frames if ieth in x] == [key] and not any("_ws.malformed" in x for x in frames)
    ends.over()


def test_a_message_that_invalidates_nothing_ends_the_receiver_in_silence(fabric: BareFabric) -> None:
    """Class J of 9.9.3.2: no NAK; its sender asks again until its retries are used up."""
    ends = Ends(fabric, timeout=1, retry=1)
    ends.b.begin_wait(1, wire.FOREVER, ends.b.recv_list(ends.qp_b, [ends.far.piece(0, 64)], wr_id=5))
    post = ends.a.send_list(ends.qp_a, SEND_INV, [ends.near.piece(0, 8)], imm=1234)
    ends.a.begin_wait(1, wire.FOREVER, post)
    assert [(r.wr_id, r.status) for r in ends.b.end_wait()] == [(5, REMOTE_INVALID)]
    ends.b.begin_wait(10_000, wire.FOREVER)
    assert [r.status for r in ends.a.end_wait()] == [RETRY]
    ends.over()
