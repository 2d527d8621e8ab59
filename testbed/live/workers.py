"""A workload's workers: started in a fabric's containers, heard line by line, ended. Ranks may share a process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.machine.processes import wait_for
from testbed.machine.teardown import GONE_S
from testbed.plan.steps.planned import Plan

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.containers.worker import Worker
    from testbed.fabric.lab import Lab

LINE_MAX = 1 << 20
_ALONE = (sys.executable, "-m", "workloads.worker")
_TOGETHER = (sys.executable, "-m", "workloads.together")


class WorkerPipe:
    """The end that we read of a pipe that a worker writes to."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.open = True
        self._rest = b""

    def read(self) -> list[bytes] | None:
        """The lines that have come to their end; None if nothing has come. At the end, or when a line becomes too
        long, what there is of it counts as one. The reader closes it when it is no longer `open`."""
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return None
        self.open = bool(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_MAX or (self._rest and not data):
            lines, self._rest = [*lines, self._rest], b""
        return lines

    def close(self) -> None:
        self.open = False
        os.close(self.fd)


@dataclass
class WorkerProcess:
    """A worker's process, of these ranks. What it prints are JSON lines; `errors`: what else it says, if it is read."""

    ranks: list[int]
    worker: Worker
    output: WorkerPipe
    errors: WorkerPipe | None = None

    @property
    def open(self) -> bool:
        """Whether it may still say something."""
        return self.output.open or (self.errors is not None and self.errors.open)

    def end(self) -> None:
        """Kills it; returns when it is gone, so that its NICs notice at this emulated time."""
        self.worker.kill()
        wait_for(lambda: self.worker.poll() is not None, GONE_S)


def start(lab: Lab, plan: Plan, groups: Sequence[list[int]], log: Path | None = None) -> list[WorkerProcess]:
    """Starts a worker's process for each group of ranks. Their standard errors are read from pipes, too, or go to the
    files rankN.log in the folder `log`."""
    started = []
    if plan.transports:
        lab.fabricd.request("transports", transports=list(plan.transports))
    with ExitStack() as unread:
        for ranks in groups:
            (lab.worker_dir(ranks[0]) / "plan.json").write_text(json.dumps(plan.told(ranks)))
            shared = {"others": ranks[1:]} if len(ranks) > 1 else {}
            with ExitStack() as ours:
                outputs, ends = [], []
                for _ in range(1 if log else 2):
                    read, write = os.pipe()
                    ends.append(ours.enter_context(os.fdopen(write, "wb")))
                    outputs.append(WorkerPipe(read))
                    unread.callback(outputs[-1].close)
                errors = ours.enter_context((log / f"rank{ranks[0]}.log").open("ab")) if log else ends[1]
                program = _TOGETHER if shared else _ALONE
                worker = lab.start_worker(ranks[0], program, stdout=ends[0], stderr=errors, **shared)
            started.append(WorkerProcess(ranks, worker, *outputs))
        for process in started:
            process.worker.started()
        for process in started:  # then only they have their standard errors open, whenever we are asked next
            process.worker.begun()
        unread.pop_all()
    return started
