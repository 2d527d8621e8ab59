"""What an algorithm should take: message by message, or, where its messages are too many to follow, by its formula."""

from __future__ import annotations

from math import inf
from typing import cast

from workloads.base.entry import Algorithm, named
from workloads.collectives.schedule import schedule_of
from workloads.times.case import Case
from workloads.times.messages import Costs, Path
from workloads.times.replay import MOST_MESSAGES, replayed
from workloads.times.ways import Uniform


def expected_ns(entry: Algorithm, case: Case) -> float:
    """Time in ns of an algorithm with a schedule."""
    followed = replayed(case, schedule_of(entry), MOST_MESSAGES if entry.time else inf)
    return cast(float, named(entry.time)(case)) if followed is None else followed


def closed_form_ns(entry: Algorithm, ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """Time in ns that the stated parameters promise when every rank reaches every other over an equal, idle `path`.

    With a schedule: for elements of 4 bytes, as a step does it that says nothing more.
    """
    if not entry.schedule:
        return cast(float, named(entry.time)(ranks, size_bytes, path, costs))
    return expected_ns(entry, Case.of(entry, ranks, size_bytes, 4, {}, 1, costs, Uniform(path)))
