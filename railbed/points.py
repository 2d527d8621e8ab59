"""A sweep, its points one after the other or several at a time."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.machines.known import noted, noting
from testbed.machines.sweep import OnMachines
from testbed.machines.where import where
from testbed.run import sweep

if TYPE_CHECKING:
    from testbed.base.progress import Progress
    from testbed.experiment import Experiment


def run_points(
    experiment: Experiment,
    out: str | Path | None,
    progress: AbstractContextManager[Progress],
    *,
    on: str | None = None,
    retries: int = 0,
    failed: str | None = None,
) -> tuple[Path, list[dict[str, Any]]]:
    """As `run_sweep`. `on`: where points run, several at a time (docs/machines.md); with it a point that fails is run
    again `retries` times, and what was done in the sweep `failed` is taken from there.
    """
    with ExitStack() as stack:
        how: dict[str, Any] = {"runner": noting}
        if on is not None:
            places = where(on)
            again = noted(failed) if failed else None
            machines = stack.enter_context(OnMachines(places.here, places.others, retries, again))
            how = {"runner": machines, "prepare": machines.reach}
        return sweep.run_sweep(experiment, out, stack.enter_context(progress), **how)
