"""What the switches of a large fabric do, sums and copies, over the tree that the controller makes of them, as arrays.

A tree leads from every rank's switch by shortest ways to a root, the switch whose longest way is the shortest; a job's
number says which of equally good ones (controllers/offload/trees.py).  Where cables are alike, a rank's time depends
on how far it is from the root, and on what the accelerators on its way add up; only ranks that are the worst in one of
these need be looked at.

Multicasts have the same stages as for a few ranks (times/switches/multicast.py).  In an all-gather every rank gets all
others' datagrams over its own cable; how they come is worked out for a few ranks, from the nearest to the tree's root
to the farthest, since the others' ways are like theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.collectives.exchange import distances
from workloads.times.messages import Costs, Packets, Path, pcie_ns, received_ns, stages_of
from workloads.times.switches.in_network import in_network_all_reduce_ns
from workloads.times.switches.multicast import (
    PATIENT_DATAGRAMS,
    Multicast,
    datagram,
    due_ns,
    first_waits_ns,
    last_hop_ns,
)
from workloads.times.wide.cables import LinkIndex
from workloads.times.wide.places import Grid, Places, Rails, Tiers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.times.wide.fabric import Wide

    Numbers = NDArray[np.int64]
    Times = NDArray[np.float64]


@dataclass(frozen=True)
class SwitchTree:
    """Of switches by number: the one above each (the root's is itself), how far they are from it, and their ports.

    `ranks`: on each.  A switch that is not in the tree is as far as -1.
    """

    above: Numbers
    far: Numbers
    ports: Numbers
    ranks: Numbers

    @property
    def inputs(self) -> Numbers:
        """How many branches come into each from below."""
        below = np.flatnonzero(self.far > 0)
        return self.ranks + np.bincount(self.above[below], minlength=len(self.above))

    def adding(self) -> NDArray[np.bool_]:
        """Which switches add up: the root, and all where two branches meet."""
        return np.asarray((self.far == 0) | ((self.far > 0) & (self.inputs > 1)))

    def largest_branch(self) -> int:
        """How many ranks are behind one port of the root, at most."""
        behind = self.ranks.copy()
        for switch in np.argsort(-self.far, kind="stable"):
            if self.far[switch] > 1:
                behind[self.above[switch]] += behind[switch]
        return int(max([*behind[self.far == 1].tolist(), 1]))

    def farthest(self, ways: Wide) -> list[tuple[int, list[int]]]:
        """The ways up from ranks, root last, that no other one over links like theirs is worse than in all respects."""
        adding = self.adding()
        sums = np.zeros((4, len(adding)))
        sums[:3] = np.ones(len(adding)), adding, adding * (self.inputs + 1) / self.ports
        order = np.argsort(self.far, kind="stable")
        order = order[self.far[order] >= 0]
        if ways.own:
            below = order[self.far[order] > 0]
            up = LinkIndex(ways.places).between(below, self.above[below])
            sums[3, below] = ways.own.signs[ways.own.which[up]]
        for level in np.split(order, np.flatnonzero(np.diff(self.far[order])) + 1)[1:]:
            sums[:, level] += sums[:, self.above[level]]
        leaves, ends = np.unique(ways.places.leaf(np.arange(ways.places.ranks)), return_index=True)
        if ways.own:  # any rank may be the one with another cable
            ends = np.arange(ways.places.ranks)
            leaves = ways.places.leaf(ends)
        ways_up = sums[:, leaves].round(9)
        if ways.own:
            ways_up[3] += ways.own.signs[ways.own.which[ends]]
        ways_up, first = np.unique(ways_up, axis=1, return_index=True)
        worst: list[int] = []
        for k in range(ways_up.shape[1] - 1, -1, -1):  # the longest first
            if not any((ways_up[1:3, w] >= ways_up[1:3, k]).all() and ways_up[3, w] == ways_up[3, k] for w in worst):
                worst.append(k)
        return [(int(ends[first[k]]), self._up(int(leaves[first[k]]))) for k in worst]

    def meet(self, switch: int) -> Numbers:
        """How many cables lie between each switch of the tree and this one: up to where their ways meet, and down."""
        up = self._up(switch)
        shared = np.zeros(len(self.far), np.int64)  # how far from the root the two ways meet
        shared[up] = self.far[up]
        on_way = np.zeros(len(self.far), bool)
        on_way[up] = True
        order = np.argsort(self.far, kind="stable")
        order = order[self.far[order] > 0]
        for level in np.split(order, np.flatnonzero(np.diff(self.far[order])) + 1):
            rest = level[~on_way[level]]
            shared[rest] = shared[self.above[rest]]
        return np.asarray(self.far + self.far[switch] - 2 * shared)

    def _up(self, switch: int) -> list[int]:
        way = [switch]
        while self.far[way[-1]]:
            way.append(int(self.above[way[-1]]))
        return way


def tree_of(places: Places, job: int) -> SwitchTree:
    """Of all ranks, for the fabric's `job`th offloaded collective."""
    match places:
        case Grid(dims):
            return _on_grid(dims, job)
        case Rails(servers, gpus, spines):
            return _on_tiers(servers, gpus, spines, 1, 0, job)
        case Tiers(per, leaves, spines, pods, cores):
            return _on_tiers(per, leaves, spines, pods, cores, job)
    raise TypeError(f"{type(places).__name__} is no kind of fabric")


def _on_grid(dims: Sequence[int], job: int) -> SwitchTree:
    """All roots are equally good.  Of equal ways a switch takes one by its and the root's number, in port order."""
    n = prod(dims)
    me, root = np.arange(n), job % n
    at = np.stack(np.unravel_index(me, dims))
    to = np.array(np.unravel_index(root, dims))
    far = np.zeros(n, np.int64)
    port, neighbour = [], []
    for axis, size in enumerate(dims):
        ahead, back = (to[axis] - at[axis]) % size, (at[axis] - to[axis]) % size
        far += np.minimum(ahead, back)
        stride = prod(dims[axis + 1 :])
        up, down = (me + ((at[axis] + by) % size - at[axis]) * stride for by in (1, -1))
        lays = me if size > 2 else np.where(at[axis] == 0, me, up)  # who has laid the cable: ports are in that order
        for there, laid, near in (
            (up, lays, (ahead > 0) & (ahead <= back)),
            (down, down, (back > 0) & (back <= ahead) & (size > 2)),
        ):
            port.append(np.where(near, laid * len(dims) + axis, n * len(dims)))
            neighbour.append(there)
    order = np.argsort(np.stack(port), axis=0, kind="stable")
    ways = np.maximum((np.stack(port) < n * len(dims)).sum(axis=0), 1)
    chosen = order[(root + me) % ways, me]
    above = np.where(me == root, root, np.stack(neighbour)[chosen, me])
    ports = 1 + sum(min(size - 1, 2) for size in dims)
    return SwitchTree(above, far, np.full(n, ports), np.ones(n, np.int64))


def _on_tiers(per: int, leaves: int, spines: int, pods: int, cores: int, job: int) -> SwitchTree:
    """Leaves come first in number, then spines, then cores."""
    n_leaves, n_spines = leaves * pods, spines * pods
    n = n_leaves + n_spines + cores
    above, far = np.zeros(n, np.int64), np.full(n, -1)
    ports = np.repeat([per + spines, leaves + cores, max(n_spines, 1)], [n_leaves, n_spines, cores])
    ranks = np.repeat([per, 0], [n_leaves, n_spines + cores])
    every = np.arange(n_leaves)
    if n_leaves == 1:
        root = 0
    elif pods == 1:
        root = n_leaves + job % spines
        above[every], far[every] = root, 1
    else:
        root = n_leaves + n_spines + job % cores
        spine = n_leaves + every // leaves * spines + (root + every) % spines
        above[every], far[every] = spine, 2
        above[spine], far[spine] = root, 1
    above[root], far[root] = root, 0
    return SwitchTree(above, far, ports, ranks)


def by_switches_ns(
    tree: SwitchTree, ways: Wide, size_bytes: int, costs: Costs, *, rate_bps: float | None, **options: Any
) -> float:
    """Time in ns.  `rate_bps`: of an accelerator (None: of all its switch's ports together).

    `options`: as `in_network_all_reduce_ns` takes them.
    """
    adding, inputs = tree.adding(), tree.inputs
    ports_bps = _ports_bps(tree, ways)

    def of(rank: int, up: list[int]) -> float:
        adders = tuple((rate_bps or float(ports_bps[s]), int(inputs[s])) for s in up if adding[s])
        path = _path_over_root(ways, rank, up)
        return in_network_all_reduce_ns(ways.places.ranks, size_bytes, path, costs, accelerators=adders, **options)

    return max(of(*way) for way in tree.farthest(ways))


def _path_over_root(ways: Wide, rank: int, up: Sequence[int]) -> Path:
    n, links = ways.places.ranks, 2 * len(up)
    if ways.own is None:
        return Path((ways.cable,) * links, (ways.latency_ns,) * (links - 1))
    between, lower, upper = LinkIndex(ways.places).between, np.array(up[:-1], int), np.array(up[1:], int)
    numbers = [rank, *between(lower, upper).tolist(), *between(upper, lower)[::-1].tolist(), n + rank]
    return Path(tuple(ways.own.kinds[ways.own.which[k]] for k in numbers), (ways.latency_ns,) * (links - 1))


def _ports_bps(tree: SwitchTree, ways: Wide) -> NDArray[np.float64]:
    """Of all ports of each switch together, as its accelerator's where the file does not say."""
    bps = np.asarray(tree.ports * ways.cable.rate_bps, float)
    if ways.own is None:
        return bps
    places, own = ways.places, ways.own
    extra = np.array([kind.rate_bps - ways.cable.rate_bps for kind in own.kinds])[own.which]
    source, target = places.ends()
    np.add.at(bps, places.leaf(np.arange(places.ranks)), extra[: places.ranks])
    np.add.at(bps, source, np.where(target < 0, 0.0, extra[4 * places.ranks :]))
    return bps


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
    """As of a few ranks (times/switches/multicast.py)."""
    k = np.arange(1, len(arrivals) + 1)
    done = np.maximum.accumulate(arrivals - (k - 1) * line) + k * line + delay
    return float(np.minimum(np.diff(done, prepend=0.0), done - due).max())
