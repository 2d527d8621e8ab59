"""Is a schedule right, whatever the timing?  Found without carrying it out: deadlock, race, missing data, by step.

Memory remembers what stands in it: the sum of which ranks' inputs, and from where.  Without a race the result is the
same in every order, so one order says what comes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import index as whole
from typing import Any, NamedTuple

from workloads.base.entry import Algorithm
from workloads.check.follow import Follow, Named, named
from workloads.check.memory import At, Sum, Wrong
from workloads.collectives.schedule import (
    OUTPUT,
    VECTOR,
    Copy,
    Program,
    Recv,
    Schedule,
    Send,
    Shape,
    Step,
    Wait,
    Work,
)

MOST_STEPS = 200_000
"""Of all ranks: some 30 us of ours each."""
MOST_CHANNELS = 4096


def check(entry: Algorithm, schedule: Schedule, shape: Shape, name: Named = named, unit: str = "element") -> None:
    """Raises Wrong for the first thing that is wrong with it.  `unit`: what an element stands for."""
    part, follow = entry.load(), _followable(schedule, shape, name, unit)
    for rank in range(shape.ranks):
        for start, stop in _inputs(part, entry, shape, rank):
            follow.memory[rank][VECTOR].write(start, stop, [(start, stop, Sum(0, 1 << rank))])
    follow.run()
    for rank in range(shape.ranks):
        for span, source, start in _wanted(part, entry, shape, rank):
            sources = (1 << shape.ranks) - 1 if source is None else 1 << source
            follow.ends_with(rank, *span, Sum(start - span.start, sources))
    if entry.collective.name == "barrier":
        follow.all_meet()


def check_order(schedule: Schedule, shape: Shape) -> None:
    """Raises Wrong for a deadlock or a race, whatever is to come out of it."""
    _followable(schedule, shape).run()


def _followable(schedule: Schedule, shape: Shape, name: Named = named, unit: str = "element") -> Follow:
    programs = [schedule(shape, index) for index in range(shape.ranks)]
    if sum(len(lane.steps) for program in programs for lane in program) > MOST_STEPS:
        raise Wrong(f"more than {MOST_STEPS:,} steps of all ranks together")
    for rank, program in enumerate(programs):
        for at, step in _steps(rank, program):
            _form(at, step, program, shape)
    return Follow(programs, shape, name, unit)


def _steps(rank: int, program: Program) -> Iterator[tuple[At, Step]]:
    for number, lane in enumerate(program):
        for k, step in enumerate(lane.steps):
            yield At(rank, number, k), step


def _form(at: At, step: Step, program: Program, shape: Shape) -> None:
    """Each number of a step is one that can be."""
    if isinstance(step, Wait):
        if not 0 <= step.lane < len(program):
            raise Wrong(f"it waits for lane {step.lane}, and there are {len(program)}", at)
        if not 0 <= step.steps <= (its := len(program[step.lane].steps)):
            raise Wrong(f"it waits for {step.steps} steps of lane {step.lane}, which has {its}", at)
        return
    if isinstance(step, Work):
        if step.elements < 0 or program[at.lane].clock is None:
            raise Wrong("it works without a clock, or on less than nothing", at)
        return
    if not 0 <= step.start <= step.stop:
        raise Wrong(f"elements {step.start} to {step.stop} are no span", at)
    ends = [(step.source, step.stop)] if isinstance(step, Send | Copy) else []
    if isinstance(step, Recv):
        ends.append((step.into, step.stop))
    elif isinstance(step, Copy):
        ends.append((step.into, step.to + step.stop - step.start))
        if step.to < 0:
            raise Wrong(f"there is no element {step.to}", at)
    for region, end in ends:
        if region not in (VECTOR, OUTPUT):
            raise Wrong(f"there is no memory {region} to use: VECTOR is {VECTOR}, OUTPUT is {OUTPUT}", at)
        if region == VECTOR and end > (its := shape.length(at.rank)):
            raise Wrong(f"it uses elements up to {end} of a vector of {its}", at)
        if end > 64 * max(shape.count, 1) + (1 << 20):
            raise Wrong(f"it uses elements up to {end} of the output, for a vector of {shape.count}", at)
    if isinstance(step, Send | Recv):
        if not 0 <= step.peer < shape.ranks or step.peer == at.rank:
            raise Wrong(f"its peer is {step.peer}: another of ranks 0 to {shape.ranks - 1} is meant", at)
        if not 0 <= step.channel < MOST_CHANNELS:
            raise Wrong(f"its channel is {step.channel}: 0 to {MOST_CHANNELS - 1} are there", at)


class _Stretch(NamedTuple):
    """Stands for a part's memory, of which it says which slice must end with what."""

    region: int
    start: int
    stop: int

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, slice):
            return tuple.__getitem__(self, key)
        start, stop, _ = key.indices(self.stop - self.start)
        return _Stretch(self.region, self.start + start, self.start + max(stop, start))


def _stand_in(part: Any, entry: Algorithm, shape: Shape, rank: int) -> Any:
    one = part.__new__(part)
    one.entry, one.shape, one.index, one.n, one.start = entry, shape, rank, shape.ranks, 0
    one.output = _Stretch(OUTPUT, 0, 1 << 62)
    one.vector = _Stretch(OUTPUT if entry.apart else VECTOR, 0, shape.length(rank))
    return one


def _inputs(part: Any, entry: Algorithm, shape: Shape, rank: int) -> list[tuple[int, int]]:
    return [(whole(a), whole(b)) for a, b in _stand_in(part, entry, shape, rank).input_spans() if a < b]


def _wanted(part: Any, entry: Algorithm, shape: Shape, rank: int) -> Iterator[tuple[_Stretch, int | None, int]]:
    yield from _stand_in(part, entry, shape, rank).expected()
