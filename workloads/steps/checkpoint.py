"""A training step with a checkpoint, and how it is read back after a failure.

Ranks with the same parameters share out what is written (parameters, and the optimizer's state), so that each byte is
written once.  A synchronous checkpoint is sent when the step has ended.  An asynchronous one (CheckFreq, Mohan et al.,
FAST'21) is copied into the host's memory at the step's begin, and sent beside the step.  Storage is ranks that do not
train: each writes to its disk one checkpoint after the other.  Every rank reads back all that it holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workloads.steps.plan.parallel import Layout
from workloads.steps.plan.training import Training
from workloads.steps.plan.units import adam_bytes, rank_parameters
from workloads.steps.program import COMPUTE
from workloads.tasks.graph import Graph
from workloads.tasks.task import Compute, Recv, Send, Task

CHECKPOINT, COPY = "checkpoint", "checkpoint_copy"
"""Kinds of tasks; a copy holds up the step, what else a checkpoint does need not."""


@dataclass(frozen=True)
class Checkpoint:
    """`storage`: ranks; rates in bytes per second (None: not in the way); `copy`: of an asynchronous one, else None."""

    storage: tuple[int, ...]
    disk: float | None = None
    copy: float | None = None

    def storage_of(self, rank: int) -> int:
        return self.storage[rank % len(self.storage)]

    def disk_ns(self, nbytes: int) -> float:
        return 1e9 * nbytes / self.disk if self.disk else 0.0


def written_bytes(t: Training, stage: int) -> int:
    """Of a rank of that stage."""
    return (t.model.width + adam_bytes(t)) * rank_parameters(t, stage, sharded=True)


def restored_bytes(t: Training, stage: int) -> int:
    """What a rank of that stage has to read back."""
    weights = rank_parameters(t, stage, sharded=t.gathers)
    return t.model.width * weights + adam_bytes(t) * rank_parameters(t, stage, sharded=t.shard != "none")


def with_checkpoint(graph: Graph, t: Training, layout: Layout, checkpoint: Checkpoint, every: int = 1) -> Graph:
    """The step's graph with a checkpoint behind it, or, asynchronous, beside it; in every so many-th iteration."""
    tasks: dict[int, list[Task]] = {rank: list(one) for rank, one in graph.tasks.items()}
    for place, rank in sorted(layout.ranks.items(), key=lambda item: item[1]):
        nbytes, own = written_bytes(t, place.pipeline), tasks[rank]
        storage = checkpoint.storage_of(rank)
        if checkpoint.copy is None:
            last = {task.stream: task.id for task in own}
            own.append(_send(rank, storage, nbytes, tuple(last.values()), every))
        else:
            copy = Compute(id=COPY, stream=COMPUTE, kind=COPY, duration_ns=round(1e9 * nbytes / checkpoint.copy, 3))
            own[:0] = [copy, _send(rank, storage, nbytes, (COPY,))]
        tasks.setdefault(storage, []).extend(_stored(rank, nbytes, checkpoint, every))
    return Graph(graph.groups, _in_order(tasks), graph.settings)


def restored(t: Training, layout: Layout, checkpoint: Checkpoint, begin_ns: float = 0.0) -> Graph:
    """All ranks read back what they hold, `begin_ns` after the iteration's begin."""
    tasks: dict[int, list[Task]] = {}
    for place, rank in sorted(layout.ranks.items(), key=lambda item: item[1]):
        nbytes, storage = restored_bytes(t, place.pipeline), checkpoint.storage_of(rank)
        tag, disk_ns = f"restore{rank}", round(checkpoint.disk_ns(nbytes), 3)
        message: dict[str, Any] = {"kind": CHECKPOINT, "size_bytes": nbytes, "tag": tag}
        tasks.setdefault(storage, []).extend([
            Compute(id=f"read{rank}", stream="disk", kind=CHECKPOINT, duration_ns=disk_ns, not_before_ns=begin_ns),
            Send(id=tag, stream=f"out{rank}", after=(f"read{rank}",), peer=rank, **message),
        ])  # fmt: skip
        tasks[rank] = [Recv(id="restore", stream=CHECKPOINT, peer=storage, **message)]
    return Graph({}, _in_order(tasks))


def _send(rank: int, to: int, nbytes: int, after: tuple[str, ...], every: int = 1) -> Send:
    return Send(
        id=CHECKPOINT, stream=CHECKPOINT, after=after, kind=CHECKPOINT, peer=to, size_bytes=nbytes,
        tag=f"checkpoint{rank}", every=every,
    )  # fmt: skip


def _stored(rank: int, nbytes: int, checkpoint: Checkpoint, every: int) -> list[Task]:
    """At its storage."""
    receive = Recv(
        id=f"from{rank}", stream=f"in{rank}", kind=CHECKPOINT, peer=rank, size_bytes=nbytes, tag=f"checkpoint{rank}",
        every=every,
    )  # fmt: skip
    duration = round(checkpoint.disk_ns(nbytes), 3)
    write = Compute(
        id=f"write{rank}", stream="disk", after=(receive.id,), kind=CHECKPOINT, duration_ns=duration, every=every
    )
    return [receive, write]


def _in_order(tasks: Mapping[int, Sequence[Task]]) -> dict[int, tuple[Task, ...]]:
    return {rank: tuple(own) for rank, own in sorted(tasks.items())}
