"""The end of a game on the real clock. Such a world never goes the same way twice, so it has no twins: all is measured.

- Whether the game counts. If the fabric could not keep time on this machine (its fidelity verdict is not good), the
  player saw the machine's delays as well as the fault's: it is `environment_invalid` and has no score.
- Whether the job is mended, 0 or 1: the mean of its next steps is within the `slo`, of the healthy steps before the
  fault. It counts only if steps were longer than that before the player acted, and is 0 if he has changed nothing: an
  intermittent fault spares some steps by itself.
- Speed and damage do not count: in emulated time they depend on who types, and on the machine. The points for speed go
  to the places (L).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from drills.ending import Ending, Times, points_text
from drills.sheet.score import NO_FAMILIES, Conduct, Families, score
from drills.sheet.truth import as_answer
from results.figures.fidelity import Fidelity
from testbed.experiment.basis import Basis

if TYPE_CHECKING:
    from drills.log import LogEntry
    from drills.sheet.answer import Submission
    from drills.stage import Stage
    from testbed.world.real import RealWorld

ENVIRONMENT_INVALID = "environment_invalid"
FIT = ("exact", "good")
STEPS = 8
"""After the last answer, to say whether the job is mended: a fault that spares every other step by chance spares all of
them once in 256."""
PATIENCE = 4
"""Each of these steps is waited for so many times the `slo`, besides two timeouts of a NIC."""


def fit(fidelity: Fidelity) -> bool:
    return fidelity.verdict in FIT


@dataclass(frozen=True)
class RealEnding(Ending):
    """`conduct` has only what counts here; the times are measured."""

    fidelity: Fidelity = field(default_factory=lambda: Fidelity("invalid"))
    took_ns: float = 0.0
    steps_ns: dict[str, float | None] = field(default_factory=dict)
    """The mean step `before` the player acted and `now` (None: none has ended in its time); of `healthy` the median."""

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.answered,
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
            what = f"{ENVIRONMENT_INVALID}: this machine could not keep the fabric's time, so the game has no score"
            return "\n".join([what, *why, f"truth: {self.truth}    start it again, with another seed"])
        gained, lost = points_text(self.score, digits=0)
        return "\n".join(["  ".join(gained + lost), *why, f"SCORE {self.score.total:.1f}    truth: {self.truth}"])


def ending_of_real(
    stage: Stage,
    answer: Submission | None,
    touched: Sequence[LogEntry],
    *,
    hints: int,
    wrong: int,
    families: Families = NO_FAMILIES,
) -> RealEnding:
    """Measures what counts, waits for some steps if something was to be mended. Raises WorldGone."""
    drill, truth, world = stage.case.drill, stage.drawn.truth, cast("RealWorld", stage.world)
    now, slo_ns = world.time_ns, drill.slo.step * stage.healthy_step_ns
    acted_ns = next((entry.time_ns for entry in touched if entry.ok and entry.is_config), None)
    steps: dict[str, float | None] = {
        "healthy": stage.healthy_step_ns,
        "before": _before(stage, now if acted_ns is None else acted_ns),
    }
    mended: bool | None = None
    if answer and truth and drill.asks_to_fix:
        steps["now"] = _after(stage, now, slo_ns)
        if steps["before"] is None or steps["before"] > slo_ns:
            mended = acted_ns is not None and steps["now"] is not None and steps["now"] <= slo_ns
    speed = None if mended is None else float(mended)
    conduct = Conduct(hints=hints, wrong=wrong, speed=speed, speed_mended=1.0, speed_healthy=1.0)
    fidelity = world.fidelity()
    points = score(answer, truth, conduct, families) if fit(fidelity) else None
    courses: dict[str, Times] = {"yours": [(step.start_ns, step.end_ns - step.start_ns) for step in world.steps]}
    took_ns = float(now - stage.began_ns)
    return RealEnding(
        answer, as_answer(truth), points, conduct, courses=courses, fidelity=fidelity, took_ns=took_ns, steps_ns=steps
    )


def _before(stage: Stage, acted_ns: float) -> float | None:
    """The mean of the steps between the first fault and the player's first action; the one under way counts as far as
    it has come by then."""
    faulty_ns = stage.zero_ns + stage.case.first_fault_ns
    steps = stage.world.steps
    times = [s.end_ns - s.start_ns for s in steps if faulty_ns <= s.start_ns and s.end_ns <= acted_ns]
    under_way = acted_ns - max((s.end_ns for s in steps if s.end_ns <= acted_ns), default=acted_ns)
    if not times or under_way > max(times):
        times.append(under_way)
    return fmean(times)


def _after(stage: Stage, now_ns: float, slo_ns: float) -> float | None:
    """The mean of the steps that begin now; None if they do not end in time, or have wrong elements."""

    def later() -> list[Any]:
        return [step for step in stage.world.steps if step.start_ns >= now_ns]

    limit = round(PATIENCE * (STEPS + 1) * slo_ns + 2 * Basis(stage.case.experiment).timeout_ns)
    stage.world.until(lambda _: len(later()) >= STEPS, limit)
    steps = later()[:STEPS]
    if len(steps) < STEPS or any(rank.wrong for step in steps for rank in step.ranks.values()):
        return None
    return fmean(step.end_ns - step.start_ns for step in steps)
