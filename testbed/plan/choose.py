"""`algorithm: auto`: for each size the algorithm that is expected to be the fastest on this fabric.

Where there are several spines, which of them ECMP's hash takes may make more of a difference than the algorithm.  It
follows from the numbers of queue pairs, so a collective step is looked at with those that it has as the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from controllers.offload.trees import Trees
from testbed.experiment.basis import Basis
from testbed.experiment.blocks.layout import group
from testbed.plan.auto import Candidate, Choice
from testbed.plan.ideal import costs_of
from testbed.plan.offloads import lacking, told_of
from topologies.ranks.grid import NoGrid
from topologies.ranks.hops import Hops
from workloads.base.vocabulary import AUTO
from workloads.registry import choices
from workloads.times.messages import Link, Path
from workloads.times.queue_pairs import Numbers
from workloads.times.ways import Routed

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment


class Chooser:
    """Chooses algorithms on one experiment's fabric; knows its ways, and what they cost."""

    def __init__(self, experiment: Experiment) -> None:
        basis = Basis(experiment)
        self.experiment, self.basis = experiment, basis
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

    @cached_property
    def trees(self) -> Trees:
        """As the controller makes them for what switches copy and add up."""
        return Trees(self.fabric)

    def expected_ns(self, candidate: Candidate, step: CollectiveStep, size_bytes: int) -> float:
        """What an algorithm by hosts should take for a step's size, over drawn spines."""
        choice = Choice(self, step, [candidate], {}, numbered=False, cut=False)
        return choice.expected_ns(candidate, size_bytes)

    def candidates(self, step: CollectiveStep) -> list[Candidate]:
        """The algorithms that can carry out this step, in the registry's order: one, or with `auto` all."""
        return self._candidates(step)[0]

    def choose(self, step: CollectiveStep, *, numbered: bool = True, cut: bool = True) -> dict[str, dict[str, Any]]:
        """size -> `algorithm`, what its ranks are told, and `expected_ns` of every candidate.

        `numbered`: as if the fabric's first queue pairs were this step's; else spines are drawn.  `cut`: into pieces,
        too, where the step does not say which.
        """
        able, left_out = self._candidates(step)
        choice = Choice(self, step, able, left_out, numbered=numbered and self.chooses, cut=cut)
        return {str(size_bytes): choice.of(size_bytes) for size_bytes in step.sizes}

    def _candidates(self, step: CollectiveStep) -> tuple[list[Candidate], dict[str, str]]:
        """And why offloads are none."""
        found, left_out = [], {}
        for entry in choices(step.collective, offloads=bool(step.offloads)):
            if step.algorithm not in (AUTO, entry.name):
                continue
            try:
                told = group(entry, step.ranks, self.fabric)
            except NoGrid:
                continue
            ranks = told["ranks"] or list(range(self.fabric.ranks))
            if entry.offloaded:
                if why := lacking(entry, step, self.experiment, len(ranks)):
                    left_out[entry.name] = why
                    continue
                told |= told_of(entry, step, self.basis, self.costs.reduce_bps)
            elif entry.max_ranks is not None and len(ranks) > entry.max_ranks:
                continue
            found.append(Candidate(entry, told, self.ways(ranks)))
        return found, left_out
