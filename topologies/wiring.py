"""Assembles a fabric: names nodes, hands out ranks and ports in the order in which things are added.

Builders add switches, then hosts in rank order, then the cables between switches; so hosts have
the first ports of a switch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any

from . import address
from .fabric import Cable, End, Fabric, Host, Nic, Switch


class Wiring:
    def __init__(self) -> None:
        self._switches: list[tuple[str, str, tuple[int, ...]]] = []
        self._hosts: list[Host] = []
        self._nics: list[Nic] = []
        self._cables: list[Cable] = []
        self._used: Counter[str] = Counter()  # node -> ports in use

    def switch(self, name: str, role: str, place: tuple[int, ...]) -> str:
        self._switches.append((name, role, place))
        return name

    def host(self, nics: Sequence[tuple[str, IPv4Address, str]]) -> None:
        """The next host, with its NICs in rank order: (name, address, switch)."""
        host = f"h{len(self._hosts)}"
        self._hosts.append(Host(host, tuple(name for name, _, _ in nics)))
        for gpu, (name, ip, switch) in enumerate(nics):
            self._nics.append(Nic(name, len(self._nics), host, gpu, ip, address.mac(ip)))
            self.cable(name, switch)

    def cable(self, a: str, b: str) -> None:
        self._cables.append(Cable(self._plug(a), self._plug(b)))

    def fabric(self, kind: str, params: Mapping[str, Any], scale_up: Sequence[Sequence[str]] = ()) -> Fabric:
        switches = (Switch(n, i, role, at, self._used[n]) for i, (n, role, at) in enumerate(self._switches))
        return Fabric(
            kind=kind,
            params=dict(params),
            hosts=tuple(self._hosts),
            nics=tuple(self._nics),
            switches=tuple(switches),
            cables=tuple(self._cables),
            scale_up=tuple(tuple(domain) for domain in scale_up),
        )

    def _plug(self, node: str) -> End:
        self._used[node] += 1
        return End(node, self._used[node])
