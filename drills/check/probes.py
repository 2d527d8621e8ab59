"""Latencies between all pairs of ranks, against the healthy twin: what no counter shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drills.game import Game

Probed = Mapping[str, float | None]
"""By pair, in us; None if nothing came back."""


@dataclass(frozen=True)
class Snapshot:
    """A world at one time."""

    seen: Mapping[str, Any]  # by sight
    steps: list[tuple[float, float, int]]
    probes: Probed


MESH = "probe mesh"
LONGER, LONGER_US = 1.2, 0.5
"""More than a healthy job's queues add."""


def probed(game: Game) -> Probed:
    """Takes emulated time, so it comes last."""
    answer = game.command(MESH)
    rows = answer.data["mesh"] if answer.ok else ()
    return {
        f"{row['from']}-{to}": value
        for row in rows
        for to, value in row.items()
        if to != "from" and to != str(row["from"])
    }


def of_probes(ill: Probed, well: Probed, share: float = LONGER, more_us: float = LONGER_US) -> frozenset[str]:
    """Whether some pairs, or most, take longer than in the healthy twin, by a share and so much, or do not answer."""
    lost = sum(us is not None and ill.get(pair) is None for pair, us in well.items())
    longer = sum(bool(us) and (ill.get(pair) or 0) > share * (us or 0) + more_us for pair, us in well.items())
    return frozenset(
        f"{MESH}.{'most' if count > len(well) / 2 else 'some'} {what}"
        for what, count in (("lost", lost), ("longer", longer))
        if count
    )
