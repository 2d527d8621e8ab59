"""A training step with a checkpoint, and how it is read back after a failure.

Ranks with the same parameters share out what is written: parameters, and the optimizer's state (2 and 12 bytes a
parameter with Adam in mixed precision), so that each byte is written once.  A synchronous checkpoint leaves when all of
the step has ended.  An asynchronous one (CheckFreq, Mohan et al., FAST'21) is a copy into the host's memory at the
step's begin, before anything is computed, and leaves beside the step.  Storage is ranks that do not train: each writes
what comes to its disk, one after the other.  Everybody reads back all that it holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workloads.steps.plan.parallel import Layout
from workloads.steps.plan.training import Training
from workloads.steps.plan.units import stage_parameters
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
    dense, expert = stage_parameters(t, stage)
    elements = -(-dense // t.copies) + -(-expert // t.expert_copies)
    return (t.model.width + _state(t)) * elements


def held_bytes(t: Training, stage: int) -> int:
    """What a rank of that stage has to read back."""
    dense, expert = stage_parameters(t, stage)

    def share(sharded: bool) -> int:
        return -(-dense // (t.copies if sharded else 1)) + -(-expert // (t.expert_copies if sharded else 1))

    return t.model.width * share(t.gathers) + _state(t) * share(t.shard != "none")


def _state(t: Training) -> int:
    """Bytes of Adam's state for a parameter: a copy and two moments in float32; in float32 there is no copy."""
    return 12 if t.model.width < 4 else 2 * t.model.width


def with_checkpoint(graph: Graph, t: Training, layout: Layout, its: Checkpoint, every: int = 1) -> Graph:
    """The step's graph with a checkpoint behind it, or, asynchronous, beside it; in every so many-th iteration."""
    tasks: dict[int, list[Task]] = {rank: list(one) for rank, one in graph.tasks.items()}
    for place, rank in sorted(layout.ranks.items(), key=lambda one: one[1]):
        nbytes, own = written_bytes(t, place.pipeline), tasks[rank]
        if its.copy is None:
            last = {task.stream: task.id for task in own}
            own.append(_send(rank, its.storage_of(rank), nbytes, tuple(last.values()), every))
        else:
            copy = Compute(id=COPY, stream=COMPUTE, kind=COPY, duration_ns=round(1e9 * nbytes / its.copy, 3))
            own[:0] = [copy, _send(rank, its.storage_of(rank), nbytes, (COPY,))]
        tasks.setdefault(its.storage_of(rank), []).extend(_stored(rank, nbytes, its, every))
    return Graph(graph.groups, _in_order(tasks), graph.settings)


def restored(t: Training, layout: Layout, its: Checkpoint, begin_ns: float = 0.0) -> Graph:
    """All ranks read back what they hold, `begin_ns` after the iteration's begin."""
    tasks: dict[int, list[Task]] = {}
    for place, rank in sorted(layout.ranks.items(), key=lambda one: one[1]):
        nbytes, of = held_bytes(t, place.pipeline), its.storage_of(rank)
        read = Compute(
            id=f"read{rank}", stream="disk", kind=CHECKPOINT, duration_ns=round(its.disk_ns(nbytes), 3),
            not_before_ns=begin_ns,
        )  # fmt: skip
        send = Send(
            id=f"restore{rank}", stream=f"out{rank}", after=(read.id,), kind=CHECKPOINT, peer=rank, size_bytes=nbytes,
            tag=f"restore{rank}",
        )  # fmt: skip
        tasks.setdefault(of, []).extend([read, send])
        tasks[rank] = [
            Recv(id="restore", stream=CHECKPOINT, kind=CHECKPOINT, peer=of, size_bytes=nbytes, tag=f"restore{rank}")
        ]
    return Graph({}, _in_order(tasks))


def _send(rank: int, to: int, nbytes: int, after: tuple[str, ...], every: int = 1) -> Send:
    return Send(
        id=CHECKPOINT, stream=CHECKPOINT, after=after, kind=CHECKPOINT, peer=to, size_bytes=nbytes,
        tag=f"checkpoint{rank}", every=every,
    )  # fmt: skip


def _stored(rank: int, nbytes: int, its: Checkpoint, every: int) -> list[Task]:
    """At its storage."""
    came = Recv(
        id=f"from{rank}", stream=f"in{rank}", kind=CHECKPOINT, peer=rank, size_bytes=nbytes, tag=f"checkpoint{rank}",
        every=every,
    )  # fmt: skip
    write = Compute(
        id=f"write{rank}", stream="disk", after=(came.id,), kind=CHECKPOINT, duration_ns=round(its.disk_ns(nbytes), 3),
        every=every,
    )  # fmt: skip
    return [came, write]


def _in_order(tasks: Mapping[int, Sequence[Task]]) -> dict[int, tuple[Task, ...]]:
    return {rank: tuple(own) for rank, own in sorted(tasks.items())}
