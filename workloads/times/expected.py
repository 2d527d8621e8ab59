"""What an algorithm should take: message by message, or, where its messages are too many to follow, by its formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import cast

from workloads.base.entry import Algorithm, named
from workloads.collectives.schedule import Schedule, schedule_of
from workloads.times.buffers import Buffers
from workloads.times.case import Case
from workloads.times.followed import Followed, own

MOST_MESSAGES = 20_000
"""That are followed: some 50 us of ours each.  A schedule of more is left to its formula."""
_PIECES = 32  # to a rank: where there are more, each takes as long as those between half of them and all


@dataclass(frozen=True)
class _Cut:
    """A schedule that is followed, or, of very many pieces, fewer of them, twice: the `more` go on as those do."""

    parts: Sequence[Followed]
    more: float = 0.0

    @classmethod
    def of(
        cls, case: Case, schedule: Schedule, most_messages: float, buffers: Buffers | None, starts: Sequence[float]
    ) -> _Cut | None:
        """None where there are more messages to follow than that."""
        shape, limit, more = case.shape, _PIECES * case.n, 0.0
        pieces, shapes = -(-shape.count // shape.chunk) if shape.chunk else 1, [shape]
        if shape.chunk and pieces > limit and not own(schedule):
            shapes = [replace(shape, count=n * shape.chunk) for n in (limit // 2, limit)]
            more = (pieces - limit) / (limit - limit // 2)
        parts = [Followed.of(replace(case, shape=its), schedule, most_messages, starts, buffers) for its in shapes]
        return cls([part for part in parts if part], more) if all(parts) else None

    def ns(self, time: Callable[[Followed], float]) -> float:
        times = [time(part) for part in self.parts]
        return times[-1] + self.more * (times[-1] - times[0])

    def any(self, what: Callable[[Followed], bool]) -> bool:
        return any(what(part) for part in self.parts)


def replayed(
    case: Case, schedule: Schedule, most_messages: float = MOST_MESSAGES, buffers: Buffers | None = None
) -> float | None:
    """Time in ns; None where there are more messages to follow than that.  `buffers`: who would be paused is noted."""
    cut = _Cut.of(case, schedule, most_messages, buffers, [0.0] * case.n)
    return None if cut is None else cut.ns(Followed.time_ns)


def replayed_ends(case: Case, schedule: Schedule, starts: Sequence[float]) -> list[float] | None:
    """When each rank of a group is through, if they begin at these times; None as above.

    A rank that begins late has what came before at once.
    """
    followed = Followed.of(case, schedule, MOST_MESSAGES, starts, None)
    return None if followed is None else list(followed.ends)


def expected_ns(entry: Algorithm, case: Case, buffers: Buffers | None = None) -> float:
    """Time in ns of an algorithm with a schedule.  Raises NoModel."""
    followed = replayed(case, schedule_of(entry), MOST_MESSAGES if entry.time else inf, buffers)
    return cast(float, named(entry.time)(case)) if followed is None else followed


def estimates(entry: Algorithm, case: Case, buffers: Buffers | None = None) -> Iterator[tuple[float, bool]]:
    """What an algorithm takes at least, in ns, rough and then finer; at last what it takes, and True.  Raises NoModel.

    The rough ones come where they are found much sooner.
    """
    limit = MOST_MESSAGES if entry.time else inf
    cut = _Cut.of(case, schedule_of(entry), limit, buffers, [0.0] * case.n)
    if cut is None:
        yield cast(float, named(entry.time)(case)), True
        return
    if cut.any(lambda part: part.takes_long):
        yield cut.ns(Followed.of_bytes_ns), False
        yield cut.ns(Followed.alone_ns), False
        if cut.any(lambda part: part.train < part.rough_train):
            yield cut.ns(Followed.roughly_ns), False
    if cut.any(lambda part: part.held_up):
        yield cut.ns(Followed.without_pauses_ns), False
    yield cut.ns(Followed.time_ns), True
