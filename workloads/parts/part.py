"""One rank's part of a collective: what the worker sees of it, and what all have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workloads.base import data
from workloads.base.entry import Algorithm
from workloads.parts.context import Context


class Part:
    """For every iteration: prepare, (sync), run, finish; only run is measured."""

    fallback: str = ""  # why it did its work another way than asked ("": it did not)
    moved: Mapping[str, int] = {}
    """`tx_bytes` and `rx_bytes` of this rank's messages in the iteration, where the data decides on them."""

    def __init__(
        self, context: Context, entry: Algorithm, ranks: Sequence[int], dtype: str, op: str | None, tag: int
    ) -> None:
        """Connects rank `context.device.rank` of the group `ranks`; `tag` and the `len(ranks)` after it are its own."""
        self.context, self.entry, self.ranks, self.tag = context, entry, ranks, tag
        self.device = context.device
        self.n = len(ranks)
        self.index = list(ranks).index(self.device.rank)
        self.dtype = data.element(dtype)
        self.op = op if entry.ops else None

    def prepare(self, size_bytes: int, variant: int) -> None:
        """Writes the inputs and posts the receives.

        Every `variant` of the inputs is different, so that what an earlier iteration left behind is wrong in this one.
        """

    def run(self) -> None:
        """Does it, and returns when the result is there and the buffers are free."""
        raise NotImplementedError

    def finish(self) -> int:
        """Settles what is left and returns how many elements of the result are wrong."""
        return 0

    def close(self) -> None:
        """Gives back what it holds of the fabric's.  Called after the last iteration."""
