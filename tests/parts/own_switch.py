"""Open vSwitches for tests, each in a network namespace of its own; they die with the tests' process.

`own_switch` lends an empty one and clears it afterwards: starting one for each test would take longer than most tests
do. `shared` is one for tests whose devices have unique names.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from testbed.fabric.ovs import OpenVSwitch
from testbed.machine.ovsdb import DATABASE, Operation, Transaction, set_of
from tests.parts.links import deleted, links_of

_TETHER = ["setpriv", "--pdeathsig", "KILL"]

USER = 0x6FFF_FFFF
"""A user without any right, who is fabricd, and the group of those who may speak to the Open vSwitch."""


class OwnSwitch:
    """A running Open vSwitch; `inside` is what a command begins with that is to run where its devices are."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="rbovs-"))
        removed_behind_us(folder)
        script = "ip link set lo up; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; echo up; exec sleep infinity"
        self.holder = subprocess.Popen([*_TETHER, "unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE)
        assert self.holder.stdout is not None
        assert self.holder.stdout.readline() == b"up\n"
        self.inside = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]
        self._links = links_of(self.holder.pid)
        self.ovs = OpenVSwitch(folder / "ovs")
        self.ovs.finish(self.ovs.make_database(group=USER))
        database = self.ovs.start_database(self._spawn)
        self.processes = [self.holder, database, self.ovs.start_switch(self._spawn, database)]
        self.run("ovs-vsctl", "--timeout=60", "--retry", "show")  # ovsdb-server may be about to listen

    def _spawn(self, argv: Sequence[str], *, env: dict[str, str], **options: Any) -> subprocess.Popen[bytes]:
        command = [*_TETHER, *self.inside, *argv]
        return subprocess.Popen(command, env={**os.environ, **env}, start_new_session=True, **options)

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, **self.ovs.env}

    def run(self, *command: str, **more: Any) -> str:
        """Runs a command there; returns what it prints. Raises CalledProcessError."""
        # Open vSwitch's tools speak to its sockets, which are files: they need not be where its devices are.
        before = [] if command[0].startswith("ovs-") else self.inside
        done = subprocess.run([*before, *command], env=self.env, check=True, capture_output=True, text=True, **more)
        return str(done.stdout)

    def clear(self) -> None:
        """Deletes all bridges and devices."""
        none: Operation = {"op": "update", "table": DATABASE, "where": [], "row": {"bridges": set_of(())}}
        self.ovs.finish([Transaction(self.ovs.database, [none], settle=True)])
        if ours := self._devices():
            deleted(self._links, ours)

    def _devices(self) -> list[str]:
        lines = Path(f"/proc/{self.holder.pid}/net/dev").read_text().splitlines()[2:]
        names = [line.partition(":")[0].strip() for line in lines]
        return [name for name in names if name not in ("lo", "ovs-netdev")]

    def end(self) -> None:
        self._links.close()
        for process in self.processes:
            process.kill()


def removed_behind_us(folder: Path) -> None:
    """However this process ends: then the other end of a pipe is closed, and what reads from it goes on."""
    script = 'cat; until rm -rf "$0"; do sleep 0.1; done'  # what dies with us may be about to write there
    command = ["sh", "-c", script, str(folder)]
    _open.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))


_open: list[subprocess.Popen[bytes]] = []
_idle: list[OwnSwitch] = []


@cache
def shared() -> OwnSwitch:
    return OwnSwitch()


@contextmanager
def own_switch() -> Iterator[OwnSwitch]:
    """One that nobody else uses meanwhile, and that is empty."""
    switch = _idle.pop() if _idle else OwnSwitch()
    try:
        yield switch
        switch.clear()
    except BaseException:
        switch.end()
        raise
    _idle.append(switch)
