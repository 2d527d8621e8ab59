"""An operator at a world: actions take effect at the hold, and the clock goes on by what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.operate import carry_out
from testbed.operate.record import Done
from testbed.operate.steps.site import Site

if TYPE_CHECKING:
    from testbed.world.world import World


class RepeatedJob:
    """The job of a world (operate/steps/site.py)."""

    def __init__(self, world: World) -> None:
        self._world = world

    def workload(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._world.experiment.resolved()["workload"]
        return found

    def restart(self, workload: list[dict[str, Any]], away_ns: float) -> None:
        """The old one stands still, and the new one begins when the time is over."""
        world, name = self._world, "restart"
        try:
            world.with_workload(workload)
        except InputError as error:
            raise InputError(error.what, "the job's workload", error.hint) from None
        for rank in world.job.ranks:
            frozen = {"primitive": "params", "nic": rank, "values": {"frozen": True}, "operator": True}
            world.request("inject", fault=f"{name}{rank}", for_ns=away_ns, **frozen)
        world.advance(int(away_ns))
        world.restart(workload)


class LastingJob:
    """The job of a world on the real clock (operate/steps/site.py): it is the drill's as long as that lasts."""

    def workload(self) -> list[dict[str, Any]]:
        raise InputError("with the real clock the job is not begun anew", "job", "drain, shut down or replace things")

    def restart(self, workload: list[dict[str, Any]], away_ns: float) -> None:
        self.workload()


def config(world: World, words: Sequence[str]) -> list[Done]:
    """Carries out a line of `config`: an action, or `rollback [N|all]`. Raises UserError; then nothing was done."""
    site = Site(world.lab, world, world.take_out, RepeatedJob(world))
    return carry_out.config(site, words, lambda ns: world.advance(int(ns)))
