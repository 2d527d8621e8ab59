"""Attention and experts on GPUs of their own, which micro-batches go to and fro between (MegaScale-Infer).

A micro-batch's tokens compute attention of a layer on the ranks that have their sequences, go to the ranks of their
experts (M2N), and come back (N2M).  With several micro-batches each pool computes one while others are under way or on
the other side.  Zhu et al., "MegaScale-Infer: Serving Mixture-of-Experts at Scale with Disaggregated Expert
Parallelism" (arXiv 2504.02263); the formulas are in balance.py.

Exchanges: `m2n` sends each rank its part and waits for nobody; `all_to_all_v` sends the same parts as a collective of
both pools, in which everybody hears of everybody; `all_to_all` likewise with parts that are all as large as the largest
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from workloads.serving.pools import Pool, attention_ns, experts_ns, head_ns, router_ns
from workloads.serving.routing import Routing, Table, of_ranks
from workloads.steps.plan.model import Model
from workloads.tasks.graph import Graph, Settings
from workloads.tasks.task import Collective, Compute, Task

EXCHANGES = ("m2n", "all_to_all_v", "all_to_all")
ATTENTION, EXPERT, DISPATCH, COMBINE, HEAD = "attention", "expert", "expert_dispatch", "expert_combine", "head"
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
        if self.attention.layer_ns is not None:
            return self.attention.layer_ns
        gpu = self.attention.gpu
        assert gpu is not None
        contexts = [self.context + step + 1] * self.tokens
        first = attention_ns(self.model, gpu, [1] * self.tokens, contexts)
        return round(first + router_ns(self.model, gpu, self.tokens), 3)

    @cached_property
    def expert_ns(self) -> tuple[float, ...]:
        """Of each expert rank: a layer of a micro-batch.  A stated time is that of the mean share of tokens."""
        loads = [sum(row[k] for row in self.parts) for k in range(len(self.experts.ranks))]
        if self.experts.layer_ns is not None:
            mean = sum(loads) / len(loads)
            return tuple(round(self.experts.layer_ns * n / mean, 3) for n in loads)
        gpu, each = self.experts.gpu, self.model.experts // len(self.experts.ranks)
        assert gpu is not None
        rows = [sum(row[e] for row in self.table) for e in range(self.model.experts)]
        return tuple(round(experts_ns(self.model, gpu, rows[k * each : (k + 1) * each]), 3) for k in range(len(loads)))

    @property
    def head_ns(self) -> float:
        """The next tokens of a micro-batch, on the attention ranks."""
        if self.attention.gpu is None:
            return 0.0
        return round(head_ns(self.model, self.attention.gpu, self.tokens), 3)

    @property
    def sent_bytes(self) -> int:
        """What an attention rank sends of a micro-batch in a layer, and what it gets back."""
        return self.tokens * self.model.top_k * self.model.hidden * self.model.width


def ping_pong_graph(p: PingPong) -> Graph:
    """All output tokens of all micro-batches."""
    exchange = _Exchange(p)
    tasks = {rank: tuple(_attention(p, exchange)) for rank in p.attention.ranks}
    tasks |= {rank: tuple(_experts(p, exchange, ns)) for rank, ns in zip(p.experts.ranks, p.expert_ns, strict=True)}
    return Graph(exchange.groups, dict(sorted(tasks.items())), exchange.settings)


def _attention(p: PingPong, exchange: _Exchange) -> list[Task]:
    tasks: list[Task] = []
    back: dict[int, tuple[str, ...]] = {}  # micro-batch -> what its next layer waits for
    for step in range(p.output):
        ns = p.attention_ns(step)
        for layer in range(p.model.layers):
            for j in range(p.micro_batches):
                name = f"{step}.{layer}.{j}"
                tasks.append(_compute(f"attention{name}", ATTENTION, back.get(j, ()), ns))
                tasks.append(exchange.there(name, j, (f"attention{name}",)))
                tasks.append(exchange.back(name, j, ()))
                back[j] = (f"combine{name}",)
        if p.head_ns:
            for j in range(p.micro_batches):
                tasks.append(_compute(f"head{step}.{j}", HEAD, back[j], p.head_ns))
                back[j] = (f"head{step}.{j}",)
    return tasks


def _experts(p: PingPong, exchange: _Exchange, ns: float) -> list[Task]:
    tasks: list[Task] = []
    for step in range(p.output):
        for layer in range(p.model.layers):
            for j in range(p.micro_batches):
                name = f"{step}.{layer}.{j}"
                tasks.append(exchange.there(name, j, ()))
                tasks.append(_compute(f"expert{name}", EXPERT, (f"dispatch{name}",), ns))
                tasks.append(exchange.back(name, j, (f"expert{name}",)))
    return tasks


def _compute(name: str, kind: str, after: tuple[str, ...], ns: float) -> Compute:
    return Compute(id=name, stream=_COMPUTE, after=after, kind=kind, duration_ns=ns)


class _Exchange:
    """The collectives that take tokens to their experts and back; each micro-batch has streams of its own."""

    def __init__(self, p: PingPong) -> None:
        self._p = p
        there, back = (*p.attention.ranks, *p.experts.ranks), (*p.experts.ranks, *p.attention.ranks)
        several = len(p.attention.ranks), len(p.experts.ranks)
        self.groups: dict[str, tuple[tuple[int, ...], ...]]
        if p.exchange == "all_to_all":
            self.groups, self.settings = {"exchange": (there,)}, {"exchange": _settings(p, {})}
            self._size = (sum(several) * max(map(max, p.parts))) * p.model.hidden * p.model.width
            return
        self._size = p.sent_bytes
        self.groups = {"dispatch": (there,), "combine": (back,)}
        if p.exchange == "m2n":
            options = [{"senders": n, "parts": [list(row) for row in p.parts]} for n in several]
        else:
            options = [{"parts": _square(p.parts, k)} for k in (False, True)]
        self.settings = {name: _settings(p, its) for name, its in zip(self.groups, options, strict=True)}

    def there(self, name: str, j: int, after: tuple[str, ...]) -> Collective:
        return self._task(f"dispatch{name}", DISPATCH, "dispatch", j, after, {"m2n": "m2n"})

    def back(self, name: str, j: int, after: tuple[str, ...]) -> Collective:
        return self._task(f"combine{name}", COMBINE, "combine", j, after, {"m2n": "n2m"})

    def _task(
        self, name: str, kind: str, group: str, j: int, after: tuple[str, ...], collective: Mapping[str, str]
    ) -> Collective:
        p = self._p
        return Collective(
            id=name,
            stream=f"{group}{j}",
            after=after,
            kind=kind,
            collective=collective.get(p.exchange, p.exchange),
            group=group if group in self.groups else "exchange",
            size_bytes=self._sizes[group],
            dtype=p.model.dtype,
        )

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """In the sense of nccl-tests; of all_to_all_v the largest of the ranks' vectors."""
        p = self._p
        if p.exchange != "all_to_all_v":
            return dict.fromkeys(("dispatch", "combine"), self._size)
        back = max(sum(row[k] for row in p.parts) for k in range(len(p.experts.ranks)))
        return {"dispatch": self._size, "combine": back * p.model.hidden * p.model.width}


def _settings(p: PingPong, options: Mapping[str, Any]) -> Settings:
    return Settings(algorithms=dict(p.algorithms), options=options)


def _square(parts: Table, back: bool) -> list[list[int]]:
    """[from][to] of all ranks of both pools, in the order of their group."""
    first, second = len(parts), len(parts[0])
    if not back:
        return [[0] * first + list(row) for row in parts] + [[0] * (first + second)] * second
    columns = [[row[k] for row in parts] for k in range(second)]
    return [[0] * second + column for column in columns] + [[0] * (first + second)] * first
