"""From the step `serve` of an experiment to the pools and what goes on between them; and everything that is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from testbed.experiment import task_checks
from testbed.experiment.step_checks import Found, rank_out_of_range
from testbed.experiment.training import Mistakes, gigabytes, gpu_of, model_of
from workloads.serving.ping_pong import PingPong, ping_pong_graph
from workloads.serving.pools import Pool, cache_bytes
from workloads.serving.routing import Routing
from workloads.steps.plan.experts import Gating
from workloads.tasks.graph import Graph

if TYPE_CHECKING:
    from testbed.experiment.steps.serve import PoolOf, Serve
    from topologies import Fabric
    from workloads.steps.plan.model import Model

POOLS = ("attention", "experts")


def ping_pongs(serve: Serve, seed: int) -> list[PingPong]:
    """One for each number of micro-batches.  Raises Mistakes for what is missing or unknown."""
    model = model_of(serve.model)
    assert serve.attention is not None and serve.experts is not None
    gating = Gating(zipf=serve.gating.zipf or 0.0, hot=serve.gating.hot)
    attention, experts = (_pool(serve, name, model) for name in POOLS)
    return [
        PingPong(
            model=model,
            attention=attention,
            experts=experts,
            tokens=serve.tokens,
            context=model.seq if serve.context is None else serve.context,
            micro_batches=count,
            output=serve.output,
            routing=Routing(gating=gating, draw=serve.gating.draw, seed=seed),
            exchange=serve.exchange,
            algorithms=serve.algorithm,
        )
        for count in serve.micro_batches
    ]


def graph_of_serving(serve: Serve, seed: int) -> Graph:
    """Of the most micro-batches."""
    return ping_pong_graph(max(ping_pongs(serve, seed), key=lambda p: p.micro_batches))


def mistakes(serve: Serve, seed: int, fabric: Fabric) -> Iterator[Found]:
    """Everything that is wrong, with what is allowed."""
    if missing := [name for name in POOLS if getattr(serve, name) is None]:
        yield (), f"there is no pool {' and '.join(missing)}", "attention: [0, 1], experts: [2, 3]"
        return
    found = [*_pools(serve, fabric), *_gating(serve), *_prefixed("algorithm", task_checks.named(serve.algorithm))]
    yield from found
    try:
        several = ping_pongs(serve, seed)
    except Mistakes as wrong:
        yield from wrong.found
        return
    if problems := list(_model(several[0])):
        yield from problems
        return
    if found:
        return
    graph = ping_pong_graph(several[-1])
    done = dict.fromkeys(task.collective for task in task_checks.distinct(graph))
    for name in serve.algorithm:
        if name not in done:
            yield ("algorithm", name), f"this step does no {name}", f"it does {', '.join(done)}"
    yield from _too_large(serve, several)
    said: set[str] = set()
    for task, _, what, hint in task_checks.collectives(graph, fabric):
        where = ("algorithm", task.collective) if task.collective in serve.algorithm else ()
        if what not in said:
            yield where, f"{task.collective} of {task.group}: {what}", hint
        said.add(what)


def _prefixed(key: str, found: Iterator[Found]) -> Iterator[Found]:
    yield from (((key, *path), what, hint) for path, what, hint in found)


def _pools(serve: Serve, fabric: Fabric) -> Iterator[Found]:
    whose: dict[int, str] = {}
    for name in POOLS:
        pool: PoolOf = getattr(serve, name)
        for i, rank in enumerate(pool.ranks):
            if problem := rank_out_of_range(rank, fabric.ranks):
                yield (name, "ranks", i), *problem
            elif rank in whose:
                where = f"twice in {name}" if whose[rank] == name else f"in {whose[rank]}, too"
                yield (name, "ranks", i), f"rank {rank} stands {where}", "pools share no rank"
            whose[rank] = name


def _gating(serve: Serve) -> Iterator[Found]:
    if serve.gating.zipf is not None and serve.gating.hot is not None:
        yield ("gating", "hot"), "tokens go by zipf, or to a hot expert", "leave one of them out"
    for i, count in enumerate(serve.micro_batches):
        if count in serve.micro_batches[:i]:
            yield ("micro_batches", i), f"{count} micro-batches stand twice", "each number once"


def _pool(serve: Serve, name: str, model: Model) -> Pool:
    pool: PoolOf = getattr(serve, name)
    told = pool.gpu or serve.gpu
    if told is None and pool.layer is None:
        hint = f"{name}: {{ranks: .., gpu: {{preset: h100}}}}, or a gpu for all pools, or layer: 40us"
        raise Mistakes([((name,), f"the pool {name} has GPUs without FLOP/s", hint)])
    try:
        gpu = gpu_of(told, model.dtype) if told else None
    except Mistakes as wrong:
        where = (name,) if pool.gpu else ()
        raise Mistakes([((*where, *path), what, hint) for path, what, hint in wrong.found]) from None
    return Pool(ranks=tuple(pool.ranks), gpu=gpu, layer_ns=pool.layer, cost=pool.cost)


def _model(p: PingPong) -> Iterator[Found]:
    m, pool = p.model, len(p.experts.ranks)
    if not m.experts:
        yield ("model",), "a model without experts has nothing for a pool of experts", "model: {experts: 8, ..}"
        return
    if m.experts % pool:
        allowed = ", ".join(str(n) for n in range(1, m.experts + 1) if m.experts % n == 0)
        yield ("experts", "ranks"), f"{m.experts} experts cannot be divided among {pool} ranks", f"{allowed} ranks"
    if m.top_k > m.experts:
        yield ("model", "top_k"), f"a token cannot take {m.top_k} of {m.experts} experts", f"1 to {m.experts}"
    if not m.head_dim and m.hidden % m.heads:
        yield ("model", "heads"), f"hidden {m.hidden} cannot be divided by {m.heads} heads", "or write head_dim"


def _too_large(serve: Serve, several: list[PingPong]) -> Iterator[Found]:
    """Whether parameters, keys and values fit."""
    p = max(several, key=lambda one: one.micro_batches)
    m, each = p.model, p.model.experts // len(p.experts.ranks)
    cached = cache_bytes(m, p.micro_batches * p.tokens * (p.context + p.output))
    half = m.layers * (m.attention.all + m.feed_forward.all) + m.embedding.all + m.head.all
    needed = {"attention": half * m.width + cached, "experts": m.layers * each * m.mlp.all * m.width}
    for name, nbytes in needed.items():
        gpu = getattr(p, name).gpu
        if gpu is not None and gpu.memory is not None and nbytes > gpu.memory:
            more = f", keys and values {gigabytes(cached)} of it" if name == "attention" else ""
            what = f"a rank of {name} needs {gigabytes(nbytes)}{more}, and its GPU has {gigabytes(gpu.memory)}"
            fewer = "fewer tokens, micro_batches or context" if name == "attention" else "more ranks"
            yield (name,), what, f"{fewer}, fewer layers, or another GPU"
