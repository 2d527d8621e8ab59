"""Which iteration serves which request, by what iterations are expected to take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from workloads.serving.batching import Iteration, Limits, Planned, iterations
from workloads.serving.tensor_parallel import DECODE, PREFILL, Handed, Shared, Work, graph_of_work
from workloads.tasks.oracle import oracle, step_ns
from workloads.tasks.task import Send

if TYPE_CHECKING:
    from testbed.experiment.steps.serve import Serve
    from testbed.plan.expected import Durations
    from workloads.serving.requests import Request
    from workloads.tasks.graph import Graph

Expects = Callable[["Graph"], "Durations"]
"""What the tasks of a graph take by themselves."""


@dataclass(frozen=True)
class Decided:
    """What each pool does."""

    work: tuple[Work, ...]


def decided(
    serve: Serve, pools: Sequence[Shared], requests: Sequence[Request], expects: Expects | None = None
) -> Decided:
    """`expects`: by closed forms; None: only computation takes time."""
    limits = Limits(serve.sequences, serve.prompt_tokens)
    arrivals = {r: one.arrival_ns for r, one in enumerate(requests)}
    first = pools[0]
    alone = len(pools) == 1
    plan = iterations(requests, arrivals, limits, _takes(first, expects), prompts=True, answers=alone)
    source = _work(DECODE if alone else PREFILL, first, plan, arrivals)
    if alone:
        return Decided((source,))
    ready = _handed(source, plan, pools[1], requests, expects)
    then = iterations(requests, ready, limits, _takes(pools[1], expects), prompts=False, answers=True)
    return Decided((source, _work(DECODE, pools[1], then, {})))


def _work(name: str, shared: Shared, plan: Sequence[Planned], arrivals: dict[int, float]) -> Work:
    """Iterations do not begin before the requests that join them have come."""
    earliest = [max((arrivals[r] for r in p.iteration.joined), default=0.0) for p in plan] if arrivals else []
    return Work(name=name, shared=shared, iterations=[p.iteration for p in plan], earliest=earliest)


def _takes(shared: Shared, expects: Expects | None) -> Callable[[Iteration], float]:
    """An iteration's time: what it computes, and what the ranks do together."""

    @cache
    def together(new: int, gives: int) -> float:
        if expects is None:
            return 0.0
        like = Iteration((0,) * gives, (1,) * gives, (1,) * gives) if new == gives else None
        it = like or Iteration((0,) * gives, (new - gives + 1, *(1,) * (gives - 1)), (new,) * gives)
        graph = graph_of_work(Work(name=DECODE, shared=shared, iterations=[it]))
        durations = expects(graph)
        return step_ns(oracle(graph, durations, durations.ends)) - shared.compute_ns(it)

    return lambda it: shared.compute_ns(it) + together(it.tokens, len(it.gives))


def _handed(
    source: Work, plan: Sequence[Planned], target: Shared, requests: Sequence[Request], expects: Expects | None
) -> dict[int, float]:
    """When the cache of each request is where its tokens are generated: one behind the other to each rank."""
    idle = Work(name=DECODE, shared=target, iterations=[])
    handed = Handed(source, idle, requests)
    free: dict[tuple[int, int], float] = {}
    ready: dict[int, float] = {}
    took = _message(source, expects)
    for r, k in handed.order:
        for pair, elements in handed.shares.items():
            begin = max(plan[k].end_ns, free.get(pair, 0.0))
            free[pair] = begin + took(pair, handed.nbytes(r, elements))
            ready[r] = max(ready.get(r, 0.0), free[pair])
    return ready


def _message(source: Work, expects: Expects | None) -> Callable[[tuple[int, int], int], float]:
    """From its being sent to its acknowledgement."""
    if expects is None:
        return lambda pair, nbytes: 0.0
    durations = expects(graph_of_work(Work(name=DECODE, shared=source.shared, iterations=source.iterations[:1])))

    @cache
    def took(pair: tuple[int, int], nbytes: int) -> float:
        return durations(pair[0], Send(id="-", peer=pair[1], size_bytes=nbytes))

    return took
