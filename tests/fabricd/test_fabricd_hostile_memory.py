"""Memory that workers register: what is not theirs to give, not sealed, too short, too much, or changes under way."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parts.fabricd_fixture import BareFabric, SessionOver, bare_fabric, sealed_memfd, wait_until
from tests.parts.hostile_worker import BIG, MODEL, beside_honest_ones, raw
from tests.parts.timing_model import RETH, timed_write
from workloads.verbs import wire

MFD_HUGETLB = 4


def register(length: int) -> bytes:
    return wire.command(wire.REGISTER, length, 0, 0, 1, 15, 0, 0)


def not_sealed() -> int:
    return sealed_memfd(4096, 0)


def ordinary_file() -> int:
    return os.open("/tmp", os.O_TMPFILE | os.O_RDWR)


def read_only() -> int:
    fd = sealed_memfd(4096)
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    os.close(fd)
    return again


def huge_pages() -> int:
    fd = os.memfd_create("huge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | MFD_HUGETLB)
    os.ftruncate(fd, 2 << 20)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return fd


MEMFDS: dict[str, tuple[Callable[[], int], int, str]] = {
    "not sealed": (not_sealed, 4096, "sealed"),
    "sealed against something else": (lambda: sealed_memfd(4096, fcntl.F_SEAL_GROW), 4096, "sealed"),
    "sealed against writing": (
        lambda: sealed_memfd(4096, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE),
        4096,
        "cannot be mapped",
    ),
    "an ordinary file": (ordinary_file, 4096, "not a memfd"),
    "a device": (lambda: os.open("/dev/zero", os.O_RDWR), 4096, "not a memfd"),
    "a socket": (lambda: socket.socket(socket.AF_UNIX).detach(), 4096, "not a memfd"),
    "only for reading": (read_only, 4096, "cannot be mapped"),
    "huge pages": (huge_pages, 2 << 20, "huge pages"),
    "shorter than it says": (lambda: sealed_memfd(4096), 4097, "shorter"),
    "empty": (lambda: sealed_memfd(0), 4096, "shorter"),
    "length 0": (lambda: sealed_memfd(4096), 0, "length 0"),
    "length 2^64-1": (lambda: sealed_memfd(4096), BIG, "workers.memory"),
    "length 65 GiB": (lambda: sealed_memfd(65 << 30), 65 << 30, "workers.memory"),
}


@pytest.mark.parametrize("name", MEMFDS)
def test_bad_memory(name: str) -> None:
    make, length, reason = MEMFDS[name]
    with beside_honest_ones() as f:
        w = f.worker(0)
        fd = make()
        w.send(register(length), fds=(fd,))
        os.close(fd)
        assert reason in w.reason()


def test_memory_cannot_shrink_and_may_be_written_at_any_time() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1, 1 << 20)
        fd = sealed_memfd(8192)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 4096)
        os.close(fd)
        pair.park()
        pair.a.begin_wait(1, wire.FOREVER, pair.write(1 << 20))
        while not select.select([pair.a.socket], [], [], 0)[0]:
            pair.memory_a[:4096] = os.urandom(4096)
        assert [r.status for r in pair.a.end_wait()] == [0]
        pair.done()


def test_too_many_files_and_regions() -> None:
    with beside_honest_ones() as f:
        w = f.worker(0)
        fds = tuple(sealed_memfd(4096) for _ in range(200))
        w.send(register(4096), fds=fds)
        assert "more than one file" in w.reason()
        three = f.worker(3)
        with contextlib.suppress(SessionOver):
            for _ in range(256):
                three.send(register(4096), fds=(fds[0],))
                three.packet(wire.REGION)
        three.send(register(4096), fds=(fds[0],))
        assert "256 regions" in three.reason()
        for fd in fds:
            os.close(fd)


def test_a_worker_registers_no_more_than_it_may_use() -> None:
    """Whatever it has touched of it: holes are filled at fabricd's expense."""

    def small(config: dict[str, Any]) -> None:
        config["worker_memory_bytes"] = 1 << 20

    with bare_fabric("star", {"hosts": 2}, change=small) as f:
        w = f.worker(0)
        w.region(1 << 19)
        w.region(1 << 19)
        fd = sealed_memfd(4096)
        w.send(register(1), fds=(fd,))
        os.close(fd)
        assert "workers.memory" in w.reason()


def test_files_where_none_belong() -> None:
    """A file with another command, a second command beside REGISTER, and two files."""
    with beside_honest_ones() as f:
        w = f.worker(0)
        fds = (sealed_memfd(4096), sealed_memfd(4096))
        w.send(register(4096), wire.command(wire.PROGRESS), fds=fds[:1])
        assert "alone" in w.reason()
        three = f.worker(3)
        three.send(register(4096), fds=fds)
        assert "more than one file" in three.reason()
        for fd in fds:
            os.close(fd)


def test_a_file_with_a_command_that_takes_none() -> None:
    with beside_honest_ones() as f:
        w = f.worker(0)
        fd = sealed_memfd(4096)
        w.send(wire.command(wire.PROGRESS), fds=(fd,))
        assert "takes none" in w.reason()
        os.close(fd)


# -- descriptors that are slow to close


@contextlib.contextmanager
def lingering() -> Iterator[int]:
    """A connection whose last close() waits for two minutes: nobody takes what it has still to send."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        taker, _ = server.accept()
        sender.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                sender.send(bytes(1 << 16))
        sender.setblocking(True)  # one that does not block does not linger
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 120))
        yield sender.detach()
        taker.close()


def close_whoever_is_last(fd: int) -> None:
    """If fabricd has let go of it already, it is our own close() that waits."""
    threading.Thread(target=os.close, args=(fd,), daemon=True).start()


def with_a_command(f: BareFabric, fd: int) -> None:
    f.worker(0).send(wire.command(wire.PROGRESS), fds=(fd,))


def instead_of_memory(f: BareFabric, fd: int) -> None:
    f.worker(0).send(register(4096), fds=(fd,))


def many_at_once(f: BareFabric, fd: int) -> None:
    f.worker(0).send(register(4096), fds=(fd,) * 253)


@contextlib.contextmanager
def stopped(f: BareFabric) -> Iterator[None]:
    """What happens inside happens before fabricd looks."""
    os.kill(f.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(f.pid, signal.SIGCONT)


def behind_the_end(f: BareFabric, fd: int) -> None:
    """Never read: it lies in the queue of the session's socket when that is closed."""
    w = f.worker(0)
    with stopped(f):
        w.send(raw(99))
        for _ in range(8):
            w.send(wire.command(wire.PROGRESS), fds=(fd,))


def by_one_who_is_sent_away(f: BareFabric, fd: int) -> None:
    """The first one still has its session, or had one."""
    f.worker(3)
    with stopped(f):
        f.worker(3, hello=False).send(wire.command(wire.PROGRESS), fds=(fd,))


@pytest.mark.parametrize(
    "how", [with_a_command, instead_of_memory, many_at_once, behind_the_end, by_one_who_is_sent_away]
)
def test_a_socket_that_lingers_holds_nobody_up(how: Callable[[BareFabric, int], None]) -> None:
    with bare_fabric("star", {"hosts": 4}) as f, lingering() as fd:
        f.start(1, 2)
        pair = f.pair(1, 2)
        how(f, fd)
        close_whoever_is_last(fd)
        for _ in range(3):
            f.fabricd.request("status", timeout=60)
            took, record = timed_write(pair, 4096)
            assert (took, record.status) == (MODEL.sent(4096, RETH), 0)
        pair.done()


def a_socket_inside_a_socket(f: BareFabric, fd: int) -> None:
    """It lingers where nobody can tell it not to."""
    inner, outer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    socket.send_fds(inner, [b"x"], [fd])
    os.close(fd)  # not the last: it lies in the queue
    f.worker(3)
    with stopped(f):  # so that fabricd's close() is the last
        f.worker(3, hello=False).send(wire.command(wire.PROGRESS), fds=(outer.fileno(),))
        inner.close()
        outer.close()


def test_who_keeps_fabricd_closing_keeps_nobodys_memory() -> None:
    """It is charged to fabricd: with what ranks of many jobs have left there it would run out."""
    with bare_fabric("star", {"hosts": 4}) as f, lingering() as fd:
        rank = f.worker(1)
        rank.region(1 << 20)
        a_socket_inside_a_socket(f, fd)
        f.fabricd.request("status")
        rank.socket.close()
        f.events("worker_lost")
        maps = Path(f"/proc/{f.pid}/maps")
        wait_until(lambda: "memfd:railbed-test" not in maps.read_text(), "the rank's memory to be unmapped")


def test_who_comes_again_and_again_is_let_in_no_more() -> None:
    """What piles up behind a descriptor that lingers is bounded."""
    with bare_fabric("star", {"hosts": 4}) as f, lingering() as fd:
        f.start(1, 2)
        pair = f.pair(1, 2)
        a_socket_inside_a_socket(f, fd)

        def refused() -> bool:
            with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as s:
                s.setblocking(False)
                return s.connect_ex(str(f.worker_socket(3))) == errno.ECONNREFUSED

        wait_until(refused, "the rank's socket to be closed")
        took, record = timed_write(pair, 4096)
        assert (took, record.status) == (MODEL.sent(4096, RETH), 0)
        pair.done()
