"""The truth of a game: which classes of faults are where.

A class is a fault's name in the catalogue. A place may have several names: where a cable is at fault, the ports at its
ends name it, too. The first name is the canonical one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HEALTHY = "healthy"


@dataclass(frozen=True)
class Cause:
    """One fault: its class, and every name of its place."""

    kind: str
    resources: tuple[str, ...]

    @property
    def place(self) -> str:
        return self.resources[0]

    def __str__(self) -> str:
        return f"{self.kind}@{self.place}"


def kind_of(place: str) -> str:
    """`cable` of `cable:leaf0-spine0`."""
    return place.partition(":")[0]


Truth = tuple[Cause, ...]
"""Of a healthy world none."""


def as_answer(causes: Sequence[Cause]) -> str:
    return " ".join(map(str, causes)) or HEALTHY
