"""Requests on pools of attention and experts: each micro-batch takes in and gives out requests by itself.

A micro-batch passes all layers, and each of its sequences has a new token then; before it sets out again it takes in
requests that have come (continuous batching, batching.py).  Sequences are on one attention rank each.  So passes have
as many tokens of each attention rank as it has sequences, and experts get what these choose.

Without a pool that reads prompts, the micro-batches read those, too: a pass that has taken in requests reads theirs and
gives each its first token, and those that generate wait.  Else their caches come from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from workloads.serving.batching import Iteration
from workloads.serving.exchange import Exchange
from workloads.serving.ping_pong import ATTENTION, EXPERT, HEAD
from workloads.serving.pools import Pool, attention_layer_ns, experts_layer_ns, head_ns
from workloads.serving.requests import Request
from workloads.serving.routing import Routing, Table, of_ranks
from workloads.serving.tensor_parallel import Handed, Work, iteration_tasks
from workloads.steps.plan.model import Model
from workloads.tasks.graph import Graph
from workloads.tasks.task import Compute, Task

_COMPUTE = "compute"
Visit = tuple[int, int]
"""Number of a pass, and layer; behind the last layer: what makes words of its tokens."""


@dataclass(frozen=True, kw_only=True)
class Apart:
    """A model on two pools, among which so many micro-batches go to and fro."""

    model: Model
    attention: Pool
    experts: Pool
    micro_batches: int = 1
    routing: Routing = field(default_factory=Routing)
    how: str = "m2n"
    algorithms: Mapping[str, str] = field(default_factory=dict)

    @property
    def exchange(self) -> Exchange:
        return Exchange(
            model=self.model,
            attention=self.attention.ranks,
            experts=self.experts.ranks,
            how=self.how,
            algorithms=self.algorithms,
        )


@dataclass(frozen=True)
class Pass:
    """One way of a micro-batch through all layers: the `number`-th of its own, and what each attention rank has of it.

    `joined`: requests that were taken in for it; `passed`: those that were there, and for which there was no room.
    """

    of: Apart = field(repr=False)
    micro_batch: int
    number: int
    its: tuple[Iteration, ...]
    earliest: float = 0.0
    joined: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()
    table: Table = ()  # [attention rank][expert]: tokens

    @property
    def name(self) -> str:
        return f"{batch_name(self.micro_batch)}{self.number}"

    @property
    def gives(self) -> tuple[int, ...]:
        return tuple(r for it in self.its for r in it.gives)

    @property
    def parts(self) -> Table:
        """[attention rank][expert rank]: tokens."""
        return of_ranks(self.table, len(self.of.experts.ranks))

    def attention_ns(self, rank: int) -> float:
        """A layer on the `rank`-th attention rank."""
        it = self.its[rank]
        return attention_layer_ns(self.of.model, self.of.attention, it.new, it.contexts) if it.gives else 0.0

    def experts_ns(self) -> tuple[float, ...]:
        return experts_layer_ns(self.of.model, self.of.experts, self.table)

    def head_ns(self, rank: int) -> float:
        iteration, gpu = self.its[rank], self.of.attention.gpu
        return round(head_ns(self.of.model, gpu, len(iteration.gives)), 3) if iteration.gives and gpu else 0.0

    @property
    def has_head(self) -> bool:
        return any(self.head_ns(rank) for rank in range(len(self.its)))


def batch_name(micro_batch: int) -> str:
    """A micro-batch's passes have its name and their number."""
    return f"m{micro_batch}."


def pass_of(of: Apart, micro_batch: int, number: int, it: Iteration, at: Mapping[int, int], earliest: float) -> Pass:
    """An iteration of a micro-batch as a pass; `at`: request -> which attention rank has it."""
    ranks = range(len(of.attention.ranks))
    iterations = tuple(_part(it, [k for k, r in enumerate(it.gives) if at[r] == rank]) for rank in ranks)
    tokens = [one.tokens for one in iterations]
    table = of.routing.table_of(tokens, of.model.top_k, of.model.experts, number)
    return Pass(of, micro_batch, number, iterations, earliest, it.joined, it.passed, table)


def _part(it: Iteration, which: Sequence[int]) -> Iteration:
    return Iteration(*(tuple(values[k] for k in which) for values in (it.gives, it.new, it.contexts)))


@dataclass(frozen=True, kw_only=True)
class PlannedPasses:
    """All passes, and in which order their layers are computed on either side."""

    of: Apart
    passes: Sequence[Pass]
    attention: Sequence[Visit]
    experts: Sequence[Visit]
    at: Mapping[int, int]  # request -> which attention rank has it


def apart_graph(p: PlannedPasses, requests: Sequence[Request], prefill: Work | None = None) -> Graph:
    """`prefill`: what the pool does that reads the prompts, if one does."""
    exchange = p.of.exchange
    groups, settings = dict(exchange.groups), dict(exchange.settings)
    tasks: dict[int, tuple[Task, ...]] = {}
    handed = None
    if prefill is not None:
        whole = (0, p.of.model.keys)
        at = {r: p.of.attention.ranks[k] for r, k in p.at.items()}
        handed = Handed(prefill, dict.fromkeys(p.of.attention.ranks, whole), requests, at)
        groups |= prefill.groups | handed.groups
        settings |= prefill.settings
        for rank in prefill.shared.pool.ranks:
            tasks[rank] = (*iteration_tasks(prefill, rank), *handed.sends(rank))
    for k, rank in enumerate(p.of.attention.ranks):
        tasks[rank] = (*(handed.receives(rank) if handed else ()), *_attention(p, k, exchange, handed))
    for k, rank in enumerate(p.of.experts.ranks):
        tasks[rank] = tuple(_experts(p, k, exchange))
    return Graph(groups, dict(sorted(tasks.items())), settings)


def _attention(p: PlannedPasses, k: int, exchange: Exchange, handed: Handed | None) -> Iterator[Task]:
    """Tasks of the k-th attention rank, in the order in which passes come."""
    last: dict[int, tuple[str, ...]] = {}  # micro-batch -> what its next layer waits for
    layers, rank = p.of.model.layers, p.of.attention.ranks[k]
    for number, layer in p.attention:
        p_pass = p.passes[number]
        j, iteration = p_pass.micro_batch, p_pass.its[k]
        after = last.get(j, ())
        if layer == layers:
            if head := p_pass.head_ns(k):
                yield _compute(f"{p_pass.name}.end", HEAD, after, head)
                last[j] = (f"{p_pass.name}.end",)
            continue
        if iteration.gives:
            name = f"{p_pass.name}.begin" if layer == 0 else f"{p_pass.name}.attention{layer}"
            joined = [r for r in p_pass.joined if p.at[r] == k] if layer == 0 and handed else []
            caches = tuple(c for r in joined for c in handed.waits(rank, r)) if handed else ()  # of one token: none
            earliest = p_pass.earliest if layer == 0 else 0.0
            yield _compute(name, ATTENTION, (*after, *caches), p_pass.attention_ns(k), earliest)
            after = (name,)
        yield exchange.dispatch(f"{p_pass.name}.{layer}", j, after, p_pass.parts)
        yield exchange.combine(f"{p_pass.name}.{layer}", j, (), p_pass.parts)
        last[j] = (f"combine{p_pass.name}.{layer}",)


def _experts(p: PlannedPasses, k: int, exchange: Exchange) -> Iterator[Task]:
    """Exchanges in the order of the attention ranks, which all of a group share; computations in their own."""
    times = [p_pass.experts_ns()[k] for p_pass in p.passes]
    for number, layer in p.attention:
        p_pass = p.passes[number]
        if layer == p.of.model.layers:
            continue
        name, j = f"{p_pass.name}.{layer}", p_pass.micro_batch
        yield exchange.dispatch(name, j, (), p_pass.parts)
        yield exchange.combine(name, j, (f"expert{name}" if times[number] else f"dispatch{name}",), p_pass.parts)
    for number, layer in p.experts:
        name = f"{p.passes[number].name}.{layer}"
        if times[number]:
            yield _compute(f"expert{name}", EXPERT, (f"dispatch{name}",), times[number])


def _compute(name: str, kind: str, after: tuple[str, ...], ns: float, earliest: float = 0.0) -> Compute:
    return Compute(id=name, stream=_COMPUTE, after=after, kind=kind, duration_ns=ns, not_before_ns=earliest)
