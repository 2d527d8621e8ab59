"""The end of a game on the real clock. Such a world never goes the same way twice, so it has no twins: all is measured.

- Whether the game counts at all. If the fabric could not keep time on this machine (its fidelity verdict is not good),
  what the player saw was the machine's doing as well as the fault's: it is `environment_invalid` and has no score.
- Whether the job is mended: the mean of its next steps is within what it is promised (`slo`), of the healthy ones
  before the fault. It counts only if steps were longer than that before the player acted. It is 0 or 1, and 0 if he has
  changed nothing: a fault that strikes now and then spares some steps by itself.
- Speed and damage do not count: what they are worth in emulated time is a matter of who types, and of the machine. The
  points for speed go to the places (L).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from drills.ending import Ending, Times
from drills.lines import CONFIG
from drills.sheet import truth as truths
from drills.sheet.score import NO_FAMILIES, Course, Families, score
from results.figures.fidelity import Fidelity
from testbed.experiment.built import timeout_ns

if TYPE_CHECKING:
    from drills.log import Entry
    from drills.sheet.answer import Submission
    from drills.stage import Stage
    from testbed.world.real import RealWorld

ENVIRONMENT_INVALID = "environment_invalid"
FIT = ("exact", "good")
STEPS = 8
"""So many steps after the last answer say whether the job is mended: a fault that spares every other step by chance
spares all of them once in 256."""
PATIENCE = 4
"""How many times as long as it is promised each of them is waited for, besides two timeouts of a NIC."""


def fit(fidelity: Fidelity) -> bool:
    return fidelity.verdict in FIT


@dataclass(frozen=True)
class RealEnding(Ending):
    """`course` says only what counts here; the times are measured."""

    fidelity: Fidelity = field(default_factory=lambda: Fidelity("invalid"))
    took_ns: float = 0.0
    steps_ns: dict[str, float | None] = field(default_factory=dict)
    """The mean step `before` the player acted and `now` (None: none has ended in its time); of `healthy` the median."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "answer": None if self.answer is None else str(self.answer),
            "truth": self.truth,
            "score": self.score.to_dict() if self.score else None,
            ENVIRONMENT_INVALID: self.score is None,
            "fidelity": self.fidelity.to_dict(),
            "time_ns": self.took_ns,
            "steps_ns": self.steps_ns,
        }

    @property
    def text(self) -> str:
        why = [f"fidelity {self.fidelity.verdict}", *(f"  {reason}" for reason in self.fidelity.reasons)]
        if self.score is None:
            why += [f"  to change it: {advice}" for advice in self.fidelity.advice]
            said = f"{ENVIRONMENT_INVALID}: this machine could not keep the fabric's time, so the game has no score"
            return "\n".join([said, *why, f"truth: {self.truth}    start it again, with another seed"])
        s = self.score
        parts = [f"detected {10 * s.detected:.0f}/10", f"where {s.where:.2f}", f"what {s.what:.2f}"]
        parts += [] if s.fixed is None else [f"fixed {s.fixed:.0f}"]
        taken = {"hints": s.hints, "wrong answers": s.wrong}
        parts += [f"{name} -{points:.1f}" for name, points in taken.items() if points]
        return "\n".join(["  ".join(parts), *why, f"SCORE {s.total:.1f}    truth: {self.truth}"])


def ending_of_real(
    stage: Stage,
    answer: Submission | None,
    touched: Sequence[Entry],
    *,
    hints: int,
    wrong: int,
    families: Families = NO_FAMILIES,
) -> RealEnding:
    """Measures what counts, waits for some steps if something was to be mended. Raises WorldGone."""
    drill, world = stage.case.drill, cast("RealWorld", stage.world)
    now, promised = world.time_ns, drill.slo.step * stage.healthy_step_ns
    acted_ns = next((entry.time_ns for entry in touched if entry.ok and entry.line.split()[0] == CONFIG), None)
    steps: dict[str, float | None] = {
        "healthy": stage.healthy_step_ns,
        "before": _before(stage, now if acted_ns is None else acted_ns),
    }
    mended: bool | None = None
    if answer and stage.drawn.truth and drill.asks_to_fix:
        steps["now"] = _after(stage, now, promised)
        if steps["before"] is None or steps["before"] > promised:
            mended = acted_ns is not None and steps["now"] is not None and steps["now"] <= promised
    speed = None if mended is None else float(mended)
    course = Course(hints=hints, wrong=wrong, speed=speed, speed_mended=1.0, speed_healthy=1.0)
    fidelity = world.fidelity()
    found = score(answer, stage.drawn.truth, course, families) if fit(fidelity) else None
    courses: dict[str, Times] = {"yours": [(step.start_ns, step.end_ns - step.start_ns) for step in world.steps]}
    return RealEnding(
        answer, truths.said(stage.drawn.truth), found, course, 0.0, 0.0, courses,
        fidelity, float(now - stage.began_ns), steps,
    )  # fmt: skip


def _before(stage: Stage, acted_ns: float) -> float | None:
    """The mean of the steps that the fault has met and the player has not; one under way counts as it is by then."""
    ill_ns = stage.zero_ns + stage.case.first_fault_ns
    steps = stage.world.steps
    met = [s.end_ns - s.start_ns for s in steps if ill_ns <= s.start_ns and s.end_ns <= acted_ns]
    under_way = acted_ns - max((s.end_ns for s in steps if s.end_ns <= acted_ns), default=acted_ns)
    if not met or under_way > max(met):
        met.append(under_way)
    return fmean(met)


def _after(stage: Stage, now_ns: float, promised_ns: float) -> float | None:
    """The mean of the steps that begin now; None if they do not end in time, or have wrong elements."""
    timeout = timeout_ns(stage.case.experiment)

    def later() -> list[Any]:
        return [step for step in stage.world.steps if step.start_ns >= now_ns]

    limit = round(PATIENCE * (STEPS + 1) * promised_ns + 2 * timeout)
    stage.world.until(lambda _: len(later()) >= STEPS, limit)
    steps = later()[:STEPS]
    if len(steps) < STEPS or any(rank.wrong for step in steps for rank in step.ranks.values()):
        return None
    return fmean(step.end_ns - step.start_ns for step in steps)
