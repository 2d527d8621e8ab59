"""A collective whose time is asked for, and what all formulas are made of.

That is a message (workloads/times/messages.py), how long it keeps the slowest part of its way busy, a reduction, and
the busiest cable where many messages meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from workloads.base.entry import Algorithm
from workloads.collectives.schedule import WINDOW, Shape
from workloads.collectives.shape import shape_of
from workloads.times.messages import Costs, Path, acks_ns, line_ns, received_ns, sent_ns
from workloads.times.ways import Pair, Ways


class Round(NamedTuple):
    """A message of so many bytes between these ranks at the same time, and whether it is reduced."""

    nbytes: int
    pairs: Sequence[Pair]
    reduce: bool = False


@dataclass(frozen=True)
class Case:
    """A collective whose time is asked for: its shape in elements of `width` bytes, its costs, and its ways."""

    shape: Shape
    width: int
    costs: Costs
    ways: Ways

    @classmethod
    def of(
        cls,
        entry: Algorithm,
        ranks: int,
        size_bytes: int,
        width: int,
        options: Mapping[str, Any],
        seed: int,
        costs: Costs,
        ways: Ways,
    ) -> Case:
        """The case of an entry and a step's `options` (see `shape_of`)."""
        return cls(shape_of(entry, ranks, size_bytes, width, options, seed), width, costs, ways)

    @property
    def n(self) -> int:
        return self.shape.ranks

    @property
    def size(self) -> int:
        """Bytes of the vector."""
        return self.shape.count * self.width

    @property
    def chunk(self) -> int | None:
        """Bytes of a piece."""
        return None if self.shape.chunk is None else self.shape.chunk * self.width

    def share(self, parts: int, of: int | None = None) -> int:
        """Bytes of the largest of so many chunks of the vector, or of so many bytes."""
        count = self.shape.count if of is None else of // self.width
        return -(-count // parts) * self.width

    @property
    def chunks(self) -> list[int]:
        """Bytes of each rank's chunk; of equal ones the largest."""
        if self.shape.counts:
            return [n * self.width for n in self.shape.counts[0]]
        return [self.share(self.n)] * self.n

    def pieces(self, nbytes: int) -> tuple[int, int]:
        """How many pieces a message of so many bytes goes in, and the bytes of one."""
        count = max(1, -(-nbytes // self.chunk)) if self.chunk else 1
        return count, self.share(count, nbytes)

    def shift(self, by: int) -> list[Pair]:
        """Everybody to the rank so many on."""
        return [(i, (i + by) % self.n) for i in range(self.n)]

    def message(self, nbytes: int, path: Path, *, both_ways: bool = True, sent: bool = False) -> float:
        """From a rank's deciding to send until the receiver (`sent`: the sender) knows that it has arrived.

        `both_ways`: while as much goes the other way, and its acknowledgements with this.
        """
        done = sent_ns(nbytes, path, self.costs) if sent else received_ns(nbytes, path, self.costs)
        return self.costs.post_ns + done + both_ways * acks_ns(nbytes, path, self.costs) + self.costs.wake_ns

    def line(self, nbytes: int, path: Path, *, windowed: bool, reduce: bool = False, both_ways: bool = True) -> float:
        """What one piece of many takes: of the way, of the host, or of the window that it waits for."""
        busy = line_ns(nbytes, path, self.costs) + both_ways * acks_ns(nbytes, path, self.costs)
        host = self.costs.post_ns + self.costs.wake_ns + reduce * self.costs.reduce_ns(nbytes)
        window = self.message(nbytes, path, sent=True) / WINDOW if windowed else 0.0
        return max(busy, host, window)

    def wire(self, nbytes: float, piece: int) -> float:
        """Bytes on a cable of so many bytes of payload in messages of `piece`."""
        messages = nbytes / max(piece, 1)
        return nbytes + messages * self.costs.headers_bytes(piece)


def rounds(case: Case, sequence: Sequence[Round]) -> float:
    """One message after the other, all ranks at a time; ends when the last one is acknowledged, too."""
    total = late = 0.0
    paths: dict[int, Path] = {}  # of rounds of the same ranks, of which there may be thousands
    for nbytes, pairs, reduce in sequence:
        path = paths.get(id(pairs)) or paths.setdefault(id(pairs), case.ways.path(pairs))
        message, acknowledged = case.message(nbytes, path), case.message(nbytes, path, sent=True)
        reduced = reduce * case.costs.reduce_ns(nbytes)
        total += message + reduced
        late = max(acknowledged - message - reduced, 0.0) + case.costs.wake_ns if acknowledged > message else 0.0
    return total + late


def piped(
    case: Case, sequence: Sequence[tuple[int, int, Sequence[Pair], bool]], parallel: int = 1, *, last: bool = True
) -> float:
    """Rounds of (pieces, bytes of a piece, pairs, reduce) in which a piece goes on as soon as it is there and reduced.

    The next round begins when its first piece is ready and the line is free: max(piece's cycle, all pieces' line).  Of
    `parallel` lanes the first pieces share the line, and come in together.  `last`: ends when all is acknowledged, too.
    """
    total = end = 0.0
    paths: dict[int, Path] = {}
    for k, (count, nbytes, pairs, reduce) in enumerate(sequence):
        path = paths.get(id(pairs)) or paths.setdefault(id(pairs), case.ways.path(pairs))
        line = case.line(nbytes, path, windowed=case.chunk is not None, reduce=reduce)
        cycle = case.message(nbytes, path) + reduce * case.costs.reduce_ns(nbytes) + (k == 0) * (parallel - 1) * line
        acknowledged = case.message(nbytes, path, sent=True) if last else 0.0
        end = total + (count - 1) * line + max(cycle, acknowledged)
        total += max(count * line, cycle)
    return end


def one_way(case: Case, nbytes: int, pairs: Sequence[Pair], *, last: bool = False) -> float:
    """A message that nothing meets.  `last`: until it is acknowledged, too."""
    if not pairs:
        return 0.0
    path = case.ways.path(pairs)
    received = case.message(nbytes, path, both_ways=False)
    return max(received, case.message(nbytes, path, both_ways=False, sent=True)) if last else received
