"""Workloads on a fabric that is up: one run while you wait, or runs in the background (`testbed job`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import seat
from testbed.fits import load_for
from testbed.ownership import find
from testbed.run import RunResult, run

if TYPE_CHECKING:
    from testbed.progress import Progress


def run_on(
    fabric: str, file: str | Path, settings: Sequence[str], out: str | Path | None, progress: Progress
) -> RunResult:
    """Runs the workload of `file` once on a live fabric. Raises what testbed.run.run raises, and UserError."""
    experiment = load_for(file, find(fabric), settings)
    with seat.seated(fabric, name=experiment.name, file=str(file), of=1) as (lab, job):
        result = run(experiment, out, progress, on=seat.guest_of(lab, job))
        job.note(runs=1, last=summary(result))
        return result


def summary(result: RunResult) -> dict[str, object]:
    """What a job's file keeps of a run."""
    return {
        "run": str(result.folder),
        "fidelity": result.fidelity.to_dict(),
        "metrics_sha256": result.metrics_sha256,
        "results": len(result.results),
    }
