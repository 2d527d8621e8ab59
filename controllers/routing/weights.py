"""How much each of several equal ports weighs toward a destination: by what its way can carry.

A port weighs as its cable's rate; or less, if the switch behind it can carry less on: that is what its own ports weigh
together, over as many as the switch has that has most of them.  Where one way leads on from there, as from a spine down
to a leaf, this is the least rate on the way.  (WCMP: Zhou et al., EuroSys 2014.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from controllers.routing.distances import Toward

MOST_COPIES = 128
"""Weights, summed: Open vSwitch makes so many copies of a frame, and fabricd takes no more (link/ways.h)."""


class Weights:
    """Of all switches' ports."""

    def __init__(
        self, links: Mapping[str, Mapping[int, str]], paths: Mapping[str, Toward], rate: Callable[[str, int], float]
    ) -> None:
        self._links, self._paths, self._rate = links, paths, rate
        self._known: dict[tuple[str, int], float] = {}

    def of(self, switch: str, ports: Sequence[int], nic: int) -> tuple[int, ...]:
        """The ports' weights toward a NIC, a bit: small whole numbers; 0 for one that would only hold the others up."""
        return whole([self._capacity(switch, port, ports, nic) for port in ports])

    def _capacity(self, switch: str, port: int, beside: Sequence[int], nic: int) -> float:
        behind = self._links[switch][port]
        onward = self._ports(behind, nic)
        if not onward:  # it is there
            return self._rate(switch, port)
        most = max(len(self._ports(self._links[switch][p], nic)) for p in beside)
        return min(self._rate(switch, port), self._carries(behind, nic) / most)

    def _carries(self, switch: str, nic: int) -> float:
        if (switch, nic) not in self._known:
            ports = self._ports(switch, nic)
            self._known[switch, nic] = sum(self._capacity(switch, port, ports, nic) for port in ports)
        return self._known[switch, nic]

    def _ports(self, switch: str, nic: int) -> list[int]:
        return [port for port, nics in self._paths[switch].items() if nics & nic]


def whole(rates: Sequence[float], most: int = MOST_COPIES) -> tuple[int, ...]:
    """Small whole numbers in about these relations, of which none overloads a port more than need be."""
    fastest, best, least = max(rates), (1,) * len(rates), float("inf")
    for top in range(1, most + 1):
        weights = tuple(int(top * rate / fastest + 1e-9) for rate in rates)
        if sum(weights) > most:
            break
        load = max(w / rate for w, rate in zip(weights, rates, strict=True)) * sum(rates) / sum(weights)
        if load < least - 1e-9:
            best, least = weights, load
    return best
