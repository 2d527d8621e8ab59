"""Workers are not trusted: whatever one does that the protocol forbids ends its session, and nothing else.

Beside each hostile rank two others exchange writes; their figures are exact and fabricd loses no file descriptor.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket

import pytest

from tests.parts.fabricd_fixture import (
    BareFabric,
    RawWorker,
    SessionOver,
    bare_fabric,
    post_recv,
    post_send,
    sealed_memfd,
    wait_until,
)
from tests.parts.hostile_worker import BIG, MODEL, beside_honest_ones, raw, sessions
from tests.parts.timing_model import RETH, timed_write
from workloads.verbs import wire

U32 = 2**32 - 1


def ready(f: BareFabric, nbytes: int = 4096) -> tuple[RawWorker, int]:
    """Rank 0 with a region."""
    w = f.worker(0)
    key, _ = w.region(nbytes)
    return w, key


HELLO_MALFORMED: dict[str, tuple[bytes, str]] = {
    "wrong magic": (wire.command(wire.HELLO, 0x12345678, wire.VERSION, 0), "wrong magic"),
    "wrong version": (wire.command(wire.HELLO, wire.MAGIC, 1, 0), "version"),
    "something else first": (wire.command(wire.PROGRESS), "HELLO must come first"),
    "BYE first": (wire.command(wire.BYE), "HELLO must come first"),
    "too short": (b"\1\0", "cut short"),
    "unknown command": (raw(99), "unknown command"),
    "command 0": (raw(0), "unknown command"),
    "command 65535": (raw(65535), "unknown command"),
}


@pytest.mark.parametrize("name", HELLO_MALFORMED)
def test_bad_greetings(name: str) -> None:
    data, reason = HELLO_MALFORMED[name]
    with beside_honest_ones() as f:
        w = f.worker(0, hello=False)
        w.send(data)
        assert reason in w.reason()
        lost = f.events("worker_lost")[0]
        assert (lost["rank"], lost["greeted"]) == (0, False)
        assert reason in lost["reason"]


COMMANDS: dict[str, tuple[bytes, str]] = {
    "HELLO twice": (wire.command(wire.HELLO, wire.MAGIC, wire.VERSION, 0), "twice"),
    "length 0": (raw(wire.PROGRESS, length=0), "cut short"),
    "length 7": (raw(wire.PROGRESS, length=7), "cut short"),
    "length no multiple of 8": (raw(wire.SPEND, bytes(12)), "multiple of 8"),
    "longer than its packet": (raw(wire.SPEND, bytes(8), length=24), "longer than its packet"),
    "longer than any packet": (raw(wire.SPEND, bytes(8), length=65528), "longer than its packet"),
    "body too short": (raw(wire.POST_SEND, bytes(48)), "wrong length"),
    "body too long": (raw(wire.SPEND, bytes(16)), "wrong length"),
    "PROGRESS with a body": (raw(wire.PROGRESS, bytes(8)), "wrong length"),
    "a good command, then a stump": (wire.command(wire.PROGRESS) + b"\1\0\0\0", "cut short"),
    "REGISTER without a memfd": (wire.command(wire.REGISTER, 4096, 0, 0, 1, 15, 0, 0), "one memfd"),
    "CONNECT to no rank": (wire.command(wire.CONNECT, 4, 0, 0, 0, 0, 0, 0), "no such rank"),
    "CONNECT to rank 2^32-1": (wire.command(wire.CONNECT, U32, 0, 0, 0, 0, 0, 0), "no such rank"),
    "CONNECT to itself": (wire.command(wire.CONNECT, 0, 0, 0, 0, 0, 0, 0), "itself"),
    "CONNECT, long private data": (wire.command(wire.CONNECT, 1, 0, 0, 264, 0, 0, 0, data=bytes(264)), "private data"),
    "CONNECT, private data missing": (wire.command(wire.CONNECT, 1, 0, 0, 8, 0, 0, 0), "private data"),
    "CONNECT, more private data than said": (
        wire.command(wire.CONNECT, 1, 0, 0, 0, 0, 0, 0, data=bytes(8)),
        "private data",
    ),
    "CONNECT, unknown flag": (wire.command(wire.CONNECT, 1, 0, 0, 0, 0x800, 0, 0), "flag"),
    "CONNECT, a class without the flag for it": (wire.command(wire.CONNECT, 1, 0, 0, 0, 0x300, 0, 0), "flag"),
    "CONNECT, a DSCP without the flag for it": (wire.command(wire.CONNECT, 1, 0, 0, 0, 0x80, 0, 0), "flag"),
    "COMPUTE on stream 256": (wire.command(wire.COMPUTE, 1, 1, 256, 0), "256 streams"),
    "CONNECT twice": (2 * wire.command(wire.CONNECT, 3, 0, 0, 0, 0, 0, 0), "twice"),
    "POST_SEND, no such queue pair": (post_send(16, 1, 1, 8), "no such queue pair"),
    "POST_SEND, queue pair 0": (post_send(0, 1, 1, 8), "no such queue pair"),
    "POST_SEND, queue pair 2^32-1": (post_send(U32, 1, 1, 8), "no such queue pair"),
    "POST_SEND, not connected yet": (
        wire.command(wire.CONNECT, 3, 0, 0, 0, 0, 0, 0) + post_send(16, 1, 1, 8),
        "not connected",
    ),
    "POST_RECV, no such queue pair": (post_recv(16, 1), "no such queue pair"),
    "COMPUTE for ever": (wire.command(wire.COMPUTE, 1, BIG, 0, 0), "thirteen days"),
    "COMPUTE again and again": (4 * wire.command(wire.COMPUTE, 1, 2**60, 0, 0), "thirteen days"),
    "SPEND for ever": (wire.command(wire.SPEND, BIG), "thirteen days"),
    "SPEND again and again": (4 * wire.command(wire.SPEND, 2**60), "thirteen days"),
    "WAIT for ever and a day": (wire.command(wire.WAIT, 1, 0, 2**63), "thirteen days"),
    "WAIT, and more behind it": (wire.command(wire.WAIT, 0, 0, 0) + wire.command(wire.PROGRESS), "last command"),
    "BYE, and more behind it": (wire.command(wire.BYE) + wire.command(wire.PROGRESS), "last command"),
    "SYNC of nobody": (wire.command(wire.SYNC, 1, 0), "participants"),
    "SYNC of more than there are": (wire.command(wire.SYNC, 1, 5), "participants"),
    "SYNC of 2^32-1": (wire.command(wire.SYNC, 1, U32), "participants"),
    "SYNC twice": (2 * wire.command(wire.SYNC, 1, 4), "twice"),
    "many SYNCs": (b"".join(wire.command(wire.SYNC, tag, 4) for tag in range(300)), "256"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_bad_commands(name: str) -> None:
    data, reason = COMMANDS[name]
    with beside_honest_ones() as f:
        w = f.worker(0)
        w.send(data)
        assert reason in w.reason()
        assert reason in f.events("worker_lost")[0]["reason"]


RANGES = [
    (0, 8, 1),  # key 0
    (0, 8, 2),
    (0, 8, U32),
    (0, 4097, 0),
    (4096, 1, 0),
    (4097, 0, None),
    (BIG, 8, 0),
    (BIG - 7, 8, 0),
    (BIG - 4095, 4096, 0),
    (2**63, 1, 0),
    (8, BIG, 0),
    (8, BIG - 7, 0),
    (1, 2**31, 0),
]


@pytest.mark.parametrize(("offset", "length", "key"), RANGES)
@pytest.mark.parametrize("receive", [False, True])
def test_ranges_outside_a_region(offset: int, length: int, key: int | None, receive: bool) -> None:
    """Key 0 of a case stands for the right one, 1 for none, None: length 0 needs no memory and is no violation."""
    with beside_honest_ones() as f:
        w, right = ready(f)
        w3 = f.worker(3)
        w3.begin_wait(1, wire.FOREVER, wire.command(wire.CONNECT, 0, 1, 1, 0, 0, 0, 0))
        (made,) = w.wait(1, wire.FOREVER, wire.command(wire.CONNECT, 3, 1, 1, 0, 0, 0, 0))
        w3.end_wait()
        named = right if key in (0, None) else 0 if key == 1 else key
        if receive:
            w.send(post_recv(made.qp, named, length, offset=offset))
        else:
            w.send(post_send(made.qp, named, 1, length, local=offset))
        if key is None:
            w.bye()
            w3.bye()
            return
        assert w.reason().endswith(("outside its region", "longer than 2 GiB"))
        w3.bye()


def test_unknown_opcode_and_flags() -> None:
    for opcode, flags in ((99, 0), (255, 1), (0, 2), (0, 128)):
        with bare_fabric("star", {"hosts": 2}) as f:
            pair = f.pair(0, 1)
            pair.a.send(post_send(pair.qp_a, pair.key_a, pair.key_b, 8, opcode=opcode, flags=flags))
            assert "unknown opcode or flag" in pair.a.reason()
            pair.b.bye()


def test_packets_too_long_and_empty() -> None:
    with beside_honest_ones() as f:
        w = f.worker(0)
        w.send(wire.command(wire.PROGRESS) * 8192)  # 64 KiB: fine
        w.wait(0)
        w.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        w.send(wire.command(wire.PROGRESS) * 8193)
        assert "64 KiB" in w.reason()
        three = f.worker(3)
        three.socket.send(b"")
        assert three.reason()


def test_a_packet_while_waiting() -> None:
    with beside_honest_ones() as f:
        w = f.worker(0)
        w.begin_wait(1)
        w.send(wire.command(wire.PROGRESS))
        assert "while it waits" in w.reason()


def test_answers_that_are_not_read() -> None:
    with beside_honest_ones() as f:
        w = f.worker(0)
        w.socket.setblocking(False)
        fd = sealed_memfd(4096)
        with contextlib.suppress(OSError):
            while True:  # each WAIT is answered at once
                w.send(wire.command(wire.WAIT, 0, 0, 0))
        os.close(fd)
        assert f.events("worker_lost")[0]["reason"] in ("does not read its answers", "a packet while it waits")


def test_records_that_are_never_fetched() -> None:
    with beside_honest_ones() as f:
        w = f.worker(0)
        with contextlib.suppress(OSError):
            for _ in range(40):
                w.send(wire.command(wire.COMPUTE, 1, 1, 0, 0) * 2000)
        assert "65536 records" in w.reason()


def test_posts_without_end() -> None:
    """A rank that posts on and on while the clock waits for another one."""
    with beside_honest_ones() as f:
        w, three = f.worker(0), f.worker(3)
        key, _ = w.region(4096)
        three.begin_wait(1, wire.FOREVER, wire.command(wire.CONNECT, 0, 1, 1, 0, 0, 0, 0))
        (made,) = w.wait(1, wire.FOREVER, wire.command(wire.CONNECT, 3, 1, 1, 0, 0, 0, 0))
        three.end_wait()
        with contextlib.suppress(OSError):
            for _ in range(80):
                w.send(post_send(made.qp, key, 1, 8) * 1000)
        assert "65536 posts" in w.reason()
        three.bye()


def test_connects_up_to_the_limit() -> None:
    with beside_honest_ones() as f:
        w = f.worker(0)
        for at in range(0, 4096, 1024):
            w.send(*(wire.command(wire.CONNECT, 3, tag, 0, 0, 0, 0, 0) for tag in range(at, at + 1024)))
        w.send(wire.command(wire.CONNECT, 3, 5000, 0, 0, 0, 0, 0))
        assert "4096 queue pairs" in w.reason()


def test_connects_both_ways_up_to_the_limit() -> None:
    """4096 queue pairs, each with private data: all of them are told to both sides, over several answers."""
    with beside_honest_ones() as f:
        ranks = (f.worker(0), f.worker(3))
        for w, peer in zip(ranks, (3, 0), strict=True):
            for at in range(0, 4096, 128):
                data = bytes([peer]) * 256
                w.send(*(wire.command(wire.CONNECT, peer, t, t, 256, 0, 0, 0, data=data) for t in range(at, at + 128)))
        for w, peer in zip(ranks, (3, 0), strict=True):
            made = set()
            while len(made) < 4096:
                for r in w.wait(1):
                    assert r.private == bytes([3 - peer]) * 256
                    made.add((r.wr_id, r.qp))
            assert len({qp for _, qp in made}) == 4096
        for w in ranks:
            w.bye()


def test_a_second_session() -> None:
    with beside_honest_ones() as f:
        first = f.worker(0)
        with pytest.raises(SessionOver, match="session already"):
            f.worker(0)
        first.wait(0)
        first.bye()
        wait_until(lambda: sessions(f)[0] == "done", "the first session to end")
        with pytest.raises(SessionOver, match="session already"):
            f.worker(0)


def test_many_connections() -> None:
    with beside_honest_ones() as f:
        first = f.worker(0)
        for _ in range(300):
            with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as s:
                s.connect(str(f.worker_socket(0)))
        first.wait(0)
        first.bye()


def test_a_rank_cannot_end_anothers_session_with_sync() -> None:
    """It names the honest ranks' tag with another number of participants, and comes back for more."""
    with bare_fabric("star", {"hosts": 3}) as f:
        f.start(0, 1, 2)
        w, one, two = f.worker(0), f.worker(1), f.worker(2)
        w.begin_wait(1, wire.FOREVER, wire.command(wire.SYNC, 7, 3))
        one.begin_wait(1, wire.FOREVER, wire.command(wire.SYNC, 7, 2))
        two.begin_wait(1, wire.FOREVER, wire.command(wire.SYNC, 7, 2))
        assert [r.kind for r in one.end_wait() + two.end_wait()] == [wire.SYNCED, wire.SYNCED]
        one.bye()
        two.bye()
        w.socket.close()


def test_random_packets() -> None:
    """Good commands with random damage, each on a session of its own."""
    dice = random.Random(7)
    with bare_fabric("star", {"hosts": 40}) as f:
        pair = f.pair(38, 39)
        good = [
            wire.command(wire.PROGRESS),
            wire.command(wire.CONNECT, 38, 1, 1, 5, 0, 0, 0, data=b"hello"),
            post_send(16, 1, 1, 8),
            post_recv(16, 1, 8),
            wire.command(wire.COMPUTE, 1, 10, 0, 0),
            wire.command(wire.SPEND, 10),
            wire.command(wire.SYNC, 1, 3),
            wire.command(wire.WAIT, 1, 0, 100),
        ]
        for rank in range(38):
            w = f.worker(rank)
            with contextlib.suppress(OSError):
                for _ in range(20):
                    packet = bytearray(b"".join(dice.choices(good, k=dice.randrange(1, 6))))
                    for _ in range(dice.randrange(3)):
                        packet[dice.randrange(len(packet))] = dice.randrange(256)
                    w.send(bytes(packet[: dice.randrange(1, len(packet) + 1)]))
            w.socket.close()
        took, record = timed_write(pair, 4096)
        assert (took, record.status) == (MODEL.sent(4096, RETH), 0)
        pair.done()


def test_a_call_for_a_group_of_others_is_refused() -> None:
    """Before there is such a group; nothing of it is left."""
    others = wire.command(
        wire.GROUP, b"ring", 1, 1, 2, 0, 64, wire.ELEMENTS["int8"], *[0] * 6, data=bytes([1, 0, 0, 0, 2, 0, 0, 0])
    )
    with bare_fabric("star", {"hosts": 3}) as f:
        f.start()
        workers = [f.worker(rank) for rank in range(3)]
        workers[0].send(others)
        assert workers[0].reason() == "GROUP: not a member"
        for w in workers[1:]:
            w.bye()
        f.fabricd.request("quiesce")
        f.fabricd.next_job()
