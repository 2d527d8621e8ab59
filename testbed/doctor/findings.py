"""The findings of an examination, and the register of checks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Diagnosis:
    """`found` is the state of the machine; `cost` what it prevents or worsens, `mend` how to change it."""

    name: str
    status: Status
    found: str
    cost: str = ""
    mend: str = ""

    def to_dict(self) -> dict[str, str]:
        return asdict(self)


class Lack(Exception):
    """Raised by a check: something is not as it should be.  `fatal` lacks make a run impossible."""

    def __init__(self, found: str, cost: str, mend: str, *, fatal: bool = False) -> None:
        super().__init__(found)
        self.found, self.cost, self.mend, self.fatal = found, cost, mend, fatal


class NotInstalled(Lack):
    """A program is not there, which anybody can see."""


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
        return Diagnosis(self.name, "fail" if lack.fatal else "warn", lack.found, lack.cost, lack.mend)

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
