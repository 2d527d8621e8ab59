"""How long a layer's parts compute on a rank: the roofline of every matrix multiplication and of what lies between.

A multiplication of (m x k) by (k x n) is 2 m k n FLOPs over its three matrices' bytes; its two in the backward pass,
for the gradients of inputs and of weights, cost the same each.  Attention's core reads and writes queries, keys, values
and results alone, its scores stay in the GPU: forward 4 FLOPs, backward 8, for every query, key and element of a head.
Selective recomputation does the 4 again (FlashAttention's own backward pass does 2 of them again).  Norms, activations
and residual additions are bound by memory; backward they touch half as much again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from workloads.steps.plan.gpu import ATTENTION, ATTENTION_BACKWARD, Gpu
from workloads.steps.plan.training import Training


class Cost(NamedTuple):
    """ns of the forward pass, and backward of the gradients of inputs and of weights."""

    forward: float = 0.0
    inputs: float = 0.0
    weights: float = 0.0

    def plus(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def backward(self) -> float:
        return self.inputs + self.weights


@dataclass(frozen=True)
class Times:
    """Of one layer and micro-batch on one rank; `column` and `row` are the MLP's halves before and after it is summed.

    `qkv`: norm, queries, keys, values.  `core`: all of attention's core that the rank does.  `projection`, `row`: with
    their additions.  `column`: norm and activation are in it.
    """

    qkv: Cost
    core: Cost
    projection: Cost
    column: Cost
    row: Cost
    router: Cost = Cost()
    embedding: Cost = Cost()
    head: Cost = Cost()


def times(t: Training) -> Times:
    """From the model's shape and the GPU's rates."""
    m, tensor, w = t.model, t.parallel.tensor, t.model.width
    n, shard = t.tokens, t.routed
    queries, keys, ffn = m.queries / tensor, m.keys / tensor, m.ffn / tensor
    norm = _moving(t.gpu, 2 * shard * m.hidden * w)
    addition = _moving(t.gpu, 3 * shard * m.hidden * w)
    columns = _matrix(t.gpu, n, m.hidden, m.columns * ffn, w).plus(_moving(t.gpu, (m.columns + 1) * n * ffn * w))
    flops = 4 * n * m.seq * queries
    kept = w * (2 * n * queries + 2 * t.micro * m.seq * keys)
    forward = t.gpu.time_ns(flops, kept, ATTENTION)
    again = forward if t.recompute == "selective" else 0.0
    vocab = -(-m.vocab // tensor)
    return Times(
        qkv=norm.plus(_matrix(t.gpu, n, m.hidden, queries + 2 * keys, w)),
        core=Cost(forward, t.gpu.time_ns(2 * flops, 2 * kept, ATTENTION_BACKWARD) + again, 0.0),
        projection=_matrix(t.gpu, n, queries, m.hidden, w).plus(addition),
        column=norm.plus(columns),
        row=_matrix(t.gpu, n, ffn, m.hidden, w).plus(addition),
        router=norm.plus(addition).plus(_matrix(t.gpu, shard, m.hidden, m.experts, w)) if m.experts else Cost(),
        embedding=_moving(t.gpu, 2 * n * m.hidden * w) if m.vocab else Cost(),
        head=_matrix(t.gpu, n, m.hidden, vocab, w).plus(_moving(t.gpu, 4 * n * vocab)) if m.vocab else Cost(),
    )


def experts(t: Training, rows: Sequence[int]) -> Cost:
    """The MLPs of a rank's experts, which get so many tokens each."""
    m, w = t.model, t.model.width
    ffn = m.ffn / t.parallel.tensor
    total = Cost()
    for n in rows:
        if n:
            total = total.plus(_matrix(t.gpu, n, m.hidden, m.columns * ffn, w))
            total = total.plus(_moving(t.gpu, (m.columns + 1) * n * ffn * w))
            total = total.plus(_matrix(t.gpu, n, ffn, m.hidden, w))
    return total


def optimizer_ns(t: Training, parameters: int) -> float:
    """Adam over so many parameters: reads and writes of them, their gradients, and its state."""
    w = t.model.width
    touched = 24 + 2 * w if w < 4 else 7 * w  # a master copy and two moments in float32; in float32 there is no copy
    return t.gpu.time_ns(0, touched * parameters)


def _matrix(gpu: Gpu, m: float, k: float, n: float, width: int) -> Cost:
    ns = gpu.time_ns(2 * m * k * n, width * (m * k + k * n + m * n))
    return Cost(ns, ns, ns)


def _moving(gpu: Gpu, nbytes: float) -> Cost:
    return Cost(gpu.time_ns(0, nbytes), gpu.time_ns(0, 1.5 * nbytes), 0.0)
