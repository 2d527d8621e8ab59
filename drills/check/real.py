"""The check of a drill on the real clock. Worlds are never the same, so a symptom is what is zero in the healthy one.

Worlds are played one after the other, so that they do not take each other's CPUs; again where this machine was not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from drills.check.looked import Seen, playing, views
from drills.game import Game
from drills.measured import ENVIRONMENT_INVALID, RealEnding
from drills.sheet.drill import Drill
from drills.solve.solver import solve

TRIES = 3
FEW = 4
"""A job that makes so many times fewer steps has stopped."""


@dataclass(frozen=True)
class RealGame:
    """What the solver has seen and answered; `unfit`: why it does not count ("": it does)."""

    answer: str
    truth: str = ""
    score: float | None = None
    unfit: str = ""
    seen: Seen = field(default_factory=dict)
    steps_ns: Sequence[float] = ()
    slo: float = 1.0


def play(drill: Drill, seed: str, *, healthy: bool) -> RealGame:
    """By the solver; again if this machine was not fit, up to TRIES times."""
    for _ in range(TRIES):
        with playing(drill, seed, healthy=healthy) as game:
            played = _played(game)
        if not played.unfit:
            break
    return played


def _played(game: Game) -> RealGame:
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
    return RealGame(answer, ending.truth, total, why, seen, steps, game.case.drill.slo.step)


def shows(ill: RealGame, well: RealGame) -> tuple[str, ...]:
    """Columns that are zero in the healthy world, and not in the other; `job` if it is slower or stops."""
    symptoms = _counting(ill.seen) - _counting(well.seen)
    slower = ill.steps_ns and well.steps_ns and fmean(ill.steps_ns) > ill.slo * fmean(well.steps_ns)
    if len(ill.steps_ns) * FEW < len(well.steps_ns) or slower:
        symptoms.add("job")
    return tuple(sorted(symptoms))


def _counting(seen: Seen) -> set[str]:
    """`VIEW.COLUMN` of every number that is not zero."""
    return {
        f"{view}.{column}"
        for view, tables in seen.items()
        for rows in (tables.values() if isinstance(tables, Mapping) else ())
        for row in (rows if isinstance(rows, list) else ())
        for column, value in (row.items() if isinstance(row, Mapping) else ())
        if type(value) in (int, float) and value
    }
