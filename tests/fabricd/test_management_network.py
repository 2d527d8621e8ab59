"""Ordinary programs over TCP on the virtual clock: the management network, and waiting for several things at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

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
