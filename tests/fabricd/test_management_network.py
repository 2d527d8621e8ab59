"""Ordinary programs over TCP on the virtual clock: the management network, and waiting for several things at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parts.machine import ROOT
from tests.parts.rdma_programs import DEADLINE_S, Programs, programs_on

SERVER = """
import asyncio, time
async def main():
    done = asyncio.Event()
    async def serve(reader, writer):
        writer.write((await reader.readline()).upper() * 40000)
        await writer.drain()
        writer.close()
        done.set()
    async with await asyncio.start_server(serve, "0.0.0.0", 7000):
        await done.wait()
        await asyncio.sleep(0.001)
asyncio.run(main())
"""
CLIENT = """
import select, socket, time
s = socket.create_connection(("10.0.0.1", 7000))
s.setblocking(False)
began = time.perf_counter_ns()
s.sendall(b"abc\\n")
assert select.select([s], [], [], 0.00002) == ([], [], [])
waited = time.perf_counter_ns() - began
select.select([s], [s], [])
poll = select.poll()
poll.register(s, select.POLLIN)
got = b""
while part := (poll.poll() and s.recv(1 << 16)):
    got = got or (time.perf_counter_ns() - began).to_bytes(8, "big")
    got += part
print(waited, int.from_bytes(got[:8], "big"), got[8:] == b"ABC\\n" * 40000)
"""


@pytest.fixture(scope="module")
def two() -> Iterator[Programs]:
    with programs_on("star", {"hosts": 2}) as p:
        yield p


def test_what_is_sent_arrives_after_the_networks_latency(two: Programs) -> None:
    """Both ways 50 us each; a reader that looks again sees it within as much more. A limit ends a wait to the step."""
    server = two.start(0, sys.executable, "-c", SERVER)
    two.listens(0, 7000)
    client = two.start(1, sys.executable, "-c", CLIENT)
    said, _ = client.communicate(timeout=DEADLINE_S)
    waited, answered, whole = said.split()
    assert 20_000 <= int(waited) < 30_000
    assert 100_000 <= int(answered) <= 200_000
    assert whole == "True"
    assert server.wait(DEADLINE_S) == 0


def test_who_does_not_listen_refuses(two: Programs) -> None:
    code = "import socket; s = socket.socket(); print(s.connect_ex(('10.0.0.1', 7001)), s.connect_ex(('10.9.9.9', 1)))"
    client = two.start(1, sys.executable, "-c", code)
    said, _ = client.communicate(timeout=DEADLINE_S)
    assert said.split() == ["111", "113"]  # ECONNREFUSED, EHOSTUNREACH


def test_a_program_whose_nic_is_gone_comes_to_an_end(two: Programs) -> None:
    """fabricd ends a session that says nonsense; whoever waits on a socket then is told, and does not look for ever."""
    code = (
        "import os, socket; s = socket.socket(); s.bind(('', 7002)); s.listen();"
        "own = socket.socket(fileno=os.dup(s.fileno() - 1));"  # opened just before it: fabricd's
        "own.send(b'nonsense'); s.accept()"
    )
    program = two.start(0, sys.executable, "-c", code)
    said, _ = program.communicate(timeout=DEADLINE_S)
    assert program.returncode == 1 and "railbed: the NIC is gone" in said, said


READER = """
import hashlib, socket, sys, time
port, pause, piece = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
s = socket.create_server(("0.0.0.0", port))
c, _ = s.accept()
time.sleep(pause)
digest = hashlib.sha256()
while part := c.recv(piece):
    digest.update(part)
c.sendall(digest.digest())
c.close()
"""
WRITER = """
import hashlib, select, socket, sys, time
port, size, piece, blocks = *map(int, sys.argv[1:4]), sys.argv[4] == "blocks"
s = socket.create_connection(("10.0.0.1", port))
s.setblocking(blocks)
data = bytes(range(251)) * (size // 251)
began, at, turns = time.perf_counter_ns(), 0, 0
while at < len(data):
    try:
        at += s.send(data[at:at + piece])
    except BlockingIOError:
        turns += 1
        assert select.select([], [s], [])[1] == [s]
s.shutdown(socket.SHUT_WR)
s.setblocking(True)
same = s.recv(64) == hashlib.sha256(data).digest()
print(same, blocks or turns > 2, time.perf_counter_ns() - began)
"""


@pytest.mark.parametrize(
    ("size", "piece", "how"),
    [(800_000, 800_000, "blocks"), (800_000, 200_000, "looks"), (60_000, 100, "blocks"), (60_000, 100, "looks")],
)
def test_a_writer_waits_for_a_reader_and_nothing_is_lost(two: Programs, size: int, piece: int, how: str) -> None:
    """More than a socket holds, to one that reads only after 10 ms: as TCP, and at the same times again."""
    times = []
    for port in (7010, 7011):
        two.next(0, 1)
        server = two.start(0, sys.executable, "-c", READER, str(port), "0.01", "50000")
        two.listens(0, port)
        writer = two.start(1, sys.executable, "-c", WRITER, str(port), str(size), str(piece), how)
        said, _ = writer.communicate(timeout=DEADLINE_S)
        assert server.wait(DEADLINE_S) == 0
        whole, waited, took = said.split()
        assert (whole, waited) == ("True", "True")
        times.append(int(took))
    assert times[0] == times[1] and times[0] > 10_000_000


def test_who_writes_to_one_that_is_gone_is_told(two: Programs) -> None:
    """As TCP tells it: EPIPE, once there is no room; what fits before that is lost."""
    code = "import socket; s = socket.create_server(('0.0.0.0', 7012)); s.accept()[0].close()"
    server = two.start(0, sys.executable, "-c", code)
    two.listens(0, 7012)
    code = "import socket; s = socket.create_connection(('10.0.0.1', 7012)); s.sendall(bytes(10_000_000))"
    client = two.start(1, sys.executable, "-c", code)
    said, _ = client.communicate(timeout=DEADLINE_S)
    assert client.returncode == 1 and "BrokenPipeError" in said
    assert server.wait(DEADLINE_S) == 0


TALKS = """
import os, socket
s = socket.socket()
s.bind(("", 7005))
s.listen()
c = s.accept()[0].detach()
os.read(c, 4)
for k in range(100):
    os.write(c, b"%02d" % k)
"""
"""Nothing is closed, and of what has come the half is unread."""
HEARS = """
import socket, time
s = socket.create_connection(("10.0.0.1", 7005))
s.sendall(b"abcdefgh")
got = s.recv(200, socket.MSG_WAITALL)
began = time.perf_counter_ns()
print(got == b"".join(b"%02d" % k for k in range(100)), s.recv(1), time.perf_counter_ns() - began)
"""


def heard(two: Programs, *preload: Path) -> str:
    for socket in (two.f.directory / "network").iterdir():
        socket.unlink()
    server = two.start(0, sys.executable, "-c", TALKS)
    two.listens(0, 7005)
    preloaded = "LD_PRELOAD=" + ":".join(map(str, [*preload, two.env["LD_PRELOAD"]]))
    said, _ = two.start(1, "env", preloaded, sys.executable, "-c", HEARS).communicate(timeout=DEADLINE_S)
    assert server.wait(DEADLINE_S) == 0
    return said


def test_a_connection_that_nobody_closes_ends_with_its_process(two: Programs) -> None:
    """In emulated time, by then: the kernel closes it when it comes to that, which is seen at whatever time it is."""
    assert [heard(two) for _ in range(5)] == ["True b'' 175\n"] * 5


def test_a_peer_that_ends_while_it_is_read_loses_nothing(two: Programs, tmp_path: Path) -> None:
    library = tmp_path / "resets.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, ROOT / "tests/parts/resets.c"], check=True)
    assert heard(two, library) == "True b'' 175\n"
