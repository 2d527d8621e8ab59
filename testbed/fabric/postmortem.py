"""Why a fabric is dead, from its journal and its logs."""

from __future__ import annotations

from pathlib import Path

from testbed.machine.ownership import Record

_PARTS = ("ovs-vswitchd", "ovsdb-server", "controller", "holder")


def why_dead(record: Record) -> str:
    """The reason in words; to be asked when the fabric's owner has ended."""
    pid = record.owner.pid if record.owner else "?"
    if not record.standing:
        return f"the process whose it was ({pid}) has ended without taking it down"
    if record.keeper == record.owner:
        return f"its keeper (process {pid}), which held its clock, has ended without taking it down"
    log = record.dir / "fabricd.log"
    last = _last_line(log)
    if not last:
        return (
            f"its fabricd (process {pid}) has ended without a word in {log}: killed, or told to stop{_others(record)}"
        )
    return f"its fabricd (process {pid}) has ended; its last word: {last}{_others(record)}"


def _last_line(log: Path) -> str:
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return lines[-1].strip()[:300] if lines else ""


def _others(record: Record) -> str:
    """Who of the other parts has ended as well."""
    dead = [name for name in _PARTS if (process := record.processes.get(name)) and not process.alive()]
    return f"; so {'has' if len(dead) == 1 else 'have'} {', '.join(dead)}" if dead and record.in_our_namespace else ""
