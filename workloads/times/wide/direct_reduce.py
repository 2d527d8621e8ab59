"""Rings of NICs (docs/direct-reduce.md), and an optimizer step by them or by the hosts.

`touched`: arrays that an optimizer goes over.  `gathers`: the ring that hosts gather over, if it is another one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from topologies.graph.frames import wire_bytes
from workloads.times.messages import Costs, Path
from workloads.times.wide.around import PASS_PACKETS, Edge, Ring, direct_over_ns, host_ring_over_ns


def arrays_of(optimizer: str | None) -> int:
    """Arrays that an optimizer goes over: parameters and what it remembers."""
    return 3 if optimizer == "adam" else 2


def all_reduce(size_bytes: int, ring: Ring, costs: Costs, touched: int = 0, gathers: Ring | None = None) -> float:
    """n - 1 reducing and n - 1 gathering hops, each begun with the first packet of the one before."""
    n = ring.ranks
    chunk = -(-size_bytes // n)
    hops = direct_over_ns([1] * (n - 1) + [0] * (n - 1), chunk, ring, costs)
    last_pass = (chunk - 1) % (PASS_PACKETS * costs.mtu) + 1
    gathered = (n - 1) * last_pass * 8e9 / costs.pcie_rate_bps
    return max(hops, _sums_ns(n, chunk, ring, costs) + gathered)


def reduce_scatter(size_bytes: int, ring: Ring, costs: Costs, touched: int = 0, gathers: Ring | None = None) -> float:
    """n - 1 hops, each packet added up."""
    n = ring.ranks
    chunk = -(-size_bytes // n)
    return max(direct_over_ns([1] * (n - 1), chunk, ring, costs), _sums_ns(n, chunk, ring, costs))


def all_gather(size_bytes: int, ring: Ring, costs: Costs, touched: int = 0, gathers: Ring | None = None) -> float:
    """n - 1 hops."""
    n = ring.ranks
    return direct_over_ns([0] * (n - 1), -(-size_bytes // n), ring, costs)


def optimus(size_bytes: int, ring: Ring, costs: Costs, touched: int, gathers: Ring | None = None) -> float:
    """An all-reduce by NICs whose last reducing hop is gone over once more for each array of the optimizer."""
    n = ring.ranks
    adds = [1] * (n - 2) + [1 + touched] + [0] * (n - 1)
    steps = direct_over_ns(adds, -(-size_bytes // n), ring, costs)
    return max(all_reduce(size_bytes, ring, costs), steps)


def by_hosts(size_bytes: int, ring: Ring, costs: Costs, touched: int, gathers: Ring | None = None) -> float:
    """A ring reduce-scatter, an update that touches each array, a ring all-gather."""
    n = ring.ranks
    chunk = -(-size_bytes // n)
    update = touched * costs.reduce_ns(chunk)
    scatter, gather = ([reducing] * (n - 1) for reducing in (True, False))
    gathered = host_ring_over_ns(gather, chunk, gathers or ring, costs)
    return host_ring_over_ns(scatter, chunk, ring, costs) + update + gathered


# All edges equal


def _equal(form: Callable[[int, Ring, Costs, int], float]) -> Callable[[int, int, Path, Costs], float]:
    """Of ranks, size, path and costs; with sgd: parameters and momentum."""
    return lambda ranks, size_bytes, path, costs: form(
        size_bytes, Ring([Edge(path, path)], np.zeros(ranks, int)), costs, arrays_of("sgd")
    )


direct_all_reduce_ns = _equal(all_reduce)
direct_reduce_scatter_ns = _equal(reduce_scatter)
direct_all_gather_ns = _equal(all_gather)
optimus_nic_ns = _equal(optimus)
host_optimizer_step_ns = _equal(by_hosts)


def _sums_ns(ranks: int, chunk_bytes: int, ring: Ring, costs: Costs) -> float:
    """When the last sums are in memory, at the earliest: all chunks read, and added up one packet after the other.

    While a rank sends its own chunk for the first time, only what PCIe has left over is read to be added to.
    """
    payload = min(costs.mtu, chunk_bytes)
    read = payload * 8e9 / costs.pcie_rate_bps
    add = max(costs.engine_ns(payload), read)
    packets = chunk_bytes / payload
    first_pass = min(packets, PASS_PACKETS)
    sent = max(edge.shared.links[0].time_ns(wire_bytes(payload)) for edge in ring.kinds)
    adds = (ranks - 1) * packets - first_pass * max(min(sent / read - 1, 1), 0)
    once = costs.post_ns + 3 * costs.pcie_latency_ns + costs.engine_ns(payload) + read
    return once + max(ranks * packets * read, first_pass * sent + adds * add) + costs.wake_ns
