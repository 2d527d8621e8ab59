"""The processes of a repeated workload: started, heard, ended."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from testbed.base.errors import UserError
from testbed.inject.agent import GONE_S
from testbed.machine.processes import wait_for
from testbed.plan import together
from testbed.plan.steps.plan import plan
from testbed.plan.steps.planned import Plan
from testbed.world.steps import Collected

if TYPE_CHECKING:
    from testbed.containers.container import Worker
    from testbed.experiment import Experiment
    from testbed.fabric.lab import Lab

WORKER = (sys.executable, "-m", "workloads.worker")
TOGETHER = (sys.executable, "-m", "workloads.together")
LINE_MAX = 1 << 20


def plan_of(experiment: Experiment) -> Plan:
    """The workload's plan, to be repeated."""
    repeated = plan(experiment).repeated()
    if not repeated.taking_part:
        raise UserError("there is no workload to repeat", "workload", "name at least one step")
    return repeated


@dataclass
class Job:
    """The workers of one workload, and what they have said."""

    lab: Lab
    plan: Plan
    ranks: list[int]
    said: Collected
    _workers: list[tuple[list[int], Worker, int]] = field(default_factory=list)  # with the end of its pipe that we read
    _partial: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def start(
        cls, lab: Lab, experiment: Experiment, struck: Collection[int] = (), after: Collected | None = None
    ) -> Job:
        """Starts a worker for each rank that has something to do. `struck` are ranks that share their process with
        nobody; `after` is what workers before these have said. The clock does not run before fabricd's `start`.
        """
        plan = plan_of(experiment)
        ranks = plan.taking_part
        before = after or Collected(ranks)
        said = Collected(ranks, before.steps, best_ns=before.best_ns, base=len(before.steps))
        job = cls(lab, plan, ranks, said)
        for group in together.processes(experiment, ranks, struck):
            job._start(group)
        return job

    def _start(self, group: list[int]) -> None:
        (self.lab.worker_dir(group[0]) / "plan.json").write_text(json.dumps(self.plan.told(group)))
        pipe, write = os.pipe()
        os.set_blocking(pipe, False)
        program = TOGETHER if len(group) > 1 else WORKER
        with os.fdopen(write, "wb") as output, (self.lab.dir / f"rank{group[0]}.log").open("ab") as log:
            worker = self.lab.start_worker(group[0], program, stdout=output, stderr=log, others=group[1:])
        self._workers.append((group, worker, pipe))
        self._partial[pipe] = b""

    @property
    def pipes(self) -> list[int]:
        """What can be read when workers say something."""
        return list(self._partial)

    def read(self) -> None:
        """Takes all that has been said by now."""
        for group, _, pipe in self._workers:
            while pipe in self._partial:
                try:
                    data = os.read(pipe, 1 << 16)
                except BlockingIOError:
                    break
                if not data:
                    os.close(pipe)
                    del self._partial[pipe]
                    break
                *lines, self._partial[pipe] = (self._partial[pipe] + data).split(b"\n")
                if len(self._partial[pipe]) > LINE_MAX:
                    self._partial[pipe] = b""
                for line in lines:
                    self.said.take(group, line)

    def ended(self) -> dict[int, str]:
        """The ranks whose process has ended, each with how."""
        found: dict[int, str] = {}
        for group, worker, _ in self._workers:
            if (code := worker.poll()) is not None:
                found |= dict.fromkeys(group, self._why(group, code))
        return found

    def _why(self, group: Sequence[int], code: int) -> str:
        for rank in group:
            if rank in self.said.errors:
                return self.said.errors[rank]
        last = ""
        with suppress(OSError):
            last = (self.lab.dir / f"rank{group[0]}.log").read_text(errors="replace").strip().rpartition("\n")[2][:300]
        return f"its process ended with code {code}" + (f": {last}" if last else "")

    def kill(self, rank: int) -> None:
        """Returns when the process is gone, so that its NIC notices at the fault's own time."""
        for group, worker, _ in self._workers:
            if rank in group:
                worker.kill()
                wait_for(partial(_gone, worker), GONE_S)

    def end(self) -> None:
        """Kills all workers; returns when they are gone."""
        for group, _, _ in self._workers:
            self.kill(group[0])
        self.close()

    def close(self) -> None:
        for pipe in self._partial:
            os.close(pipe)
        self._partial.clear()


def _gone(worker: Worker) -> bool:
    return worker.poll() is not None
