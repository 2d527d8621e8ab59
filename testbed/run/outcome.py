"""How a run ends: what it measured, or why it failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from results.figures.fidelity import Fidelity
from results.frames.metrics import Row
from testbed.base.errors import RUN_FAILED, Problem, UserError

_PRINTED = ("algorithm", "ranks", "size_bytes", "iteration", "time_ns", "algbw_Bps", "busbw_Bps", "wrong")
_OF_COLLECTIVES = ("fallback", "host_ns", "sent_bytes")
_OF_SPARSE = ("tx_bytes", "rx_bytes")
_OF_MIXES = ("sends_by", "together_Bps")
_OF_TASKS = ("ranks", "iteration", "time_ns", "wrong", "fallback", "host_ns", "sent_bytes")
_OF_PROGRAMS = ("messages_per_s", "code")
_OF_FLOWS = ("ideal_ns", "slowdown")


class RunFailed(UserError):
    """A run that failed. `folder` has what was measured until then: `results` operations."""

    def __init__(self, problem: Problem, folder: Path, results: int = 0, exit_code: int = RUN_FAILED) -> None:
        super().__init__(problem.what, problem.where, problem.hint, exit_code)
        self.folder = folder
        self.results = results


class RunInterrupted(RunFailed):
    """A run that was told to stop, by Ctrl-C or a signal: `exit_code` says by which."""


@dataclass
class RunResult:
    """What a run measured. `results` are rows of the frame of that name.

    `stopped`: 0, or the exit code of a signal that came while the fabric was taken down, when all was measured.
    """

    folder: Path
    clock: str
    fidelity: Fidelity
    results: list[Row]
    counters: dict[str, Any]
    metrics_sha256: str
    stopped: int = 0
    steps: list[Row] = field(default_factory=list)  # where the time of steps of tasks went
    shares: list[Row] = field(default_factory=list)  # who got what, where not all send by the same
    scaled: list[Row] = field(default_factory=list)  # what follows from small steps for large ones, with bounds
    checkpoints: list[Row] = field(default_factory=list)  # what they and failures cost
    going_on: Row | None = None  # of a run that goes on after failures
    experiment: Mapping[str, Any] = field(default_factory=dict)  # as resolved
    live: Mapping[str, Any] = field(default_factory=dict)  # of one on a live fabric: results.figures.in_force

    def to_dict(self) -> dict[str, Any]:
        """What `testbed run --json` prints."""
        return {
            "run": str(self.folder),
            "clock": self.clock,
            "fidelity": self.fidelity.to_dict(),
            "results": [printed(row) for row in self.results],
            **({"steps": self.steps} if self.steps else {}),
            **({"shares": self.shares} if self.shares else {}),
            **({"scaled": self.scaled} if self.scaled else {}),
            **({"checkpoints": self.checkpoints} if self.checkpoints else {}),
            **({"going_on": self.going_on} if self.going_on else {}),
            **({"live": self.live} if self.live.get("in_force") else {}),
            "counters": self.counters,
            "metrics_sha256": self.metrics_sha256,
        }


def printed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `results` as it is printed: with `collective`, `flow` or `tasks`."""
    if row["kind"] == "tasks":
        return {"tasks": row["algorithm"]} | {key: row.get(key) for key in _OF_TASKS}
    if row["kind"] == "program":
        return {"program": row["program"]} | {key: row.get(key) for key in (*_PRINTED, *_OF_PROGRAMS)}
    keys = (*_PRINTED, *(_OF_FLOWS if row["kind"] == "flow" else _OF_COLLECTIVES))
    moved = {key: row[key] for key in (*_OF_SPARSE, *_OF_MIXES) if row.get(key) is not None}
    return {row["kind"]: row[row["kind"]]} | {key: row.get(key) for key in keys} | moved
