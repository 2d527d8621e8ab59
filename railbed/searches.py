"""A search, its trials one after the other or several at a time."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.machines.sweep import OnMachines
from testbed.machines.where import where
from testbed.run.sweep import in_turn
from testbed.tune import search as searching
from testbed.tune.pictures import draw
from testbed.tune.search import Found, Search

if TYPE_CHECKING:
    from testbed.base.progress import Progress
    from testbed.experiment import Experiment


UNKNOWN = 8
"""Trials proposed together for a machine that does not say how many it runs at a time."""


def search_for(
    experiment: Experiment,
    search: Search,
    out: str | Path | None,
    progress: AbstractContextManager[Progress],
    *,
    on: str | None = None,
) -> Found:
    """As `tune`. `on`: where trials run, several at a time (docs/machines.md). Pictures are in its folder."""
    from testbed.fabric.fork_server import ControllerServer
    from testbed.live.standing import Standing

    with ExitStack() as stack:
        how: dict[str, Any]
        if on is not None:
            places = where(on)
            machines = stack.enter_context(OnMachines(places.here, places.others))
            how = {"runner": machines, "prepare": machines.reach}
            search = replace(
                search, at_a_time=max(1, places.here + sum(one.machine.points or UNKNOWN for one in places.others))
            )
        else:
            standing = stack.enter_context(Standing(stack.enter_context(ControllerServer())))
            how = {"runner": in_turn(standing)}
        found = searching.tune(experiment, search, out, stack.enter_context(progress), **how)
    draw(found)
    return found
