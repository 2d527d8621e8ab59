"""Which accelerator gets which batch, from what is known before: how long each takes for one.

`naive`: all accelerators, in turn.  `aware`: the fewest, fastest first, that together keep up with what comes in; of
these the one that would be through first.
"""

from __future__ import annotations

from collections.abc import Sequence

SCHEDULES = ("naive", "aware")
_ROUNDING = 1e-9  # of shares that were added: accelerators that keep up exactly are enough


def used(schedule: str, compute_ns: Sequence[float], every_ns: float) -> list[int]:
    """The accelerators that a job has, if a batch comes in every so often."""
    if schedule == "naive":
        return list(range(len(compute_ns)))
    found: list[int] = []
    for a in sorted(range(len(compute_ns)), key=lambda a: (compute_ns[a], a)):
        if found and sum(1 / compute_ns[b] for b in found) * every_ns >= 1 - _ROUNDING:
            break
        found.append(a)
    return sorted(found)


def shared(schedule: str, compute_ns: Sequence[float], every_ns: float, batches: int) -> list[int]:
    """The accelerator of each batch."""
    its = used(schedule, compute_ns, every_ns)
    if schedule == "naive":
        return [its[b % len(its)] for b in range(batches)]
    free = dict.fromkeys(its, 0.0)
    found = []
    for b in range(batches):
        ready = (b + 1) * every_ns
        a = min(its, key=lambda a: (max(free[a], ready) + compute_ns[a], a))
        free[a] = max(free[a], ready) + compute_ns[a]
        found.append(a)
    return found
