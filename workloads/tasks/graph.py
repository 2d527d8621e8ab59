"""A graph of tasks: who does what, with whom.  It is checked when it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from workloads.tasks.check import BadGraph, Links, Members, links
from workloads.tasks.task import Collective, Task


@dataclass(frozen=True)
class Settings:
    """What holds for all that a group does."""

    traffic_class: int | None = None  # of its messages; None: the NIC's
    algorithms: Mapping[str, str] = field(default_factory=dict)  # collective -> algorithm
    options: Mapping[str, Any] = field(default_factory=dict)  # keys of a collective step that algorithms heed
    transport: Any = None  # what its ranks send by; None: as the step does


@dataclass(frozen=True)
class Graph:
    """Tasks of each rank, in the order in which its program would issue them.  Raises BadGraph.

    `groups`: name -> its tuples of ranks, which share no rank: a rank's collective on a group is with the tuple that
    has the rank.  Groups of different names may overlap.

    `unordered`: streams on which tasks run one at a time, whatever is ready first, and of those that are ready the
    first in the list.  Only collectives wait for all before them there, as all ranks have to come to them in one order.
    """

    groups: Mapping[str, tuple[Members, ...]]
    tasks: Mapping[int, tuple[Task, ...]]
    settings: Mapping[str, Settings] = field(default_factory=dict)
    unordered: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name in self.settings:
            if name not in self.groups:
                raise BadGraph(f"settings for group {name!r}, which there is none of")
        _ = self.links

    @cached_property
    def links(self) -> Links:
        """Who waits for whom, who does what together."""
        return links(self.groups, self.tasks, self.unordered)

    def members(self, rank: int, task: Collective) -> Members:
        """With whom a rank does a collective."""
        return next(members for members in self.groups[task.group] if rank in members)

    def algorithm(self, task: Collective) -> str | None:
        """By what a collective is done: the task's own word, else the group's; None: whatever is fastest."""
        return task.algorithm or self.settings.get(task.group, Settings()).algorithms.get(task.collective)
