"""Which ports are down, from two sources.

fabricd knows the emulated cables, the switch knows its own interfaces.  A port is down while either of them says so.
When both report the same failure, routes change only once.
"""

from __future__ import annotations

from collections.abc import Collection, Set

Port = tuple[str, int]  # switch, port number


class DownPorts:
    """The union of what fabricd and the switches report as down."""

    def __init__(self) -> None:
        self._fabricd: set[Port] = set()
        self._switch: set[Port] = set()

    @property
    def down(self) -> Set[Port]:
        return frozenset(self._fabricd | self._switch)

    def fabricd_says(self, port: Port, up: bool) -> None:
        _update(self._fabricd, port, up)

    def switch_says(self, port: Port, up: bool) -> None:
        _update(self._switch, port, up)

    def switch_lists(self, switch: str, down: Collection[int]) -> None:
        """All ports of a switch that are down by its own account, replacing what it said before."""
        self._switch = {p for p in self._switch if p[0] != switch} | {(switch, number) for number in down}


def _update(ports: set[Port], port: Port, up: bool) -> None:
    if up:
        ports.discard(port)
    else:
        ports.add(port)
