"""A live fabric as something to look at."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from testbed.live.look.steps import Step
from testbed.live.look.table import Counters
from testbed.operate.record import Done, log

if TYPE_CHECKING:
    from testbed.fabric.lab import Lab
    from topologies.graph.fabric import Fabric


class OfLab:
    """A `Source` (look.py) of a Lab. It keeps no history, and no job is repeated on it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    @property
    def fabric(self) -> Fabric:
        return self.lab.fabric

    @cached_property
    def experiment(self) -> Mapping[str, Any]:
        found: dict[str, Any] = json.loads((self.lab.dir / "experiment.json").read_text())
        return found

    def counters(self) -> Counters:
        return self.lab.fabricd.request("counters")

    def history(self) -> Sequence[tuple[float, Counters]]:
        return ()

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        return self.lab.fabricd.request(op, **arguments)

    def flows(self) -> list[dict[str, Any]]:
        return self.lab.flows()

    def steps(self) -> Sequence[Step] | None:
        return None

    def cpus(self) -> list[dict[str, Any]] | None:
        if not self.lab.kernel:
            return None
        from testbed.containers.cpu import cpu_of

        found = []
        for nic in self.fabric.nics:
            cpu = cpu_of(self.lab.containers.group(nic.rank))
            found.append({
                "rank": nic.rank, "cpu_s": round(cpu.ran_ns / 1e9, 3), "nr_periods": cpu.periods,
                "nr_throttled": cpu.throttled, "throttled_ms": cpu.throttled_ns // 1_000_000,
            })  # fmt: skip
        return found

    def actions(self) -> Sequence[Done]:
        return log(self.lab.dir)
