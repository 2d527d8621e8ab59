"""What a receiver says and completes when packets overtake each other, by docs/congestion-control.md alone.

It is told of each packet that comes, in the order in which they come.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PART, AFTER = 64, 32
"""Reserved bits of a BTH: the packet goes on with its message; its message comes after a write without an immediate."""
AT_ONCE = 8


@dataclass(frozen=True)
class Came:
    """A packet of a write: `tied` to the packet before it, of the same message (`part`) or not."""

    number: int
    payload: int
    asks: bool
    imm: int | None
    part: bool
    tied: bool


@dataclass(frozen=True)
class Said:
    """An acknowledgement: all up to `number` has come, and of those from `first` on the ones in `ahead`."""

    number: int
    first: int | None = None
    ahead: frozenset[int] = frozenset()


@dataclass
class Receiver:
    """`any_order`: or messages complete in order.  Times in ps."""

    bits: int
    every: int
    any_order: bool
    pcie_bps: float
    pcie_ps: int
    first: int = 0
    here: dict[int, Came] = field(default_factory=dict)
    unsaid: int = 0
    untold: int | None = None
    """The first that came ahead and that the sender was not told of, ahead still or not."""
    pipe_ps: int = 0
    said: list[Said] = field(default_factory=list)
    completed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Immediate -> when, and the bytes of its message."""
    early: int = 0
    twice: int = 0

    def __post_init__(self) -> None:
        self.expected = self.first

    def comes(self, p: Came, now_ps: int) -> None:
        n = p.number
        if n in self.here:
            self.twice += 1
            if n > self.expected or p.asks:
                self.untold = self.expected + 1 if self.early else None  # not all that was said has come: once more
                self._say()
            return
        self.here[n] = p
        self.pipe_ps = max(self.pipe_ps, now_ps) + round(p.payload * 8e12 / self.pcie_bps)
        before = self.expected
        while self.expected in self.here:
            self.expected += 1
        if n > before:
            self.early += 1
            self.untold = n if self.untold is None else min(n, self.untold)
            self.unsaid += 1
            due = p.asks
        else:
            closed, waits = self.expected - n > 1, max(self.here) > self.expected
            self.unsaid += 2 if closed else waits
            due = any(self.here[m].asks for m in range(n, self.expected))
        for m, q in self.here.items():
            if q.imm is not None and q.imm not in self.completed and self._whole(m):
                self.completed[q.imm] = (self.pipe_ps + self.pcie_ps, self._bytes(m))
        if due or self.unsaid >= self.every:
            self._say()

    def _whole(self, n: int) -> bool:
        """Is all here that an immediate speaks for?"""
        if not self.any_order or n < self.expected:
            return n < self.expected
        while n in self.here and self.here[n].tied:
            n -= 1
        return n in self.here

    def _bytes(self, n: int) -> int:
        total = self.here[n].payload
        while self.here[n].part:
            n -= 1
            total += self.here[n].payload
        return total

    def _say(self) -> None:
        ahead = {m for m in self.here if m > self.expected}
        self.unsaid = 0
        if not ahead or self.untold is None or self.untold > max(ahead):
            self.said.append(Said(self.expected - 1))
            return
        end = max(ahead) + 1
        first = max(self.untold, self.expected + 1)
        if end - first < self.bits:  # room for older ones
            first = max(end - self.bits, self.expected + 1)
        for _ in range(AT_ONCE):
            told = frozenset(m for m in ahead if first <= m < first + self.bits)
            self.said.append(Said(self.expected - 1, first, told))
            later = [m for m in ahead if m >= first + self.bits]
            self.untold = min(later, default=None)
            if not later:
                break
            first = min(later)
