"""Which accelerator gets which batch, from the time that each takes for one.

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
    chosen: list[int] = []
    for a in sorted(range(len(compute_ns)), key=lambda a: (compute_ns[a], a)):
        if chosen and sum(1 / compute_ns[b] for b in chosen) * every_ns >= 1 - _ROUNDING:
            break
        chosen.append(a)
    return sorted(chosen)


def shared(schedule: str, compute_ns: Sequence[float], every_ns: float, batches: int) -> list[int]:
    """The accelerator of each batch."""
    accelerators = used(schedule, compute_ns, every_ns)
    if schedule == "naive":
        return [accelerators[b % len(accelerators)] for b in range(batches)]
    free = dict.fromkeys(accelerators, 0.0)
    batch_to = []
    for b in range(batches):
        ready = (b + 1) * every_ns
        a = min(accelerators, key=lambda a: (max(free[a], ready) + compute_ns[a], a))
        free[a] = max(free[a], ready) + compute_ns[a]
        batch_to.append(a)
    return batch_to
