"""A training step as it is asked for, the sizes that follow from it, and what cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from workloads.steps.plan.experts import Gating
from workloads.steps.plan.gpu import Gpu
from workloads.steps.plan.model import Model
from workloads.steps.plan.parallel import Parallel
from workloads.steps.plan.schedules import BIDIRECTIONAL, CHUNKS, ENDS_MEET, SPLIT, part, parts

SHARDS = ("none", "zero1", "zero2", "zero3", "fsdp")
RECOMPUTE = ("none", "selective", "full")

Found = tuple[tuple[str, ...], str, str]
"""Which part of the step is wrong, what about it, and what is allowed."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """`micro`: sequences of a micro-batch; `count`: micro-batches of a pipeline in a step.

    `shard`: what ranks with the same parameters share out: nothing, ZeRO's stages (Rajbhandari et al. 2020; zero3
    gathers a layer when it is needed), or as FSDP, which gathers the next layer during this one's computation.
    `recompute`: activations that are computed again in the backward pass (Korthikanti et al. 2022).
    """

    model: Model
    gpu: Gpu
    parallel: Parallel = field(default_factory=Parallel)
    micro: int = 1
    count: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    shard: str = "none"
    recompute: str = "none"
    bucket_bytes: int = 25 << 20
    first_bucket_bytes: int | None = None  # None: it is like the others
    root_unit: bool = False  # embedding and head are one unit of FSDP, which stays gathered through the backward pass
    gating: Gating = field(default_factory=Gating)
    optimizer_in: str | None = None  # the algorithm of optimizer_step that does the optimizer's work with the sums

    @property
    def tokens(self) -> int:
        """Of a micro-batch, that a rank works on outside of what sequence parallelism splits."""
        return self.micro * self.model.seq // self.parallel.context

    @property
    def routed(self) -> int:
        """Tokens of a micro-batch that a rank sends to experts (each to `top_k`)."""
        return self.tokens // (self.parallel.tensor if self.parallel.sequence else 1)

    @property
    def step_tokens(self) -> int:
        """Of all ranks, in a step."""
        return self.micro * self.count * self.parallel.data * self.model.seq

    @property
    def flops(self) -> float:
        """What the model asks for in a step: the numerator of MFU."""
        return self.model.flops(self.step_tokens)

    @property
    def layers(self) -> int:
        """Of one chunk of a stage."""
        return self.model.layers // self.parts

    @property
    def parts(self) -> int:
        """Of the model, that follow each other in the pipeline."""
        return parts(self.schedule, self.parallel.pipeline, self.chunks)

    def holds(self, stage: int, which: int) -> bool:
        """Whether a stage has this part of the model."""
        return any(part(self.schedule, self.parallel.pipeline, stage, c) == which for c in range(self.chunks))

    @property
    def ends_meet(self) -> bool:
        """Whether the ranks with the first part of the model have the last one, too."""
        return self.parallel.pipeline == 1 or self.schedule in ENDS_MEET

    @property
    def mirrored(self) -> bool:
        """Whether each part of the model is on two ranks of a pipeline, as far from its two ends."""
        return self.schedule in BIDIRECTIONAL

    @property
    def copies(self) -> int:
        """Ranks with the same parameters, whose gradients are added up."""
        return self.parallel.copies * (1 + self.mirrored)

    @property
    def expert_copies(self) -> int:
        """Ranks with the same experts."""
        return self.parallel.expert_copies * (1 + self.mirrored)

    @property
    def gathers(self) -> bool:
        """Whether parameters are gathered layer by layer."""
        return self.shard in ("zero3", "fsdp")

    @property
    def reduces_always(self) -> bool:
        """Whether gradients are added up in every micro-batch, as nobody has room for all of them."""
        return self.shard in ("zero2", "zero3", "fsdp")


def problems(t: Training) -> Iterator[Found]:
    """Everything about a step that does not divide or does not go together."""
    m, p = t.model, t.parallel
    yield from _model(m)
    for number, what, size, key in (
        (m.heads, "heads", p.tensor, "tensor"),
        (m.kv_heads, "kv_heads", p.tensor, "tensor"),
        (m.ffn, "ffn", p.tensor, "tensor"),
        (m.seq, "seq", p.context, "context"),
        (m.layers, "layers", p.pipeline, "pipeline"),
    ):
        if number % size:
            problem = f"{what} of the model, {number}, cannot be divided by {key} {size}"
            yield ("parallel", key), problem, _divisors(number)
    if m.layers % p.pipeline == 0 and m.layers % t.parts:
        what = f"layers of the model, {m.layers}, cannot be divided into {p.pipeline} stages of {t.chunks} chunks"
        hint = f"{t.schedule}: {_divisors(m.layers // p.pipeline)}" if t.schedule not in CHUNKS else "another schedule"
        yield ("schedule",), what, hint
    if p.sequence and p.tensor == 1:
        what = "sequence parallelism splits over the ranks of tensor, of which there is one"
        yield ("parallel", "sequence"), what, "tensor: 2 or more, or leave sequence out"
    elif p.sequence and m.seq % p.context == 0 and m.seq // p.context % p.tensor:
        what = f"seq of a rank, {m.seq // p.context}, cannot be divided by tensor {p.tensor}"
        yield ("parallel", "sequence"), what, "leave sequence out"
    if p.scatter_gather and (p.tensor == 1 or p.pipeline == 1):
        what = "scatter_gather splits what goes between stages over the ranks of tensor"
        yield ("parallel", "scatter_gather"), what, "pipeline and tensor: 2 or more, or leave scatter_gather out"
    elif p.scatter_gather and p.sequence:
        what = "with sequence what goes between stages is split already, and stays so"
        yield ("parallel", "scatter_gather"), what, "leave scatter_gather out"
    elif p.scatter_gather and t.tokens * m.hidden % p.tensor:
        what = f"activations of a micro-batch, {t.tokens * m.hidden} elements, cannot be divided by tensor {p.tensor}"
        yield ("parallel", "scatter_gather"), what, "leave scatter_gather out"
    yield from _experts(t)
    yield from _schedule(t)


def _model(m: Model) -> Iterator[Found]:
    if not m.head_dim and m.hidden % m.heads:
        yield ("model", "heads"), f"hidden {m.hidden} cannot be divided by heads {m.heads}", _divisors(m.hidden)
    if m.heads % m.kv_heads:
        yield ("model", "kv_heads"), f"heads {m.heads} cannot be divided by kv_heads {m.kv_heads}", _divisors(m.heads)
    if m.experts and m.top_k > m.experts:
        yield ("model", "top_k"), f"a token cannot take {m.top_k} of {m.experts} experts", f"1 to {m.experts}"


def _experts(t: Training) -> Iterator[Found]:
    m, p = t.model, t.parallel
    if p.expert > 1 and not m.experts:
        yield ("parallel", "expert"), "the model has no experts", "model: {experts: 8}, or leave expert out"
        return
    if m.experts and m.experts % p.expert:
        what = f"experts of the model, {m.experts}, cannot be divided by expert {p.expert}"
        yield ("parallel", "expert"), what, _divisors(m.experts)
    if p.copies % p.expert:
        what = f"expert {p.expert} does not divide data x context, {p.copies}, whose ranks it takes"
        yield ("parallel", "expert"), what, _divisors(p.copies)
    if m.experts and p.tensor > 1 and not p.sequence:
        what = "experts and tensor parallelism need sequence parallelism"
        yield ("parallel", "sequence"), what, "sequence: true (as in Megatron), or tensor: 1"


def _schedule(t: Training) -> Iterator[Found]:
    stages = t.parallel.pipeline
    if t.schedule in ("interleaved", *CHUNKS) and stages == 1:
        yield ("schedule",), f"one stage is no pipeline, and {t.schedule} is of several", "pipeline: 2 or more"
    elif t.schedule == "interleaved" and t.count % stages:
        what = f"interleaved goes through {stages} micro-batches at a time, and {t.count} is no multiple of that"
        yield ("batch", "count"), what, f"a multiple of {stages}"
    elif t.schedule == "dualpipe" and stages % 2:
        yield ("schedule",), f"dualpipe takes two stages together, and there are {stages}", "pipeline: an even number"
    elif t.schedule == "dualpipe" and (t.count % 2 or t.count < 2 * stages):
        what = f"dualpipe takes two micro-batches at a time, {2 * stages} or more, and there are {t.count}"
        yield ("batch", "count"), what, f"an even number, {2 * stages} or more"
    if t.schedule == "dualpipe" and t.gathers:
        what = f"dualpipe goes through two micro-batches by turns, and {t.shard} gathers a layer for one of them"
        yield ("shard",), what, "shard: none, zero1 or zero2"
    if t.schedule in SPLIT and t.recompute == "full":
        what = f"{t.schedule} keeps activations for the gradients of weights"
        yield ("recompute",), what, "recompute: none or selective"
    yield from _optimizer(t)


def _optimizer(t: Training) -> Iterator[Found]:
    """What does the optimizer's work with the sums of the group `data` must get every parameter's whole sum."""
    name, m, p = t.optimizer_in, t.model, t.parallel
    if name is None:
        return
    if t.shard != "none":
        yield ("shard",), f"{name} keeps the optimizer's state, there is nothing to shard", "shard: none"
    another = "another algorithm for the group data"
    if p.sequence and p.tensor > 1:
        what = f"{name} steps as soon as data has summed, and gradients of norms are summed over tensor after that"
        yield ("parallel", "sequence"), what, f"sequence: false, or {another}"
    if m.tied and m.vocab and not t.ends_meet:
        what = f"{name} steps as soon as data has summed, and both ends of the pipeline sum a tied table after that"
        yield ("model", "tied"), what, f"tied: false, pipeline: 1, or {another}"
    if p.expert > 1 and t.expert_copies == 1:
        what = f"{name} steps with what it sums, and experts that one rank alone has are summed by nobody"
        yield ("parallel", "expert"), what, f"expert: a divisor of {p.copies} below it, or {another}"


def _divisors(n: int) -> str:
    divisors = [d for d in range(1, n + 1) if n % d == 0]
    shown = divisors if len(divisors) <= 12 else [*divisors[:11], "..", n]
    return f"a divisor of {n}: {', '.join(map(str, shown))}"
