"""The processes of a repeated workload: started, heard, ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.base.errors import UserError
from testbed.live import workers
from testbed.plan import together
from testbed.plan.steps.plan import plan
from testbed.plan.steps.planned import Plan
from testbed.world.steps import Collected

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.fabric.lab import Lab


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
    said: Collected
    _processes: list[workers.WorkerProcess]

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
        return cls(lab, said, workers.start(lab, plan, together.processes(experiment, ranks, struck), lab.dir))

    @property
    def ranks(self) -> list[int]:
        return list(self.said.ranks)

    @property
    def pipes(self) -> list[int]:
        """What can be read when workers say something."""
        return [process.output.fd for process in self._processes if process.open]

    def read(self) -> None:
        """Takes all that has been said by now."""
        for process in self._processes:
            while process.open and (lines := process.output.read()) is not None:
                for line in lines:
                    self.said.take(process.ranks, line)
                if not process.open:
                    process.output.close()

    def ended(self) -> dict[int, str]:
        """The ranks whose process has ended, each with how."""
        found: dict[int, str] = {}
        for process in self._processes:
            if (code := process.worker.poll()) is not None:
                found |= dict.fromkeys(process.ranks, self._why(process.ranks, code))
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
        """Returns when the process is gone."""
        for process in self._processes:
            if rank in process.ranks:
                process.end()

    def end(self) -> None:
        """Kills all workers; returns when they are gone."""
        for process in self._processes:
            process.end()
        self.close()

    def close(self) -> None:
        for process in self._processes:
            if process.open:
                process.output.close()
