"""Schedules carried out on numpy, without a fabric: does one compute the right result, whatever the timing?

Messages take any time, and their sources are read at any moment of it.  It knows nothing of the product's checker
(workloads/check/check.py), which says the same without carrying anything out.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.check.check import check_order
from workloads.check.memory import Wrong
from workloads.collectives import exchange
from workloads.collectives.schedule import (
    OUTPUT,
    STAGING,
    VECTOR,
    Copy,
    Program,
    Recv,
    Schedule,
    Send,
    Shape,
    output_elements,
    places,
)


def races(schedule: Schedule, shape: Shape) -> list[str]:
    """Accesses that may happen at the same time although one of them writes; raises Wrong for a deadlock."""
    try:
        check_order(schedule, shape)
    except Wrong as wrong:
        if "race" not in wrong.what:
            raise
        return [str(wrong)]
    return []


class _Rank:
    def __init__(self, program: Program, vector: NDArray[Any]) -> None:
        self.program = program
        self.at = [0] * len(program)
        self.places = {key: deque(found) for key, found in places(program)[0].items()}
        self.own = {key: deque(found) for key, found in places(program)[0].items()}
        staged = places(program)[1]
        output = np.full(output_elements(program), np.nan)
        self.memory = {VECTOR: vector, STAGING: np.full(staged, np.nan), OUTPUT: output}
        self.arrived: dict[tuple[int, int], int] = {}
        self.waiting: list[int] = []  # lanes, for others of this rank


def execute(schedule: Schedule, shape: Shape, vectors: list[NDArray[Any]], seed: int) -> list[dict[int, NDArray[Any]]]:
    """The memory of all ranks at the end, from float64 `vectors`; everything that is reduced is summed up."""
    rng = random.Random(seed)
    ranks = [_Rank(schedule(shape, i), vectors[i].copy()) for i in range(shape.ranks)]
    under_way: dict[tuple[int, int, int], deque[tuple[NDArray[Any], int, int, NDArray[Any] | None]]] = {}
    ready: list[Any] = [(me, lane) for me, rank in enumerate(ranks) for lane in range(len(rank.program))]
    waiting: dict[tuple[int, int, int], list[tuple[int, int]]] = {}  # lanes, for a message from there to here

    def advance(me: int, lane: int) -> None:
        rank = ranks[me]
        steps = rank.program[lane].steps
        if rank.at[lane] == len(steps):
            return
        step, buffered = steps[rank.at[lane]], rank.program[lane].buffered
        if isinstance(step, Send):
            source = rank.memory[step.source]
            early = source[step.start : step.stop].copy() if buffered or rng.random() < 0.5 else None
            queue = under_way.setdefault((me, step.peer, step.channel), deque())
            queue.append((source, step.start, step.stop, early))
            if len(queue) == 1:
                ready.append((me, step.peer, step.channel))
        elif isinstance(step, Recv):
            key = (step.peer, step.channel)
            if not rank.arrived.get(key):
                waiting.setdefault((step.peer, me, step.channel), []).append((me, lane))
                return
            rank.arrived[key] -= 1
            place = rank.own[key].popleft()
            if step.reduce or buffered:
                come = rank.memory[STAGING][place.element : place.element + step.stop - step.start]
                put(rank.memory[step.into][step.start : step.stop], come, add=step.reduce)
        elif isinstance(step, Copy):
            own = rank.memory[step.source][step.start : step.stop].copy()
            put(rank.memory[step.into][step.to : step.to + len(own)], own, add=step.reduce)
        elif rank.at[step.lane] < step.steps:
            rank.waiting.append(lane)
            return
        rank.at[lane] += 1
        ready.append((me, lane))
        ready.extend((me, other) for other in rank.waiting)
        rank.waiting.clear()

    def put(there: NDArray[Any], values: NDArray[Any], *, add: bool) -> None:
        there[:] = there + values if add else values

    def deliver(key: tuple[int, int, int]) -> None:
        memory, start, stop, data = under_way[key].popleft()
        source, target, channel = key
        if data is None:  # read late
            data = memory[start:stop].copy()
        place = ranks[target].places[source, channel].popleft()
        ranks[target].memory[place.region][place.element : place.element + stop - start] = data
        ranks[target].arrived[source, channel] = ranks[target].arrived.get((source, channel), 0) + 1
        if under_way[key]:
            ready.append(key)
        ready.extend(waiting.pop(key, ()))

    while ready:
        k = rng.randrange(len(ready))
        ready[k], ready[-1] = ready[-1], ready[k]
        choice = ready.pop()
        if len(choice) == 3:
            deliver(choice)
        else:
            advance(*choice)
    assert all(at == len(lane.steps) for r in ranks for at, lane in zip(r.at, r.program, strict=True)), "stuck"
    return [rank.memory for rank in ranks]


def check_result(name: str, shape: Shape, vectors: list[NDArray[Any]], ends: list[dict[int, NDArray[Any]]]) -> None:
    """Checks the result of collective `name` against a second definition."""
    name = name.removesuffix("_v")
    total = np.sum(vectors, axis=0) if len(shape.counts) < 2 else None
    chunks = [slice(*c) for c in shape.chunks]
    for i, end in enumerate(ends):
        vector, output = end[VECTOR], end[OUTPUT]
        if name == "all_reduce" or (name == "reduce" and i == 0):
            np.testing.assert_array_equal(vector, total)
        elif name == "reduce_scatter":
            assert total is not None
            np.testing.assert_array_equal(vector[chunks[i]], total[chunks[i]])
        elif name == "all_gather" or (name == "gather" and i == 0):
            for j, chunk in enumerate(chunks):
                np.testing.assert_array_equal(vector[chunk], vectors[j][chunk])
        elif name == "broadcast":
            np.testing.assert_array_equal(vector, vectors[0])
        elif name == "scatter":
            np.testing.assert_array_equal(vector[chunks[i]], vectors[0][chunks[i]])
        elif name in ("all_to_all", "m2n", "n2m"):
            parts = [vectors[j][slice(*exchange.parts(shape, j)[i])] for j in range(shape.ranks)]
            whole = np.concatenate(parts)
            np.testing.assert_array_equal(output[: len(whole)], whole)
        elif name == "send_recv" and (i == 1 or shape.ranks > 2):
            np.testing.assert_array_equal(output[: shape.count], vectors[i - 1])
