"""What a rank has to hold, and whether that fits its GPU.

Parameters, gradients and Adam's state are 16 bytes a parameter in mixed precision: 2 and 2, and 12 in float32 (a copy
and two moments); ZeRO shares out the 12, the gradients, the parameters (Rajbhandari et al. 2020, section 3.1 and 5).

Activations of a layer are Korthikanti et al.'s (2022): s b h (34 + 5 a s / h) bytes in elements of 2, split by tensor
and sequence parallelism as in their table 2.  Here they follow from the same tensors one by one, so that other MLPs and
fewer heads of keys come out right, too.  What 5 a s / h is goes with selective recomputation; with full, only a
layer's input stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from workloads.steps.plan.schedules import held, part, schedule
from workloads.steps.plan.training import Training
from workloads.steps.plan.units import adam_bytes, layer, rank_parameters, root, units_of


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def all(self) -> int:
        return self.parameters + self.gradients + self.optimizer + self.activations


def layer_activations(t: Training) -> int:
    """Bytes of a layer and micro-batch that the backward pass needs."""
    m, w, tensor = t.model, t.model.width, t.parallel.tensor
    n, shard = t.tokens, t.routed
    if t.recompute == "full":
        return w * shard * m.hidden
    whole = 2 * w * m.hidden + w * m.hidden  # inputs of two norms, and of queries, keys and values
    whole += 2 * m.hidden  # masks of two dropouts, of a byte
    split = w * (m.queries + 2 * m.keys) + w * m.queries  # queries, keys, values; what the projection gets
    scores = (2 * w + 1) * m.heads * m.seq if t.recompute == "none" else 0  # softmax, its dropout, that one's mask
    rows, received = n, shard
    if m.experts:  # what they got stays gathered
        rows = received = max(rank_rows(t))
    into = w * m.hidden * received  # inputs of what the MLPs begin with
    inner = w * m.ffn * (m.columns + 1)  # what an activation function gets, and what it gives
    return shard * whole + into + n * (split + scores) // tensor + rows * inner // tensor


def rank_rows(t: Training) -> list[int]:
    """Tokens that the experts of each rank of an expert group work on."""
    m, p = t.model, t.parallel
    loads = t.gating.loads(t.routed, m.top_k, m.experts)
    each = m.experts // p.expert
    gathered = p.expert * (p.tensor if p.sequence else 1)
    return [gathered * sum(loads[k * each : (k + 1) * each]) for k in range(p.expert)]


def memory(t: Training, stage: int) -> Memory:
    """Of the rank with the most to do in a stage of the pipeline."""
    m, p, w = t.model, t.parallel, t.model.width
    gathered = 0
    if t.gathers:
        largest = max(u.dense + u.expert for u in units_of(t, stage))
        gathered = (2 if t.shard == "fsdp" else 1) * largest  # with prefetching there are two at a time
        if t.root_unit:
            unit = layer(t)
            gathered = 2 * (unit.dense + unit.expert) + root(t).dense
    passes = schedule(t.schedule, p.pipeline, t.count, stage, t.chunks)
    activations = held(passes) * t.layers * layer_activations(t)
    if t.recompute == "full":  # the layer that is being computed again has all of them
        activations += layer_activations(replace(t, recompute="none"))
    if m.vocab and t.holds(stage, t.parts - 1):
        logits = 4 * t.tokens * -(-m.vocab // p.tensor)  # in float32
        through = held([step for step in passes if part(t.schedule, p.pipeline, stage, step.chunk) == t.parts - 1])
        activations += through * (t.routed * 2 * w * m.hidden + logits)
    return Memory(
        parameters=w * (rank_parameters(t, stage, sharded=t.gathers) + gathered),
        gradients=w * rank_parameters(t, stage, sharded=t.reduces_always),
        optimizer=0 if t.optimizer_in else adam_bytes(t) * rank_parameters(t, stage, sharded=t.shard != "none"),
        activations=activations,
    )
