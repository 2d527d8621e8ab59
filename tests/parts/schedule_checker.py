"""Two checks of a schedule without a fabric: is it safe whatever the timing, and does it compute the right result?

`races` is exact: it orders all steps of all ranks by what must have happened before what, and finds two accesses to the
same memory, one of them a write, that nothing orders.  `execute` carries a schedule out on numpy, with messages that
take any time, their sources read at any moment of it.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.collectives import exchange
from workloads.collectives.engine import output_elements
from workloads.collectives.schedule import OUTPUT, STAGING, VECTOR, Copy, Program, Recv, Schedule, Send, Shape, places
from workloads.collectives.schedule import spans as chunks_of


class Access(NamedTuple):
    """Memory of a rank in use from one step (a number in the order of all) to another."""

    rank: int
    region: int
    start: int
    stop: int
    writes: bool
    first: int
    last: int
    what: str


class _Matched:
    """All ranks' steps, numbered, and which Send each Recv takes."""

    def __init__(self, schedule: Schedule, shape: Shape) -> None:
        self.programs: list[Program] = [schedule(shape, index) for index in range(shape.ranks)]
        self.number: dict[tuple[int, int, int], int] = {}
        self.steps: list[tuple[int, Any]] = []
        self.after: list[list[int]] = []  # a step's direct predecessors
        sends: dict[tuple[int, int, int], deque[int]] = {}
        receives: dict[tuple[int, int, int], deque[int]] = {}
        for rank, program in enumerate(self.programs):
            for lane in program:
                before: list[int] = []
                for step in lane.steps:
                    me = len(self.steps)
                    self.steps.append((rank, step))
                    self.after.append(before)
                    before = [me]
                    if isinstance(step, Send):
                        sends.setdefault((rank, step.peer, step.channel), deque()).append(me)
                    elif isinstance(step, Recv):
                        receives.setdefault((step.peer, rank, step.channel), deque()).append(me)
        assert {k: len(v) for k, v in sends.items()} == {k: len(v) for k, v in receives.items()}, "unmatched messages"
        self.taken = {r: s for key in sends for s, r in zip(sends[key], receives[key], strict=True)}  # Recv -> Send
        for receive, send in self.taken.items():
            self.after[receive] = [*self.after[receive], send]
            a, b = self.steps[send][1], self.steps[receive][1]
            assert a.stop - a.start == b.stop - b.start, f"{a} is taken by {b}"


def _pasts(after: list[list[int]]) -> list[int]:
    """For each step the set, as bits, of steps that have happened when it has; itself included."""
    past = [0] * len(after)
    following: list[list[int]] = [[] for _ in after]
    missing = [len(before) for before in after]
    for step, before in enumerate(after):
        for b in before:
            following[b].append(step)
    ready = deque(step for step, n in enumerate(missing) if n == 0)
    done = 0
    while ready:
        step = ready.popleft()
        done += 1
        past[step] = 1 << step
        for b in after[step]:
            past[step] |= past[b]
        for f in following[step]:
            missing[f] -= 1
            if missing[f] == 0:
                ready.append(f)
    assert done == len(after), "the schedule waits for itself"
    return past


class Order(NamedTuple):
    """All steps of all ranks, (rank, step), and for each the set of those that have happened when it has, as bits."""

    steps: list[tuple[int, Any]]
    past: list[int]


def happened_before(schedule: Schedule, shape: Shape) -> Order:
    """The steps of a schedule and what orders them."""
    matched = _Matched(schedule, shape)
    return Order(matched.steps, _pasts(matched.after))


def races(schedule: Schedule, shape: Shape) -> list[str]:
    """Accesses that may happen at the same time although one of them writes."""
    matched = _Matched(schedule, shape)
    past = _pasts(matched.after)
    wanted = [{key: deque(found) for key, found in places(p)[0].items()} for p in matched.programs]
    accesses: list[Access] = []
    for number, (rank, step) in enumerate(matched.steps):
        if isinstance(step, Recv):
            length = step.stop - step.start
            place = wanted[rank][step.peer, step.channel].popleft()
            send = matched.taken[number]
            source = matched.steps[send][1]
            span = (place.element, place.element + length)
            accesses.append(Access(rank, place.region, *span, True, send, number, f"{rank} receives {step}"))
            sent = (step.peer, source.source, source.start, source.stop)
            accesses.append(Access(*sent, False, send, number, f"{step.peer} sends {source}"))
            if step.reduce:
                accesses.append(Access(rank, STAGING, *span, False, number, number, f"{rank} reduces {step}"))
                accesses.append(
                    Access(rank, VECTOR, step.start, step.stop, True, number, number, f"{rank} adds {step}")
                )
        elif isinstance(step, Copy):
            end = step.to + step.stop - step.start
            accesses.append(Access(rank, VECTOR, step.start, step.stop, False, number, number, f"{rank} copies {step}"))
            accesses.append(Access(rank, OUTPUT, step.to, end, True, number, number, f"{rank} copies {step}"))
    found = []
    accesses.sort(key=lambda a: (a.rank, a.region, a.start))
    for i, a in enumerate(accesses):
        for b in accesses[i + 1 :]:
            if (b.rank, b.region) != (a.rank, a.region) or b.start >= a.stop:
                break
            overlap = a.start < b.stop and b.start < a.stop
            ordered = past[b.first] >> a.last & 1 or past[a.first] >> b.last & 1
            if overlap and (a.writes or b.writes) and not ordered:
                found.append(f"{a.what} while {b.what}")
    return found


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


def execute(schedule: Schedule, shape: Shape, vectors: list[NDArray[Any]], seed: int) -> list[dict[int, NDArray[Any]]]:
    """The memory of all ranks at the end, from float64 `vectors`; everything that is reduced is summed up."""
    rng = random.Random(seed)
    ranks = [_Rank(schedule(shape, i), vectors[i].copy()) for i in range(shape.ranks)]
    under_way: dict[tuple[int, int, int], deque[tuple[Send, NDArray[Any] | None]]] = {}
    ready: list[Any] = [(me, lane) for me, rank in enumerate(ranks) for lane in range(len(rank.program))]
    waiting: dict[tuple[int, int, int], list[tuple[int, int]]] = {}  # lanes, for a message from there to here

    def advance(me: int, lane: int) -> None:
        rank = ranks[me]
        steps = rank.program[lane].steps
        if rank.at[lane] == len(steps):
            return
        step = steps[rank.at[lane]]
        vector = rank.memory[VECTOR]
        if isinstance(step, Send):
            early = rank.memory[step.source][step.start : step.stop].copy() if rng.random() < 0.5 else None
            queue = under_way.setdefault((me, step.peer, step.channel), deque())
            queue.append((step, early))
            if len(queue) == 1:
                ready.append((me, step.peer, step.channel))
        elif isinstance(step, Recv):
            key = (step.peer, step.channel)
            if not rank.arrived.get(key):
                waiting.setdefault((step.peer, me, step.channel), []).append((me, lane))
                return
            rank.arrived[key] -= 1
            place = rank.own[key].popleft()
            if step.reduce:
                length = step.stop - step.start
                vector[step.start : step.stop] += rank.memory[STAGING][place.element : place.element + length]
        else:
            rank.memory[OUTPUT][step.to : step.to + step.stop - step.start] = vector[step.start : step.stop]
        rank.at[lane] += 1
        ready.append((me, lane))

    def deliver(key: tuple[int, int, int]) -> None:
        step, data = under_way[key].popleft()
        source, target, channel = key
        if data is None:  # read late
            data = ranks[source].memory[step.source][step.start : step.stop].copy()
        place = ranks[target].places[source, channel].popleft()
        ranks[target].memory[place.region][place.element : place.element + step.stop - step.start] = data
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
    total = np.sum(vectors, axis=0) if not shape.counts else None
    chunks = [slice(*c) for c in chunks_of(shape.count, shape.ranks)]
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
        elif name in ("all_to_all", "all_to_all_v", "m2n", "n2m"):
            parts = [vectors[j][slice(*exchange.parts(shape, j)[i])] for j in range(shape.ranks)]
            whole = np.concatenate(parts)
            np.testing.assert_array_equal(output[: len(whole)], whole)
        elif name == "send_recv" and (i == 1 or shape.ranks > 2):
            np.testing.assert_array_equal(output[: shape.count], vectors[i - 1])
