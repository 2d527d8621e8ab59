"""Broadcast and all-gather by multicast among all ranks of a large fabric, over the tree that the controller makes.

The same stages as for a few ranks (times/multicast.py): arming, a barrier, datagrams, and each tells its left
neighbour.  In an all-gather every rank gets all others' datagrams over its own cable; how they come is worked out for a
few ranks, from the nearest to the tree's root to the farthest, since the others' ways are like theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.collectives.exchange import distances
from workloads.times.messages import Costs, Packets, Path, pcie_ns, received_ns, stages_of
from workloads.times.multicast import PATIENT_DATAGRAMS, Multicast, datagram, due_ns, first_waits_ns, last_hop_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.times.wide.fabric import Wide
    from workloads.times.wide.in_network import SwitchTree

    Times = NDArray[np.float64]


class Multicasts:
    """`tree`: what datagrams take, of `network`.  `hosts`: of what hosts send each other, through domains, too."""

    def __init__(self, tree: SwitchTree, network: Wide, hosts: Wide, costs: Costs) -> None:
        self._tree, self._network, self._hosts, self._costs = tree, network, hosts, costs
        self._order = np.array(network.places.order, np.int64)
        self._n = len(self._order)

    def broadcast(self, size_bytes: int) -> Multicast:
        """From the first rank in order."""
        costs, start = self._costs, self._started()
        count = costs.packets(size_bytes)
        full = datagram(min(costs.mtu, size_bytes))
        packets = Packets(count, full, full, datagram(size_bytes - (count - 1) * costs.mtu))

        def there(path: Path) -> float:
            through = packets.through(stages_of(path, costs, to_memory=True)) + path.constant_ns
            return pcie_ns(path, costs, to_memory=True) + through

        arrival_ns = self._over_tree(self._order[0], self._order[1:], there)
        waits = self._over_tree(self._order[0], self._order[1:], lambda path: first_waits_ns(packets, path, costs))
        done_at = np.concatenate([start[:1], start[0] + arrival_ns])
        return Multicast(self._all_have_ns(done_at), float((start[0] - start[1:] + waits).max()))

    def all_gather(self, size_bytes: int) -> Multicast:
        """Of so many bytes from all together."""
        costs, start, n = self._costs, self._started(), self._n
        part = -(-size_bytes // n)
        count = costs.packets(part)
        full, last = datagram(min(costs.mtu, part)), datagram(part - (count - 1) * costs.mtu)
        done_at, waits = [], 0.0
        depth = self._tree.far[self._network.places.leaf(self._order)]
        depths, some = np.unique(depth, return_index=True)
        looked = np.unique(np.linspace(0, len(depths) - 1, _DEPTHS).round().astype(int))
        cable = self._network.cable
        line, whole = cable.time_ns(last[1]), cable.time_ns(full[1])
        for rank in some[looked].tolist():
            others = np.delete(np.arange(n), rank)

            def comes(k: int, of: tuple[float, float], rank: int = rank, others: Any = others) -> Times:
                def coming(path: Path) -> float:
                    return last_hop_ns(n, k, full, of, path, costs)

                arrival_ns = self._over_tree(self._order[rank], self._order[others], coming)
                return np.sort(start[others] + arrival_ns)

            done = float((comes(count, last) + np.arange(n - 1, 0, -1) * line).max())
            write = last[0] * 8e9 / costs.pcie_rate_bps + costs.pcie_latency_ns
            done_at.append(done + cable.delay_ns + write)
            if count < PATIENT_DATAGRAMS:
                due = float(start[rank]) + costs.pcie_latency_ns + due_ns(n * count, cable, costs)
                waits = max(waits, _longest_wait(comes(1, full), whole, cable.delay_ns, due))
        return Multicast(self._all_have_ns(np.interp(depth, depths[looked], done_at)), waits)

    def _over_tree(self, end: int, others: NDArray[np.int64], time_ns: Callable[[Path], float]) -> Times:
        """Of each way between one rank and others: up to where their branches meet, and down."""
        tree, leaf, network = self._tree, self._network.places.leaf, self._network
        met = tree.meet(int(leaf(np.array([end]))[0]))
        switch = leaf(others)
        switches, which = np.unique(met[switch] + 1, return_inverse=True)
        paths = (Path((network.cable,) * (k + 1), (network.latency_ns,) * k) for k in switches.tolist())
        return np.array([time_ns(path) for path in paths])[np.asarray(which).reshape(-1)]

    def _of_each(
        self, ways: Wide, source: NDArray[np.int64], target: NDArray[np.int64], time_ns: Callable[[Path], float]
    ) -> Times:
        paths, which = ways.alone(source, target)
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

    def _all_have_ns(self, done_at: Times) -> float:
        posted = done_at + self._costs.wake_ns + self._costs.post_ns
        received = np.roll(posted, -1) + self._message(-1)
        return float(np.maximum(posted, received).max()) + self._costs.wake_ns


_DEPTHS = 8
"""Ranks whose arrivals are worked out."""


def _longest_wait(arrivals: Times, line: float, delay: float, due: float) -> float:
    """As of a few ranks (times/multicast.py)."""
    k = np.arange(1, len(arrivals) + 1)
    done = np.maximum.accumulate(arrivals - (k - 1) * line) + k * line + delay
    return float(np.minimum(np.diff(done, prepend=0.0), done - due).max())
