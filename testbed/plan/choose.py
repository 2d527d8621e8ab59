"""`algorithm: auto`: for each size the algorithm that is expected to be the fastest on this fabric.

Where there are several spines, which of them ECMP's hash takes may make more of a difference than the algorithm.  It
follows from the numbers of queue pairs, so a collective step is looked at with those that it has as the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from testbed.experiment.basis import Basis
from testbed.experiment.blocks.layout import group
from testbed.plan.ideal import costs_of
from topologies.ranks.grid import NoGrid
from topologies.ranks.hops import Hops
from workloads.base.entry import Algorithm
from workloads.base.vocabulary import AUTO, DTYPES
from workloads.collectives.schedule import schedule_of
from workloads.collectives.shape import shape_of
from workloads.registry import choices
from workloads.times.case import Case
from workloads.times.expected import expected_ns
from workloads.times.messages import Link, Path
from workloads.times.queue_pairs import Numbers, QueuePairs, of_schedule
from workloads.times.ways import Routed

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment


MOST_NUMBERED = 20_000
"""Queue pairs of a candidate that are numbered, a tenth of a second of ours; of more, spines are drawn."""


@dataclass(frozen=True)
class Candidate:
    """An algorithm that these ranks can carry out, with their order and their paths."""

    entry: Algorithm
    told: dict[str, Any]  # ranks, dims
    ways: Routed


class Chooser:
    """Chooses algorithms on one experiment's fabric; knows its ways, and what they cost."""

    def __init__(self, experiment: Experiment) -> None:
        basis = Basis(experiment)
        self.fabric, self.seed, self.costs = basis.graph, experiment.seed, costs_of(experiment)
        self._hops = Hops(self.fabric)
        self.chooses = self._hops.chooses
        bare, hardware, scale_up = self._hops.fabric, basis.hardware, basis.fabric.scale_up
        cables = {c: Link(*hardware.cable(bare, c)) for c in bare.cables}
        self._links = {hop: cables[c] for c in bare.cables for hop in ((c.a.node, c.b.node), (c.b.node, c.a.node))}
        self._latencies = {s.name: hardware.latency_ns(s) for s in bare.switches}
        self._scale_up = Link(scale_up.rate, scale_up.delay) if scale_up else None

    def ways(self, ranks: Sequence[int], *, scale_up: bool = True, numbers: Numbers | None = None) -> Routed:
        """How these ranks reach each other; without `scale_up` over the network alone, as NICs do.

        `numbers`: of their queue pairs, where they are known.
        """
        inside = self._scale_up if scale_up else None
        return Routed(self._hops, ranks, self._links, self._latencies, inside, numbers or {})

    def along(self, nodes: Sequence[str]) -> Path:
        """From NIC to NIC over these nodes."""
        links = tuple(self._links[pair] for pair in pairwise(nodes))
        return Path(links, tuple(self._latencies[name] for name in nodes[1:-1]))

    def expected_ns(self, candidate: Candidate, step: CollectiveStep, size_bytes: int) -> float:
        """The closed form's time for a step's size."""
        ranks = len(candidate.ways.ranks)
        options = {key: getattr(step, key) for key in candidate.entry.extra} | candidate.told
        case = Case.of(
            candidate.entry, ranks, size_bytes, DTYPES[step.dtype], options, self.seed, self.costs, candidate.ways
        )
        return expected_ns(candidate.entry, case)

    def candidates(self, step: CollectiveStep) -> list[Candidate]:
        """The algorithms that can carry out this step, in the registry's order: one, or with `auto` all."""
        able = []
        for entry in choices(step.collective):
            if step.algorithm in (AUTO, entry.name):
                try:
                    told = group(entry, step.ranks, self.fabric)
                except NoGrid:
                    continue
                ranks = told["ranks"] or list(range(self.fabric.ranks))
                if entry.max_ranks is None or len(ranks) <= entry.max_ranks:
                    able.append(Candidate(entry, told, self.ways(ranks)))
        return able

    def choose(self, step: CollectiveStep, *, numbered: bool = True) -> dict[str, dict[str, Any]]:
        """size -> `algorithm`, `ranks`, `dims`, and `expected_ns` of every candidate.  Of equals the first one wins.

        `numbered`: as if the fabric's first queue pairs were this step's; else spines are drawn.
        """
        candidates = self.candidates(step)
        made, parts = QueuePairs(), dict[str, Numbers]()  # by algorithm, as the run connects them: at its first size
        tried: dict[tuple[str, int], Numbers] = {}  # by algorithm, and how many parts are before it
        chosen = {}
        for size_bytes in step.sizes:
            expected = {}
            for candidate in candidates:
                name, its = candidate.entry.name, candidate
                if numbered and self.chooses:
                    numbers = parts.get(name)
                    if numbers is None and (key := (name, len(parts))) not in tried:
                        tried[key] = self._connected(made.copy(), candidate, step)
                    numbers = tried[key] if numbers is None else numbers
                    its = replace(candidate, ways=replace(candidate.ways, numbers=numbers))
                expected[name] = round(self.expected_ns(its, step, size_bytes), 3)
            best = min(candidates, key=lambda c: expected[c.entry.name])
            if numbered and self.chooses and best.entry.name not in parts:
                parts[best.entry.name] = self._connected(made, best, step)
                numbered = bool(parts[best.entry.name])  # else what comes behind it is not known, either
            told = {"algorithm": best.entry.name, **best.told, "expected_ns": expected}
            chosen[str(size_bytes)] = told
        return chosen

    def _connected(self, pairs: QueuePairs, candidate: Candidate, step: CollectiveStep) -> Numbers:
        """What a candidate connects next, for the step's largest size; {}: too much."""
        entry, ranks = candidate.entry, candidate.ways.ranks
        options = {key: getattr(step, key) for key in entry.extra} | candidate.told
        largest = shape_of(entry, len(ranks), max(step.sizes), DTYPES[step.dtype], options, self.seed)
        calls = of_schedule(schedule_of(entry), largest, ranks, MOST_NUMBERED)
        return {} if calls is None else pairs.connect(calls)
