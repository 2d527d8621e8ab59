"""Which ranks share a worker process. A rank's figures do not depend on it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.experiment import Experiment

ALONE = 16
"""So many ranks have a process each."""
PER_CPU = 2
"""Processes that more ranks are spread over: one at work while another starts or waits for the fabric."""
MOST = 256
"""Ranks of a process, at most: each has a thread, and its sockets are mounted."""


def processes(experiment: Experiment, endpoints: Sequence[int], alone: Collection[int]) -> list[list[int]]:
    """The endpoints of each worker process. Those that are `alone` share theirs with nobody."""
    size = _size(experiment, len(endpoints))
    own = {rank for step in experiment.workload for rank in step.alone(endpoints)}
    return sorted(_parts(endpoints, size, {*alone, *own}))


def _size(experiment: Experiment, endpoints: int) -> int:
    workers = experiment.workers
    if workers.ranks_per_process != "auto":
        return workers.ranks_per_process
    if experiment.clock.mode == "real" or workers.cpus is not None:  # how fast a rank's Python is matters
        return 1
    if endpoints <= ALONE:
        return 1
    return min(-(-endpoints // _most_processes()), MOST)


def _most_processes() -> int:
    return PER_CPU * (os.cpu_count() or 1)


def _parts(endpoints: Sequence[int], size: int, alone: Collection[int]) -> Iterator[list[int]]:
    for rank in endpoints:
        if rank in alone:
            yield [rank]
    sharing = [rank for rank in endpoints if rank not in alone]
    for first in range(0, len(sharing), size):
        yield sharing[first : first + size]


def struck(requests: Iterable[dict[str, Any]]) -> set[int]:
    """The ranks whose processes faults kill, freeze or slow down, from their requests to fabricd."""
    specs = (request.get("spec") or {} for request in requests)
    return {spec["rank"] for spec in specs if "worker" in spec}
