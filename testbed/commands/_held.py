"""Fabrics whose clock a keeper holds: commands on them go to the keeper, so that they act at the hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.fabric.lab import Lab
    from testbed.live.look.look import Source
    from testbed.world.kept import Kept


@contextmanager
def held(fabric: str | None) -> Iterator[Kept | None]:
    """The world that a keeper holds on this fabric; None if it is not held. Raises UserError."""
    from testbed.machine.ownership import find

    if find(fabric).keeper is None:
        yield None
        return
    from testbed.world.kept import Kept

    with Kept.attach(fabric) as kept:
        yield kept


def source_of(lab: Lab) -> Source:
    """What views read: of a fabric that is held, with its history and the steps of its job."""
    from testbed.live.look.lab import OfLab

    if lab.record.keeper is None:
        return OfLab(lab)
    from testbed.world.kept import Kept
    from testbed.world.source import OfWorld

    return OfWorld(Kept(lab))
