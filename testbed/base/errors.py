"""Errors for the user: what cannot be done, where, and what to do about it.

Exit codes: 0 done, 1 the run failed, 2 bad input, 3 the machine cannot (`testbed doctor` says why).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from topologies.graph.mistake import Mistake

RUN_FAILED = 1
BAD_INPUT = 2
MACHINE_CANNOT = 3
INTERRUPTED = 130


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.  `where` is a place such as `quickstart.yaml:12: fabric.cable.rate`, `path` that key."""

    what: str
    where: str = ""
    hint: str = ""
    path: tuple[str | int, ...] = field(default=(), compare=False)

    def to_dict(self) -> dict[str, str]:
        return {"what": self.what, "where": self.where, "hint": self.hint}


class UserError(Mistake):
    """An error to be shown without a traceback.  `also` holds further problems found at the same time."""

    def __init__(
        self,
        what: str,
        where: str = "",
        hint: str = "",
        exit_code: int = RUN_FAILED,
        also: Sequence[Problem] = (),
    ) -> None:
        super().__init__(what, hint, where)
        self.exit_code = exit_code
        self.also = tuple(also)

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what

    def to_dict(self) -> dict[str, Any]:
        """`{"what", "where", "hint"}`, and `also`: a list of the same when there is more than one problem."""
        d: dict[str, Any] = Problem(self.what, self.where, self.hint).to_dict()
        if self.also:
            d["also"] = [p.to_dict() for p in self.also]
        return d

    def carried(self) -> dict[str, Any]:
        """As `of` takes it, in another process."""
        return {**self.to_dict(), "exit_code": self.exit_code}

    @staticmethod
    def of(told: Mapping[str, Any]) -> UserError:
        return UserError(told["what"], told["where"], told["hint"], told.get("exit_code", RUN_FAILED))


class InputError(UserError):
    """Bad input (exit code 2)."""

    path: tuple[str | int, ...] = ()
    """The key that is wrong, of a file."""

    def __init__(self, what: str, where: str = "", hint: str = "", also: Sequence[Problem] = ()) -> None:
        super().__init__(what, where, hint, BAD_INPUT, also)

    @classmethod
    def several(cls, problems: Iterable[Problem]) -> Self:
        """All of them; there has to be one."""
        first, *also = problems
        error = cls(first.what, first.where, first.hint, also)
        error.path = first.path
        return error


class MachineError(UserError):
    """The machine cannot do it (exit code 3)."""

    def __init__(self, what: str, where: str = "", hint: str = "", also: Sequence[Problem] = ()) -> None:
        super().__init__(what, where, hint, MACHINE_CANNOT, also)


def internal(error: BaseException, where: str = "", hint: str = "this is a bug in Railbed") -> UserError:
    """What is no mistake of the user's, said as such."""
    return UserError(f"internal error: {type(error).__name__}: {error}", where, hint)


def require_root() -> None:
    """Raises MachineError for an ordinary user; called before anything is made or printed."""
    if os.geteuid() != 0:
        raise MachineError("a fabric needs root: devices, namespaces, containers", hint=f"sudo {' '.join(sys.argv)}")
