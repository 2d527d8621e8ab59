"""Where PFC would pause somebody: what a schedule's messages hold of switches' and NICs' buffers, had they no end.

A model in which nobody is paused says who would be first.  A packet counts where it came in, from its last bit in until
it goes on; a switch pauses that port when what it holds of the shared part reaches alpha times what is free of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from topologies.ranks.hops import Hop

_STEPS = 8  # in which a train comes and goes, if it has as many packets


@dataclass(frozen=True)
class Room:
    """Bytes: `reserve` for each port alone, `shared` for all; `alpha` as a switch's.  A NIC has its XOFF as reserve.

    A paused sender goes on `offset` below the threshold, of a NIC when no more than `resumes` is there.
    """

    reserve: float
    shared: float = 0.0
    alpha: float = 1.0
    offset: float = 0.0
    resumes: float = inf

    def least(self, ports: int) -> float:
        """What pauses one of so many ports, if all hold as much."""
        return self.reserve + self.alpha * self.shared / (1 + ports * self.alpha)


class Transits:
    """Trains that came in over one cable: arrival of the first and last packet, departures, bytes, packets.

    `onward`: over which cables they go on.
    """

    __slots__ = ("before_ns", "onward", "passed")

    def __init__(self, before_ns: float) -> None:
        self.before_ns = before_ns  # from a packet's last bit in until it waits for the way out
        self.onward: set[Hashable] = set()
        self.passed = array("d")

    def add(self, waits: tuple[float, float], leaves: tuple[float, float], nbytes: float, packets: int) -> None:
        first, last = waits
        self.passed.extend((first - self.before_ns, last - self.before_ns, *leaves, nbytes, packets))


class Watch:
    """Of one replay."""

    def __init__(self, rooms: Mapping[str, Room]) -> None:
        self._rooms = rooms
        self._held: dict[str, dict[Hop, Transits]] = {}

    def at(self, hop: Hop, before_ns: float, onward: Hashable) -> Transits | None:
        """What comes in over this cable; None where nobody is paused."""
        if hop[1] not in self._rooms:
            return None
        transits = self._held.setdefault(hop[1], {}).setdefault(hop, Transits(before_ns))
        transits.onward.add(onward)
        return transits

    def paused(self) -> dict[Hop, bool]:
        """The cables whose senders are, each with the node that pauses at its end, and what `holds_up` says of it."""
        hops: dict[Hop, bool] = {}
        for node, logs in self._held.items():
            used = {hop: held for hop, held in logs.items() if held.passed}
            over = _over(self._rooms[node], list(used.values())) if used else []
            hops |= {hop: self.holds_up(hop) for hop, is_over in zip(used, over, strict=False) if is_over}
        return hops

    def holds_up(self, hop: Hop, seen: frozenset[Hop] = frozenset()) -> bool:
        """Whether something waits behind a paused cable that goes on another way than the rest.

        What waits there fills the buffer at its beginning, and pauses those whose traffic comes over it.
        """
        held = self._held.get(hop[1], {}).get(hop)
        if held is None or hop in seen:
            return False
        before = (up for up, its in self._held.get(hop[0], {}).items() if hop in its.onward)
        return len(held.onward) > 1 or any(self.holds_up(up, seen | {hop}) for up in before)


@dataclass
class Buffers:
    """Of a fabric, by node, where its traffic is lossless; and who was paused since `take_paused`.

    `paused`: and whether what goes elsewhere is held up with the rest.
    """

    rooms: Mapping[str, Room]
    paused: dict[Hop, bool] = field(default_factory=dict)

    @property
    def holds_up(self) -> bool:
        """Whether a pause since then is one of what need not have waited."""
        return any(self.paused.values())

    def take_paused(self, *, looked: bool = True) -> tuple[Hop, ...] | None:
        """Who was paused since the last time.  None: somebody may have been, and nobody `looked`."""
        hops = tuple(self.paused)
        self.paused.clear()
        return hops if looked or not self.rooms else None


def _over(room: Room, held: Sequence[Transits]) -> list[bool]:
    """Which of a node's ports reach the threshold."""
    changes = [_changes(np.frombuffer(part.passed).reshape(-1, 6)) for part in held]
    filled = [np.cumsum(change) for _, change in changes]
    if max(one.max() for one in filled) < room.least(len(held)):
        return [False] * len(held)
    beyond = [np.maximum(one - room.reserve, 0.0) for one in filled]
    at, change = (np.concatenate(part) for part in zip(*changes, strict=True))
    port = np.repeat(np.arange(len(held)), [len(one) for one in filled])
    grows = np.concatenate([np.diff(one, prepend=0.0) for one in beyond])
    order = np.lexsort((-change, at))
    used = np.empty_like(at)
    used[order] = np.cumsum(grows[order])
    reaches = np.concatenate(beyond) >= room.alpha * (room.shared - used)
    paused = set(port[(change > 0) & (np.concatenate(filled) >= room.reserve) & reaches].tolist())
    return [k in paused for k in range(len(held))]


def _changes(passed: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """When how many bytes came, or (less than none) went, in order; of what is at the same time the most first."""
    steps = np.minimum(passed[:, 5], _STEPS).astype(int)
    rows = np.repeat(passed, steps, axis=0)
    parts = np.repeat(steps, steps)
    which = np.arange(len(rows)) - np.repeat(np.cumsum(steps) - steps, steps)
    along = which / np.maximum(parts - 1, 1)
    arrived, left = (rows[:, k] + along * (rows[:, k + 1] - rows[:, k]) for k in (0, 2))
    nbytes = rows[:, 4] / parts
    at, change = np.concatenate([arrived, left]), np.concatenate([nbytes, -nbytes])
    order = np.lexsort((-change, at))
    return at[order], change[order]
