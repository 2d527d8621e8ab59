"""What checkpoints and failures cost: the best interval, what is lost, and energy and money of it.

Failures of any of n GPUs are a Poisson process with M = mtbf / n between two.  A checkpoint that holds up training for
delta after every tau of it, and R to be back at the last one:

    Young (1974):  tau = sqrt(2 delta M)
    Daly (2006):   tau = sqrt(2 delta M) (1 + sqrt(delta / 2M) / 3 + (delta / 2M) / 9) - delta if delta < 2M, else M
    time for a unit of work (Daly 2006, eq. 20):  M e^(R/M) (e^((tau + delta)/M) - 1) / tau

The best interval is the whole number of steps for which that time is least.  An asynchronous checkpoint counts when it
is written: until then training goes back to the one before, so R includes the time of writing.  The next one begins
when it is written: who asks for more gets one as often as one can be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil, exp, expm1, inf, sqrt
from statistics import fmean
from typing import Any

from results.figures.timeline import StepTime

CHECKPOINT = "checkpoint"
_DAY_H = 24.0


def young_ns(pause_ns: float, between_ns: float) -> float:
    return sqrt(2 * pause_ns * between_ns)


def daly_ns(pause_ns: float, between_ns: float) -> float:
    if pause_ns >= 2 * between_ns:
        return between_ns
    x = pause_ns / (2 * between_ns)
    return sqrt(2 * pause_ns * between_ns) * (1 + sqrt(x) / 3 + x / 9) - pause_ns


def slowdown(tau_ns: float, pause_ns: float, back_ns: float, between_ns: float) -> float:
    """Expected time for a unit of work."""
    exponent = (tau_ns + pause_ns + back_ns) / between_ns
    if exponent > 500:
        return inf
    back = exp(back_ns / between_ns)
    return between_ns / tau_ns * back * expm1((tau_ns + pause_ns) / between_ns)


@dataclass(frozen=True)
class Account:
    """Of a plan with checkpoints; a day's figures are of the whole cluster."""

    mode: str
    every: int
    gpus: int
    step_ns: float
    pause_ns: float  # by which a checkpoint holds up training
    written_ns: float  # from its begin until it is on disk
    restore_ns: float
    between_failures_ns: float
    young_steps: float
    daly_steps: float
    best_steps: int
    least_steps: int  # an asynchronous one has to be written before the next
    goodput: float  # share of the time that is work which is not lost
    best_goodput: float
    lost_per_failure_ns: float
    stalled: float  # share of a step in which a rank computes nothing; its hours leave out time that is lost
    lost_gpu_hours: float
    lost_kwh: float
    lost_money: float
    stalled_gpu_hours: float
    stalled_kwh: float
    stalled_money: float

    def row(self) -> dict[str, Any]:
        """As in a run's JSON."""
        return asdict(self)


def accounts(steps: Sequence[Mapping[str, Any]], step_times: Iterable[StepTime]) -> list[tuple[int, Account]]:
    """Of each triple of steps, plain, with a checkpoint and restored: number of the first, and what follows."""
    by_step: dict[int, list[StepTime]] = {}
    for one in step_times:
        by_step.setdefault(one.step, []).append(one)
    return [
        (number, account(settings, [by_step[number + k] for k in range(3)]))
        for number, step in enumerate(steps)
        if (settings := step.get("checkpoint")) and all(number + k in by_step for k in range(3))
    ]


def account(settings: Mapping[str, Any], measured: Sequence[Sequence[StepTime]]) -> Account:
    plain, checkpointed, restored = measured
    step = fmean(one.time_ns for one in plain)
    written = fmean(one.time_ns for one in checkpointed)
    restore = fmean(one.time_ns for one in restored)
    least, back = 1, settings["restart_ns"] + restore
    if settings["mode"] == "sync":
        pause = written - step
    else:
        least = max(ceil(written / step), 1)
        beside = fmean(trained_ns(one) for one in checkpointed) - step
        pause = beside + max(beside - settings["copy_ns"], 0.0) * (least - 1)
        back += written
    pause = max(pause, 1.0)
    between = settings["mtbf_ns"] / settings["gpus"]

    def share(count: float) -> float:
        return 1 / slowdown(count * step, pause, back, between)

    best = _best(share, least, young_ns(pause, between) / step)
    every, gpus, day = settings["every"], settings["gpus"], _DAY_H * settings["gpus"]
    taken = max(every, least)
    stalled = fmean(1 - rank.utilisation for one in plain for rank in one.ranks)
    lost = (1 - share(taken)) * day
    idle = stalled * share(taken) * day
    kw, price = settings["power_w"] / 1e3, settings["price"]
    return Account(
        mode=settings["mode"], every=every, gpus=gpus, step_ns=step, pause_ns=pause, written_ns=written,
        restore_ns=restore, between_failures_ns=between, young_steps=young_ns(pause, between) / step,
        daly_steps=daly_ns(pause, between) / step, best_steps=best, least_steps=least, goodput=share(taken),
        best_goodput=share(best), lost_per_failure_ns=(taken * step + pause) / 2 + back, stalled=stalled,
        lost_gpu_hours=lost, lost_kwh=lost * kw, lost_money=lost * price, stalled_gpu_hours=idle,
        stalled_kwh=idle * kw, stalled_money=idle * price,
    )  # fmt: skip


def trained_ns(one: StepTime) -> float:
    """Until all but the checkpoint has ended."""
    ends = [row["end_ns"] for row in one.rows if row["kind"] != CHECKPOINT]
    return float(max(ends) - one.span[0] / 1000)


def _best(share: Any, least: int, near: float) -> int:
    """The share has one maximum: a ternary search, from the least interval to far beyond Young's."""
    low, high = least, max(least, ceil(near) * 4 + 4)
    while high - low > 2:
        third = (high - low) // 3
        a, b = low + third, high - third
        if share(a) < share(b):
            low = a + 1
        else:
            high = b
    return max(range(low, high + 1), key=share)
