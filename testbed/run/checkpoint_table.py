"""Lines below a run's table: what checkpoints and failures cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from results.figures.checkpoints import accounts
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


def _day(what: str, hours: float, kwh: float, money: float) -> Text:
    return Text(
        f"# {what}, a day: {hours:.4g} GPU h, {kwh:.4g} kWh, {money:.4g} in money", overflow="ignore", no_wrap=True
    )
