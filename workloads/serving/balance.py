"""MegaScale-Infer's formulas: when a ping-pong hides its messages, and how long it takes.

Ta, Te: a layer of a micro-batch on either side; Tc: its tokens' way there, or back; Tf = max(Ta, Te).  Micro-batches
follow each other without a gap if they fill a round, m Tf >= Ta + Te + 2 Tc, and the wire keeps up.  The paper asks for
Ta ~ Te, Tc < Tf and m >= 2 (1 + Tc / Tf), which is enough for the first, and exact where Ta = Te.  Then L layers take
(Ta + Te + 2 Tc) + Tf (m L - 1).

Tc has the latency of the way in it, of which many exchanges may be under way.  What one micro-batch after the other
cannot pass is the time for which an exchange keeps the busiest NIC: if that is longer than Tf, it sets the pace.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Balance:
    """Times in ns; Tc is the mean of both ways.  `wire`: what an exchange adds to one that is just before it."""

    attention: float
    expert: float
    exchange: float
    wire: float = 0.0

    @property
    def slower(self) -> float:
        """Tf."""
        return max(self.attention, self.expert)

    @property
    def pace(self) -> float:
        """How far apart micro-batches pass, if there are enough of them."""
        return max(self.slower, self.wire)

    @property
    def round(self) -> float:
        """A micro-batch's way through a layer."""
        return self.attention + self.expert + 2 * self.exchange

    @property
    def needed(self) -> float | None:
        """Micro-batches with which messages hide, not rounded; None: the wire is slower than both pools."""
        return None if self.wire > self.slower else self.round / self.slower

    @property
    def bound(self) -> float:
        """What the paper asks for, 2 (1 + Tc / Tf): never less than what is needed, rounding or not."""
        return 2 * (self.slower + self.exchange) / self.slower

    def full(self, micro_batches: int) -> bool:
        """Whether the slower pool has no gap."""
        return self.needed is not None and micro_batches >= self.needed - 1e-9

    def time_ns(self, layers: int, micro_batches: int) -> float:
        """One token of each sequence.

        Where micro-batches are too few, each layer takes a round; those behind the first follow at their pace.
        """
        return self.round + self.between_ns(layers - 1, micro_batches) + (micro_batches - 1) * self.pace

    def between_ns(self, layers: int, micro_batches: int) -> float:
        """From a sequence's token to its next one: without the filling and the emptying of the pipeline."""
        return layers * max(self.round, micro_batches * self.pace)

    def least_ns(self, layers: int, micro_batches: int) -> float:
        """What the wire alone allows, however early tokens are there."""
        return self.round + (micro_batches * layers - 1) * self.wire
