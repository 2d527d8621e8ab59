"""Actions of operators on a fabric of a test, and the time that they take."""

from __future__ import annotations

from typing import Any

from testbed.operate.carry_out import config, rollback
from testbed.operate.record import Done
from testbed.operate.steps.site import Site
from tests.parts.faulty_fabric import FaultyFabric


def do(f: FaultyFabric, line: str) -> Done:
    """Carries out an action, and lets the time pass that it takes."""
    (done,) = config(Site.of(f.lab), line.split())
    f.rest()
    return done


def back(f: FaultyFabric, which: Any = None) -> None:
    rollback(Site.of(f.lab), which)
    f.rest()
