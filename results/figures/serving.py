"""What a serving step gave: time between tokens and throughput, for the GPUs and for what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from results.figures.timeline import StepTime, picoseconds

PING_PONG = "ping_pong"
SERVED = ("between_tokens_ns", "tokens_per_s_gpu", "tokens_per_cost")
"""Keys of `served`."""

_HOUR_S = 3600


def served(one: StepTime, about: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of one iteration of a step that is described so; {} of one that serves nobody.

    A token is there when the ranks that answer have it: what others still do for it does not count.
    """
    serving = about.get("serving")
    if not serving:
        return {}
    answers = set(serving["answers"])
    ends = [picoseconds(row["end_ns"]) for row in one.rows if row["rank"] in answers]
    between = (max(ends) - one.span[0]) / 1000 / serving["output"]
    rate = one.row(about.get("tokens"))["tokens_per_s"]
    cost = serving["cost"]
    return {
        "between_tokens_ns": between,
        "tokens_per_s_gpu": rate / serving["gpus"],
        "tokens_per_cost": rate * _HOUR_S / cost if cost else None,
    }
