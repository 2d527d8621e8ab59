"""The queue pairs that the parts of a run's steps make, one after the other: their numbers say how ECMP hashes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workloads.tasks.replay import Tasks
from workloads.times.queue_pairs import Numbers, QueuePairs, connected
from workloads.times.wide.peers import ConnectedPairs

if TYPE_CHECKING:
    from testbed.plan.choose import Chooser
    from workloads.base.entry import Algorithm

MOST = 120_000
"""Queue pairs of one collective that are numbered: of as many messages as are followed.  Of more, spines are drawn."""


class Connected:
    """Of one fabric.  Where there is nothing to choose among, nothing is numbered, nor what comes behind too many."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooses, self._seed = chooser.chooses, chooser.seed
        self._asked = False  # whether the last part was the first of which there were too many
        self._pairs = QueuePairs(chooser.costs.queue_pairs)

    def part(self, entry: Algorithm, ranks: Sequence[int], told: Mapping[str, Any]) -> tuple[Numbers, ...]:
        """Of a part of a step: what the ranks' algorithm connects, in the order in which it uses it.

        `told`: of the step, with all `sizes`.
        """
        self._asked = self._chooses
        if not self._chooses:
            return ({},)
        numbers = connected(self._pairs, entry, ranks, told, self._seed, MOST)
        if numbers is None:
            self._chooses = False  # what comes behind them is not known, either
            return ({},)
        return numbers

    def made(self, ranks: int) -> ConnectedPairs:
        """All so far, for what works with arrays; none where they are not known."""
        return ConnectedPairs(ranks, self._pairs.counts() if self._chooses else {})

    def counted(self, made: ConnectedPairs) -> None:
        """It goes on from these, of which there were too many to number them one by one."""
        if self._asked and not self._chooses:
            self._pairs.recount(made.counts())
            self._chooses = True

    def lost(self) -> None:
        """What comes next made so many that nobody has counted them."""
        self._chooses = False

    def tasks(self, tasks: Tasks) -> Numbers:
        """Likewise of a step of tasks; no numbers where NICs or switches do some of it, nor of what comes behind."""
        self._chooses = self._chooses and tasks.followable
        return self._pairs.connect(tasks.calls()) if self._chooses else {}
