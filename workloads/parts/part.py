"""One rank's part of a collective: what the worker sees of it, and what all have in common.

Most parts never wait themselves: their work is a generator that yields what it wants.  So one of them may be driven
alone, or many of them by whoever hands each what is its own (workloads/tasks/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from workloads.base import data
from workloads.base.entry import Algorithm
from workloads.parts.context import Context
from workloads.verbs import Device
from workloads.verbs.wire import Record


class Sync(NamedTuple):
    """That so many ranks have called with this tag, and all that is due by then."""

    tag: int
    participants: int


Wanted = Sync | None
"""What a part waits for (None: that something is said), before it goes on."""


def drive(device: Device, work: Iterable[Wanted], handle: Callable[[Record], None]) -> None:
    """Does a part's work, and nothing else meanwhile."""
    for event in work:
        records: Iterable[Record]
        if event is None:
            records = device.next_records()
        else:
            device.sync(*event)
            records = device.poll()
        for record in records:
            handle(record)


class Part:
    """For every iteration: prepare, (sync), run, finish; only run is measured."""

    fallback: str = ""  # why it did its work another way than asked ("": it did not)
    by_hosts: bool = False  # hosts do it from now on, as all ranks of the group know
    cores_ns: float = 0.0
    """Of the iteration: time of further cores of the host, beside the one that posts."""
    moved: Mapping[str, int] = {}
    """`tx_bytes` and `rx_bytes` of this rank's messages in the iteration, where the data decides on them."""

    def __init__(
        self, context: Context, entry: Algorithm, ranks: Sequence[int], dtype: str, op: str | None, tag: int
    ) -> None:
        """Of rank `context.device.rank` in the group `ranks`; `tag` and the `len(ranks)` after it are its own."""
        self.context, self.entry, self.ranks, self.tag = context, entry, ranks, tag
        self.device = context.device
        self.n = len(ranks)
        self.index = list(ranks).index(self.device.rank)
        self.dtype = data.element(dtype)
        self.op = op if entry.ops else None
        self.options = context.options
        self.setup()

    def setup(self) -> None:
        """Connects with the group and registers memory."""

    def prepare(self, size_bytes: int, variant: int) -> None:
        """Writes the inputs and posts the receives.

        Every `variant` of the inputs is different, so that what an earlier iteration left behind is wrong in this one.
        """

    def run(self) -> None:
        """Does it, and returns when the result is there and the buffers are free."""
        drive(self.device, self.work(), self.handle)

    def work(self) -> Iterator[Wanted]:
        """The same, without waiting itself.  Parts that have none are run alone (`waits` of their entries)."""
        raise NotImplementedError(f"{self.entry} waits by itself")

    @property
    def connects(self) -> bool:
        """Whether its work connects with the group when all have met: each rank waits there for the others."""
        return False

    def handle(self, record: Record) -> None:
        """Takes a record of this part's, also before its work begins: a peer may be ahead."""
        raise NotImplementedError

    @property
    def writes(self) -> bool:
        """Whether its ranks write into each other's memory: none begins before all are ready."""
        return self.by_hosts

    def queue_pairs(self) -> Iterable[int]:
        """Numbers of those whose records are this part's, beside its group's."""
        return ()

    def of_group(self, record: Record) -> bool:
        """Whether a record of kind GROUPED, OFFLOADED, GROUP_FAILED or GROUP_NOTED is this part's."""
        return False

    def finish(self) -> int:
        """Settles what is left and returns how many elements of the result are wrong."""
        return 0

    def close(self) -> None:
        """Gives back what it holds of the fabric's.  Called after the last iteration."""
