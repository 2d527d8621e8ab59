"""librdmacm.so.1 under the programs that its authors ship with it, and under what nobody meant for it."""

from __future__ import annotations

import ctypes.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardware.build import RDMACM
from tests.parts.rdma_programs import DEADLINE_S, Programs, numbers, programs_on, require

RPING, CMATOSE = 7174, 7471


@pytest.fixture(scope="module")
def fabric() -> Iterator[Programs]:
    require("rping", "ucmatose", "rdma_server", "ib_send_lat")
    with programs_on("star", {"hosts": 2}) as p:
        yield p


@pytest.fixture
def two(fabric: Programs) -> Programs:
    for socket_file in (fabric.f.directory / "network").iterdir():
        socket_file.unlink()
    return fabric


def both(p: Programs, server: list[str], client: list[str], port: int) -> tuple[str, str]:
    first = p.start(0, *server)
    p.listens(0, port)
    second = p.start(1, *client)
    said = [each.communicate(timeout=DEADLINE_S)[0] for each in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), said
    return said[0], said[1]


def test_rping_reads_and_writes_both_ways(two: Programs) -> None:
    """Private data carries nothing here; its SENDs name keys, and each side's data comes by READ and WRITE."""
    how = ["-v", "-C", "3", "-a", "10.0.0.1"]
    server, client = both(two, ["rping", "-s", *how], ["rping", "-c", *how], RPING)
    for n in range(3):
        assert f"ping data: rdma-ping-{n}: {chr(65 + n)}" in client
        assert f"server ping data: rdma-ping-{n}: {chr(65 + n)}" in server


@pytest.mark.parametrize("how", [[], ["-c", "4", "-C", "5"]])
def test_ucmatose_connects_sends_and_disconnects(two: Programs, how: list[str]) -> None:
    """Also four connections at a time, all on one event channel."""
    server, client = both(two, ["ucmatose", *how], ["ucmatose", "-s", "10.0.0.1", *how], CMATOSE)
    assert "disconnected" in server and "test complete" in client


def test_endpoints_without_an_event_channel(two: Programs) -> None:
    """rdma_create_ep, rdma_get_request: calls that wait for their own events."""
    server, client = both(two, ["rdma_server"], ["rdma_client", "-s", "10.0.0.1"], CMATOSE)
    assert "end 0" in server and "end 0" in client


def test_perftest_connects_by_it_and_measures_the_same(two: Programs) -> None:
    plain, by_manager = (two.pair("ib_send_lat", "-F", "-n", "100", "-I", "0", *how)[1] for how in ([], ["-R"]))
    assert numbers(plain)[0][2:5] == numbers(by_manager)[0][2:5] != []


def test_nobody_there_is_a_rejection(two: Programs) -> None:
    """Status 8: no such service, as the specification numbers it. A host that there is not is not found."""
    client = two.start(1, "rping", "-c", "-C", "1", "-a", "10.0.0.1")
    said, _ = client.communicate(timeout=DEADLINE_S)
    assert "RDMA_CM_EVENT_REJECTED, error 8" in said
    client = two.start(1, "rping", "-c", "-C", "1", "-a", "10.0.0.77")
    said, _ = client.communicate(timeout=DEADLINE_S)
    assert "RDMA_CM_EVENT_ADDR_ERROR" in said


@pytest.mark.parametrize("endpoint", ["msg", "rdm"])
def test_libfabrics_provider_connects_by_it(two: Programs, endpoint: str) -> None:
    """Its event queues are epolls of an event channel; reliable datagrams go by connections that it makes itself."""
    require("fi_pingpong")
    how = ["fi_pingpong", "-p", "verbs", "-e", endpoint, "-I", "5", "-S", "4096", "-c"]
    server, client = both(two, how, [*how, "10.0.0.1"], 47592)
    for said in (server, client):
        assert re.search(r"^4k +5 +=5 ", said, re.MULTILINE), said


NONSENSE = """
import socket, os
for what in (b"", b"x", bytes(260), os.urandom(260), b"RBc1" + bytes(4000)):
    s = socket.create_connection(("10.0.0.1", 7174))
    s.send(what)
    s.close()
"""


def test_nonsense_disturbs_nobody(two: Programs) -> None:
    """Whoever connects to its port and does not speak its language is dropped; the next is served."""
    how = ["-v", "-C", "2", "-a", "10.0.0.1"]
    server = two.start(0, "rping", "-s", *how)
    two.listens(0, RPING)
    assert two.start(1, sys.executable, "-c", NONSENSE).wait(DEADLINE_S) == 0
    client = two.start(1, "rping", "-c", *how)
    said, _ = client.communicate(timeout=DEADLINE_S)
    assert client.returncode == 0 and "rdma-ping-1" in said
    served, _ = server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 0, served


def test_a_server_ends_whose_client_was_killed(two: Programs) -> None:
    """rping's thread of completions ends by a flushed receive: disconnecting flushes, though nobody is there to hear of
    it, and succeeds as after a DREQ, which a kernel sends for a process that was killed."""
    server = two.start(0, "rping", "-s", "-v", "-a", "10.0.0.1")
    two.listens(0, RPING)
    client = two.start(1, "rping", "-c", "-v", "-a", "10.0.0.1")
    assert client.stdout is not None and "rdma-ping-0" in client.stdout.readline()
    client.kill()
    served, _ = server.communicate(timeout=DEADLINE_S)
    assert server.returncode in (0, 255) and "DISCONNECT EVENT" in served, served  # 255: in the midst of an exchange


def test_its_symbols_are_the_distributions() -> None:
    """Each under its version: what is linked to one is linked to the other."""
    name = ctypes.util.find_library("rdmacm")
    places = [Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64"), Path("/lib")]
    theirs = next((p / name for p in places if name and (p / name).exists()), None)
    if theirs is None:
        pytest.skip("librdmacm1 is not installed")

    def symbols(path: Path) -> set[str]:
        said = subprocess.run(["nm", "-D", "--with-symbol-versions", path], capture_output=True, text=True, check=True)
        return {line.split()[2] for line in said.stdout.splitlines() if " T " in line}

    assert symbols(theirs) <= symbols(RDMACM)
