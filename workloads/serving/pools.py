"""A pool of GPUs that serve one part of a model, and how long a layer's parts take there when tokens are generated.

Every matrix multiplication takes its roofline, as in training (workloads/steps/roofline.py).  A token that is decoded
reads all keys and values of its sequence, so that attention is bound by memory; an expert's matrices are read once,
however many tokens it gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workloads.steps.plan.gpu import ATTENTION, Gpu
from workloads.steps.plan.model import Model


@dataclass(frozen=True, kw_only=True)
class Pool:
    """GPUs that are alike.  `layer_ns`: what they take for a layer, where that is stated; else it follows from `gpu`.

    `cost`: of one GPU in an hour, in whatever unit (None: not said).
    """

    ranks: tuple[int, ...]
    gpu: Gpu | None = None
    layer_ns: float | None = None
    cost: float | None = None


def attention_ns(model: Model, gpu: Gpu, prompts: Sequence[int], contexts: Sequence[int], tensor: int = 1) -> float:
    """A layer's first half on one of `tensor` ranks: norm, queries, keys and values, core, projection, addition.

    Sequence k has `prompts[k]` new tokens (1: it is decoded), each of which looks at `contexts[k]` tokens in all.
    """
    n, w = sum(prompts), model.width
    queries, keys = model.queries / tensor, model.keys / tensor
    looks = sum(p * c for p, c in zip(prompts, contexts, strict=True))
    core = gpu.time_ns(4 * looks * queries, w * (2 * n * queries + 2 * sum(contexts) * keys), ATTENTION)
    return (
        _moving(gpu, 2 * n * model.hidden * w)
        + _matrix(gpu, n, model.hidden, queries + 2 * keys, w)
        + core
        + _matrix(gpu, n, queries, model.hidden, w)
        + _moving(gpu, 3 * n * model.hidden * w)
    )


def router_ns(model: Model, gpu: Gpu, tokens: int) -> float:
    """Norm, the choice of experts, and the weighted sum of what they say."""
    w = model.width
    norm = _moving(gpu, 2 * tokens * model.hidden * w)
    addition = _moving(gpu, (2 + model.top_k) * tokens * model.hidden * w)
    return norm + _matrix(gpu, tokens, model.hidden, model.experts, w) + addition


def experts_ns(model: Model, gpu: Gpu, rows: Sequence[int], tensor: int = 1) -> float:
    """MLPs that get so many tokens each; those that get none are not read."""
    w, ffn = model.width, model.ffn / tensor
    return sum(
        _matrix(gpu, n, model.hidden, model.columns * ffn, w)
        + _moving(gpu, (model.columns + 1) * n * ffn * w)
        + _matrix(gpu, n, ffn, model.hidden, w)
        for n in rows
        if n
    )


def mlp_ns(model: Model, gpu: Gpu, tokens: int, tensor: int = 1) -> float:
    """The second half of a layer without experts: norm, MLP, addition."""
    w = model.width
    around = _moving(gpu, 2 * tokens * model.hidden * w) + _moving(gpu, 3 * tokens * model.hidden * w)
    return around + experts_ns(model, gpu, [tokens], tensor)


def head_ns(model: Model, gpu: Gpu, sequences: int, tensor: int = 1) -> float:
    """The next token of each sequence: the last norm, and the table of words; 0 without `vocab`."""
    if not model.vocab:
        return 0.0
    w, words = model.width, -(-model.vocab // tensor)
    return _moving(gpu, 2 * sequences * model.hidden * w) + _matrix(gpu, sequences, model.hidden, words, w)


def attention_layer_ns(model: Model, pool: Pool, new: Sequence[int], contexts: Sequence[int]) -> float:
    """A layer of a micro-batch on a rank that has attention and the router: see `attention_ns`."""
    if pool.layer_ns is not None:
        return pool.layer_ns
    assert pool.gpu is not None
    return round(attention_ns(model, pool.gpu, new, contexts) + router_ns(model, pool.gpu, sum(new)), 3)


def experts_layer_ns(model: Model, pool: Pool, tokens: Sequence[Sequence[int]]) -> tuple[float, ...]:
    """Likewise on each rank that has experts; `tokens`: [attention rank][expert].

    A stated time is that of the mean share of tokens.
    """
    rows = [sum(column) for column in zip(*tokens, strict=True)]
    each = len(rows) // len(pool.ranks)
    of_ranks = [rows[k * each : (k + 1) * each] for k in range(len(pool.ranks))]
    if pool.layer_ns is not None:
        mean = sum(rows) / len(pool.ranks)
        return tuple(round(pool.layer_ns * sum(own) / mean, 3) for own in of_ranks)
    assert pool.gpu is not None
    return tuple(round(experts_ns(model, pool.gpu, own), 3) for own in of_ranks)


def cache_bytes(model: Model, tokens: int) -> int:
    """Keys and values of so many tokens in all layers."""
    return 2 * model.layers * model.keys * model.width * tokens


def _matrix(gpu: Gpu, m: float, k: float, n: float, width: int) -> float:
    return gpu.time_ns(2 * m * k * n, width * (m * k + k * n + m * n))


def _moving(gpu: Gpu, nbytes: float) -> float:
    return gpu.time_ns(0, nbytes)
