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


def of_steps(steps: Sequence[Mapping[str, Any]], found: Sequence[StepTime]) -> Iterator[RenderableType]:
    for number, its in accounts(steps, found):
        nbytes = format_size(steps[number]["checkpoint"]["bytes"])
        hours = its.between_failures_ns / 3600e9
        late = f" (written after {its.least_steps})" if its.every < its.least_steps else ""
        yield Text("#")
        yield Text(
            f"# step {number}, {its.mode} checkpoint of {nbytes} a rank: holds up {its.pause_ns / 1e3:.2f} us, written "
            f"after {its.written_ns / 1e3:.2f} us, read back in {its.restore_ns / 1e3:.2f} us",
            style="bold",
            overflow="ignore",
            no_wrap=True,
        )
        yield Text(
            f"# {its.gpus} GPUs, a failure every {hours:.4g} h: best every {its.best_steps} steps (Young "
            f"{its.young_steps:.4g}, Daly {its.daly_steps:.4g}), goodput {100 * its.best_goodput:.3f} %; every "
            f"{max(its.every, its.least_steps)}{late}: {100 * its.goodput:.3f} %",
            overflow="ignore",
            no_wrap=True,
        )
        yield _day("lost to checkpoints and failures", its.lost_gpu_hours, its.lost_kwh, its.lost_money)
        yield _day("stalled in steps", its.stalled_gpu_hours, its.stalled_kwh, its.stalled_money)


def of_run(
    steps: Sequence[Mapping[str, Any]], found: Sequence[StepTime], events: Sequence[Mapping[str, Any]]
) -> Iterator[RenderableType]:
    """Of a run that went on after failures; `events` are rows of that frame."""
    told = [{**json.loads(e["detail"] or "{}"), **e} for e in events if e["event"] == "restart"]
    its = going_on(steps, found, told)
    if its is None:
        return
    yield Text("#")
    often = f", {len(its.failures)} failures, one every {its.between_ns / 1e3:.2f} us" if its.failures else ""
    yield _line(
        f"# {its.steps} steps in {its.time_ns / 1e3:.2f} us, a checkpoint every {its.every}{often}: goodput "
        f"{100 * its.goodput:.2f} % (Daly {100 * its.expected:.2f} %)",
        "bold",
    )
    for one in its.failures:
        noticed, read, back = ((t - one.failed_ns) / 1e3 for t in (one.noticed_ns, one.reading_ns, one.back_ns))
        yield _line(
            f"# rank {one.rank} failed at {one.failed_ns / 1e3:.2f} us: noticed after {noticed:.2f} us, checkpoint "
            f"read from {read:.2f} us on, at work again after {back:.2f} us; steps done again: {one.lost}"
        )


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, overflow="ignore", no_wrap=True)


def _day(what: str, hours: float, kwh: float, money: float) -> Text:
    return Text(
        f"# {what}, a day: {hours:.4g} GPU h, {kwh:.4g} kWh, {money:.4g} in money", overflow="ignore", no_wrap=True
    )
