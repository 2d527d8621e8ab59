"""A step of tasks in a worker: its iterations, and the lines about them.

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
    executor = Executor(context, {**plan, "tasks": plan["tasks"][str(device.rank)]}, tag, find)
    emit({"kind": "waiting", "step": number, "rank": device.rank, "tasks": []})  # from now on it can be asked
    try:
        for iteration in range(plan.get("first", -plan["warmup"]), plan["iterations"]):
            line = {"step": number, "rank": device.rank, "iteration": iteration}
            executor.tick = progress(line, emit) if device.rank == plan["ranks"][0] else None
            executor.prepare(iteration)
            took = measured(device, number, ranks, lambda _, line=line: _run(executor, line, emit))  # type: ignore[misc]
            wrong = sum(span.wrong for span in executor.spans if span)
            if iteration >= 0 or wrong:
                _timeline(executor, line, emit)
                why = next(iter(executor.fallbacks.values()), "")
                emit({"kind": "tasks", **line, **took._asdict(), "wrong": wrong, **({"fallback": why} if why else {})})
    finally:
        executor.close()


def _run(executor: Executor, line: Mapping[str, Any], emit: Emit) -> None:
    with _answering(executor, line, emit):
        try:
            executor.run()
        except Stuck as stuck:
            emit({"kind": "waiting", **line, "tasks": stuck.waiting})
            raise


def _timeline(executor: Executor, line: Mapping[str, Any], emit: Emit) -> None:
    for first in range(0, len(executor.spans), TASKS_PER_LINE):
        spans = executor.spans[first : first + TASKS_PER_LINE]
        times = [[span.start_ps, span.end_ps, span.wrong] if span else None for span in spans]
        emit({"kind": "timeline", **line, "first": first, "times": times})


def answer() -> None:
    """Says which tasks of this process's ranks wait, and for whom."""
    for answers in list(_ANSWERS.values()):
        answers()


@contextmanager
def _answering(executor: Executor, line: Mapping[str, Any], emit: Emit) -> Iterator[None]:
    """Meanwhile this rank can be asked."""
    _ANSWERS[line["rank"]] = lambda: emit({"kind": "waiting", **line, "tasks": executor.waiting()})
    try:
        yield
    finally:
        del _ANSWERS[line["rank"]]


_ANSWERS: dict[int, Callable[[], None]] = {}
"""By rank of this process: says which of its tasks wait, and for whom."""
