"""One command in the containers of all ranks at a time, with the environment that torchrun gives to its processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.base.this_process import undisturbed
from testbed.containers import programs
from testbed.machine.processes import Process, carrying
from testbed.machine.teardown import GONE_S

if TYPE_CHECKING:
    from testbed.containers.worker import Worker
    from testbed.fabric.lab import Lab
    from topologies import Nic

GRACE_S = 3.0
_ONE = "RAILBED_EXEC"  # in the environment of all that one command starts, by which it is found


def environment(lab: Lab, nic: Nic) -> dict[str, str]:
    """RANK, WORLD_SIZE and so on, and by which interface Gloo reaches the others."""
    gloo = {"GLOO_SOCKET_IFNAME": lab.names.interface(nic) if lab.kernel else ""}
    return {**programs.placed(nic, lab.fabric.nics), **gloo}


def execute(lab: Lab, argv: Sequence[str]) -> int:
    """Runs it everywhere; what it prints goes out with `[RANK]` before each line.

    Returns 0, or the code of the first that fails: the others, which may wait for it, are then ended.  So are all if
    nobody takes what they print any more (OSError), and if we are ended.
    """
    mark = uuid.uuid4().hex
    running: list[Worker] = []
    out = _Out()
    codes: list[int] = []

    def follow(program: Worker) -> None:
        code = program.wait()
        with out.news:
            codes.append(code if code >= 0 else 128 - code)
            out.news.notify()

    whole = False
    try:
        for nic in lab.fabric.nics:
            env = {**environment(lab, nic), _ONE: mark}
            reader, writer = os.pipe()
            with undisturbed():
                program = lab.execute(nic.rank, argv, env, stdout=writer, stderr=writer)
                running.append(program)
            os.close(writer)
            out.pass_on(reader, nic.rank)
            threading.Thread(target=follow, args=(program,), daemon=True).start()
        with out.news:
            while len(codes) < len(running) and not any(codes) and not out.broken:
                out.news.wait()
        whole = not any(codes) and not out.broken
        return next((code for code in codes if code), 0)
    finally:
        if not whole:
            with undisturbed():
                _end(running, mark)
        out.drain()
        if out.broken:
            raise out.broken[0]


class _Out:
    """Our output, to which each rank's goes line by line."""

    def __init__(self) -> None:
        self.news = threading.Condition()
        self.broken: list[OSError] = []
        self._readers: list[threading.Thread] = []
        self._line = threading.Lock()
        self._wrote = time.monotonic()

    def pass_on(self, pipe: int, rank: int) -> None:
        reader = threading.Thread(target=self._read, args=(pipe, f"[{rank}] ".encode()), daemon=True)
        self._readers.append(reader)
        reader.start()

    def _read(self, pipe: int, prefix: bytes) -> None:
        try:
            with open(pipe, "rb") as lines:
                for line in lines:
                    with self._line:
                        sys.stdout.buffer.write(prefix + line.rstrip(b"\n") + b"\n")
                        sys.stdout.buffer.flush()
                        self._wrote = time.monotonic()
        except OSError as error:
            with self.news:
                self.broken.append(error)
                self.news.notify()

    def drain(self) -> None:
        """The programs have ended: waits for what they printed, not for what a child of theirs may yet print."""
        self._wrote = time.monotonic()
        while left := [reader for reader in self._readers if reader.is_alive()]:
            if self.broken or not self._line.locked() and time.monotonic() - self._wrote > GRACE_S:
                return
            left[0].join(0.05)


def _end(running: Sequence[Worker], mark: str) -> None:
    """Ends the programs, and what they have started, also what only begins by then: all are asked, then killed."""
    began = time.monotonic()
    asked: set[Process] = set()
    while (took := time.monotonic() - began) < GRACE_S + GONE_S:
        starting = any(program.starting for program in running)  # asked first: what has started by now carries the mark
        left = carrying(_ONE, mark)
        if not left and not starting:
            return
        late = took > GRACE_S
        for process in left if late else left - asked:
            process.signal(signal.SIGKILL if late else signal.SIGTERM)
        asked |= left
        time.sleep(0.05)
