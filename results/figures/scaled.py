"""The time of a step of many layers from that of steps of few, with a bound of the error.

Layers are alike, so that the time grows by as much with each.  How far that holds is seen in two ways: by what closed
forms expect of all three steps, where the real one is known; and by the two steps that were run, which may be further
from their expected times the more they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SLACK = 0.001


@dataclass(frozen=True)
class Scaled:
    """`bound`: share of the time by which it may be wrong."""

    layers: tuple[int, int, int]  # two that were run, and the model's
    time_ns: float
    bound: float
    row: Mapping[str, Any]  # MFU, tokens per second


def scaled(step: Mapping[str, Any], few_ns: float, more_ns: float) -> Scaled | None:
    """`step`: as described in the run, the second of two; None: it is not of such."""
    scale = step.get("scale")
    if not scale:
        return None
    layers, expected = tuple(scale["layers"]), scale["expected_ns"]
    time = _line(layers, few_ns, more_ns)
    straight = abs(_line(layers, expected[0], expected[1]) / expected[2] - 1)
    by_expected = expected[2] * more_ns / expected[1]
    whole = scale["whole"]
    row = {"mfu": whole["ideal_ns"] / time, "tokens_per_s": whole["tokens"] * 1e9 / time}
    return Scaled(layers, time, SLACK + straight + abs(time - by_expected) / time, row)


def _line(layers: Sequence[int], few: float, more: float) -> float:
    """On through two points to the model's layers."""
    return few + (more - few) * (layers[2] - layers[0]) / (layers[1] - layers[0])
