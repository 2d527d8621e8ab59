"""What the student's actions were worth: the same world without them, and mended when he first acted.

Speed is measured over the ten steps that begin after the last answer. Steps with wrong elements do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drills.sheet.case import Case
from drills.stage import Stage, Up, world_of
from testbed.experiment.basis import Basis

if TYPE_CHECKING:
    from testbed.faults import Injection
    from testbed.world.steps import Step

    Later = Sequence[tuple[int, Injection]]

STEPS = 10
PATIENCE = 4
"""Times healthy ones that the ten steps may take, besides one timeout of a NIC, after which a job that hangs goes on;
then those count that have ended."""


@dataclass(frozen=True)
class Course:
    """A job from a moment on: its speed in right steps per second, and the steps that it had made by then."""

    speed: float
    steps: float
    courses: Sequence[tuple[float, float]] = ()  # start and duration of each step

    @classmethod
    def of(cls, stage: Stage, from_ns: int) -> Course:
        """Lets the world go on from there for ten steps."""
        world = stage.world
        limit = round(STEPS * PATIENCE * stage.healthy_step_ns + Basis(stage.case.experiment).timeout_ns)
        end = world.time_ns + limit
        while world.time_ns < end and len(_after(world.steps, from_ns)) < STEPS:
            world.advance(min(round(stage.healthy_step_ns), end - world.time_ns))
        after = _after(world.steps, from_ns)[:STEPS]
        took = after[-1].end_ns - after[0].start_ns if len(after) == STEPS else limit
        right = sum(not any(rank.wrong for rank in step.ranks.values()) for step in after)
        courses = [(step.start_ns, step.end_ns - step.start_ns) for step in world.steps]
        return cls(right / took * 1e9, progress(world.steps, from_ns), courses)


def _after(steps: Sequence[Step], time_ns: float) -> list[Step]:
    return [step for step in steps if step.start_ns >= time_ns]


def progress(steps: Sequence[Step], time_ns: float) -> float:
    """Steps that were made by a moment; the one under way counts by its share."""
    made = 0.0
    for step in steps:
        if step.end_ns <= time_ns:
            made += 1
        elif step.start_ns < time_ns:
            made += (time_ns - step.start_ns) / (step.end_ns - step.start_ns)
    return made


def healthy(case: Case, to_ns: int, up: Up = world_of) -> Course:
    """The twin in which nothing was ever wrong."""
    return _course(Stage.up(case, up, healthy=True), to_ns)


def without_student(case: Case, to_ns: int, up: Up = world_of, later: Later = ()) -> Course:
    """The twin in which the student did nothing; `later`: what was put in meanwhile."""
    return _course(Stage.up(case, up), to_ns, later)


def mended(case: Case, at_ns: int, to_ns: int, up: Up = world_of, later: Later = ()) -> Course:
    """The twin in which the cause was taken away at that moment, and nothing was put in afterwards."""
    return _course(Stage.up(case, up), to_ns, [one for one in later if one[0] <= at_ns], at_ns)


def _course(stage: Stage, to_ns: int, later: Later = (), mended_ns: int | None = None) -> Course:
    try:
        for time_ns, injection in later:
            stage.until_ns(time_ns)
            stage.put_in(injection)
        if mended_ns is not None:
            stage.until_ns(mended_ns)
            stage.mend()
        stage.until_ns(to_ns)
        return Course.of(stage, to_ns)
    finally:
        stage.close()
