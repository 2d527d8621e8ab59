"""`algorithm: auto`: for each size the algorithm that is expected to be the fastest on this fabric.

Where there are several spines, which of them ECMP's hash takes may make more of a difference than the algorithm.  It
follows from the numbers of queue pairs, so a collective step is looked at with those that it has as the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testbed.experiment.blocks.layout import group
from testbed.plan.auto import Candidate, Choice
from testbed.plan.offloads import lacking, told_of, trees_to_try
from testbed.plan.routes import Routes
from topologies.ranks.grid import NoGrid
from workloads.base.vocabulary import AUTO
from workloads.registry import choices

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep


class Chooser(Routes):
    """Chooses algorithms on one experiment's fabric."""

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
            if entry.offloaded and step.trees is None:
                for trees in trees_to_try(self.trees, entry, ranks):
                    more = told_of(entry, step.model_copy(update={"trees": trees}), self.basis, self.costs.reduce_bps)
                    found.append(Candidate(entry, {**told, **more, "trees": trees}, self.ways(ranks), trees=trees))
        return found, left_out
