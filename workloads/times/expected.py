"""What an algorithm should take: message by message, or, where its messages are too many to follow, by its formula."""

from __future__ import annotations

from math import inf
from typing import cast

from workloads.base.entry import Algorithm, named
from workloads.collectives.schedule import schedule_of
from workloads.times.case import Case
from workloads.times.replay import MOST_MESSAGES, replayed


def expected_ns(entry: Algorithm, case: Case) -> float:
    """Time in ns of an algorithm with a schedule."""
    followed = replayed(case, schedule_of(entry), MOST_MESSAGES if entry.time else inf)
    return cast(float, named(entry.time)(case)) if followed is None else followed
