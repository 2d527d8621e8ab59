"""Lines below a run's table: what checkpoints and failures cost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from results.figures.checkpoints import accounts
from results.figures.going_on import going_on
from results.figures.timeline import StepTime
from testbed.base.units import format_size


def of_steps(steps: Sequence[Mapping[str, Any]], times: Sequence[StepTime]) -> Iterator[RenderableType]:
    for number, cost in accounts(steps, times):
        nbytes = format_size(steps[number]["checkpoint"]["bytes"])
        hours = cost.between_failures_ns / 3600e9
        late = f" (written after {cost.least_steps})" if cost.every < cost.least_steps else ""
        yield Text("#")
        yield _line(
            f"# step {number}, {cost.mode} checkpoint of {nbytes} a rank: holds up {cost.pause_ns / 1e3:.2f} us, "
            f"written after {cost.written_ns / 1e3:.2f} us, read back in {cost.restore_ns / 1e3:.2f} us",
            "bold",
        )
        yield _line(
            f"# {cost.gpus} GPUs, a failure every {hours:.4g} h: best every {cost.best_steps} steps (Young "
            f"{cost.young_steps:.4g}, Daly {cost.daly_steps:.4g}), goodput {100 * cost.best_goodput:.3f} %; every "
            f"{max(cost.every, cost.least_steps)}{late}: {100 * cost.goodput:.3f} %"
        )
        yield _day("lost to checkpoints and failures", cost.lost_gpu_hours, cost.lost_kwh, cost.lost_money)
        yield _day("stalled in steps", cost.stalled_gpu_hours, cost.stalled_kwh, cost.stalled_money)


def of_run(
    steps: Sequence[Mapping[str, Any]], times: Sequence[StepTime], events: Sequence[Mapping[str, Any]]
) -> Iterator[RenderableType]:
    """Of a run that went on after failures; `events` are rows of that frame."""
    restarts = [{**json.loads(e["detail"] or "{}"), **e} for e in events if e["event"] == "restart"]
    run = going_on(steps, times, restarts)
    if run is None:
        return
    yield Text("#")
    often = f", {len(run.failures)} failures, one every {run.between_ns / 1e3:.2f} us" if run.failures else ""
    yield _line(
        f"# {run.steps} steps in {run.time_ns / 1e3:.2f} us, a checkpoint every {run.every}{often}: goodput "
        f"{100 * run.goodput:.2f} % (Daly {100 * run.expected:.2f} %)",
        "bold",
    )
    for f in run.failures:
        noticed, read, back = ((t - f.failed_ns) / 1e3 for t in (f.noticed_ns, f.reading_ns, f.back_ns))
        yield _line(
            f"# rank {f.rank} failed at {f.failed_ns / 1e3:.2f} us: noticed after {noticed:.2f} us, checkpoint "
            f"read from {read:.2f} us on, at work again after {back:.2f} us; steps done again: {f.lost}"
        )


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, overflow="ignore", no_wrap=True)


def _day(what: str, hours: float, kwh: float, money: float) -> Text:
    return _line(f"# {what}, a day: {hours:.4g} GPU h, {kwh:.4g} kWh, {money:.4g} in money")
