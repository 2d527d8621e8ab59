"""An operator at a world: actions take effect at the hold, and the clock goes on by what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.operate import carry_out
from testbed.operate.record import Done
from testbed.operate.steps.site import Site

if TYPE_CHECKING:
    from testbed.world.world import World


def config(world: World, words: Sequence[str]) -> list[Done]:
    """Carries out a line of `config`: an action, or `rollback [N|all]`. Raises UserError; then nothing was done."""
    return carry_out.config(Site(world.lab, world, world.take_out), words, lambda ns: world.advance(int(ns)))
