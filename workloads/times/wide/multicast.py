"""Broadcast and all-gather by multicast among all ranks of a large fabric whose trees are its shortest ways.

The same stages as for a few ranks (times/multicast.py): arming, a barrier, datagrams, and each tells its left
neighbour.  In an all-gather every rank gets all others' datagrams over its own cable; how they come is worked out for
three ranks, since the others' ways are like theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from workloads.collectives.exchange import distances
from workloads.times.messages import Costs, Packets, Path, pcie_ns, received_ns, stages_of, wire_bytes
from workloads.times.multicast import OFFLOAD_BYTES, last_hop_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.times.wide.fabric import Wide

    Times = NDArray[np.float64]


class Multicasts:
    """`network`: the ways of datagrams.  `hosts`: of what the hosts send each other, through scale-up domains, too."""

    def __init__(self, network: Wide, hosts: Wide, costs: Costs) -> None:
        self._network, self._hosts, self._costs = network, hosts, costs
        self._order = np.array(network.places.order, np.int64)
        self._n = len(self._order)

    def broadcast_ns(self, size_bytes: int) -> float:
        """From the first rank in order."""
        costs, start = self._costs, self._started()
        count = costs.packets(size_bytes)
        full = _datagram(min(costs.mtu, size_bytes))
        packets = Packets(count, full, full, _datagram(size_bytes - (count - 1) * costs.mtu))

        def there(path: Path) -> float:
            through = packets.through(stages_of(path, costs, to_memory=True)) + path.constant_ns
            return pcie_ns(path, costs, to_memory=True) + through

        took = self._of_each(self._network, np.full(self._n - 1, self._order[0]), self._order[1:], there)
        return self._told(np.concatenate([start[:1], start[0] + took]))

    def all_gather_ns(self, size_bytes: int) -> float:
        """Of so many bytes from all together."""
        costs, start, n = self._costs, self._started(), self._n
        part = -(-size_bytes // n)
        count = costs.packets(part)
        full, last = _datagram(min(costs.mtu, part)), _datagram(part - (count - 1) * costs.mtu)
        here = []
        for rank in sorted({0, n // 2, n - 1}):
            others = np.delete(np.arange(n), rank)
            to = np.full(n - 1, self._order[rank])

            def coming(path: Path) -> float:
                return last_hop_ns(n, count, full, last, path, costs)

            arrivals = np.sort(start[others] + self._of_each(self._network, self._order[others], to, coming))
            cable, line = self._network.cable, self._network.cable.time_ns(last[1])
            done = float((arrivals + np.arange(n - 1, 0, -1) * line).max())
            path = self._network.path([(int(self._order[others[0]]), int(self._order[rank]))])
            write = stages_of(path, costs, to_memory=True)[-1].time_ns(*last) + costs.pcie_latency_ns
            here.append(done + cable.delay_ns + write)
        return self._told(np.full(n, max(here)))

    def _of_each(
        self, ways: Wide, source: NDArray[np.int64], target: NDArray[np.int64], time_ns: Callable[[Path], float]
    ) -> Times:
        paths, which, _, _ = ways.kinds(source, target)
        return np.array([time_ns(path) for path in paths])[which]

    def _message(self, by: int) -> Times:
        """Of each place in order: an empty message from the place so many before it."""
        source = np.roll(self._order, by)
        return self._of_each(self._hosts, source, self._order, lambda path: received_ns(0, path, self._costs))

    def _started(self) -> Times:
        costs = self._costs
        ready = np.full(self._n, costs.post_ns)
        for far in distances(self._n):
            posted = ready + costs.post_ns
            ready = np.maximum(posted, np.roll(posted, far) + self._message(far)) + costs.wake_ns
        return ready + costs.post_ns

    def _told(self, here: Times) -> float:
        posted = here + self._costs.wake_ns + self._costs.post_ns
        told = np.roll(posted, -1) + self._message(-1)
        return float(np.maximum(posted, told).max()) + self._costs.wake_ns


def _datagram(payload_bytes: int) -> tuple[float, float]:
    return payload_bytes, wire_bytes(payload_bytes, OFFLOAD_BYTES)
