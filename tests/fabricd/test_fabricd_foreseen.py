"""What a worker says to what comes, said beforehand: at the same time, to the same effect, and only if it comes so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest

from tests.parts.fabricd_fixture import Pair, RawWorker, bare_fabric, post_recv
from tests.parts.hostile_worker import beside_honest_ones
from workloads.verbs import wire
from workloads.verbs.wire import Record

ANSWERED = 0x8000
FORESEEN = 4
TO_BE_TOLD = 1
FAR_PS = 10**9


def computes(number: int, ns: int, stream: int = 0) -> bytes:
    return wire.command(wire.COMPUTE, number, ns * 1000, stream, 0)


def foresee(chain: int, kind: int, key: int, *commands: bytes, flags: int = 0) -> bytes:
    return wire.command(wire.FORESEE, chain, kind, flags, key, data=b"".join(commands))


def computed(chain: int, number: int, *commands: bytes, flags: int = 0) -> bytes:
    return foresee(chain, wire.COMPUTED, number, *commands, flags=flags)


def spend(ns: int) -> bytes:
    return wire.command(wire.SPEND, ns * 1000)


def waits(
    w: RawWorker, *commands: bytes, until_ps: int = wire.FOREVER, flags: int = FORESEEN
) -> list[tuple[bool, Record]]:
    """The records that end the wait: was it answered, and what is it?"""
    w.send(*commands, wire.command(wire.WAIT, 1, flags, until_ps))
    body = bytearray(w.packet(wire.RECORDS))
    w.time_ps, count, w.more, w.host_ps, w.sent_bytes = wire.RECORDS_BODY.unpack_from(body)
    answered = []
    for at in range(wire.RECORDS_BODY.size, len(body), wire.RECORD.size):
        answered.append(bool(body[at + 1] & ANSWERED >> 8))
        body[at + 1] &= ~(ANSWERED >> 8)
    return list(zip(answered, wire.records(memoryview(body), wire.RECORDS_BODY.size, count), strict=True))


def numbers(told: Sequence[tuple[bool, Record]]) -> list[tuple[bool, int]]:
    return [(answered, record.wr_id) for answered, record in told]


@contextlib.contextmanager
def alone() -> Iterator[RawWorker]:
    with bare_fabric("star", {"hosts": 1}) as f:
        f.start(0)
        worker = f.worker(0)
        yield worker
        worker.bye()


def test_a_chain_is_answered_and_told_with_what_wakes() -> None:
    """Its own time goes on by what it says, as if it had been woken."""
    with alone() as w:
        begun = w.time_ps
        three = [computes(n, 1000 * n, stream=n) for n in (1, 2, 3)]
        chain = [computed(0, 1, spend(10)), computed(0, 2, spend(2000)), computed(0, 3, flags=TO_BE_TOLD)]
        told = waits(w, *three, *chain)
        assert numbers(told) == [(True, 1), (True, 2), (False, 3)]
        assert [record.time_ps - begun for _, record in told] == [10**6, 2 * 10**6, 3 * 10**6]
        assert w.time_ps - begun == 4 * 10**6  # what it said to the second has taken it beyond the third
        assert w.host_ps == 2_010_000
        assert numbers(waits(w, computes(1, 5))) == [(False, 1)]  # all of the chain is used up


def test_what_comes_before_those_that_stand_before_it_ends_its_chain() -> None:
    with alone() as w:
        chains = [computed(0, 1, spend(10)), computed(0, 2, spend(10)), computed(0, 3), computed(1, 4, spend(1))]
        both = [computes(2, 1000, stream=2), computes(1, 2000, stream=1)]
        assert numbers(waits(w, *both, *chains)) == [(False, 2)]
        assert numbers(waits(w)) == [(False, 1)]
        assert numbers(waits(w, computes(4, 10), computes(5, 100, stream=5))) == [(True, 4), (False, 5)]
        assert numbers(waits(w, computed(0, 3, spend(1)), computes(3, 10), computes(5, 100, stream=5))) == [
            (True, 3),
            (False, 5),
        ]


def test_two_at_a_time_are_told_and_leave_their_chain() -> None:
    with alone() as w:
        chain = [computed(0, n, spend(10)) for n in (1, 2, 3)]
        both = [computes(1, 1000, stream=1), computes(2, 1000, stream=2), computes(3, 2000, stream=3)]
        told = waits(w, *both, *chain, computes(4, 5000, stream=4))
        assert numbers(told) == [(False, 1), (False, 2)]
        assert numbers(waits(w)) == [(True, 3), (False, 4)]


@pytest.mark.parametrize("how", ["asks nothing", "ends there", "for two"])
def test_only_a_wait_for_one_that_says_so_is_answered(how: str) -> None:
    with alone() as w:
        begin = (computes(1, 1000), computes(2, 2000, stream=2), computed(0, 1, spend(10)))
        if how == "asks nothing":
            assert numbers(waits(w, *begin, flags=0)) == [(False, 1)]
        elif how == "ends there":
            assert numbers(waits(w, *begin, until_ps=w.time_ps + 10**6)) == [(False, 1)]
        else:
            assert [record.wr_id for record in w.wait(2, wire.FOREVER, *begin)] == [1, 2]


def test_a_wait_ends_at_its_time_with_what_was_answered_until_then() -> None:
    with alone() as w:
        until = w.time_ps + 5 * 10**6
        assert numbers(waits(w, computes(1, 1000), computed(0, 1, spend(10)), until_ps=until)) == [(True, 1)]
        assert w.time_ps == until
        assert numbers(waits(w, computes(2, 10))) == [(False, 2)]


def exchanged(pair: Pair, messages: int, *, beforehand: bool) -> tuple[list[int], bytes]:
    """`a` sends, and `b` sends each message back: when `a` has each, and what it has."""
    back = [
        wire.command(
            wire.POST_SEND, pair.qp_b, wire.WRITE_IMM, 0, 0, n, pair.key_b, pair.key_a, 64 * n, 2048 + 64 * n, 64, n, 0
        )
        for n in range(messages)
    ]
    pair.a.send(*[post_recv(pair.qp_a, pair.key_a) for _ in back])
    pair.b.send(*[post_recv(pair.qp_b, pair.key_b) for _ in back])
    pair.memory_a[: 64 * messages] = bytes(range(1, 1 + messages)) * 64
    out = [pair.write(64, opcode=wire.WRITE_IMM, local=64 * n, remote=64 * n, imm=n, flags=0) for n in range(messages)]
    keys = [pair.qp_b << 32 | n for n in range(messages)]
    if beforehand:
        chain = [foresee(7, wire.RECEIVED_IMM, key, say) for key, say in zip(keys, back, strict=True)]
        pair.b.send(*chain, computes(99, 10**6), wire.command(wire.WAIT, 1, FORESEEN, wire.FOREVER))
    else:
        pair.b.begin_wait(1, wire.FOREVER, computes(99, 10**6))
    came: list[int] = []
    pair.a.begin_wait(1, wire.FOREVER, *out)
    if not beforehand:
        for say in back:
            (record,) = pair.b.end_wait()
            pair.b.begin_wait(1, wire.FOREVER, say)
            assert record.kind == wire.RECEIVED_IMM
    while len(came) < messages:
        came += [record.time_ps for record in pair.a.end_wait()]
        if len(came) < messages:
            pair.a.begin_wait()
    pair.a.bye()
    pair.b.packet(wire.RECORDS) if beforehand else pair.b.end_wait()
    pair.b.bye()
    return came, bytes(pair.memory_a[2048 : 2048 + 64 * messages])


def test_messages_go_on_at_the_time_at_which_they_would() -> None:
    """And with what has come just before: nobody has looked at that memory meanwhile."""
    seen = []
    for beforehand in (False, True):
        with bare_fabric("star", {"hosts": 2}) as f:
            seen.append(exchanged(f.pair(0, 1), 5, beforehand=beforehand))
    assert seen[0] == seen[1]
    assert seen[1][1] == bytes(range(1, 6)) * 64


WAIT = wire.command(wire.WAIT, 1, FORESEEN, FAR_PS)


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ([foresee(1024, wire.COMPUTED, 1)], "FORESEE: unknown chain, kind or flag"),
        ([foresee(0, wire.SENT, 1)], "FORESEE: unknown chain, kind or flag"),
        ([foresee(0, wire.COMPUTED, 1, flags=2)], "FORESEE: unknown chain, kind or flag"),
        ([computed(0, 1), computed(1, 1)], "FORESEE: more than 16384 records, or one twice"),
        ([computed(0, n) for n in range(16385)], "FORESEE: more than 16384 records, or one twice"),
        ([computed(0, 1, WAIT)], "FORESEE: an answer of other commands than SPEND and POST_SEND"),
        ([computed(0, 1, computed(0, 2))], "FORESEE: an answer of other commands than SPEND and POST_SEND"),
        (
            [computed(0, 1, spend(1)[:8] + b"        " * 2)],
            "FORESEE: an answer of other commands than SPEND and POST_SEND",
        ),
        ([computed(0, 1, spend(1), flags=1)], "FORESEE: an answer of other commands than SPEND and POST_SEND"),
        ([computed(0, 1, spend(2**53)), computes(1, 1), WAIT], "SPEND: beyond thirteen days of emulated time"),
        (
            [computed(0, 1, wire.command(wire.POST_SEND, 4, *[0] * 11)), computes(1, 1), WAIT],
            "POST_SEND: no such queue pair",
        ),
    ],
)
def test_what_does_not_hold_ends_the_session(commands: Sequence[bytes], reason: str) -> None:
    with beside_honest_ones() as f:
        f.start(0, 1, 2)
        w = f.worker(0)
        for at in range(0, len(commands), 1000):
            w.send(*commands[at : at + 1000])
        assert reason in w.reason()
        w.socket.close()


def test_on_the_real_clock_a_worker_answers_by_itself() -> None:
    with bare_fabric("star", {"hosts": 1}, clock={"mode": "real", "dilation": 1}) as f:
        w = f.worker(0)
        w.send(computed(0, 1))
        assert w.reason() == "FORESEE: on the real clock a worker answers by itself"
        w.socket.close()
