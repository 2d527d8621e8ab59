"""Who sends what to whom in one collective, or in several flows: pairs of ranks, by the schedules that ranks follow.

Of algorithms whose messages the network forks or adds up, pairs say nothing: these have none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from workloads.base.entry import Algorithm
from workloads.base.vocabulary import DTYPES
from workloads.collectives.schedule import OUTPUT, Recv, Send, places, schedule_of, steps
from workloads.collectives.shape import shape_of

Pair = tuple[int, int]
LATENCY = frozenset({"ping_pong", "barrier"})
"""Collectives of which small messages are the point."""


@dataclass(frozen=True)
class Exchange:
    """What some ranks do together at the same time, at the largest size of a step."""

    path: tuple[str | int, ...]  # of what is written in the file
    name: str
    ranks: tuple[int, ...]
    sent: Mapping[Pair, int] = field(default_factory=dict)  # payload bytes from rank to rank
    largest: int = 0  # bytes of its largest message
    memory: int = 0  # bytes that its hungriest rank registers
    small: bool = False  # small messages are its point
    drawn: bool = False  # by chance: nobody chose the pairs
    load: float = 1.0  # share of its line rate that a sender offers
    group: str = ""  # of a step of tasks
    times: int = 1  # that its ranks communicate

    @property
    def everyone(self) -> bool:
        """Whether each rank sends to each other one: no order of ranks changes what crosses."""
        n = len(self.ranks)
        return n > 2 and len(self.sent) == n * (n - 1)


def registered(exchanges: Iterable[Exchange]) -> Counter[int]:
    """Bytes that each rank registers: what all groups of a step of tasks need, other exchanges in turn."""
    most: Counter[int] = Counter()
    for _, step in groupby(exchanges, key=lambda one: one.path[:2]):
        together: Counter[int] = Counter()
        for one in step:
            for rank in one.ranks:
                together[rank] += one.memory if one.group else 0
                most[rank] = max(most[rank], one.memory)
        most |= together
    return most


def between(
    entry: Algorithm, n: int, size: int, dtype: str, options: Mapping[str, Any], seed: int
) -> tuple[dict[Pair, int], int, int]:
    """Of n ranks, by their index: bytes from one to another; the largest message; memory of the hungriest."""
    width = DTYPES[dtype]
    if not entry.schedule:
        ring = {(i, (i + 1) % n): 2 * size * (n - 1) // n for i in range(n)} if entry.engines else {}
        return ring, size, 2 * size
    shape = shape_of(entry, n, size, width, options, seed)
    chunk = shape.chunk
    whole = replace(shape, chunk=None)
    sent: Counter[Pair] = Counter()
    largest = memory = 0
    for index in range(n):
        program = schedule_of(entry)(whole, index)
        output = 0
        for step in steps(program):
            if isinstance(step, Send):
                sent[index, step.peer] += (step.stop - step.start) * width
                largest = max(largest, (step.stop - step.start) * width)
            elif isinstance(step, Recv) and step.into == OUTPUT:
                output = max(output, step.stop)
        memory = max(memory, (whole.length(index) + places(program)[1] + output) * width)
    return dict(sent), min(largest, chunk * width) if chunk else largest, memory
