"""What collectives take that go through the same few stages piece by piece: the slowest stage, and one piece's way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def pipeline_ns(launch: Any, rounds: int, stages: Sequence[tuple[Any, Any]]) -> Any:
    """Rounds through stages of (how long it is busy, how much later it arrives)."""
    busiest: Any = 0.0
    way: Any = 0.0
    for busy, later in stages:
        busiest = np.maximum(busiest, busy)
        way = way + busy + later
    return launch + way + (rounds - 1) * busiest
