"""How much memory a point needs: an estimate, so that no more run at a time than a machine has room for."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from testbed.base.errors import UserError
from testbed.checklist.exchange import registered
from testbed.checklist.exchanges import exchanges
from testbed.machine.memory import available_bytes

if TYPE_CHECKING:
    from testbed.experiment import Experiment

FABRIC_BYTES = 300 << 20
"""fabricd, Open vSwitch, the controller and the point's own process."""
WORKER_BYTES = 60 << 20
"""A rank's container with its Python."""
SHARE = 0.8  # of what is free: the rest is for others, and for errors of this estimate


def memory_of(experiment: Experiment) -> int:
    """Of a point while it runs, in bytes."""
    needed = 0
    with suppress(UserError, NotImplementedError, ValueError, LookupError):  # the run itself says what is wrong
        needed = registered(exchanges(experiment)).total()
    ranks = experiment.build_fabric().ranks
    return FABRIC_BYTES + ranks * WORKER_BYTES + needed


def room() -> int:
    """Bytes that points may have here, all together."""
    free = available_bytes()
    return int(free * SHARE) if free is not None else 1 << 50
