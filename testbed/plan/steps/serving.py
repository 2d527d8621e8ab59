"""From a serving step of an experiment to steps of the plan: graphs of tasks, and what their figures are held to.

A step that lists several numbers of micro-batches becomes as many steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from testbed.experiment.steps.serving import (
    aparts,
    context_of,
    ping_pongs,
    plays_ping_pong,
    requests_of,
    shared_pools,
)
from testbed.plan.expected import Durations
from testbed.plan.steps.iterations import decided, served
from testbed.plan.steps.planned import Planned, PlannedTasks
from testbed.plan.steps.tasks import planned
from workloads.serving.balance import Balance
from workloads.serving.batching import Iteration
from workloads.serving.exchange import COMBINE, DISPATCH
from workloads.serving.ping_pong import PingPong, ping_pong_graph
from workloads.serving.tensor_parallel import DECODE, Shared, Work, graph_of_work
from workloads.tasks.oracle import oracle
from workloads.tasks.task import Collective

if TYPE_CHECKING:
    from testbed.experiment.steps.serve import Serve
    from testbed.experiment.steps.serving_checks import ServeStep
    from testbed.plan.steps.planner import Planner
    from workloads.serving.apart import Apart
    from workloads.serving.pools import Pool
    from workloads.tasks.graph import Graph

Plans = Callable[["Graph", str], PlannedTasks]
"""A graph, and its name for tables -> a step of the plan."""


def serving_steps(told: ServeStep, planner: Planner) -> list[Planned]:
    """One; of several numbers of micro-batches as many."""
    serve, seed = told.serve, planner.experiment.seed

    def made(graph: Graph, name: str) -> PlannedTasks:
        return planned(graph, planner, iterations=serve.iterations, warmup=serve.warmup, name=name)

    def durations(graph: Graph, step: PlannedTasks) -> Durations:
        return Durations(graph, step.program, planner.chooser)

    if not plays_ping_pong(serve):
        graph, name, about = _of_pools(serve, seed, made, durations)
        return [replace(made(graph, name), about_step=about)]
    steps: list[Planned] = []
    if serve.requests is not None:
        for of in aparts(serve, seed):
            graph, name, about = _of_apart(serve, seed, of, made, durations)
            steps.append(replace(made(graph, name), about_step=about))
        return steps
    for p in ping_pongs(serve, seed):
        graph = ping_pong_graph(p)
        step = made(graph, f"serve m={p.micro_batches}, {p.exchange}")
        steps.append(replace(step, about_step=_ping_pong(p, graph, durations(graph, step))))
    return steps


def serving_graph(told: ServeStep, planner: Planner) -> Graph:
    """Of the most micro-batches.  Of requests as they are expected to be served; how does not change who sends what."""
    serve, seed = told.serve, planner.experiment.seed
    if plays_ping_pong(serve) and serve.requests is not None:
        of = max(aparts(serve, seed), key=lambda one: one.micro_batches)
        return served(serve, of, _reader(serve, seed), requests_of(serve, seed)).graph
    if plays_ping_pong(serve):
        return ping_pong_graph(max(ping_pongs(serve, seed), key=lambda p: p.micro_batches))
    if serve.requests is None:
        return graph_of_work(_steady(serve, shared_pools(serve, seed)[-1]))
    requests = requests_of(serve, seed)
    one = decided(serve, shared_pools(serve, seed), requests)
    return graph_of_work(*one.work, requests=requests)


def _of_pools(
    serve: Serve,
    seed: int,
    made: Plans,
    durations: Callable[[Graph, PlannedTasks], Durations],
) -> tuple[Graph, str, dict[str, Any]]:
    """Graph, name and description of ranks that share every matrix."""
    pools = shared_pools(serve, seed)
    name = "serve " + ", ".join(
        f"{what} tp{one.tensor}" for what, one in zip(("prefill", DECODE)[-len(pools) :], pools, strict=True)
    )
    if serve.requests is None:
        work = _steady(serve, pools[-1])
        graph = graph_of_work(work)
        its = durations(graph, made(graph, name))
        ends = oracle(graph, its, its.ends)
        about = _about("decode", pools) | {"output": serve.output, "expected_ns": max(end for _, end in ends.values())}
        return graph, name, {"tokens": serve.tokens * serve.output, "serving": about}
    requests = requests_of(serve, seed)
    one = decided(serve, pools, requests, lambda graph: durations(graph, made(graph, name)))
    graph = graph_of_work(*one.work, requests=requests)
    its = durations(graph, made(graph, name))
    ends = oracle(graph, its, its.ends)
    about = _about("requests", pools) | {
        "requests": [[r.arrival_ns, r.prompt, r.output] for r in requests],
        "pools": [_iterations(work, reads=k == 0, answers=k == len(one.work) - 1) for k, work in enumerate(one.work)],
        "expected_ns": max(end for _, end in ends.values()),
    }
    return graph, name, {"tokens": sum(r.output for r in requests), "serving": about}


def _reader(serve: Serve, seed: int) -> Shared | None:
    """The pool that reads prompts, beside attention and experts."""
    return next(iter(shared_pools(serve, seed)), None)


def _of_apart(
    serve: Serve,
    seed: int,
    of: Apart,
    made: Plans,
    durations: Callable[[Graph, PlannedTasks], Durations],
) -> tuple[Graph, str, dict[str, Any]]:
    """Requests on attention and experts, with so many micro-batches."""
    reader, requests = _reader(serve, seed), requests_of(serve, seed)
    name = f"serve m={of.micro_batches}, {of.how}" + (f", prefill tp{reader.tensor}" if reader else "")
    one = served(serve, of, reader, requests, lambda graph: durations(graph, made(graph, name)))
    graph = one.graph
    its = durations(graph, made(graph, name))
    ends = oracle(graph, its, its.ends)
    pools = [of.attention, of.experts, *([reader.pool] if reader else [])]
    about = {
        "kind": "requests",
        "answers": list(of.attention.ranks),
        "gpus": sum(len(pool.ranks) for pool in pools),
        "cost": cost_of(*pools),
        "requests": [[r.arrival_ns, r.prompt, r.output] for r in requests],
        "pools": [*([_iterations(one.prefill, answers=False)] if one.prefill else []), *one.pools()],
        "micro_batches": of.micro_batches,
        "expected_ns": max(end for (rank, _), (_, end) in ends.items() if rank in of.attention.ranks),
    }
    return graph, name, {"tokens": sum(r.output for r in requests), "serving": about}


def _steady(serve: Serve, pool: Shared) -> Work:
    """`tokens` sequences that get a token in each iteration."""
    its = range(serve.tokens)
    context = context_of(serve, pool.model)
    steps = [
        Iteration(tuple(its), (1,) * serve.tokens, (context + step + 1,) * serve.tokens) for step in range(serve.output)
    ]
    return Work(name=DECODE, shared=pool, iterations=steps)


def _about(kind: str, pools: list[Shared]) -> dict[str, Any]:
    its = [one.pool for one in pools]
    return {
        "kind": kind,
        "answers": list(its[-1].ranks),
        "gpus": sum(len(pool.ranks) for pool in its),
        "cost": cost_of(*its),
    }


def _iterations(work: Work, *, reads: bool = True, answers: bool = True) -> dict[str, Any]:
    """Which requests each iteration gave a token, which joined it, and which found no room.

    `end`: the task that ends one, `where`: which rank has a request (none: all of them); `reads`: prompts; `answers`:
    with all tokens after the first.
    """
    return {
        "name": work.name,
        "ranks": list(work.shared.pool.ranks),
        "iterations": [[it.gives, it.joined, it.passed] for it in work.iterations],
        **{"end": f"{work.name}{{}}.end", "where": {}, "reads": reads, "answers": answers},
    }


def _ping_pong(p: PingPong, graph: Graph, durations: Durations) -> dict[str, Any]:
    """What is said of the step beside its tasks."""
    ways = ((p.experts, DISPATCH), (p.attention, COMBINE))
    tasks = [(_first(graph, pool, kind), pool.ranks) for pool, kind in ways]
    there, back = (durations.arrived(*one) for one in tasks)
    wire = max(durations.arrived(*one, 2) - alone for one, alone in zip(tasks, (there, back), strict=True))
    busiest = max(range(len(p.experts.ranks)), key=lambda k: (p.expert_ns[k], -k))
    balance = Balance(p.attention_ns(), p.expert_ns[busiest], (there + back) / 2, wire)
    served = oracle(graph, durations, durations.ends)
    answers = set(p.attention.ranks)
    tokens = p.micro_batches * p.tokens * len(p.attention.ranks) * p.output
    layers = p.output * p.model.layers
    path = max(end for (rank, _), (_, end) in served.items() if rank in answers)
    serving = {
        "kind": "ping_pong",
        "micro_batches": p.micro_batches,
        "output": p.output,
        "answers": list(p.attention.ranks),
        "gpus": len(p.ranks),
        "cost": cost_of(p.attention, p.experts),
        "attention_ns": balance.attention,
        "expert_ns": balance.expert,
        "busiest": p.experts.ranks[busiest],
        "dispatch_ns": there,
        "combine_ns": back,
        "wire_ns": wire,
        "needed": balance.needed,
        "form_ns": balance.time_ns(layers, p.micro_batches),
        "form_batch_ns": balance.time_ns(p.model.layers, p.micro_batches),
        "form_between_ns": balance.between_ns(p.model.layers, p.micro_batches),
        "expected_ns": max(path, balance.least_ns(layers, p.micro_batches)),
    }
    return {"tokens": tokens, "serving": serving}


def _first(graph: Graph, pool: Pool, kind: str) -> Collective:
    return next(t for t in graph.tasks[pool.ranks[0]] if isinstance(t, Collective) and t.kind == kind)


def cost_of(*pools: Pool) -> float | None:
    """Of all GPUs for an hour; None if a pool does not say."""
    costs = [pool.cost and pool.cost * len(pool.ranks) for pool in pools]
    return None if None in costs else sum(cost for cost in costs if cost)
