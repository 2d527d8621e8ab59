"""Attention and experts on GPUs of their own, which micro-batches go to and fro between (MegaScale-Infer).

A micro-batch's tokens compute attention of a layer on the ranks that have their sequences, go to the ranks of their
experts (M2N), and come back (N2M).  With several micro-batches each pool computes one while others are under way or on
the other side.  Zhu et al., "MegaScale-Infer: Serving Mixture-of-Experts at Scale with Disaggregated Expert
Parallelism" (arXiv 2504.02263); the formulas are in balance.py, the exchanges in exchange.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from workloads.serving.exchange import Exchange
from workloads.serving.pools import Pool, attention_layer_ns, experts_layer_ns, head_ns
from workloads.serving.routing import Routing, Table, of_ranks
from workloads.steps.plan.model import Model
from workloads.tasks.graph import Graph
from workloads.tasks.task import Compute, Task

ATTENTION, EXPERT, HEAD = "attention", "expert", "head"
_COMPUTE = "compute"


@dataclass(frozen=True, kw_only=True)
class PingPong:
    """`tokens`: sequences of a micro-batch on each attention rank, of which each has `context` tokens already.

    `output`: tokens that each sequence gets, one after the other.
    """

    model: Model
    attention: Pool
    experts: Pool
    tokens: int
    context: int
    micro_batches: int = 1
    output: int = 1
    routing: Routing = field(default_factory=Routing)
    exchange: str = "m2n"
    algorithms: Mapping[str, str] = field(default_factory=dict)

    @property
    def ranks(self) -> tuple[int, ...]:
        return (*self.attention.ranks, *self.experts.ranks)

    @cached_property
    def table(self) -> Table:
        """[attention rank][expert]: tokens of a micro-batch."""
        m = self.model
        return self.routing.table(len(self.attention.ranks), self.tokens, m.top_k, m.experts)

    @cached_property
    def parts(self) -> Table:
        """[attention rank][expert rank]: tokens of a micro-batch."""
        return of_ranks(self.table, len(self.experts.ranks))

    def attention_ns(self, step: int = 0) -> float:
        """Ta: a layer of a micro-batch, for the sequences' `step`-th new token."""
        contexts = [self.context + step + 1] * self.tokens
        return attention_layer_ns(self.model, self.attention, [1] * self.tokens, contexts)

    @cached_property
    def expert_ns(self) -> tuple[float, ...]:
        """Of each expert rank: a layer of a micro-batch.  A stated time is that of the mean share of tokens."""
        return experts_layer_ns(self.model, self.experts, self.table)

    @property
    def head_ns(self) -> float:
        """The next tokens of a micro-batch, on the attention ranks."""
        if self.attention.gpu is None:
            return 0.0
        return round(head_ns(self.model, self.attention.gpu, self.tokens), 3)


def ping_pong_graph(p: PingPong) -> Graph:
    """All output tokens of all micro-batches."""
    exchange = Exchange(
        model=p.model, attention=p.attention.ranks, experts=p.experts.ranks, how=p.exchange, algorithms=p.algorithms
    )
    tasks = {rank: tuple(_attention(p, exchange)) for rank in p.attention.ranks}
    tasks |= {rank: tuple(_experts(p, exchange, ns)) for rank, ns in zip(p.experts.ranks, p.expert_ns, strict=True)}
    return Graph(exchange.groups, dict(sorted(tasks.items())), exchange.settings)


def _attention(p: PingPong, exchange: Exchange) -> list[Task]:
    tasks: list[Task] = []
    back: dict[int, tuple[str, ...]] = {}  # micro-batch -> what its next layer waits for
    for step in range(p.output):
        ns = p.attention_ns(step)
        for layer in range(p.model.layers):
            for j in range(p.micro_batches):
                name = f"{step}.{layer}.{j}"
                tasks.append(_compute(f"attention{name}", ATTENTION, back.get(j, ()), ns))
                tasks.append(exchange.dispatch(name, j, (f"attention{name}",), p.parts))
                tasks.append(exchange.combine(name, j, (), p.parts))
                back[j] = (f"combine{name}",)
        if p.head_ns:
            for j in range(p.micro_batches):
                tasks.append(_compute(f"head{step}.{j}", HEAD, back[j], p.head_ns))
                back[j] = (f"head{step}.{j}",)
    return tasks


def _experts(p: PingPong, exchange: Exchange, ns: float) -> list[Task]:
    tasks: list[Task] = []
    for step in range(p.output):
        for layer in range(p.model.layers):
            for j in range(p.micro_batches):
                name = f"{step}.{layer}.{j}"
                tasks.append(exchange.dispatch(name, j, (), p.parts))
                tasks.append(_compute(f"expert{name}", EXPERT, (f"dispatch{name}",), ns))
                tasks.append(exchange.combine(name, j, (f"expert{name}",), p.parts))
    return tasks


def _compute(name: str, kind: str, after: tuple[str, ...], ns: float) -> Compute:
    return Compute(id=name, stream=_COMPUTE, after=after, kind=kind, duration_ns=ns)
