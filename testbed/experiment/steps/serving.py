"""From the step `serve` of an experiment to the pools and what they do.

Which pools are named says how it serves: attention and experts apart, or ranks that share every matrix.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base import units
from testbed.experiment.steps.training import Mistakes, gpu_of, model_of
from workloads.serving.apart import Apart
from workloads.serving.ping_pong import PingPong
from workloads.serving.pools import Pool
from workloads.serving.requests import LONGEST_NS, BadRequests, Request, poisson, read
from workloads.serving.routing import Routing
from workloads.serving.tensor_parallel import DECODE, PREFILL, Shared
from workloads.steps.plan.experts import Gating

if TYPE_CHECKING:
    from testbed.experiment.steps.serve import PoolOf, Serve
    from workloads.steps.plan.model import Model

APART = ("attention", "experts")
SHARED = (PREFILL, DECODE)


def plays_ping_pong(serve: Serve) -> bool:
    return serve.attention is not None or serve.experts is not None


def ping_pongs(serve: Serve, seed: int) -> list[PingPong]:
    """One for each number of micro-batches.  Raises Mistakes for what is missing or unknown."""
    model = model_of(serve.model)
    attention, experts = (_pool(serve, name, model) for name in APART)
    return [
        PingPong(
            model=model,
            attention=attention,
            experts=experts,
            tokens=serve.tokens,
            context=context_of(serve, model),
            micro_batches=count,
            output=serve.output,
            routing=_routing(serve, seed),
            exchange=serve.exchange,
            algorithms=serve.algorithm,
        )
        for count in serve.micro_batches
    ]


def aparts(serve: Serve, seed: int) -> list[Apart]:
    """Likewise, for requests."""
    model = model_of(serve.model)
    attention, experts = (_pool(serve, name, model) for name in APART)
    return [
        Apart(
            model=model,
            attention=attention,
            experts=experts,
            micro_batches=count,
            routing=_routing(serve, seed),
            how=serve.exchange,
            algorithms=serve.algorithm,
        )
        for count in serve.micro_batches
    ]


def shared_pools(serve: Serve, seed: int) -> list[Shared]:
    """The pool that reads prompts, if there is one, and the one that generates.  Raises Mistakes."""
    model = model_of(serve.model)
    return [
        Shared(
            model=model,
            pool=_pool(serve, name, model),
            routing=_routing(serve, seed),
            algorithms=serve.algorithm,
        )
        for name in SHARED
        if getattr(serve, name) is not None
    ]


def context_of(serve: Serve, model: Model) -> int:
    """Tokens that each sequence has before."""
    return model.seq if serve.context is None else serve.context


def requests_of(serve: Serve, seed: int) -> list[Request]:
    """Raises Mistakes for a file that cannot be read."""
    told = serve.requests
    assert told is not None
    if told.trace is None:
        (least, most), (few, many) = told.prompt, told.output
        assert told.rate is not None
        drawn = poisson(told.count, told.rate, (least, most), (few, many), seed)
        if (span := drawn[-1].arrival_ns) > LONGEST_NS:
            what = f"{told.count} requests at {told.rate:g} a second take {span / 1e9:.3g} s to come"
            raise Mistakes([(("requests", "rate"), what, f"at most {LONGEST_NS / 1e9:.0f} s: more a second, or fewer")])
        return drawn
    try:
        return read(Path(told.trace), _time_ns)
    except BadRequests as bad:
        raise Mistakes([(("requests", "trace"), bad.what, bad.hint)]) from None


def _time_ns(text: str) -> float:
    """Seconds, or a time with its unit."""
    try:
        ns = float(text) * 1e9
    except ValueError:
        ns = units.parse_time(text)
    if not (math.isfinite(ns) and ns >= 0):
        raise ValueError(text)
    return ns


def _routing(serve: Serve, seed: int) -> Routing:
    return Routing(
        gating=Gating(zipf=serve.gating.zipf or 0.0, hot=serve.gating.hot), draw=serve.gating.draw, seed=seed
    )


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
