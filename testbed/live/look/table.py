"""What a view is made of, and what it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Counters = Mapping[str, Any]
Rows = list[dict[str, Any]]
NAMES = ("MTU", "rank", "qp", "peer", "peer_qp")
"""Columns of numbers that say which row it is, or what is set: they count nothing."""


@dataclass(frozen=True)
class Table:
    """One table of a view: its name in JSON, its title, its rows; columns in `named` count nothing.

    `watermarks`: its numbers are no counts, but the most there has been.
    """

    name: str
    title: str
    rows: Rows
    named: Sequence[str] = NAMES
    watermarks: bool = False

    def counts(self, row: Mapping[str, Any]) -> dict[str, float]:
        """The columns of a row that count something."""
        found = row.items()
        return {k: v for k, v in found if type(v) in (int, float) and k not in self.named}
