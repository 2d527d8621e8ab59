"""What of the model a rank has, in the pieces in which parameters are gathered and gradients become ready."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workloads.steps.plan.training import Training


@dataclass(frozen=True)
class Unit:
    """Parameters of a layer, of the embedding or of the head that one rank computes with.

    `dense` ones are the same on all ranks of the group `data`, `expert` ones on those of `expert_data`.
    """

    name: str
    dense: int
    expert: int = 0


def attention(t: Training) -> Unit:
    return Unit("attention", t.model.attention.on(t.parallel.tensor))


def feed_forward(t: Training) -> Unit:
    m, p = t.model, t.parallel
    return Unit("mlp", m.feed_forward.on(p.tensor), m.experts // p.expert * m.mlp.on(p.tensor))


def layer(t: Training) -> Unit:
    """All of a layer: FSDP's unit."""
    first, second = attention(t), feed_forward(t)
    return Unit("layer", first.dense + second.dense, second.expert)


def embedding(t: Training) -> Unit:
    return Unit("embedding", t.model.embedding.on(t.parallel.tensor))


def head(t: Training) -> Unit:
    """With one table, which the same ranks have for the embedding, the norm alone is its own."""
    part = t.model.head
    if t.model.tied and t.ends_meet:
        return Unit("head", part.whole)
    return Unit("head", part.on(t.parallel.tensor))


def root(t: Training) -> Unit:
    """What FSDP's root unit has: all that is outside of layers."""
    return Unit("root", embedding(t).dense + head(t).dense)


def replicated(t: Training, stage: int) -> int:
    """Parameters of a stage that every rank of tensor has whole: norms, biases behind a sum, routers.

    With sequence parallelism each sees its part of the sequence alone, so that their gradients have to be added up.
    Learned positions are added before the sequence is split.
    """
    m = t.model
    layers = t.layers * t.chunks * (m.attention.whole + m.feed_forward.whole)
    return layers + (m.head.whole if t.holds(stage, t.parts - 1) else 0)


def units_of(t: Training, stage: int) -> Iterator[Unit]:
    """All units of a stage."""
    for _ in range(t.layers * t.chunks):
        yield layer(t)
    if t.model.vocab and t.holds(stage, 0):
        yield embedding(t)
    if t.model.vocab and t.holds(stage, t.parts - 1):
        yield head(t)


def rank_parameters(t: Training, stage: int, *, sharded: bool) -> int:
    """Parameters that one rank of this stage has: all of the stage's, or its share of those that copies share out."""
    dense, expert = stage_parameters(t, stage)
    return -(-dense // t.copies) + -(-expert // t.expert_copies) if sharded else dense + expert


def adam_bytes(t: Training) -> int:
    """Adam's state for a parameter: a copy and two moments in float32; in float32 there is no copy."""
    return 12 if t.model.width < 4 else 2 * t.model.width


def stage_parameters(t: Training, stage: int) -> tuple[int, int]:
    """Dense and expert parameters of a rank of this stage."""
    units = list(units_of(t, stage))
    return sum(u.dense for u in units), sum(u.expert for u in units)
