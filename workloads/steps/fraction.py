"""What groups of ranks send in a training step: how many messages, and whether 1/s of them stands for the whole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from workloads.base.vocabulary import DTYPES
from workloads.steps.build import folded_graph, step_groups
from workloads.tasks.task import Collective, Send

if TYPE_CHECKING:
    from workloads.steps.plan.parallel import Layout
    from workloads.steps.plan.training import Training
    from workloads.tasks.graph import Graph

MIN_PACKETS = 64
"""Of a group's largest message, after scaling: below that a packet's own time counts too much."""


def too_small(t: Training, layout: Layout, by: int, mtu: int) -> Iterator[tuple[str, str]]:
    """Groups whose scaled messages would be too small: what is wrong, and what to do."""
    largest = _largest(t, layout)
    limit = min((nbytes // n // (MIN_PACKETS * mtu) for nbytes, n, _ in largest.values()), default=by)
    hint = f"by: {limit} leaves {MIN_PACKETS}" if limit > 1 else "its messages are too small to be scaled"
    for group, (nbytes, n, width) in largest.items():
        scaled = divided(nbytes, by, width * n) // n
        if scaled < MIN_PACKETS * mtu:
            yield f"1/{by} of what group {group!r} sends at a time is {scaled / mtu:.0f} packets at most", hint


def fewest_messages(t: Training, layout: Layout) -> int:
    """Of all ranks, by whatever algorithms: in a group of n every rank sends log2 n at least."""
    graph, groups = _replica(t, layout)
    sent = 0
    for task in chain.from_iterable(graph.tasks.values()):
        if isinstance(task, Collective):
            sent += (len(groups[task.group][0]) - 1).bit_length() * (1 + (task.collective == "all_reduce"))
        sent += isinstance(task, Send)
    return sent * (t.parallel.ranks // len(graph.tasks))


def _replica(t: Training, layout: Layout) -> tuple[Graph, dict[str, tuple[tuple[int, ...], ...]]]:
    """The tasks of one replica's ranks, which send as much as those of any other; and their groups."""
    some = {place: rank for place, rank in layout.ranks.items() if not place.tensor and place.data < t.parallel.closed}
    ranks = set(some.values())
    groups = {
        name: tuple(members for members in tuples if not ranks.isdisjoint(members))
        for name, tuples in step_groups(t, layout).items()
    }
    return folded_graph(t, some, groups), groups


def _largest(t: Training, layout: Layout) -> dict[str, tuple[int, int, int]]:
    """Of each group the largest of what it sends at a time: bytes, ranks that share them, an element's bytes."""
    graph, groups = _replica(t, layout)
    largest: dict[str, tuple[int, int, int]] = {}
    for task in chain.from_iterable(graph.tasks.values()):
        if isinstance(task, Collective):
            message = task.size_bytes, len(groups[task.group][0]), DTYPES[task.dtype]
        elif isinstance(task, Send):
            message = task.size_bytes, 1, 1
        else:
            continue
        largest[task.group] = max(largest.get(task.group, message), message, key=lambda m: m[0] // m[1])
    return largest


def divided(nbytes: int, by: int, unit: int) -> int:
    """In whole elements for every rank, at least one."""
    return max(round(nbytes / by / unit), 1) * unit
