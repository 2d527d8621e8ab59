"""Several queue pairs that are used as one, for expected times: as workloads/verbs/bond.py has them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from workloads.verbs.bond import parts

Callback = Callable[[float], None]
Pair = TypeVar("Pair")
Post = Callable[[float, Pair, int, Callback, Callback | None], None]


@dataclass
class _InOrder:
    """Calls are made in the order in which they were handed over: each waits for those before it."""

    waiting: deque[_Call] = field(default_factory=deque)

    def call(self, callback: Callback | None, parts: int) -> Callback:
        """What is to be called for each of the parts."""
        its = _Call(parts, callback)
        self.waiting.append(its)

        def came(t: float) -> None:
            its.missing -= 1
            while self.waiting and not self.waiting[0].missing:
                if callback := self.waiting.popleft().callback:
                    callback(t)

        return came


@dataclass
class _Call:
    missing: int
    callback: Callback | None


class Bond(Generic[Pair]):
    """`post_ns`: what a host takes for a request; messages are one, or, `split`, one for each of the members."""

    def __init__(self, members: Sequence[Pair], post_ns: float, *, split: bool) -> None:
        self._members, self._post_ns, self._split = members, post_ns, split
        self._turn = 0
        self._arrivals, self._acknowledgements = _InOrder(), _InOrder()

    def post(self, t: float, nbytes: int, received: Callback, sent: Callback | None, post: Post[Pair]) -> None:
        count = len(self._members) if self._split else 1
        arrived, acknowledged = self._arrivals.call(received, count), self._acknowledgements.call(sent, count)
        if not self._split:
            post(t, self._members[self._turn], nbytes, arrived, acknowledged)
            self._turn = (self._turn + 1) % len(self._members)
            return
        for k, (member, (_, part)) in enumerate(zip(self._members, parts(nbytes, count), strict=True)):
            post(t + k * self._post_ns, member, part, arrived, acknowledged)
