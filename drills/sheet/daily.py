"""The drill of the day: the same for all who have the same drills. And who chose a game's seed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, date, datetime

from drills.sheet.case import healthy_by_seed, letters_of
from drills.sheet.drill import Drill
from drills.sheet.suite import LETTERS, drills_of

SUITE = "v1"
CHOSEN, DRAWN, OF_SUITE = "chosen", "drawn", "suite"
"""Who chose a seed: the player, nobody, a suite (bench). For the drill of a day it is the day."""


def tells_seed(*, exam: bool, seed_by: str) -> bool:
    """Whether the player may see the seed before the end: with it he could play the world elsewhere, to its truth."""
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
    text = "\0".join(("daily", suite, day.isoformat(), *(drill.id for drill in drills)))
    number = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
    return Daily(day.isoformat(), drills[(number >> 128) % len(drills)], letters_of(number, LETTERS))


def is_daily(day: str, drill: str, text: str, seed: str, healthy: bool) -> bool:
    """Whether this was the drill of that day, by the drills here; no day to come."""
    try:
        on = date.fromisoformat(day)
    except ValueError:
        return False
    if on > today():
        return False
    daily = of_day(on)
    well = healthy_by_seed(daily.drill, daily.seed)
    return (daily.drill.id, daily.drill.text, daily.seed, well) == (drill, text, seed, healthy)
