"""Inputs that every rank can compute for every other, and the check of a result against what they add up to.

A rank's input is a pattern of PERIOD elements, repeated over its vector; so is any reduction of such inputs, and a
result of any size is checked against one period of it, block by block.  PERIOD is prime: no chunk, packet or page is a
multiple of it, so bytes that land in the wrong place differ.  Values are integers small enough for every partial
result to be exact in every order in the element type: a result is right to the last bit or it is wrong.  (An average
divides the exact sum once, so it is the correctly rounded quotient.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.base import native
from workloads.base.vocabulary import DTYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

PERIOD = 16381
BLOCK_BYTES = 4 << 20  # at most so much between two calls of `tick`

_EXACT = {
    "float16": 2**11,
    "bfloat16": 2**8,
    "float8_e4m3fn": 2**4,
    "float8_e5m2": 2**3,
    "float32": 2**24,
    "float64": 2**53,
    "int32": 2**31 - 1,
    "int64": 2**63 - 1,
    "int8": 2**7 - 1,
    "uint8": 2**8 - 1,
}
REDUCTIONS: dict[str, np.ufunc] = {
    **{"sum": np.add, "avg": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply},
    **{"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor},
}
_LARGEST_TERM = 100
_LARGEST_COMPARED = 1000
_SHARED = 2**32  # the random stream that all ranks know
_AT_A_TIME = Lock()  # not one reduction of all inputs for each rank of a process


def _nothing() -> None:
    pass


def noise(seed: int, stream: int, count: int = PERIOD) -> NDArray[np.uint64]:
    """`count` random 64-bit words (SplitMix64), to be read only: the same in every version of numpy."""
    return _period(seed, stream) if count == PERIOD else _words(seed, stream, count)


@lru_cache(maxsize=32)  # what is one rank's input, the others look for in their results
def _period(seed: int, stream: int) -> NDArray[np.uint64]:
    words = _words(seed, stream, PERIOD)
    words.flags.writeable = False
    return words


def _words(seed: int, stream: int, count: int) -> NDArray[np.uint64]:
    mask = 2**64 - 1
    base = (seed * 0x9E3779B97F4A7C15 ^ (stream + 1) * 0xD1B54A32D192ED03) & mask
    z = np.arange(1, count + 1, dtype=np.uint64)
    z *= np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(base)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def _below(words: NDArray[np.uint64], bound: int) -> NDArray[np.int64]:
    """The words modulo `bound`: numpy divides by a constant much faster than it finds a remainder."""
    return (words - words // np.uint64(bound) * np.uint64(bound)).astype(np.int64)


def largest_term(dtype: str, ranks: int) -> int:
    """The largest integer that `ranks` ranks may each have in an element for their sum to be exact (at least 1)."""
    return max(1, min(_LARGEST_TERM, _EXACT[dtype] // ranks))


def most_terms(dtype: str, ranks: int) -> int:
    """How many ranks may have such an integer: of small types not all, if there are many of them."""
    return _EXACT[dtype] // largest_term(dtype, ranks)


def averaged(total: NDArray[np.int64], ranks: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """What an average of exact sums must be."""
    quotient = total / ranks  # float64: wide enough for the second rounding to change nothing
    return (np.trunc(quotient) if dtype.kind in "iu" else quotient).astype(dtype)


def divide(sums: NDArray[Any], ranks: int) -> None:
    """Makes averages of sums, in place; integers are truncated towards zero."""
    if sums.dtype.kind in "iu":
        wide = sums if sums.itemsize >= 4 else sums.astype(np.int32)
        sums[:] = (wide - np.fmod(wide, ranks)) // ranks
    elif sums.dtype.itemsize < 4:  # float32 holds every number of ranks
        sums[:] = (sums.astype(np.float32) / np.float32(ranks)).astype(sums.dtype)
    else:
        sums /= ranks


def element(dtype: str) -> np.dtype[Any]:
    """The element type of this name.  Raises ValueError."""
    if dtype not in DTYPES:
        raise ValueError(f"no element type {dtype!r}")
    try:
        return np.dtype(dtype)
    except TypeError:
        import ml_dtypes  # noqa: F401  (gives numpy bfloat16 and float8)

        return np.dtype(dtype)


class Inputs:
    """The inputs of `ranks` ranks for one element type and reduction (None: data that is only moved)."""

    def __init__(self, seed: int, ranks: int, dtype: str, op: str | None) -> None:
        self.seed = seed
        self.ranks = ranks
        self.dtype = element(dtype)
        self.op = op
        exact = _EXACT[dtype]
        self._term = largest_term(dtype, ranks)
        self._terms = most_terms(dtype, ranks)  # ranks beyond add zeros, or the sum would not be exact
        self._compared = min(_LARGEST_COMPARED, exact) if self.dtype.itemsize == 1 else _LARGEST_COMPARED
        self._of: dict[int, NDArray[Any]] = {}

    def of(self, index: int) -> NDArray[Any]:
        """One period of the input of the group's rank `index`, to be read only."""
        if index not in self._of:
            self._of[index] = self._values(index).astype(self.dtype)
        return self._of[index]

    @cached_property
    def reduced(self) -> NDArray[Any]:
        """One period of what the reduction of all inputs must be, computed in integers."""
        with _AT_A_TIME:
            return _reduced(self.seed, self.ranks, self.dtype.name, self.op)

    def _reduced(self) -> NDArray[Any]:
        total = self._values(0)
        for index in range(1, self.ranks):
            REDUCTIONS[self.op or ""](total, self._values(index), out=total)
        return averaged(total, self.ranks, self.dtype) if self.op == "avg" else total.astype(self.dtype)

    def _values(self, index: int) -> NDArray[np.int64]:
        words = noise(self.seed, index)
        if self.op in ("sum", "avg"):
            return self._spread(words, self._term) * (index < self._terms)
        if self.op == "prod":  # signs, and a 2 from at most two ranks
            chosen = noise(self.seed, _SHARED)
            n, low = np.uint64(self.ranks), np.uint64(2**32 - 1)
            two = ((chosen & low) % n == index) | ((chosen >> np.uint64(32)) % n == index)
            sign = 1 - 2 * (words & np.uint64(self.dtype.kind != "u")).astype(np.int64)
            return sign * np.where(two, 2, 1)
        return self._spread(words, self._compared)

    def _spread(self, words: NDArray[np.uint64], largest: int) -> NDArray[np.int64]:
        if self.dtype.kind == "u":
            return _below(words, largest + 1)
        return _below(words, 2 * largest + 1) - largest


@lru_cache(maxsize=16)
def _reduced(seed: int, ranks: int, dtype: str, op: str | None) -> NDArray[Any]:
    """The same for all ranks: those that share a process work it out once."""
    period = Inputs(seed, ranks, dtype, op)._reduced()
    period.flags.writeable = False
    return period


def noise_bytes(seed: int, stream: int) -> NDArray[np.uint8]:
    """One period of random bytes."""
    return (noise(seed, stream) & np.uint64(255)).astype(np.uint8)


def fill(out: NDArray[Any], period: NDArray[Any], start: int = 0, tick: Callable[[], None] = _nothing) -> None:
    """Writes the repeated `period`, beginning with its element `start`, into `out`."""
    for block, pattern in _blocks(out, period, start):
        block[:] = pattern
        tick()


def spoil(out: NDArray[Any], tick: Callable[[], None] = _nothing) -> None:
    """Writes what is wrong as a result: all bits set, which is no number or -1."""
    raw = out.view(np.uint8)
    for at in range(0, len(raw), BLOCK_BYTES):
        raw[at : at + BLOCK_BYTES] = 0xFF
        tick()


def count_wrong(
    result: NDArray[Any],
    period: NDArray[Any],
    start: int = 0,
    tick: Callable[[], None] = _nothing,
    *,
    within: float = 0.0,
) -> int:
    """How many elements of `result` are not what `fill` would have written, `within` so much.  NaN is wrong."""
    wrong = 0
    alike = not within and result.dtype == period.dtype
    for block, pattern in _blocks(result, period, start):
        if not (alike and _same_bits(block, pattern)):
            right = np.abs(block - pattern) <= within if within else block == pattern
            wrong += block.size - int(np.count_nonzero(right))
        tick()
    return wrong


def _same_bits(block: NDArray[Any], pattern: NDArray[Any]) -> bool:
    """Then it is right: quicker to see than by numbers, which are compared one by one if numpy does not know them."""
    if native.repeats(block, pattern):
        return True
    bits = f"u{block.itemsize}"
    return all(bool((row.view(bits) == pattern.view(bits)).all()) for row in np.atleast_2d(block))


def _blocks(whole: NDArray[Any], period: NDArray[Any], start: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Views of `whole`, each with the pattern that it lines up with (by broadcasting)."""
    first = start % PERIOD
    pattern = np.concatenate((period[first:], period[:first]))
    rows = max(1, BLOCK_BYTES // (PERIOD * whole.itemsize))
    full = len(whole) // PERIOD
    for row in range(0, full, rows):
        yield whole[row * PERIOD : min(row + rows, full) * PERIOD].reshape(-1, PERIOD), pattern
    if rest := len(whole) - full * PERIOD:
        yield whole[full * PERIOD :], pattern[:rest]
