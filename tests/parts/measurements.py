"""What workers print of their measurements."""

from __future__ import annotations

from typing import Any

from workloads.registry import COLLECTIVES

STEP = {"kind": "collective", "collective": "all_reduce", "algorithm": "ring", "dtype": "float32", "op": "sum"}


def step(ranks: int, collective: str = "all_reduce") -> dict[str, Any]:
    return {**STEP, "collective": collective, "ranks": ranks, "busbw_factor": COLLECTIVES[collective].busbw.of(ranks)}


def line(rank: int, start: float, end: float, **more: Any) -> dict[str, Any]:
    base = {"kind": "collective", "step": 0, "collective": "all_reduce", "algorithm": "ring", "size_bytes": 1 << 20}
    return {**base, "iteration": 0, "rank": rank, "start_ns": start, "end_ns": end, "wrong": 0, **more}


def flow(rank: int, start: float, end: float, **more: Any) -> dict[str, Any]:
    base = {"kind": "flow", "step": 0, "flow": 0, "from": 1, "to": 0, "size_bytes": 10**7, "wrong": 0}
    return {**base, "rank": rank, "start_ns": start, "end_ns": end, **more}
