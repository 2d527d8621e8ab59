"""Can this machine run Railbed?  Each need is a check that says what its lack costs and how to mend it."""

from __future__ import annotations

from testbed.base.errors import MachineError, Problem
from testbed.doctor import machine, needs
from testbed.doctor.findings import CHECKS, Diagnosis

__all__ = ["Diagnosis", "examine", "machine", "needs", "require"]


def examine() -> list[Diagnosis]:
    """Run every check (about half a second).  Leaves nothing behind."""
    return [check() for check in CHECKS]


def require() -> None:
    """Raise MachineError (exit code 3) if something is missing without which no fabric comes up."""
    first = CHECKS[0]()
    findings = [first] if first.status == "fail" else [check() for check in CHECKS[1:] if check.vital]
    problems = [Problem(f"{f.name}: {f.found}", f.cost, f.mend) for f in findings if f.status == "fail"]
    if problems:
        head, *others = problems
        raise MachineError(head.what, head.where, head.hint, others)
