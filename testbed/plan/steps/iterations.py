"""Which iteration, or pass of which micro-batch, serves which request: by what they are expected to take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from workloads.serving.apart import Apart, PlannedPasses, apart_graph, batch_name
from workloads.serving.batching import Iteration, Limits, PlannedIteration, iterations
from workloads.serving.passing import ExchangeTimes, plan_passes
from workloads.serving.tensor_parallel import DECODE, PREFILL, Handed, Shared, Work, graph_of_work
from workloads.tasks.graph import Graph
from workloads.tasks.oracle import oracle, step_ns
from workloads.tasks.task import Send

if TYPE_CHECKING:
    from testbed.experiment.steps.serve import Serve
    from testbed.plan.expected import Durations
    from workloads.serving.requests import Request
    from workloads.serving.routing import Table

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
    if len(pools) == 1:
        work, _ = reads_prompts(DECODE, pools[0], requests, limits, expects, answers=True)
        return Decided((work,))
    source, ends = reads_prompts(PREFILL, pools[0], requests, limits, expects)
    ready = _handed(source, ends, pools[1], requests, expects)
    then = iterations(requests, ready, limits, _takes(pools[1], expects), prompts=False, answers=True)
    return Decided((source, _work(DECODE, pools[1], then, {})))


def reads_prompts(
    name: str,
    shared: Shared,
    requests: Sequence[Request],
    limits: Limits,
    expects: Expects | None,
    *,
    answers: bool = False,
) -> tuple[Work, dict[int, float]]:
    """A pool that requests come to; and when it is through with each one's prompt."""
    arrivals = {r: one.arrival_ns for r, one in enumerate(requests)}
    plan = iterations(requests, arrivals, limits, _takes(shared, expects), prompts=True, answers=answers)
    ends = {r: p.end_ns for p in plan for r in p.iteration.joined}
    return _work(name, shared, plan, arrivals), ends


def _work(name: str, shared: Shared, plan: Sequence[PlannedIteration], arrivals: dict[int, float]) -> Work:
    """Iterations do not begin before the requests that join them have come."""
    earliest = [max((arrivals[r] for r in p.iteration.joined), default=0.0) for p in plan] if arrivals else []
    return Work(name=name, shared=shared, iterations=[p.iteration for p in plan], earliest=earliest)


def _takes(shared: Shared, expects: Expects | None) -> Callable[[Iteration], float]:
    """An iteration's time: what it computes, and what the ranks do together."""

    @cache
    def together(new: int, gives: int) -> float:
        if expects is None:
            return 0.0
        it = Iteration((0,) * gives, (new - gives + 1, *(1,) * (gives - 1)), (new,) * gives)
        graph = graph_of_work(Work(name=DECODE, shared=shared, iterations=[it]))
        durations = expects(graph)
        return step_ns(oracle(graph, durations, durations.ends)) - shared.compute_ns(it)

    return lambda it: shared.compute_ns(it) + together(it.tokens, len(it.gives))


def _handed(
    source: Work, ends: Mapping[int, float], target: Shared, requests: Sequence[Request], expects: Expects | None
) -> dict[int, float]:
    """When the cache of each request is where its tokens are generated: one behind the other to each rank."""
    handed = Handed.shared(source, target, requests)
    free: dict[tuple[int, int], float] = {}
    ready: dict[int, float] = {}
    took = message_ns(source, expects)
    for r, _ in handed.order:
        for pair, elements in handed.shares(r).items():
            begin = max(ends[r], free.get(pair, 0.0))
            free[pair] = begin + took(pair, handed.nbytes(r, elements))
            ready[r] = max(ready.get(r, 0.0), free[pair])
    return ready


def message_ns(source: Work, expects: Expects | None) -> Callable[[tuple[int, int], int], float]:
    """From its being sent to its acknowledgement."""
    if expects is None:
        return lambda pair, nbytes: 0.0
    durations = expects(graph_of_work(Work(name=DECODE, shared=source.shared, iterations=source.iterations[:1])))

    @cache
    def took(pair: tuple[int, int], nbytes: int) -> float:
        return durations(pair[0], Send(id="-", peer=pair[1], size_bytes=nbytes))

    return took


# Attention and experts: passes of micro-batches


@dataclass(frozen=True)
class Served:
    """What all pools do for these requests."""

    planned: PlannedPasses
    requests: Sequence[Request]
    prefill: Work | None

    @property
    def graph(self) -> Graph:
        return apart_graph(self.planned, self.requests, self.prefill)

    def pools(self) -> list[dict[str, Any]]:
        """For the figures: each micro-batch is a pool, with its passes as iterations."""
        of, passes = self.planned.of, self.planned.passes
        where = {str(r): of.attention.ranks[k] for r, k in self.planned.at.items()}
        head = any(one.has_head for one in passes)
        last = "{}.end" if head else f"{{}}.{of.model.layers - 1}"
        return [
            {
                "name": name,
                "ranks": list(of.attention.ranks),
                "iterations": [[one.gives, one.joined, one.passed] for one in passes if one.micro_batch == j],
                "end": f"{'' if head else 'combine'}{name}{last}",
                "where": where,
                "reads": self.prefill is None,
                "answers": True,
            }
            for j in range(of.micro_batches)
            for name in (batch_name(j),)
        ]


def served(
    serve: Serve, of: Apart, prefill: Shared | None, requests: Sequence[Request], expects: Expects | None = None
) -> Served:
    """`expects`: by closed forms; None: only computation takes time."""
    limits = Limits(serve.sequences, serve.prompt_tokens)
    ways = _ways(of, expects)
    come = {r: one.arrival_ns for r, one in enumerate(requests)}
    if prefill is None:
        return Served(plan_passes(of, requests, come, limits, ways, prompts=True), requests, None)
    work, ends = reads_prompts(PREFILL, prefill, requests, limits, expects)
    come = {r: at for r, at in ends.items() if requests[r].output > 1}
    handed = _at_ranks(of, work, requests, expects)
    return Served(plan_passes(of, requests, come, limits, ways, prompts=False, handed=handed), requests, work)


def _ways(of: Apart, expects: Expects | None) -> Callable[[Table], ExchangeTimes]:
    """What an exchange takes if nothing else is on its way."""
    if expects is None:
        return lambda tokens: ExchangeTimes(0.0, 0.0, 0.0)
    exchange = of.exchange
    even = tuple((1,) * len(of.experts.ranks) for _ in of.attention.ranks)
    both = (exchange.dispatch("-", 0, (), even), exchange.combine("-", 0, (), even))  # of any sizes: they go alike
    graph = Graph(exchange.groups, dict.fromkeys(exchange.groups[both[0].group][0], both), exchange.settings)
    durations = expects(graph)

    @cache
    def way(tokens: Table) -> ExchangeTimes:
        tasks = (exchange.dispatch("-", 0, (), tokens), exchange.combine("-", 0, (), tokens))
        pools = (of.experts.ranks, of.attention.ranks)
        there, back = (durations.arrived(*one) for one in zip(tasks, pools, strict=True))
        two = [durations.arrived(*one, 2) for one in zip(tasks, pools, strict=True)]  # one just behind the other
        return ExchangeTimes(there, back, max(two[0] - there, two[1] - back))

    return way


def _at_ranks(
    of: Apart, work: Work, requests: Sequence[Request], expects: Expects | None
) -> Callable[[int, int, float], float]:
    """When a request's cache is where it is needed: one behind the other, from each rank and to each rank."""
    ranks = of.attention.ranks
    at: dict[int, int] = {}
    handed = Handed(work, dict.fromkeys(ranks, (0, of.model.keys)), requests, at)
    took = message_ns(work, expects)
    free: dict[tuple[str, int], float] = {}

    def there(r: int, rank: int, t: float) -> float:
        at[r] = ranks[rank]
        shares = handed.shares(r)
        ready = t
        for pair, elements in shares.items():
            leaves = max(t, free.get(("from", pair[0]), 0.0)) + took(pair, handed.nbytes(r, elements))
            free["from", pair[0]] = leaves
            ready = max(ready, leaves)
        whole = took(next(iter(shares)), handed.nbytes(r, sum(shares.values())))  # all come in over one NIC
        ready = max(ready, max(t, free.get(("to", ranks[rank]), 0.0)) + whole)
        free["to", ranks[rank]] = ready
        return ready

    return there
