"""The flows that one switch should have, those that it was sent, and those that it has confirmed.

A switch counts as settled when the flows it has confirmed, by the reply to the barrier that followed the last of them,
are those wanted.  Its flows are not known while anything is on its way, nor when it connects.  A switch that goes away
keeps its flows and so stays settled until other flows are wanted of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from controllers.flows import Flow, Group, groups


@dataclass(frozen=True)
class Change:
    """In this order: groups to add, flows to add, cookies of flows to delete, groups to delete.

    `fresh`: what groups there are is not known; all are deleted first.
    """

    add: tuple[Flow, ...]
    delete: tuple[int, ...]
    add_groups: tuple[Group, ...] = ()
    delete_groups: tuple[int, ...] = ()
    fresh: bool = False

    def __bool__(self) -> bool:
        return bool(self.add or self.delete)


class Bridge:
    """The controller's view of one switch."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wanted: frozenset[Flow] = frozenset()
        self.refused: str | None = None  # what the switch said of a flow that it did not take
        self._sent: frozenset[Flow] | None = None  # None: not connected, or not asked yet what is there
        self._confirmed: frozenset[Flow] | None = None
        self._barrier: int | None = None  # the last one sent

    @property
    def settled(self) -> bool:
        return self.refused is None and self._confirmed == self.wanted

    def connected(self) -> None:
        """A new connection: the switch's flows are not known yet."""
        self.lost()
        self._confirmed = None
        self.refused = None

    def lost(self) -> None:
        self._sent = None
        self._barrier = None

    def found(self, cookies: Collection[int]) -> Change:
        """The change from what was found there, given by cookies, to what is wanted.

        Everything wanted is sent once more, over what is there: its actions may have been changed under its cookie.
        """
        self._sent = self.wanted
        wanted = {flow.cookie for flow in self.wanted}
        used = tuple(sorted(groups(self.wanted), key=lambda g: g.group))
        return Change(_in_order(self.wanted), tuple(sorted(set(cookies) - wanted)), used, (), fresh=True)

    def change(self) -> Change:
        """The change from what was sent to what is wanted; nothing while that cannot be known."""
        if self._sent is None or self._sent == self.wanted:
            return Change((), ())
        before, self._sent = self._sent, self.wanted
        cookies = tuple(sorted(flow.cookie for flow in before - self.wanted))
        old_groups, new_groups = groups(before), groups(self.wanted)
        return Change(
            _in_order(self.wanted - before),
            cookies,
            tuple(sorted(new_groups - old_groups, key=lambda g: g.group)),
            tuple(sorted(g.group for g in old_groups - new_groups)),
        )

    def barrier_sent(self, xid: int) -> None:
        """A change and this barrier behind it are on their way."""
        self._confirmed = None
        self._barrier = xid

    def barrier_seen(self, xid: int) -> None:
        if xid == self._barrier:
            self._confirmed = self._sent


def _in_order(flows: Iterable[Flow]) -> tuple[Flow, ...]:
    """Later tables first, so that no flow ever points to one that is still missing."""
    return tuple(sorted(flows, key=lambda f: (-f.table, f.cookie)))
