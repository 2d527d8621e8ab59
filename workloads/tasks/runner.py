"""A step of tasks in a worker: its iterations, and what is said of them.

An iteration's times go out in `timeline` lines, [start, end, wrong] in ps for each task from `first` on (null: it is
not one of this iteration), and then in one line of kind `tasks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from workloads.base.entry import Algorithm
from workloads.parts.context import Context
from workloads.parts.iteration import Emit, measured, progress
from workloads.tasks.executor import Executor, Stuck

TASKS_PER_LINE = 2000


def run_tasks(
    context: Context,
    plan: Mapping[str, Any],
    number: int,
    tag: int,
    ranks: int,
    find: Callable[[str, str], Algorithm],
    emit: Emit,
) -> None:
    """Carries out step `number` of the plan as one of `ranks` ranks.  Raises FabricError."""
    device = context.device
    told = {**plan, "tasks": plan["tasks"][str(device.rank)]}
    executor = Executor(context, told, tag, find)
    emit({"kind": "waiting", "step": number, "rank": device.rank, "tasks": []})  # from now on it can be asked
    try:
        for iteration in range(plan.get("first", -plan["warmup"]), plan["iterations"]):
            said = {"step": number, "rank": device.rank, "iteration": iteration}
            executor.tick = progress(said, emit) if device.rank == plan["ranks"][0] else None
            executor.prepare(iteration)
            took = measured(device, number, ranks, lambda _, said=said: _run(executor, said, emit))  # type: ignore[misc]
            wrong = sum(span.wrong for span in executor.spans if span)
            if iteration >= 0 or wrong:
                _say(executor, said, emit)
                why = next(iter(executor.fallbacks.values()), "")
                emit({"kind": "tasks", **said, **took._asdict(), "wrong": wrong, **({"fallback": why} if why else {})})
    finally:
        executor.close()


def _run(executor: Executor, said: Mapping[str, Any], emit: Emit) -> None:
    with _asked(executor, said, emit):
        try:
            executor.run()
        except Stuck as stuck:
            emit({"kind": "waiting", **said, "tasks": stuck.waiting})
            raise


def _say(executor: Executor, said: Mapping[str, Any], emit: Emit) -> None:
    for first in range(0, len(executor.spans), TASKS_PER_LINE):
        spans = executor.spans[first : first + TASKS_PER_LINE]
        times = [[span.start_ps, span.end_ps, span.wrong] if span else None for span in spans]
        emit({"kind": "timeline", **said, "first": first, "times": times})


def answer() -> None:
    """Says which tasks of this process's ranks wait, and for whom."""
    for say in list(_ASKED.values()):
        say()


@contextmanager
def _asked(executor: Executor, said: Mapping[str, Any], emit: Emit) -> Iterator[None]:
    """Meanwhile this rank can be asked."""
    _ASKED[said["rank"]] = lambda: emit({"kind": "waiting", **said, "tasks": executor.waiting()})
    try:
        yield
    finally:
        del _ASKED[said["rank"]]


_ASKED: dict[int, Callable[[], None]] = {}
"""The ranks of this process that can be asked what they wait for."""
