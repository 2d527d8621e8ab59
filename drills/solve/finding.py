"""What a rule has found: a class at a place, what shows it, and what mends it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from drills.sheet.truth import HEALTHY


@dataclass(frozen=True)
class Finding:
    kind: str
    place: str
    why: str
    mend: tuple[str, ...] = ()
    """Lines of `config ..`, without that word."""
    otherwise: tuple[str, ...] = ()
    """What is done instead if one of them is refused, whatever those before it have done."""

    def __str__(self) -> str:
        return f"{self.kind}@{self.place}"


def answer(findings: Iterable[Finding]) -> str:
    return " ".join(dict.fromkeys(map(str, findings))) or HEALTHY
