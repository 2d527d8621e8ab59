"""Can this machine run Railbed?  Each need is a check that says what its lack costs and how to mend it."""

from __future__ import annotations

import os
import sys

from testbed.base.errors import MachineError, Problem
from testbed.doctor import machine, needs
from testbed.doctor.findings import CHECKS, Diagnosis

__all__ = ["Diagnosis", "examine", "machine", "needs", "require"]


_OF_ROOT = ("open vswitch", "tap devices", "mininet", "run directory", "cgroups", "leftovers")
"""What only root can find out."""


def examine() -> list[Diagnosis]:
    """Run every check (about half a second).  Leaves nothing behind.

    A check that fails only because the user is not root is reported as unknown, not as broken.
    """
    findings = [check() for check in CHECKS]
    return findings if os.geteuid() == 0 else [_unless_root(f) for f in findings]


def _unless_root(finding: Diagnosis) -> Diagnosis:
    if finding.status == "ok" or finding.name not in _OF_ROOT or finding.found.endswith("is not installed"):
        return finding
    return Diagnosis(finding.name, "warn", "not known: only root can look", finding.cost, f"sudo {' '.join(sys.argv)}")


def require() -> None:
    """Raise MachineError (exit code 3) if something is missing without which no fabric comes up."""
    first = CHECKS[0]()
    findings = [first] if first.status == "fail" else [check() for check in CHECKS[1:] if check.vital]
    problems = [Problem(f"{f.name}: {f.found}", f.cost, f.mend) for f in findings if f.status == "fail"]
    if problems:
        head, *others = problems
        raise MachineError(head.what, head.where, head.hint, others)
