"""What traces call things: collectives by number, and which size of theirs is nccl-tests'."""

from __future__ import annotations

COLLECTIVES = {
    0: "all_reduce",
    1: "reduce",
    2: "all_gather",
    3: "gather",
    4: "scatter",
    5: "broadcast",
    6: "all_to_all",
    7: "reduce_scatter",
    8: "reduce_scatter",  # REDUCE_SCATTER_BLOCK: parts of equal size
    9: "barrier",
}
NUMBER_OF = {name: number for number, name in reversed(COLLECTIVES.items())}

OF_A_PART = frozenset({"all_gather", "gather"})
"""A trace's comm_size is what a rank puts in: of these a part, and nccl-tests' size is that of all ranks' parts."""

ELEMENTS = ("float32", "bfloat16", "uint8")
"""Traces do not say of what a collective is: the first of these that its size is a whole number of, for each rank."""

OWN = "railbed"
"""Attribute of what Chakra has no word for, as JSON: with it a graph that was written is read back as it was."""

MOST_NS = 10**13  # of a computation
MOST_MESSAGE = 1 << 31  # bytes
"""As in the experiment file: what is more is damage."""
