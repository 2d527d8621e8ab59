"""The drill of the day: the same for everybody who has the same drills. And whose choice a game's seed was."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, date, datetime

from drills.sheet.case import ALPHABET, healthy_by_seed
from drills.sheet.drill import Drill
from drills.sheet.suite import LETTERS, drills_of

SUITE = "v1"
CHOSEN, DRAWN, OF_SUITE = "chosen", "drawn", "suite"
"""Whose choice a seed was: the player's, nobody's, a suite's (bench). Of the drill of a day the day stands there."""


def tells_seed(*, exam: bool, seed_by: str) -> bool:
    """Whether the player may see it before the end: with a seed the world can be played elsewhere, to its truth. Who
    has chosen it knows it; one that was drawn would be no better than chosen."""
    return not exam and seed_by != DRAWN


@dataclass(frozen=True)
class Daily:
    """Which drill, and which seed of it."""

    day: str
    drill: Drill
    seed: str


def today() -> date:
    """Everywhere the same: by UTC."""
    return datetime.now(UTC).date()


def of_day(day: date, suite: str = SUITE) -> Daily:
    """It follows from the date, the suite's name and its drills."""
    drills = drills_of([suite])
    told = "\0".join(("daily", suite, day.isoformat(), *(drill.id for drill in drills)))
    number = int.from_bytes(hashlib.sha256(told.encode()).digest(), "big")
    seed = "".join(ALPHABET[number >> 5 * i & 31] for i in range(LETTERS))
    return Daily(day.isoformat(), drills[(number >> 128) % len(drills)], seed)


def is_daily(day: str, drill: str, text: str, seed: str, healthy: bool) -> bool:
    """Whether this was the drill of that day, as far as the drills here say: no day to come, the text that it has here,
    and healthy or not as the seed has it."""
    try:
        on = date.fromisoformat(day)
    except ValueError:
        return False
    if on > today():
        return False
    its = of_day(on)
    well = healthy_by_seed(its.drill, its.seed)
    return (its.drill.id, its.drill.text, its.seed, well) == (drill, text, seed, healthy)
