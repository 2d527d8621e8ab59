"""The findings of an examination, and the register of checks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Diagnosis:
    """`found` is the state of the machine; `cost` what it prevents or worsens, `mend` how to change it.

    What `doctor --fix` does about it: installs `packages` of the distribution, runs `command`.
    """

    name: str
    status: Status
    found: str
    cost: str = ""
    mend: str = ""
    packages: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, str]:
        """For people and programs."""
        return {key: getattr(self, key) for key in ("name", "status", "found", "cost", "mend")}


class Lack(Exception):
    """Raised by a check: something is not as it should be.  `fatal` lacks make a run impossible.

    `command` mends it without doing anything else to the machine.
    """

    packages: tuple[str, ...] = ()

    def __init__(self, found: str, cost: str, mend: str, *, fatal: bool = False, command: Sequence[str] = ()) -> None:
        super().__init__(found)
        self.found, self.cost, self.mend, self.fatal, self.command = found, cost, mend, fatal, tuple(command)


class NotInstalled(Lack):
    """Something that these packages of the distribution have is not there, which anybody can see."""

    def __init__(self, found: str, cost: str, packages: Sequence[str], *, fatal: bool = False) -> None:
        super().__init__(found, cost, f"apt-get install {' '.join(packages)}", fatal=fatal)
        self.packages = tuple(packages)


@dataclass(frozen=True)
class Examination:
    """`run` returns what it found when all is well, and raises Lack when not.

    One `by_root` that fails for an ordinary user is reported as unknown, not as broken.
    """

    name: str
    run: Callable[[], str]
    vital: bool  # its lack can make a run impossible; `require` looks at these only
    by_root: bool = False

    def __call__(self) -> Diagnosis:
        try:
            return Diagnosis(self.name, "ok", self.run())
        except NotInstalled as lack:
            return self._lacks(lack)
        except Lack as lack:
            return self._not_known(lack.cost) or self._lacks(lack)
        except Exception as error:  # an error in one check must not hide the others
            found, cost = (
                f"could not be checked: {type(error).__name__}: {error}",
                "it is not known whether a run works",
            )
            return self._not_known(cost) or Diagnosis(self.name, "warn", found, cost)

    def _lacks(self, lack: Lack) -> Diagnosis:
        status: Status = "fail" if lack.fatal else "warn"
        return Diagnosis(self.name, status, lack.found, lack.cost, lack.mend, lack.packages, lack.command)

    def _not_known(self, cost: str) -> Diagnosis | None:
        if not self.by_root or os.geteuid() == 0:
            return None
        return Diagnosis(self.name, "warn", "not known: only root can look", cost, f"sudo {' '.join(sys.argv)}")


CHECKS: list[Examination] = []


def check(name: str, *, vital: bool = False, by_root: bool = False) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Register a function as the check called `name`; checks run and are shown in this order."""

    def register(run: Callable[[], str]) -> Callable[[], str]:
        CHECKS.append(Examination(name, run, vital, by_root))
        return run

    return register
