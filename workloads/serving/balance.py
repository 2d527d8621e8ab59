"""MegaScale-Infer's formulas: when a ping-pong hides its messages, and how long it takes.

Ta, Te: a layer of a micro-batch on either side; Tc: its tokens' way there, or back; Tf = max(Ta, Te).  With
m Tf >= 2 (Tf + Tc) the micro-batches follow each other without a gap, so m >= 2 (1 + Tc / Tf); and Ta ~ Te, or one side
waits.  Then L layers take (Ta + Te + 2 Tc) + Tf (m L - 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True)
class Balance:
    """Times in ns; Tc is the mean of both ways."""

    attention: float
    expert: float
    exchange: float

    @property
    def slower(self) -> float:
        """Tf."""
        return max(self.attention, self.expert)

    @property
    def needed(self) -> float:
        """Micro-batches with which messages hide, not rounded."""
        return 2 * (1 + self.exchange / self.slower)

    @property
    def round(self) -> float:
        """A micro-batch's way through a layer."""
        return self.attention + self.expert + 2 * self.exchange

    def full(self, micro_batches: int) -> bool:
        """Whether the pools have no gap."""
        return micro_batches >= self.needed - 1e-9

    def time_ns(self, layers: int, micro_batches: int) -> float:
        """One token of each sequence.

        Where micro-batches are too few, each layer takes a round; those behind the first follow a Tf apart.
        """
        each = max(self.round, micro_batches * self.slower)
        return self.round + (layers - 1) * each + (micro_batches - 1) * self.slower

    @property
    def least(self) -> int:
        """Whole micro-batches."""
        return ceil(self.needed - 1e-9)
