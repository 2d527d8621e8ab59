"""The end of a game: the truth, what the answer is worth, and what the player's actions have done to the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drills import twins
from drills.log import LogEntry
from drills.session import clock
from drills.sheet.answer import Submission
from drills.sheet.score import NO_FAMILIES, NOTHING_TO_WIN, Conduct, Families, Score, score
from drills.sheet.truth import as_answer
from drills.stage import Stage, Up, world_of

if TYPE_CHECKING:
    from testbed.experiment import Experiment

Times = Sequence[tuple[float, float]]  # start and duration of steps


@dataclass(frozen=True)
class Ending:
    answer: Submission | None
    truth: str
    score: Score | None
    """None: the environment was unfit, and nothing is scored (measured.py)."""
    conduct: Conduct
    speed: float = 0.0
    """Of the job in the end, in right steps per second."""
    lost_steps: float = 0.0
    """How many steps of the job the player's actions have cost."""
    courses: dict[str, Times] = field(default_factory=dict)
    """Steps of the world and of its twins, for the picture."""

    @property
    def answered(self) -> dict[str, Any]:
        return {
            "answer": None if self.answer is None else str(self.answer),
            "truth": self.truth,
            "score": self.score.to_dict() if self.score else None,
        }

    def to_dict(self) -> dict[str, Any]:
        conduct = self.conduct
        return {
            **self.answered,
            "time_ns": conduct.t_ns,
            "lost_steps": self.lost_steps,
            "speed": {"now": self.speed, "fault": conduct.speed_fault, "mended": conduct.speed_mended},
        }

    @property
    def text(self) -> str:
        assert self.score
        gained, lost = points_text(self.score)
        parts = [*gained, f"time {clock(self.conduct.t_ns)}", *lost]
        if self.lost_steps > 0:
            parts.append(f"({self.lost_steps:.1f} steps lost)")
        return f"{'  '.join(parts)}\nSCORE {self.score.total:.1f}    truth: {self.truth}"


def points_text(score: Score, digits: int = 2) -> tuple[list[str], list[str]]:
    """What the answer has gained, and what is taken off."""
    gained = [f"detected {10 * score.detected:.0f}/10", f"where {score.where:.2f}", f"what {score.what:.2f}"]
    gained += [] if score.fixed is None else [f"fixed {score.fixed:.{digits}f}"]
    off = {"hints": score.hints, "damage": score.damage, "wrong answers": score.wrong}
    return gained, [f"{name} -{points:.1f}" for name, points in off.items() if points]


def workload(experiment: Experiment) -> Any:
    return experiment.resolved()["workload"]


def ending_of(
    stage: Stage,
    answer: Submission | None,
    touched: Sequence[LogEntry],
    *,
    hints: int,
    wrong: int,
    families: Families = NO_FAMILIES,
    up: Up = world_of,
) -> Ending:
    """Lets the world go on for some steps, and runs its twins. `touched`: entries that have changed the world otherwise
    than by letting time pass."""
    case, now = stage.case, stage.world.time_ns
    own = twins.Course.of(stage, now)
    courses: dict[str, Times] = {"yours": own.courses}
    without = own
    if touched:
        without = twins.without_student(case, now, up, stage.later)
        courses["nobody's"] = without.courses
    counts = bool(stage.drawn.truth) and case.drill.asks_to_fix
    speed_mended = without.speed
    mending = [entry for entry in touched if entry.is_config]
    if mending and counts:
        mended = twins.mended(case, mending[0].time_ns, now, up, stage.later)
        courses["mended"] = mended.courses
        speed_mended = mended.speed
    speed_healthy = speed_mended
    if counts and speed_mended <= without.speed * (1 + NOTHING_TO_WIN):
        # nothing mended, or too late to tell, or nothing lost: the twin says which, by the same measure
        speed_healthy = twins.healthy(case, now, up).speed
        speed_mended = speed_mended if mending else speed_healthy
    own_job = workload(stage.world.experiment) == workload(case.experiment)
    lost = max(0.0, without.steps - own.steps)
    conduct = Conduct(
        t_ns=now - stage.began_ns,
        tau_ns=case.drill.budget.tau_ns,
        hints=hints,
        wrong=wrong,
        lost_ns=lost * stage.healthy_period_ns,
        speed=(own.speed if own_job else 0.0) if counts else None,
        speed_fault=without.speed,
        speed_mended=speed_mended,
        speed_healthy=speed_healthy,
    )
    truth = stage.drawn.truth
    points = score(answer, truth, conduct, families)
    return Ending(answer, as_answer(truth), points, conduct, own.speed, lost, courses)
