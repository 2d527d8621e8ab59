"""librdmacm.so.1 with the real clock, where how long a program takes until it listens is up to the machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.parts.fabricd_fixture import bare_fabric, wait_until
from tests.parts.rdma_programs import DEADLINE_S, Programs, require

ADDRESS = "10.0.0.1"
SETS_UP = f"ip link set lo up; for a in {ADDRESS} 10.0.0.2; do ip address add $a/32 dev lo; done; echo up; read end"


class Host:
    """A network namespace of its own, in which both ranks' addresses are."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        argv = ["unshare", "--net", "sh", "-c", SETS_UP]
        self.holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout is not None and self.holder.stdout.readline() == "up\n"

    def start(self, rank: int, *argv: str) -> subprocess.Popen[str]:
        return self.programs.start(rank, "nsenter", "--net", "--target", str(self.holder.pid), *argv)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    require("rping", "ip")
    with bare_fabric("star", {"hosts": 2}, clock={"mode": "real", "dilation": 1000}) as f:
        programs = Programs(f, virtual=False)
        host = Host(programs)
        try:
            yield host
        finally:
            programs.end()
            host.holder.communicate("")


def rests(program: subprocess.Popen[str]) -> bool:
    """Whether it was refused, and waits until it asks again."""
    assert program.poll() is None, program.communicate()
    open_files = []
    with suppress(OSError):
        open_files = [os.readlink(fd) for fd in Path(f"/proc/{program.pid}/fd").iterdir()]
    return "anon_inode:[timerfd]" in open_files


def test_who_is_refused_asks_again_until_the_peer_listens(host: Host) -> None:
    """perftest frees what it needs to ask again itself, so that it would end by a signal."""
    how = ["-v", "-C", "2", "-a", ADDRESS]
    client = host.start(1, "rping", "-c", *how)
    wait_until(lambda: rests(client), "the client to be refused", DEADLINE_S)
    server = host.start(0, "rping", "-s", *how)
    said = [each.communicate(timeout=DEADLINE_S)[0] for each in (server, client)]
    assert (server.returncode, client.returncode) == (0, 0), said
    assert "ping data: rdma-ping-1: BCDEFGH" in said[1]


def test_nobody_there_is_a_rejection_in_the_end(host: Host) -> None:
    """When rping has looked for its route for as long as it says it would."""
    said, _ = host.start(1, "rping", "-c", "-C", "1", "-a", ADDRESS).communicate(timeout=DEADLINE_S)
    assert "RDMA_CM_EVENT_REJECTED, error 8" in said
