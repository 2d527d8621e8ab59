"""The check of a drill on the real clock. Its two worlds are never the same, so what shows is what stays zero in one.

Worlds are played one after the other, so that they do not take each other's CPUs. A world that this machine was not fit
for is played again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from drills.check.looked import Seen, playing, views
from drills.game import Game
from drills.measured import ENVIRONMENT_INVALID, RealEnding
from drills.sheet.drill import Drill
from drills.solve.solver import solve

TRIES = 3
FEW = 4
"""A job that makes so many times fewer steps has stopped."""


@dataclass(frozen=True)
class Played:
    """What the solver has seen and said; `unfit` says why it does not count, if it does not."""

    answer: str
    truth: str = ""
    score: float | None = None
    unfit: str = ""
    seen: Seen = field(default_factory=dict)
    steps_ns: Sequence[float] = ()
    promised: float = 1.0


def play(drill: Drill, seed: str, *, healthy: bool) -> Played:
    """By the solver; again if this machine was not fit, up to TRIES times."""
    for _ in range(TRIES):
        with playing(drill, seed, healthy=healthy) as game:
            found = _played(game)
        if not found.unfit:
            break
    return found


def _played(game: Game) -> Played:
    answer = solve(game)
    seen = views(game)
    for _ in range(game.case.drill.budget.answers):
        if not game.over:
            game.command(f"submit {answer}")
    ending = game.ending
    assert isinstance(ending, RealEnding)
    faulty_ns = game.stage.zero_ns + game.stage.case.first_fault_ns
    steps = [step.end_ns - step.start_ns for step in game.stage.world.steps if step.start_ns >= faulty_ns]
    why = "" if ending.score else f"{ENVIRONMENT_INVALID}: {'; '.join(ending.fidelity.reasons)}"
    total = ending.score.total if ending.score else None
    return Played(answer, ending.truth, total, why, seen, steps, game.case.drill.slo.step)


def shows(ill: Played, well: Played) -> tuple[str, ...]:
    """Columns that count nothing in the healthy world, and something in the other; `job` if it is slower or stops."""
    busy = {name for name, value in _columns(well.seen) if value}
    found = {name for name, value in _columns(ill.seen) if value and name not in busy}
    if (
        len(ill.steps_ns) * FEW < len(well.steps_ns)
        or ill.steps_ns
        and well.steps_ns
        and fmean(ill.steps_ns) > ill.promised * fmean(well.steps_ns)
    ):
        found.add("job")
    return tuple(sorted(found))


def _columns(seen: Seen) -> Iterator[tuple[str, float]]:
    """`VIEW.COLUMN` of every number that is shown."""
    for view, tables in seen.items():
        for rows in tables.values() if isinstance(tables, Mapping) else ():
            for row in rows if isinstance(rows, list) else ():
                yield from ((f"{view}.{key}", value) for key, value in _numbers(row))


def _numbers(row: Any) -> Iterator[tuple[str, float]]:
    for key, value in row.items() if isinstance(row, Mapping) else ():
        if type(value) in (int, float):
            yield key, value
