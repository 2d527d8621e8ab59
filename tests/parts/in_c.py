"""Schedules carried out in C, or in Python, as a test wants it; and a graph of tasks to try both with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from workloads.base import native
from workloads.collectives.compiled import Compiled
from workloads.tasks.graph import Graph
from workloads.tasks.task import Collective, Compute, Recv, Send, Task


@contextmanager
def by(kind: type) -> Iterator[None]:
    """Every schedule is carried out in C, or in Python."""
    begun, start = [0], kind.start  # type: ignore[attr-defined]

    def counting(self: Any, dtype: str, op: str | None) -> None:
        begun[0] += 1
        start(self, dtype, op)

    found = native.turns if kind is Compiled else lambda: None
    with mock.patch.object(kind, "start", counting), mock.patch.object(native, "turns", found):
        yield
    assert begun[0]


def graph() -> Graph:
    """Two groups that overlap, several collectives of each at a time, messages and computations between them."""
    groups = {"row": ((0, 1), (2, 3)), "all": ((3, 1, 0, 2),)}
    tasks: dict[int, tuple[Task, ...]] = {}
    for rank in range(4):
        alike: dict[str, Any] = {"collective": "all_reduce", "group": "all", "algorithm": "ring"}
        row: dict[str, Any] = {"collective": "all_reduce", "group": "row", "dtype": "bfloat16"}
        tasks[rank] = (
            Compute(id="c0", stream="gpu", duration_ns=5000 * (rank + 1)),
            *(Collective(id=f"r{k}", stream="row", size_bytes=2 * (k + 1) * 999, **row) for k in range(4)),
            Collective(
                id="s", stream="b", collective="reduce_scatter", group="all", size_bytes=4 * 4096, after=("r0",)
            ),
            Collective(id="a", stream="c", collective="all_to_all", group="all", size_bytes=4 * 9999, after=("c0",)),
            *(Collective(id=f"x{k}", stream="x", size_bytes=4 * 1500, **alike) for k in range(5)),
            Collective(id="b", stream="d", collective="broadcast", group="all", size_bytes=4 * 777),
            Send(id="o", stream="out", peer=(rank + 1) % 4, size_bytes=100_001, after=("r1",)),
            Recv(id="i", stream="in", peer=(rank - 1) % 4, size_bytes=100_001),
            Compute(id="c1", stream="gpu", duration_ns=100, after=("r3", "i", "a"), not_before_ns=40_000),
        )
    return Graph(groups, tasks)
