"""The step `serve`, and everything that is wrong with one, with what is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from testbed.experiment.steps.graphs import collectives, distinct, named
from testbed.experiment.steps.serve import Serve
from testbed.experiment.steps.serving import (
    APART,
    SHARED,
    context_of,
    ping_pongs,
    plays_ping_pong,
    requests_of,
    shared_pools,
)
from testbed.experiment.steps.step import Blocks, Found, Step, below, rank_out_of_range, under
from testbed.experiment.steps.training import Mistakes, gigabytes
from topologies.graph.fabric import Fabric
from workloads.serving.batching import Iteration
from workloads.serving.ping_pong import ping_pong_graph
from workloads.serving.pools import Pool, cache_bytes
from workloads.serving.requests import Request
from workloads.serving.tensor_parallel import DECODE, PREFILL, Shared, Work, graph_of_work

if TYPE_CHECKING:
    from testbed.experiment.steps.serve import PoolOf
    from workloads.steps.plan.model import Model
    from workloads.tasks.graph import Graph

_MOST_PASSES = 1 << 19
_OF_OTHERS = {
    "ping-pong": ("requests", "sequences", "prompt_tokens"),
    "decode": ("micro_batches", "exchange", "sequences", "prompt_tokens"),
    "requests": ("micro_batches", "exchange", "tokens", "context", "output"),
    "ping-pong of requests": ("tokens", "context", "output"),
}
_WHOSE = {"ping-pong": "attention and experts", "decode": "decode without requests"}


def mistakes(serve: Serve, seed: int, fabric: Fabric) -> Iterator[Found]:
    """All of it, with what is allowed."""
    found = [*_which(serve), *_pools(serve, fabric), *_numbers(serve)]
    found += below(("algorithm",), named(serve.algorithm))
    if found:
        yield from found
        return
    try:
        graphs, problems = _ping_pong(serve, seed) if plays_ping_pong(serve) else _shared(serve, seed)
    except Mistakes as wrong:
        yield from wrong.found
        return
    yield from problems
    if problems:
        return
    done = dict.fromkeys(task.collective for graph in graphs for task in distinct(graph))
    for name in serve.algorithm:
        if name not in done:
            yield ("algorithm", name), f"this step does no {name}", f"it does {', '.join(done) or 'none'}"
    said: set[str] = set()
    for task, _, what, hint in chain.from_iterable(collectives(graph, fabric) for graph in graphs):
        where = ("algorithm", task.collective) if task.collective in serve.algorithm else ()
        if what not in said:
            yield where, f"{task.collective} of {task.group}: {what}", hint
        said.add(what)


def _which(serve: Serve) -> Iterator[Found]:
    """Whether the pools go together."""
    named = [name for name in (*APART, *SHARED) if getattr(serve, name) is not None]
    ways = "attention and experts, decode, prefill and decode, or all but decode"
    if not named:
        yield (), "there is no pool of GPUs", ways
    elif plays_ping_pong(serve) and DECODE in named:
        yield (DECODE,), f"pools {' and '.join(named)} do not go together", ways
    elif plays_ping_pong(serve) and len(set(named) & set(APART)) == 1:
        (missing,) = set(APART) - set(named)
        yield (), f"there is no pool {missing}", f"{missing}: [2, 3]"
    elif named == [PREFILL]:
        yield (), "there is no pool decode", "decode: [2, 3], or attention and experts"
    elif PREFILL in named and serve.requests is None:
        yield (PREFILL,), "a pool that reads prompts needs requests", "requests: {rate: 1000, prompt: 512, output: 32}"
    else:
        yield from _not_heeded(serve)


def _not_heeded(serve: Serve) -> Iterator[Found]:
    if plays_ping_pong(serve):
        kind = "ping-pong of requests" if serve.requests else "ping-pong"
    else:
        kind = "requests" if serve.requests else "decode"
    for key in _OF_OTHERS[kind]:
        if getattr(serve, key) != type(serve).model_fields[key].default:
            whose = _WHOSE.get(kind, "requests")
            yield (key,), f"{whose} have no use for {key}", f"leave {key} out"
    told = serve.requests
    if told is not None and (told.rate is None) == (told.trace is None):
        what = "requests have no rate" if told.rate is None else "requests are drawn, or from a file"
        yield ("requests",), what, "either rate: 1000, or trace: FILE"
    elif told is not None and told.trace is not None:
        for key in ("count", "prompt", "output"):
            if getattr(told, key) != type(told).model_fields[key].default:
                yield ("requests", key), f"requests of a file have no use for {key}", f"leave {key} out"
    for reads in (PREFILL,) if serve.prefill else (DECODE, *APART):
        if told is not None and (pool := getattr(serve, reads)) and pool.layer is not None:
            what = f"{reads} reads prompts, and one time of a layer does not hold for prompts of any length"
            yield (reads, "layer"), what, "gpu: {preset: h100}, or flops and hbm as measured"


def _pools(serve: Serve, fabric: Fabric) -> Iterator[Found]:
    whose: dict[int, str] = {}
    for name in (*APART, *SHARED):
        pool: PoolOf | None = getattr(serve, name)
        for i, rank in enumerate(pool.ranks if pool else ()):
            if problem := rank_out_of_range(rank, fabric.ranks):
                yield (name, "ranks", i), *problem
            elif rank in whose:
                where = f"twice in {name}" if whose[rank] == name else f"in {whose[rank]}, too"
                yield (name, "ranks", i), f"rank {rank} stands {where}", "pools share no rank"
            whose[rank] = name


def _numbers(serve: Serve) -> Iterator[Found]:
    if plays_ping_pong(serve) and serve.requests and serve.sequences < (most := max(serve.micro_batches)):
        what = f"{serve.sequences} sequences cannot be shared out among {most} micro-batches"
        yield ("sequences",), what, f"at least {most}"
    if serve.gating.zipf is not None and serve.gating.hot is not None:
        yield ("gating", "hot"), "tokens go by zipf, or to a hot expert", "leave one of them out"
    for i, count in enumerate(serve.micro_batches):
        if count in serve.micro_batches[:i]:
            yield ("micro_batches", i), f"{count} micro-batches stand twice", "each number once"
    for key in ("prompt", "output"):
        if serve.requests and (its := getattr(serve.requests, key))[0] > its[1]:
            yield ("requests", key), f"{its[0]} to {its[1]} tokens", "the smaller number first"


def _of_model(serve: Serve, m: Model) -> Iterator[Found]:
    if m.experts and m.top_k > m.experts:
        yield ("model", "top_k"), f"a token cannot take {m.top_k} of {m.experts} experts", f"1 to {m.experts}"
    if not m.experts and serve.gating != type(serve.gating)():
        yield ("gating",), "a model without experts has no use for gating", "leave gating out, or experts: 8"
    if not m.head_dim and m.hidden % m.heads:
        yield ("model", "heads"), f"hidden {m.hidden} cannot be divided by {m.heads} heads", "or write head_dim"
    if m.heads % m.kv_heads:
        yield ("model", "kv_heads"), f"heads {m.heads} cannot be divided by kv_heads {m.kv_heads}", _divisors(m.heads)


def _ping_pong(serve: Serve, seed: int) -> tuple[list[Graph], list[Found]]:
    """Graphs that have all of its collectives, and what is wrong."""
    several = ping_pongs(serve, seed)
    p = max(several, key=lambda one: one.micro_batches)
    m, pool = p.model, len(p.experts.ranks)
    if not m.experts:
        return [], [(("model",), "a model without experts has nothing for a pool of experts", "experts: 8, ..")]
    found = list(_of_model(serve, m))
    if m.experts % pool:
        allowed = f"{_divisors(m.experts)} ranks"
        found.append((("experts", "ranks"), f"{m.experts} experts cannot be divided among {pool} ranks", allowed))
    readers = shared_pools(serve, seed)
    found += (wrong for one in readers for wrong in _divisible(m, PREFILL, one))
    if found:
        return [], found
    requests = requests_of(serve, seed) if serve.requests else []
    held = p.micro_batches * p.tokens * (p.context + p.output)
    passes = p.output * p.micro_batches
    if requests:
        held = _held(serve, m, requests, reads=False, ranks=len(p.attention.ranks))
        passes = _least_iterations(requests, -(-serve.sequences // p.micro_batches))
    cached = cache_bytes(m, held)
    half = m.parameters - m.layers * m.experts * m.mlp.all
    found += _too_large("attention", p.attention, half * m.width + cached, cached)
    found += _too_large("experts", p.experts, m.layers * (m.experts // pool) * m.mlp.all * m.width)
    found += (wrong for one in readers for wrong in _shared_memory(serve, PREFILL, one, requests))
    found += _too_many(passes * m.layers * len(p.ranks), "output, layers, micro-batches and ranks")
    like = replace(p, model=replace(m, layers=1), micro_batches=1, output=1)  # it has the same collectives
    return [ping_pong_graph(like), *map(_like, readers, repeat(serve.sequences))], found


def _shared(serve: Serve, seed: int) -> tuple[list[Graph], list[Found]]:
    """As above."""
    pools = dict(zip((PREFILL, DECODE)[-len(its := shared_pools(serve, seed)) :], its, strict=True))
    m = its[0].model
    found = list(_of_model(serve, m))
    found += (wrong for name, one in pools.items() for wrong in _divisible(m, name, one))
    if found:
        return [], found
    requests = requests_of(serve, seed) if serve.requests else []
    steps = _least_iterations(requests, serve.sequences) if requests else serve.output
    most = max(one.tensor for one in its)
    found += _too_many(steps * m.layers * most, "tokens that follow each other, layers and ranks")
    for name, one in pools.items():
        found += _shared_memory(serve, name, one, requests)
    return [_like(one, serve.sequences if serve.requests else serve.tokens) for one in its], found


def _divisible(m: Model, name: str, pool: Shared) -> Iterator[Found]:
    """Whether all ranks can share heads and matrices."""
    for what in ("heads", "kv_heads", "ffn"):
        if (n := getattr(m, what)) % pool.tensor:
            what = f"{what} {n} cannot be divided among {pool.tensor} ranks"
            yield (name, "ranks"), what, f"{_divisors(n)} ranks"


def _shared_memory(serve: Serve, name: str, one: Shared, requests: Sequence[Request]) -> Iterator[Found]:
    m = one.model
    cached = -(-cache_bytes(m, _held(serve, m, requests, reads=name == PREFILL)) // one.tensor)
    layer = m.attention.on(one.tensor) + m.feed_forward.on(one.tensor) + m.experts * m.mlp.on(one.tensor)
    tables = m.embedding.on(one.tensor) + m.head.on(one.tensor)
    tables -= m.tied * -(-m.vocab * m.hidden // one.tensor)  # one table, which counts once
    nbytes = (m.layers * layer + tables) * m.width + cached
    yield from _too_large(name, one.pool, nbytes, cached)


def _like(one: Shared, most: int) -> Graph:
    """It has the same collectives."""
    its = [Iteration((0,) * n, (1,) * n, (1,) * n) for n in (1, most)]
    thin = replace(one, model=replace(one.model, layers=1))
    return graph_of_work(Work(name=DECODE, shared=thin, iterations=its))


def _least_iterations(requests: Sequence[Request], sequences: int) -> int:
    """A token follows the other, and no more sequences are at work than there may be."""
    return max(max(r.output for r in requests), sum(r.output for r in requests) // sequences)


def _held(serve: Serve, model: Model, requests: Sequence[Request], *, reads: bool, ranks: int = 1) -> int:
    """The most tokens whose keys and values a pool has; `reads`: it only reads prompts, and hands them on.

    Prompts that wait for the network to take them on are not counted.  `ranks` that share out sequences evenly: those
    that the one with the longest has.
    """
    if not requests:
        return serve.tokens * (context_of(serve, model) + serve.output)
    if reads:
        prompts = sorted((r.prompt for r in requests), reverse=True)
        return max(prompts[0], min(serve.prompt_tokens, sum(prompts[: serve.sequences])))
    several = serve.prefill is not None
    lengths = sorted((r.prompt + r.output for r in requests if r.output > 1 or not several), reverse=True)
    return sum(lengths[: -(-min(serve.sequences, len(lengths)) // ranks)])


def _too_many(passes: int, of: str) -> Iterator[Found]:
    """Whether a layer is passed more often than anybody would wait for."""
    if passes > _MOST_PASSES:
        yield (), f"{passes} times a rank passes a layer, by {of}", f"at most {_MOST_PASSES}: identical layers repeat"


def _divisors(n: int) -> str:
    return ", ".join(str(k) for k in range(1, n + 1) if n % k == 0)


def _too_large(name: str, pool: Pool, nbytes: int, cached: int = 0) -> Iterator[Found]:
    """Whether parameters, keys and values fit."""
    room = pool.gpu.memory if pool.gpu else None
    if room is not None and nbytes > room:
        more = f", keys and values {gigabytes(cached)} of it" if cached else ""
        what = f"a rank of {name} needs {gigabytes(nbytes)}{more}, and its GPU has {gigabytes(room)}"
        fewer = "fewer or shorter sequences" if cached > nbytes // 2 else "more ranks"
        yield (name,), what, f"{fewer}, fewer layers, or another GPU"


class ServeStep(Step):
    kind: ClassVar[str] = "serve"
    title: ClassVar[str] = "serving"
    tables: ClassVar[Mapping[str, str]] = {"A pool of a serving step": "PoolOf"}

    serve: Serve = Field(description="tokens are generated")

    @classmethod
    def written_algorithms(cls, written: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
        yield from under(under(written, "serve"), "algorithm").items()

    def mistakes(self, blocks: Blocks, fabric: Fabric) -> Iterator[Found]:
        yield from below(("serve",), mistakes(self.serve, blocks.seed, fabric))

    def algorithms(self, ranks: int) -> list[tuple[str, str]]:
        return list(self.serve.algorithm.items())
