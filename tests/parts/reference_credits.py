"""Credits of receivers, written from htsim's uec.cpp alone: UecPullPacer with UecSink::pull, and computePullTarget.

There a credit counts packets with their headers; here it counts payload, and the pacer the time that whole frames take.
And whose target moves, but not beyond what he was granted ahead, keeps his place among the idle: htsim has him take a
turn that brings nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Event = tuple[float, str, int]
"""Time, sender, and a target that came in, or what was granted so far."""


@dataclass
class Pacer:
    """Of senders that have asked for more than they were granted, one after the other."""

    most: int
    """A credit's."""
    takes_ns: Callable[[int], float]
    targets: dict[str, int] = field(default_factory=dict)
    granted: dict[str, int] = field(default_factory=dict)
    active: deque[str] = field(default_factory=deque)
    ahead: int = 0
    """What an idle sender may have beyond what it has asked for."""
    idle: deque[str] = field(default_factory=deque)
    free: float = 0.0

    def came(self, sender: str, target: int) -> None:
        """UecSink::handlePullTarget."""
        if target > self.targets.get(sender, 0):
            self.targets[sender] = target
            wants = target - self.granted.get(sender, 0)
            if wants > 0 and sender not in self.active:
                self.active.append(sender)
                self.idle = deque(other for other in self.idle if other != sender)
            elif wants <= 0 and sender not in self.idle and -wants < self.ahead:
                self.idle.append(sender)

    def pull(self, now: float) -> Event:
        """UecPullPacer::doNextEvent."""
        sender = (self.active or self.idle).popleft()
        before, target = self.granted.get(sender, 0), self.targets[sender]
        self.granted[sender] = before + self.most if before >= target else min(before + self.most, target)
        if self.granted[sender] < target:
            self.active.append(sender)
        elif self.granted[sender] - target < self.ahead:
            self.idle.append(sender)
        self.free = now + self.takes_ns(self.granted[sender] - before)
        return now, sender, self.granted[sender]


def credits(arrivals: Sequence[Event], pacer: Pacer) -> list[Event]:
    """What a receiver grants when such targets come in."""
    found: list[Event] = []
    for now, sender, target in [*arrivals, (float("inf"), "", 0)]:
        while (pacer.active or pacer.idle) and pacer.free < now:
            last = found[-1][0] if found else 0.0
            found.append(pacer.pull(max(pacer.free, last)))
        pacer.came(sender, target)
        if (pacer.active or pacer.idle) and pacer.free <= now < float("inf"):
            found.append(pacer.pull(now))
    return found
