"""Plans of a workload, run on the fake fabric."""

from __future__ import annotations

import gc
import os
from functools import partial
from typing import Any

from tests.parts.fake_fabric import FakeFabric
from workloads import registry, worker
from workloads.verbs import Device

Line = dict[str, Any]
MANY_OPEN = 700  # `select` takes none beyond 1,023; to collect takes 0.15 s


def plan(
    ranks: int, *steps: Line, wake_ns: float = 0, reduce_bps: float | None = None, by_channel: bool = False
) -> Line:
    costs = {"wake_ns": wake_ns, "reduce_bps": reduce_bps, "by_channel": by_channel}
    return {"ranks": ranks, "seed": 1, "costs": costs, "steps": list(steps)}


def collective(name: str, sizes: list[int], **more: Any) -> Line:
    entry = registry.find(name, more.pop("algorithm", None))
    step: Line = {"kind": "collective", "collective": name, "algorithm": entry.name, "sizes": sizes}
    return {**step, "dtype": "float32", "op": "sum", "iterations": 1, "warmup": 0, "ranks": None, **more}


def flows(*ends: tuple[int, int, int, float]) -> Line:
    keys = ("from", "to", "size_bytes", "start_ns")
    return {"kind": "flows", "flows": [dict(zip(keys, flow, strict=True)) for flow in ends]}


def run(fake: FakeFabric, steps: Line) -> tuple[list[Line], list[Exception]]:
    """Runs a plan on every rank.  Returns the lines, and what went wrong."""
    lines: list[Line] = []
    errors: list[Exception] = []

    def rank_main(rank: int) -> None:
        try:
            with Device(fake.path(rank), wake_ns=steps["costs"]["wake_ns"], **steps.get("queue_pairs", {})) as device:
                worker.run({**steps, "rank": rank}, device, lines.append)
        except Exception as e:
            errors.append(e)

    fake.serve(*(partial(rank_main, rank) for rank in range(fake.ranks)))
    if len(os.listdir("/proc/self/fd")) > MANY_OPEN:  # ranks' memory, in circles of objects
        gc.collect()
    return [line for line in lines if line["kind"] != "progress"], errors
