"""1/s of a training step: what groups of ranks send at a time there, and whether that still tells of the whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from workloads.base.vocabulary import DTYPES
from workloads.steps.build import folded_graph, step_groups
from workloads.tasks.task import Collective, Send

if TYPE_CHECKING:
    from workloads.steps.plan.parallel import Layout
    from workloads.steps.plan.training import Training

LEAST_PACKETS = 64
"""Of a group's largest message, after scaling: below that a packet's own time counts too much."""


def too_small(t: Training, layout: Layout, by: int, mtu: int) -> Iterator[tuple[str, str]]:
    """Groups whose messages do not tell of larger ones: what is wrong, and what to do."""
    largest = _largest(t, layout)
    most = min((nbytes // n // (LEAST_PACKETS * mtu) for nbytes, n, _ in largest.values()), default=by)
    hint = f"by: {most} leaves {LEAST_PACKETS}" if most > 1 else "its messages are too small to be scaled"
    for group, (nbytes, n, width) in largest.items():
        part = divided(nbytes, by, width * n) // n
        if part < LEAST_PACKETS * mtu:
            yield f"1/{by} of what group {group!r} sends at a time is {part / mtu:.0f} packets at most", hint


def _largest(t: Training, layout: Layout) -> dict[str, tuple[int, int, int]]:
    """Of each group the largest of what it sends at a time: bytes, the ranks that share them, and an element's bytes.

    One replica's ranks send what those of all others send.
    """
    some = {place: rank for place, rank in layout.ranks.items() if not place.tensor and place.data < t.parallel.expert}
    ranks = set(some.values())
    groups = {
        name: tuple(its for its in tuples if not ranks.isdisjoint(its))
        for name, tuples in step_groups(t, layout).items()
    }
    found: dict[str, tuple[int, int, int]] = {}
    for its in folded_graph(t, some, groups).tasks.values():
        for task in its:
            if isinstance(task, Collective):
                n = len(groups[task.group][0])
                one = task.size_bytes, n, DTYPES[task.dtype]
            elif isinstance(task, Send):
                one = task.size_bytes, 1, 1
            else:
                continue
            found[task.group] = max(found.get(task.group, one), one, key=lambda its: its[0] // its[1])
    return found


def divided(nbytes: int, by: int, unit: int) -> int:
    """In whole elements for every rank, at least one."""
    return max(round(nbytes / by / unit), 1) * unit
