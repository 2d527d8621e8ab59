"""Whom a rank tells, and from whom it hears, in a dissemination barrier (Hensgen, Finkel, Manber, 1988)."""

from __future__ import annotations


def distances(ranks: int) -> list[int]:
    """Of the rounds: in each, everybody tells the rank so far to its right, and hears from its left."""
    return [1 << k for k in range((ranks - 1).bit_length())]
