"""Assembles a fabric: names nodes, hands out ranks and ports in the order in which things are added.

Builders add switches, then hosts in rank order, then the cables between switches; so hosts have
the first ports of a switch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any

from topologies.graph import address
from topologies.graph.fabric import OWN_PORTS, Cable, End, Fabric, Host, Nic, Switch


class Wiring:
    def __init__(self) -> None:
        self._switches: list[tuple[str, str, tuple[int, ...]]] = []
        self._hosts: list[Host] = []
        self._nics: list[Nic] = []
        self._cables: list[Cable] = []
        self._used: Counter[str] = Counter()  # node -> ports in use
        self._next: Counter[str] = Counter()  # node -> the last port handed out in turn
        self._reserved: set[End] = set()

    def switch(self, name: str, role: str, place: tuple[int, ...]) -> str:
        self._switches.append((name, role, place))
        return name

    def host(self, nics: Sequence[tuple[str, IPv4Address, str]], host: str | None = None, **cable: Any) -> None:
        """The next host (by default `h<number>`), with its NICs in rank order: (name, address, switch).

        `cable`: what `cable` takes.
        """
        host = host or f"h{len(self._hosts)}"
        self._hosts.append(Host(host, tuple(name for name, _, _ in nics)))
        for gpu, (name, ip, switch) in enumerate(nics):
            self._nics.append(Nic(name, len(self._nics), host, gpu, ip, address.mac(ip)))
            self.cable(name, switch, **cable)

    def host_on(
        self, nics: Sequence[tuple[str, IPv4Address]], switches: Sequence[str], place: tuple[int, ...] = (0,)
    ) -> None:
        """The next host, with NICs in rank order; with a port for each of several switches they have bridges inside."""
        if len(switches) == 1:
            self.host([(name, ip, switches[0]) for name, ip in nics])
            return
        first = len(self._nics)
        bridges = [self.switch(f"nic{first + k}", OWN_PORTS, place) for k in range(len(nics))]
        self.host([(name, ip, bridge) for (name, ip), bridge in zip(nics, bridges, strict=True)])
        for bridge in bridges:
            for switch in switches:
                self.cable(bridge, switch)

    def reserve(self, node: str, port: int) -> None:
        """A port that only a cable which asks for it gets."""
        self._reserved.add(End(node, port))

    def cable(
        self,
        a: str,
        b: str,
        rate_bps: float | None = None,
        delay_ns: float | None = None,
        ports: tuple[int | None, int | None] = (None, None),
    ) -> None:
        """`ports`: the numbers at its ends (None: the next that is free)."""
        self._cables.append(Cable(self._plug(a, ports[0]), self._plug(b, ports[1]), rate_bps, delay_ns))

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

    def _plug(self, node: str, port: int | None) -> End:
        self._used[node] += 1
        if port is not None:
            return End(node, port)
        self._next[node] += 1
        while (end := End(node, self._next[node])) in self._reserved:
            self._next[node] += 1
        return end
