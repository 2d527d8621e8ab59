"""Which micro-batch takes in which request, and in which order their layers are computed: as it is expected to go.

A request goes to the micro-batch that has the fewest, and there to the attention rank that has the fewest; it sets out
with the micro-batch's next pass.  Layers of all passes come to a pool as their tokens arrive, first come first served.
A pool is as slow as its slowest rank here, and exchanges one way follow each other as far as they keep the wire busy.

Like all of batching.py this only decides, before a run; the times of the run are its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from workloads.serving.apart import Apart, Pass, PlannedPasses, Visit, pass_of
from workloads.serving.batching import Batch, Limits
from workloads.serving.requests import Request
from workloads.serving.routing import Table


@dataclass(frozen=True)
class ExchangeTimes:
    """An exchange of a pass: there, back, and for how long it keeps the wire from the next one; ns."""

    there: float
    back: float
    wire: float


def plan_passes(
    of: Apart,
    requests: Sequence[Request],
    come: Mapping[int, float],
    limits: Limits,
    ways: Callable[[Table], ExchangeTimes],
    *,
    prompts: bool,
    handed: Callable[[int, int, float], float] | None = None,
) -> PlannedPasses:
    """`come`: when each request is there to be taken in; `limits`: of all micro-batches together.

    `prompts`: they read prompts, too; else `handed` says when the cache of a request is at an attention rank.
    """
    return _Play(of, requests, limits, ways, prompts, handed).run(come)


class _Play:
    def __init__(
        self,
        of: Apart,
        requests: Sequence[Request],
        limits: Limits,
        ways: Callable[[Table], ExchangeTimes],
        prompts: bool,
        handed: Callable[[int, int, float], float] | None,
    ) -> None:
        self.of, self.requests, self.ways, self.prompts, self.handed = of, requests, ways, prompts, handed
        count, room = of.micro_batches, limits.sequences
        each = [room // count + (j < room % count) for j in range(count)]
        self.batches = [Batch(requests, Limits(n, limits.prompt_tokens), prompts, True) for n in each]
        self.load = [[0] * len(of.attention.ranks) for _ in range(count)]
        self.at: dict[int, tuple[int, int]] = {}  # request -> its micro-batch and attention rank
        self.came: dict[int, float] = {}
        self.busy = [False] * count
        self.made = [0] * count
        self.passes: list[Pass] = []
        self.visits: tuple[list[Visit], list[Visit]] = ([], [])
        self.free = {"attention": 0.0, "experts": 0.0, "there": 0.0, "back": 0.0}
        self.events: list[tuple[float, int, int, Callable[[float], None]]] = []
        self.counter = 0

    def run(self, come: Mapping[int, float]) -> PlannedPasses:
        for r, at in sorted(come.items(), key=lambda one: (one[1], one[0])):
            self._at(at, lambda t, r=r: self._assign(r, t))  # type: ignore[misc]
        while self.events:
            t, _, _, happens = heapq.heappop(self.events)
            happens(t)
        attention, experts = self.visits
        where = {r: rank for r, (_, rank) in self.at.items()}
        return PlannedPasses(of=self.of, passes=self.passes, attention=attention, experts=experts, at=where)

    def _at(self, t: float, happens: Callable[[float], None], late: bool = False) -> None:
        """`late`: after all else of that time."""
        heapq.heappush(self.events, (t, int(late), self.counter, happens))
        self.counter += 1

    def _assign(self, r: int, t: float) -> None:
        usable = [j for j, batch in enumerate(self.batches) if batch.limits.sequences]
        j = min(usable, key=lambda k: (sum(self.load[k]), k))
        rank = min(range(len(self.load[j])), key=lambda k: (self.load[j][k], k))
        self.load[j][rank] += 1
        self.at[r] = j, rank
        self._at(self.handed(r, rank, t) if self.handed else t, lambda ready: self._ready(r, ready))

    def _ready(self, r: int, t: float) -> None:
        j, _ = self.at[r]
        self.came[r] = t
        self.batches[j].waiting.append(r)
        self._at(t, lambda now: self._begin(j, now), late=True)

    def _begin(self, j: int, t: float) -> None:
        if self.busy[j] or (it := self.batches[j].next()) is None:
            return
        self.busy[j] = True
        where = {r: self.at[r][1] for r in it.gives}
        earliest = max((self.requests[r].arrival_ns for r in it.joined), default=0.0) if self.prompts else 0.0
        new_pass = pass_of(self.of, j, self.made[j], it, where, earliest)
        self.made[j] += 1
        self.passes.append(new_pass)
        number = len(self.passes) - 1

        def ended(now: float) -> None:
            self.batches[j].done(it)
            for r in it.gives:
                if r not in self.batches[j].left:
                    self.load[j][self.at[r][1]] -= 1
            self.busy[j] = False
            self._at(now, lambda then: self._begin(j, then), late=True)

        self._attention(number, 0, t, self.ways(new_pass.parts), ended)

    def _attention(self, number: int, layer: int, t: float, way: ExchangeTimes, ended: Callable[[float], None]) -> None:
        current, layers = self.passes[number], self.of.model.layers
        if layer == layers and not current.has_head:
            ended(t)
            return
        ranks = range(len(current.its))
        busy_ns = max(current.attention_ns(k) if layer < layers else current.head_ns(k) for k in ranks)
        done = self._station("attention", t, busy_ns, busy_ns)
        self.visits[0].append((number, layer))
        if layer == layers:
            self._at(done, ended)
            return
        there = self._station("there", done, way.wire, way.there)
        self._at(there, lambda now: self._experts(number, layer, now, way, ended))

    def _experts(self, number: int, layer: int, t: float, way: ExchangeTimes, ended: Callable[[float], None]) -> None:
        busy_ns = max(self.passes[number].experts_ns())
        done = self._station("experts", t, busy_ns, busy_ns)
        self.visits[1].append((number, layer))
        back = self._station("back", done, way.wire, way.back)
        self._at(back, lambda now: self._attention(number, layer + 1, now, way, ended))

    def _station(self, name: str, t: float, busy_ns: float, latency_ns: float) -> float:
        begin = max(t, self.free[name])
        self.free[name] = begin + busy_ns
        return begin + latency_ns
