"""A training run that went on after failures: where its time went, beside what Daly's formula expects.

All of it is work (steps that were not lost, without their checkpoints), checkpoints, and what failures cost: steps that
were lost, whole and begun, and the time until all ranks were at work again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from results.figures.checkpoints import CHECKPOINT, slowdown, trained_ns
from results.figures.timeline import StepTime

_RESTORED, _STEPS = 0, 1


@dataclass(frozen=True)
class Failure:
    """Times in ns of the run; `lost` whole steps were done again."""

    rank: int
    failed_ns: float
    noticed_ns: float
    reading_ns: float  # ranks begin to read the checkpoint
    back_ns: float  # and are at work again
    lost: int


@dataclass(frozen=True)
class GoingOn:
    steps: int
    every: int
    time_ns: float  # from the ranks' start on
    between_ns: float  # between failures: as stated where they are drawn, else as measured
    step_ns: float  # without a checkpoint, mean
    pause_ns: float  # by which one holds it up
    checkpoints_ns: float  # of those that were not lost
    goodput: float  # share of the time that is work
    expected: float  # by Daly's equation 20, with as many failures as here, and as long until work goes on
    failures: tuple[Failure, ...]

    def row(self) -> dict[str, Any]:
        """As in a run's JSON."""
        return asdict(self) | {"failures": [asdict(one) for one in self.failures]}


def restarts(events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of all events those that say so."""
    return [event for event in events if event["event"] == "restart"]


def going_on(
    steps: Sequence[Mapping[str, Any]], step_times: Iterable[StepTime], events: Iterable[Mapping[str, Any]]
) -> GoingOn | None:
    """Of a run that has such a step; None for others."""
    if len(steps) != 2 or not (plan := steps[_STEPS].get("going_on")):
        return None
    measured = list(step_times)
    ran, read = ([one for one in measured if one.step == k] for k in (_STEPS, _RESTORED))
    if len(ran) < plan["steps"]:
        return None  # it did not get to its end
    step = fmean(trained_ns(one) for one in ran)
    stored = [one for one in ran if any(row["kind"] == CHECKPOINT for row in one.rows)]
    pause = fmean(one.time_ns - trained_ns(one) for one in stored) if stored else 0.0
    time = max(one.span[1] for one in ran) / 1000
    back = {one.iteration: one for one in read}
    failures = []
    for k, event in enumerate(restarts(events)):
        one = back[min(number for number in back if number >= k)]  # it may have failed again before all was read
        reading = min(row["start_ns"] for row in one.rows if row["task"].startswith("read"))
        failures.append(
            Failure(event["rank"], event["failed_ns"], event["noticed_ns"], reading, one.span[1] / 1000, event["lost"])
        )
    lost = fmean(one.back_ns - one.failed_ns for one in failures) if failures else 0.0
    between = plan["between"] if plan["failures"] else time / max(len(failures), 1)
    tau = plan["every"] * step
    expected = 1 / slowdown(tau, pause, lost, between) if failures else tau / (tau + pause)
    kept = plan["steps"] // plan["every"]
    return GoingOn(
        steps=plan["steps"], every=plan["every"], time_ns=time, between_ns=between, step_ns=step, pause_ns=pause,
        checkpoints_ns=kept * pause, goodput=plan["steps"] * step / time, expected=expected, failures=tuple(failures),
    )  # fmt: skip
