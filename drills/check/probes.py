"""How long a message takes between all pairs of ranks, against the healthy twin: what no counter shows."""

from __future__ import annotations

from collections.abc import Mapping

from drills.game import Game

Probed = Mapping[str, float | None]
"""By pair, in us; None if nothing came back."""

MESH = "probe mesh"
LONGER, LONGER_US = 1.2, 0.5
"""What is beyond queues of a healthy job."""


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
    found = set()
    lost = [pair for pair, us in well.items() if us is not None and ill.get(pair) is None]
    longer = [pair for pair, us in well.items() if us and (ill.get(pair) or 0) > share * us + more_us]
    for what, pairs in (("lost", lost), ("longer", longer)):
        if pairs:
            found.add(f"{MESH}.{'most' if len(pairs) > len(well) / 2 else 'some'} {what}")
    return frozenset(found)
