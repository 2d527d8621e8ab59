"""Sums of bfloat16: in C where that is there, else two elements at a time as halves of 32-bit words.

ml_dtypes converts each element by itself, which takes longer than everything else that is done for it.  A bfloat16 is
the upper half of a float32, so words of two become two arrays of float32 by a mask and by a shift, and vector
instructions do the rest.  Sums are rounded to the nearest, ties to even, like those of ml_dtypes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.base import native

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint32]

_BLOCK = 16384  # words: what is computed on stays in a core's cache
_UPPER, _HALF, _ONE, _BELOW_HALF = (np.uint32(n) for n in (0xFFFF0000, 16, 1, 0x7FFF))


def add(ours: NDArray[Any], theirs: NDArray[Any]) -> None:
    """Adds `theirs` to `ours`."""
    if not native.add_bfloat16(ours, theirs):
        by_words(ours, theirs)


def by_words(ours: NDArray[Any], theirs: NDArray[Any]) -> None:
    """The same by numpy alone."""
    even = len(ours) & ~1
    if (ours.ctypes.data | theirs.ctypes.data) & 3 or not even:
        np.add(ours, theirs, out=ours)
        return
    if even < len(ours):
        np.add(ours[even:], theirs[even:], out=ours[even:])
    words, others = ours[:even].view(np.uint32), theirs[:even].view(np.uint32)
    room = np.empty((3, min(_BLOCK, len(words))), np.uint32)
    for at in range(0, len(words), _BLOCK):
        block = words[at : at + _BLOCK]
        _add(block, others[at : at + _BLOCK], *room[:, : len(block)])


def _add(words: Words, others: Words, upper: Words, lower: Words, more: Words) -> None:
    np.bitwise_and(words, _UPPER, upper)
    np.bitwise_and(others, _UPPER, more)
    _sum(upper, more)
    np.left_shift(words, _HALF, lower)
    np.left_shift(others, _HALF, more)
    _sum(lower, more)
    np.bitwise_or(upper, lower, more)
    if int(np.bitwise_or.reduce(more)) & 0xFFFF:  # a sum is no bfloat16
        _round(upper, more)
        _round(lower, more)
        np.bitwise_and(upper, _UPPER, upper)
    np.right_shift(lower, _HALF, lower)
    np.bitwise_or(upper, lower, words)


def _sum(words: Words, others: Words) -> None:
    sums = words.view(np.float32)
    np.add(sums, others.view(np.float32), sums)


def _round(words: Words, room: Words) -> None:
    """To the upper half.  What is no number stays none: its upper half is that of one of the terms, or 0xFFC0."""
    np.right_shift(words, _HALF, room)
    np.bitwise_and(room, _ONE, room)
    np.add(room, _BELOW_HALF, room)
    np.add(words, room, words)
