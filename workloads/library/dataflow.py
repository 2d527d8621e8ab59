"""Stations that pass rounds on: each takes a round when all its inputs have it, and its receivers have a slot for it.

What trees need, where nothing is alike: a server is a leaf in one tree and has children in the other.  Messages of a
server's stations share its NIC, in the order in which they are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from workloads.library.pieces import STEPS


@dataclass
class Nic:
    """Takes one message at a time."""

    takes_ns: float
    free: float = 0.0

    def sent(self, ready: float) -> float:
        self.free = max(self.free, ready) + self.takes_ns
        return self.free


@dataclass(eq=False)
class Station:
    """A clock that takes `ns` for a round."""

    ns: float
    outputs: list[tuple[Station, int, float, Nic | None]] = field(default_factory=list)
    inputs: list[list[float]] = field(default_factory=list)
    senders: list[Station] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    busy: bool = False

    def to(self, other: Station, later: float, nic: Nic | None = None) -> None:
        """What it has done goes there, and arrives so much later."""
        self.outputs.append((other, len(other.inputs), later, nic))
        other.inputs.append([])
        other.senders.append(self)

    def may_begin(self) -> float | None:
        """When it can take its next round, as far as that is known."""
        at = len(self.done)
        if self.busy:
            return None
        ready = self.done[-1] if at else 0.0
        for arrived in self.inputs:
            if len(arrived) <= at:
                return None
            if arrived[at] > ready:
                ready = arrived[at]
        if at >= STEPS:
            for other, *_ in self.outputs:
                if len(other.done) <= at - STEPS:
                    return None
                if other.done[at - STEPS] > ready:
                    ready = other.done[at - STEPS]
        return ready


def ended_ns(stations: Sequence[Station], rounds: int) -> float:
    """When the last of them has done its last round."""
    coming: list[tuple[float, int, Station]] = []
    order = 0

    def look(station: Station) -> None:
        nonlocal order
        if len(station.done) < rounds and (ready := station.may_begin()) is not None:
            station.busy, order = True, order + 1
            heappush(coming, (ready + station.ns, order, station))

    for station in stations:
        look(station)
    while coming:
        now, _, station = heappop(coming)
        station.done.append(now)
        station.busy = False
        for other, place, later, nic in station.outputs:
            other.inputs[place].append((nic.sent(now) if nic else now) + later)
            look(other)
        look(station)
        for sender in station.senders:
            look(sender)
    return max(station.done[-1] for station in stations)
