"""From a serving step of an experiment to steps of the plan: graphs of tasks, and what their figures are held to.

A step that lists several numbers of micro-batches becomes as many steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from testbed.experiment.serving import ping_pongs
from testbed.plan.expected import Durations
from testbed.plan.tasks import planned
from workloads.serving.balance import Balance
from workloads.serving.ping_pong import COMBINE, DISPATCH, PingPong, ping_pong_graph
from workloads.tasks.oracle import oracle
from workloads.tasks.task import Collective

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment
    from testbed.experiment.steps.serve import Serve
    from testbed.plan.choose import Chooser
    from topologies import Fabric
    from workloads.serving.pools import Pool
    from workloads.tasks.graph import Graph


def serving_steps(
    serve: Serve,
    experiment: Experiment,
    fabric: Fabric,
    alone: Callable[[CollectiveStep], Mapping[str, Any]],
    chooser: Callable[[], Chooser],
) -> list[dict[str, Any]]:
    """The steps of the plan; `alone` and `chooser` as for any step of tasks."""
    steps = []
    for p in ping_pongs(serve, experiment.seed):
        graph = ping_pong_graph(p)
        step = planned(
            graph, experiment, fabric, alone, chooser,
            iterations=serve.iterations, warmup=serve.warmup, name=f"serve m={p.micro_batches}, {p.exchange}",
        )  # fmt: skip
        steps.append(step | {"about_step": _ping_pong(p, graph, Durations(graph, step, experiment, fabric))})
    return steps


def _ping_pong(p: PingPong, graph: Graph, durations: Durations) -> dict[str, Any]:
    """What is said of the step beside its tasks."""
    there, back = (
        _arrived(graph, durations, pool, kind) for pool, kind in ((p.experts, DISPATCH), (p.attention, COMBINE))
    )
    busiest = max(range(len(p.experts.ranks)), key=lambda k: (p.expert_ns[k], -k))
    balance = Balance(p.attention_ns(), p.expert_ns[busiest], (there + back) / 2)
    served = oracle(graph, durations, durations.ends)
    answers = set(p.attention.ranks)
    tokens = p.micro_batches * p.tokens * len(p.attention.ranks) * p.output
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
        "needed": balance.needed,
        "form_ns": balance.time_ns(p.output * p.model.layers, p.micro_batches),
        "expected_ns": max(end for (rank, _), (_, end) in served.items() if rank in answers),
    }
    return {"tokens": tokens, "serving": serving}


def _arrived(graph: Graph, durations: Durations, pool: Pool, kind: str) -> float:
    """How long an exchange takes until the last rank of a pool has its part, if all begin at a time."""
    rank = pool.ranks[0]
    task = next(t for t in graph.tasks[rank] if isinstance(t, Collective) and t.kind == kind)
    ends = durations.ends(task, dict.fromkeys(graph.members(rank, task), 0.0))
    return max(ends[r] for r in pool.ranks)


def cost_of(*pools: Pool) -> float | None:
    """Of all GPUs for an hour; None if a pool does not say."""
    costs = [pool.cost and pool.cost * len(pool.ranks) for pool in pools]
    return None if None in costs else sum(cost for cost in costs if cost)
