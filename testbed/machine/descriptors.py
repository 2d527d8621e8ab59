"""How many files fabricd has open in a fabric, and whether a process may have as many."""

from __future__ import annotations

import resource

from testbed.base.errors import MachineError
from topologies import Fabric

_BESIDES = 300  # logs, captures, questions to Open vSwitch, what workers share while it is mapped


def needed(fabric: Fabric) -> int:
    """A TAP device for each switch port; of each rank where it listens and its session; of each host its process."""
    ports = sum(switch.bridge_ports for switch in fabric.switches)
    return ports + 2 * len(fabric.nics) + len(fabric.hosts) + _BESIDES


def allow(fabric: Fabric) -> None:
    """Has our processes' limit raised if it is too low. Raises MachineError where it cannot be."""
    count = needed(fabric)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or count <= hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, count))
    except (OSError, ValueError):
        what = f"fabricd would have {count} files open in this fabric, and a process may have {hard} here"
        raise MachineError(what, "open files (ulimit -Hn)", "raise that limit, or take fewer spines or hosts") from None
