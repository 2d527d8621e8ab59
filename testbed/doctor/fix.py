"""What `testbed doctor --fix` does: the distribution's packages, and the commands that mend one lack each.

A plan is command lines as somebody would type them, and is shown before anything is done. Open vSwitch needs no
service: every fabric starts one of its own.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.base.errors import MachineError
from testbed.doctor.findings import Diagnosis

_APT_INSTALL = Path(__file__).with_name("apt-install.sh")


@dataclass(frozen=True)
class Step:
    """`shown` is what it does, `argv` what is run."""

    shown: str
    argv: tuple[str, ...]

    def carry_out(self) -> None:
        """What it prints goes to stderr. Raises MachineError."""
        print(f"+ {self.shown}", file=sys.stderr, flush=True)
        try:
            code = subprocess.run(self.argv, stdin=subprocess.DEVNULL, stdout=2, check=False).returncode
        except OSError as error:
            raise MachineError(f"{self.argv[0]}: {error.strerror}", self.shown) from None
        if code:
            hint = "what it said is above"
            if self.argv[:2] == ("sh", str(_APT_INSTALL)):
                hint += "; on Ubuntu the packages need the universe and -updates repositories"
            raise MachineError(f"it ended with {code}", self.shown, hint)


def plan(findings: Sequence[Diagnosis]) -> list[Step]:
    """What can be done about them here. Raises MachineError if packages are missing and there is no apt-get."""
    packages = [*dict.fromkeys(package for one in findings for package in one.packages)]
    steps = [Step(_typed(one), one.command) for one in findings if one.command]
    if not packages:
        return steps
    if shutil.which("apt-get") is None:
        what = "there is no apt-get here: this is neither Debian nor Ubuntu"
        raise MachineError(what, hint=f"install what these have there: {' '.join(packages)}")
    shown = f"apt-get update; apt-get install --no-install-recommends {' '.join(packages)}"
    return [Step(shown, ("sh", str(_APT_INSTALL), *packages)), *steps]


def require_root() -> None:
    """Raises MachineError."""
    if os.geteuid() != 0:
        raise MachineError("only root can mend what this machine lacks", hint=f"sudo {shlex.join(sys.argv)}")


def _typed(one: Diagnosis) -> str:
    return one.command[2] if one.command[:2] == ("sh", "-c") else shlex.join(one.command)
