"""The scores of players who only look: they do not change the world, so one game serves all."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import fsum
from typing import Any

from drills.game import Game
from drills.sheet.answer import Submission, parse
from drills.sheet.score import Conduct, Score, kinds, right, score
from drills.solve.baselines import PLAYERS

LOOKERS = ("healthy", "random", "loudest", "thresholds")


@dataclass(frozen=True)
class Worth:
    answer: str
    score: float
    f1: float
    """Of pairs of class and place, each exact."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def answers(game: Game) -> dict[str, str]:
    return {name: PLAYERS[name](game) for name in LOOKERS}


def worth(game: Game, answer: str, ended: Conduct | None = None) -> Worth:
    """See `scored`."""
    submission, points = scored(game, answer, ended)
    return Worth(answer, points.total, kinds(submission.claims, game.stage.drawn.truth))


def scored(game: Game, answer: str, ended: Conduct | None = None) -> tuple[Submission, Score]:
    """Of an answer given at the beginning, and again if it is wrong. `ended`: that of a game that was mended."""
    submission, truth, families = parse(answer, game.fabric), game.stage.drawn.truth, game.families
    wrong = 0 if right(submission, truth, families) else game.case.drill.budget.answers - 1
    ended = ended or Conduct()
    untouched = None if ended.speed is None else ended.speed_fault
    conduct = replace(ended, t_ns=0.0, hints=0, wrong=wrong, lost_ns=0.0, speed=untouched)
    return submission, score(submission, truth, conduct, families)


def correlation(hardness: Sequence[float], points: Sequence[float]) -> float | None:
    """Spearman's; None if either is the same for all."""
    one, other = _ranks(hardness), _ranks(points)
    a, b = [x - fsum(one) / len(one) for x in one], [y - fsum(other) / len(other) for y in other]
    spread = (fsum(x * x for x in a) * fsum(y * y for y in b)) ** 0.5
    return fsum(x * y for x, y in zip(a, b, strict=True)) / spread if spread else None


def _ranks(values: Sequence[float]) -> list[float]:
    """Equal values have the mean of their ranks."""
    ordered = sorted(values)
    return [(bisect_left(ordered, v) + bisect_right(ordered, v) - 1) / 2 for v in values]
