"""What stands in a rank's memory while a schedule is checked, span by span, and who used it last.

Two uses of a span that nothing orders, one of them a write, are a race (as FastTrack finds it, Flanagan and Freund,
PLDI 2009).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple


class At(NamedTuple):
    """A step, or (`lane` -1) a rank."""

    rank: int
    lane: int = -1
    step: int = -1

    def __str__(self) -> str:
        return f"rank {self.rank}" if self.lane < 0 else f"rank {self.rank}, lane {self.lane}, step {self.step}"


class Wrong(ValueError):
    """`what` is wrong with a schedule, and at which step (None: at none)."""

    def __init__(self, what: str, at: At | None = None) -> None:
        super().__init__(f"{at}: {what}" if at else what)
        self.what, self.at = what, at


class Sum(NamedTuple):
    """The sum of the inputs of the ranks in `mask` (bits), each `shift` elements further on than it stands here."""

    shift: int
    mask: int


class Bad(NamedTuple):
    """No such sum, since a step."""

    why: str
    at: At


Value = Sum | Bad | None
"""None: nothing has been written there."""
Values = list[tuple[int, int, Value]]  # from, to, what


class Use:
    """A step's, or a message's, of memory; `lane` has done so many steps when it is over (None: it is under way)."""

    __slots__ = ("at", "done", "lane", "writes")

    def __init__(self, at: At, writes: bool, lane: int = -1, done: int | None = None) -> None:
        self.at, self.writes, self.lane, self.done = at, writes, lane, done

    def before(self, clock: Any) -> bool:
        return self.done is not None and bool(clock[self.lane] >= self.done)


class Memory:
    """One memory of a rank, cut wherever spans begin or end."""

    def __init__(self) -> None:
        self.edges = [0]  # of the cells; the last one has no end
        self.values: list[Value] = [None]
        self.uses: list[list[Use]] = [[]]

    def cells(self, start: int, stop: int) -> range:
        return range(self._cut(start), self._cut(stop))

    def _cut(self, at: int) -> int:
        k = bisect_left(self.edges, at)
        if k == len(self.edges) or self.edges[k] != at:
            value = self.values[k - 1]
            self.edges.insert(k, at)
            self.values.insert(k, value)
            self.uses.insert(k, list(self.uses[k - 1]))
        return k

    def use(self, start: int, stop: int, use: Use, clock: Any) -> Use | None:
        """Notes a use that begins at a clock; returns one that nothing orders before it, if there is one."""
        for k in self.cells(start, stop):
            before = []
            for other in self.uses[k]:
                if other.before(clock):
                    continue
                if other.writes or use.writes:
                    return other
                before.append(other)
            self.uses[k] = [*(before if not use.writes else ()), *_last_write(self.uses[k], use), use]
        return None

    def read(self, start: int, stop: int) -> Values:
        cells = self.cells(start, stop)
        return [(self.edges[k], self.edges[k + 1], self.values[k]) for k in cells]

    def write(self, start: int, stop: int, values: Values) -> None:
        """Values as they were read from `values[0][0]` on, shifted to `start`."""
        by = start - values[0][0] if values else 0
        for a, b, value in values:
            moved = Sum(value.shift - by, value.mask) if isinstance(value, Sum) else value
            for k in self.cells(a + by, b + by):
                self.values[k] = moved

    def add(self, start: int, values: Values, at: At) -> None:
        by = start - values[0][0] if values else 0
        for a, b, value in values:
            moved = Sum(value.shift - by, value.mask) if isinstance(value, Sum) else value
            for k in self.cells(a + by, b + by):
                self.values[k] = _sum(self.values[k], moved, at)


def _last_write(uses: list[Use], use: Use) -> list[Use]:
    """Of reads, what they come after: a write that is not ordered before them would be a race."""
    return [] if use.writes else [other for other in uses if other.writes][-1:]


def _sum(one: Value, other: Value, at: At) -> Value:
    for value in (one, other):
        if isinstance(value, Bad):
            return value
    if one is None or other is None:
        return Bad("combines what nothing has been written to", at)
    assert isinstance(one, Sum) and isinstance(other, Sum)
    if one.shift != other.shift:
        return Bad("combines different parts of the vector", at)
    if twice := one.mask & other.mask:
        return Bad(f"adds rank {(twice & -twice).bit_length() - 1}'s part a second time", at)
    return Sum(one.shift, one.mask | other.mask)
