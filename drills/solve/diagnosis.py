"""What a rule diagnoses: a class at a place, and what mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps

from drills.sheet.truth import HEALTHY
from drills.solve.operator import Operator


@dataclass(frozen=True)
class Diagnosis:
    kind: str
    place: str
    mend: tuple[str, ...] = ()
    """Lines of `config ..`, without that word."""
    otherwise: tuple[str, ...] = ()
    """Lines to carry out instead if one of them is refused, whatever those before it have done."""

    def __str__(self) -> str:
        return f"{self.kind}@{self.place}"


Rule = Callable[[Operator], Iterable[Diagnosis]]


def distinct(rule: Rule) -> Rule:
    """The rule, with one diagnosis of each class and place: a fault may show in several rows."""

    @wraps(rule)
    def each_once(op: Operator) -> Iterable[Diagnosis]:
        return {str(diagnosis): diagnosis for diagnosis in rule(op)}.values()

    return each_once


def answer(diagnoses: Iterable[Diagnosis]) -> str:
    return " ".join(dict.fromkeys(map(str, diagnoses))) or HEALTHY
