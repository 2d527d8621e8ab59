"""The words that experiments, ranks and formulas share: element types, reductions, limits.  Imports nothing."""

from __future__ import annotations

DTYPES: dict[str, int] = {
    **{"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1},
    **{"int32": 4, "int64": 8, "int8": 1, "uint8": 1},
}
"""Element types and their bytes.  float8: the OCP's two, by the names that PyTorch and ml_dtypes have for them."""

ADDER_DTYPES: tuple[str, ...] = tuple(name for name in DTYPES if name not in ("float64", "int64"))
"""Element types that NICs and switches add up."""

BITWISE: tuple[str, ...] = ("band", "bor", "bxor")
"""Reductions of integers alone."""

OPS: tuple[str, ...] = ("sum", "min", "max", "prod", "avg", *BITWISE)
"""Reductions.  `avg` is the sum divided by the number of ranks; integers are truncated towards zero, as in C."""

SWITCH_OPS: tuple[str, ...] = tuple(op for op in OPS if op != "prod")
"""Reductions that switches carry out: products of many ranks fit no slot."""


def combines(op: str | None, dtype: str) -> bool:
    """Whether there is such a reduction of such elements."""
    return op not in BITWISE or "float" not in dtype


AUTO = "auto"
LIBRARY = "library"
"""Instead of an algorithm: the one that its closed form expects to be the fastest, of those that have a schedule."""

MOST_PIECES = 4096
"""That a vector may be cut into: a queue pair keeps 16384 receives, and a ring's carries the vector nearly twice."""

MOST_TREES = 8
"""Of switches, among which a vector may be shared (TREES_MAX of fabricd)."""

FLOW_MESSAGE_BYTES = 1 << 20
"""A flow goes out in messages of this size."""
