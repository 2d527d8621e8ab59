"""Pools whose ranks share every matrix: iterations of prompts and of single tokens, and caches that change pools.

In each layer the halves end with an all-reduce of the new tokens (Megatron), and with a table of words the ranks gather
the scores of each sequence.  Where one pool reads prompts and another one generates (Zhong et al., DistServe, OSDI'24),
a prompt's keys and values go from the ranks that have them to those that need them: each rank has its share of heads,
so that a message goes wherever two shares overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from workloads.serving.batching import Iteration
from workloads.serving.pools import Pool, attention_ns, experts_ns, head_ns, mlp_ns, router_ns
from workloads.serving.requests import Request
from workloads.serving.routing import Routing
from workloads.steps.plan.model import Model
from workloads.tasks.graph import Graph, Settings
from workloads.tasks.task import Collective, Compute, Recv, Send, Task

PREFILL, DECODE, TENSOR, CACHE, SCORES = "prefill", "decode", "tensor", "cache", "scores"
_COMPUTE = "compute"


@dataclass(frozen=True, kw_only=True)
class Shared:
    """A model on the ranks of a pool, all of its layers and tables."""

    model: Model
    pool: Pool
    routing: Routing = field(default_factory=Routing)
    algorithms: Mapping[str, str] = field(default_factory=dict)

    @property
    def tensor(self) -> int:
        return len(self.pool.ranks)

    def attention_ns(self, it: Iteration) -> float:
        """The first half of a layer."""
        if self.pool.layer_ns is not None:
            return self.pool.layer_ns / 2
        assert self.pool.gpu is not None
        return attention_ns(self.model, self.pool.gpu, it.new, it.contexts, self.tensor)

    def second_ns(self, it: Iteration) -> float:
        """The second half: an MLP, or the experts that tokens take."""
        if self.pool.layer_ns is not None:
            return self.pool.layer_ns / 2
        gpu, m = self.pool.gpu, self.model
        assert gpu is not None
        if not m.experts:
            return mlp_ns(m, gpu, it.tokens, self.tensor)
        (rows,) = self.routing.table(1, it.tokens, m.top_k, m.experts)
        return router_ns(m, gpu, it.tokens) + experts_ns(m, gpu, rows, self.tensor)

    def head_ns(self, it: Iteration) -> float:
        return head_ns(self.model, self.pool.gpu, len(it.gives), self.tensor) if self.pool.gpu else 0.0

    def compute_ns(self, it: Iteration) -> float:
        """All that a rank computes in an iteration."""
        return self.model.layers * (self.attention_ns(it) + self.second_ns(it)) + self.head_ns(it)

    def sums(self, it: Iteration) -> int:
        """Bytes of each of an iteration's all-reduces, two a layer."""
        return it.tokens * self.model.hidden * self.model.width

    def scores(self, it: Iteration) -> int:
        """Bytes of all words' scores, of each sequence; a rank's part is padded to whole words."""
        words = -(-self.model.vocab // self.tensor) * self.tensor
        return len(it.gives) * words * self.model.width


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a pool does: its iterations, and when each may begin.  `name` is of its tasks and groups."""

    name: str
    shared: Shared
    iterations: Sequence[Iteration]
    earliest: Sequence[float] = ()

    @property
    def group(self) -> str:
        return f"{self.name}_{TENSOR}"

    @property
    def groups(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        return {self.group: (self.shared.pool.ranks,)} if self.shared.tensor > 1 else {}

    @property
    def settings(self) -> dict[str, Settings]:
        return {name: Settings(algorithms=dict(self.shared.algorithms)) for name in self.groups}

    def last(self, k: int) -> str:
        """The task that ends an iteration."""
        return f"{self.name}{k}.end"

    def first(self, k: int) -> str:
        return f"{self.name}{k}.begin"


def graph_of_work(*work: Work, requests: Sequence[Request] = ()) -> Graph:
    """Of one pool, or of one that reads prompts and one that generates."""
    groups = {name: group for w in work for name, group in w.groups.items()}
    settings = {name: own for w in work for name, own in w.settings.items()}
    if len(work) == 1:
        tasks = {rank: tuple(iteration_tasks(work[0], rank)) for rank in work[0].shared.pool.ranks}
        return Graph(groups, dict(sorted(tasks.items())), settings)
    source, target = work
    handed = Handed.shared(source, target.shared, requests)
    tasks = {s: (*iteration_tasks(source, s), *handed.sends(s)) for s in source.shared.pool.ranks}
    for t in target.shared.pool.ranks:
        waits = [tuple(w for r in it.joined for w in handed.waits(t, r)) for it in target.iterations]
        tasks[t] = (*handed.receives(t), *iteration_tasks(target, t, waits))
    return Graph(groups | handed.groups, dict(sorted(tasks.items())), settings)


def iteration_tasks(w: Work, rank: int, waits: Sequence[tuple[str, ...]] = ()) -> Iterator[Task]:
    """A rank's part of a pool's work; `waits`: what each iteration waits for beside the one before it."""
    for k, it in enumerate(w.iterations):
        yield from _Iteration(w, k, it, waits[k] if waits else ()).tasks()


@dataclass
class _Iteration:
    work: Work
    number: int
    it: Iteration
    waits: tuple[str, ...]

    def tasks(self) -> Iterator[Task]:
        """Computations follow each other; each is behind what the ranks did together before it."""
        w, shared, k = self.work, self.work.shared, self.number
        alone = shared.tensor == 1
        earliest = w.earliest[k] if w.earliest else 0.0
        halves = [shared.attention_ns(self.it), shared.second_ns(self.it)] * shared.model.layers
        head = shared.head_ns(self.it)
        if alone:
            halves, head = [sum(halves) + head], 0.0
        before = self.waits
        for n, ns in enumerate(halves):
            name = w.first(k) if n == 0 else f"{w.name}{k}.{n}"
            yield self._compute(name, before, ns, earliest if n == 0 else 0.0)
            before = (name,)
            if not alone:
                yield self._together(f"{name}.sum", TENSOR, "all_reduce", before, shared.sums(self.it))
                before = (f"{name}.sum",)
        if head:
            yield self._compute(f"{w.name}{k}.head", before, head)
            before = (f"{w.name}{k}.head",)
        if not alone and shared.model.vocab:
            yield self._together(f"{w.name}{k}.scores", SCORES, "all_gather", before, shared.scores(self.it))
            before = (f"{w.name}{k}.scores",)
        yield self._compute(w.last(k), before, 0.0)

    def _compute(self, name: str, after: tuple[str, ...], ns: float, earliest: float = 0.0) -> Compute:
        return Compute(
            id=name,
            stream=_COMPUTE,
            after=after,
            kind=PREFILL if self.it.reads else DECODE,
            duration_ns=round(ns, 3),
            not_before_ns=earliest,
        )

    def _together(self, name: str, kind: str, collective: str, after: tuple[str, ...], size: int) -> Collective:
        model = self.work.shared.model
        return Collective(
            id=name, stream=self.work.group, after=after, kind=kind, collective=collective, group=self.work.group,
            size_bytes=size, dtype=model.dtype,
        )  # fmt: skip


@dataclass(frozen=True)
class Handed:
    """Caches that go from the pool that reads prompts to the ranks that generate.

    `keys`: which elements of a token's keys each of those has; `at`: request -> those that need it (None: all).
    """

    source: Work
    keys: Mapping[int, tuple[int, int]]
    requests: Sequence[Request]
    at: Mapping[int, int] | None = None

    @classmethod
    def shared(cls, source: Work, target: Shared, requests: Sequence[Request]) -> Handed:
        """To ranks that share all heads."""
        edges = _edges(source.shared.model.keys, target.tensor)
        return cls(source, {t: (edges[j], edges[j + 1]) for j, t in enumerate(target.pool.ranks)}, requests)

    @property
    def groups(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        return {CACHE: ((*self.source.shared.pool.ranks, *self.keys),)}

    @cached_property
    def _shares(self) -> dict[tuple[int, int], int]:
        """(source rank, target rank) -> elements of a token's keys, wherever their heads overlap."""
        edges = _edges(self.source.shared.model.keys, self.source.shared.tensor)
        return {
            (s, t): n
            for i, s in enumerate(self.source.shared.pool.ranks)
            for t, (begin, end) in self.keys.items()
            if (n := min(edges[i + 1], end) - max(edges[i], begin)) > 0
        }

    def shares(self, request: int) -> dict[tuple[int, int], int]:
        """Likewise, to those that need the request."""
        only = None if self.at is None else self.at[request]
        return {pair: n for pair, n in self._shares.items() if only is None or pair[1] == only}

    def nbytes(self, request: int, elements: int) -> int:
        """Keys and values of a prompt, of so many elements of a token's keys, in all layers."""
        model = self.source.shared.model
        return 2 * model.layers * model.width * elements * self.requests[request].prompt

    @cached_property
    def order(self) -> list[tuple[int, int]]:
        """(request, iteration that reads it) of all that generate more than a token, as they are read."""
        iterations = enumerate(self.source.iterations)
        return [(r, k) for k, it in iterations for r in it.gives if self.requests[r].output > 1]

    def sends(self, s: int) -> Iterator[Send]:
        for r, k in self.order:
            for (source, t), elements in self.shares(r).items():
                if source == s:
                    yield Send(
                        id=f"{CACHE}{r}.{t}", stream=f"{CACHE}{t}", after=(self.source.last(k),), kind=CACHE, peer=t,
                        size_bytes=self.nbytes(r, elements), tag=f"{CACHE}{r}", group=CACHE,
                    )  # fmt: skip

    def receives(self, t: int) -> Iterator[Recv]:
        for r, _ in self.order:
            for (s, target), elements in self.shares(r).items():
                if target == t:
                    yield Recv(
                        id=f"{CACHE}{r}.{s}", stream=f"{CACHE}{s}", kind=CACHE, peer=s,
                        size_bytes=self.nbytes(r, elements), tag=f"{CACHE}{r}", group=CACHE,
                    )  # fmt: skip

    def waits(self, t: int, request: int) -> tuple[str, ...]:
        """What a rank has received when it has the cache of a request."""
        return tuple(f"{CACHE}{request}.{s}" for (s, target) in self.shares(request) if target == t)


def _edges(elements: int, parts: int) -> list[int]:
    return [elements * k // parts for k in range(parts + 1)]
