"""The time of a large step from that of small ones, with a bound of the error.

Layers are alike, so the time grows by the same amount with each.  A step with 1/s of all bytes, computations and
latencies takes 1/s of the time, except for single packets, which stay as long: closed forms say how much that adds, and
it is taken off.  The bound of the error adds up
- how far the closed forms of the small steps miss the one of the large step; of 1/s, all that was taken off,
- the difference to another estimate: the large step's closed form, as much longer as the last small step was,
- of 1/s, how far the small step is from its closed form: it waits in buffers that are not scaled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from results.figures.timeline import StepTime

SLACK = 0.001


@dataclass(frozen=True)
class Scaled:
    """`bound`: share of the time by which it may be wrong."""

    layers: tuple[int, ...]  # those that were run, if they were fewer, and the model's
    by: int  # what bytes, computations and latencies were divided by
    time_ns: float
    bound: float
    mfu: float
    tokens_per_s: float
    memory_bytes: int | None = None  # of the rank that holds most

    def __str__(self) -> str:
        *fewer, layers = self.layers
        of = f", from {' and '.join(map(str, fewer))}" if fewer else ""
        if self.by > 1:
            of += f"{', and' if fewer else ', from'} 1/{self.by} of bytes, computations and latencies"
        time = f"{layers} layers{of}: {self.time_ns / 1e6:.4f} ms, within {100 * self.bound:.2f} %"
        return f"{time}; MFU {100 * self.mfu:.1f} %, {self.tokens_per_s:.4g} tokens/s"

    def row(self) -> dict[str, Any]:
        """As in a run's JSON."""
        run = list(self.layers[:-1]) or None
        whole = {"time_ns": self.time_ns, "bound": self.bound, "mfu": self.mfu, "tokens_per_s": self.tokens_per_s}
        whole |= {} if self.memory_bytes is None else {"memory_bytes": self.memory_bytes}
        return {"layers": self.layers[-1], "from_layers": run, "by": self.by, **whole}


def all_scaled(steps: Sequence[Mapping[str, Any]], step_times: Iterable[StepTime]) -> list[tuple[int, Scaled]]:
    """Number of a step, and what follows from it and those before it.  `step_times`: what was run."""
    times: dict[int, list[float]] = {}
    for one in step_times:
        times.setdefault(one.step, []).append(one.time_ns)
    numbers = [(number, step, small_steps(steps, number)) for number, step in enumerate(steps) if step.get("scale")]
    return [
        (number, scaled(step, [fmean(times[k]) for k in small]))
        for number, step, small in numbers
        if all(k in times for k in small)
    ]


def small_steps(steps: Sequence[Mapping[str, Any]], number: int) -> range:
    """The numbers of the steps from which a large one follows: step `number` is the last of them."""
    return range(number + 2 - len(steps[number]["scale"]["expected_ns"]), number + 1)


def scaled(step: Mapping[str, Any], measured_ns: Sequence[float]) -> Scaled:
    """`step`: as described in the run, the last of those that were run; `measured_ns`: what they took."""
    scale = step["scale"]
    layers, by, (*small, expected) = scale["layers"], scale["by"], scale["expected_ns"]
    time = along = by * _line(layers, measured_ns)
    straight = abs(by * _line(layers, small) / expected - 1)
    by_expected = expected * measured_ns[-1] / small[-1]
    if by > 1:  # single packets count more in a part, and closed forms know by how much
        time = along * expected / (by * _line(layers, small))
        straight = abs(time - along) / time
    met = abs(measured_ns[-1] / small[-1] - 1) * (1 - 1 / by)
    bound = SLACK + straight + abs(time - by_expected) / time + met
    whole = scale["whole"]
    figures = whole["ideal_ns"] / time, whole["tokens"] * 1e9 / time
    return Scaled(tuple(layers), by, time, bound, *figures, (whole.get("memory") or {}).get("peak"))


def _line(layers: Sequence[int], times: Sequence[float]) -> float:
    """At the model's layers, on the line through two points; a single point stands for itself."""
    if len(times) == 1:
        return times[0]
    few, more = times
    return few + (more - few) * (layers[2] - layers[0]) / (layers[1] - layers[0])
