"""What a rank does, as data: computations, collectives, messages, each on a stream.

Tasks of one stream of a rank run one after the other, in the order of the rank's list.  A task starts when the task
before it on its stream and those that it names in `after` have ended, and not before its time.  Streams run side by
side.  Some are unordered (graph.py): there whatever is ready first is next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MAIN = "main"
"""The stream of whoever names none."""

Parts = tuple[tuple[int, ...], ...]
"""Weights: a row for each sender with one for each receiver (n2m: the other way round)."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What all tasks have.  `id` is unique among the tasks of its rank."""

    id: str
    stream: str = MAIN
    after: tuple[str, ...] = ()  # ids of tasks of the same rank
    not_before_ns: float = 0.0  # from the iteration's begin on: when what it works on is there (a request)
    kind: str = ""  # what it is for ("forward", "gradients"): tables and pictures group by it
    every: int = 1  # it is done in every so many-th iteration only; in the others it has ended when they begin


@dataclass(frozen=True, kw_only=True)
class Compute(Task):
    """The rank's accelerator is busy for so long, on this task's stream."""

    duration_ns: float


@dataclass(frozen=True, kw_only=True)
class Collective(Task):
    """Done with all ranks of its group.

    The k-th collective of a group in a rank's list is the k-th in the list of each of its members, on whatever streams.
    `size_bytes` is what nccl-tests calls size (the registry says what that is for each collective).
    """

    collective: str
    group: str
    size_bytes: int
    algorithm: str | None = None  # None: what the group says, else the fastest by closed form
    dtype: str = "float32"
    op: str | None = None  # None: sum, where something is reduced
    parts: Parts | None = None  # weights of unequal parts, instead of the group's option of that name

    @property
    def alike(self) -> tuple[Any, ...]:
        """The same of all that differ in nothing but their names and what they wait for."""
        return self.collective, self.group, self.algorithm, self.size_bytes, self.dtype, self.op, self.parts


@dataclass(frozen=True, kw_only=True)
class Send(Task):
    """A message to `peer`: it ends when the message has arrived and is acknowledged.

    It does not wait for the peer's Recv: every message has memory at its receiver.
    """

    peer: int
    size_bytes: int
    tag: str = ""
    group: str = ""  # whose traffic class it has, and what the timeline counts it to; "": none


@dataclass(frozen=True, kw_only=True)
class Recv(Task):
    """A message from `peer`, sent with the same tag; messages of one tag match in order.

    It ends when it has started and the message is there.
    """

    peer: int
    size_bytes: int
    tag: str = ""
    group: str = ""


def words(task: Task) -> str:
    """What a task does, for a message to a person."""
    match task:
        case Compute():
            return "compute"
        case Collective():
            return f"{task.collective} of group {task.group!r}"
        case Send():
            return f"send to rank {task.peer}" + (f" with tag {task.tag!r}" if task.tag else "")
        case Recv():
            return f"receive from rank {task.peer}" + (f" with tag {task.tag!r}" if task.tag else "")
    return "task"
