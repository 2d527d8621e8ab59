"""Hosts: what the programs on them have had of the CPUs."""

from __future__ import annotations

from testbed.base.errors import InputError
from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views.view import View


def cpu(look: Look) -> list[Table]:
    """A row for each rank's container, as its control group's cpu.stat has it; times are wall time."""
    rows = look.source.cpus()
    if rows is None:
        raise InputError("emulated time knows no CPUs", "cpu", "it is for the real clock: testbed up without --virtual")
    return [Table("cpu", "", rows, ("rank", "cpu_s"))]


VIEWS = (View(words="cpu", about="Show what the programs of each rank have had of the CPUs (real clock).", make=cpu),)
