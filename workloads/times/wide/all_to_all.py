"""All-to-all among all ranks of a large fabric: how many messages the busiest link carries, without going through all.

All messages at once fill the busiest link without a gap, and the last of them still has its way to go: the longest, on
a ring, where near ones come last, the mean.  Small messages take their posts.  On a torus or ring all links of a
dimension that go the same way carry as many.  Behind switches every rank sends and gets n - 1; what goes up is even
where there is one spine, and counted flow by flow where ECMP's hash spreads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workloads.times.messages import FRAME_BYTES, RETH_BYTES, Costs, received_ns, sent_ns
from workloads.times.wide.places import Grid, Rails, Tiers

if TYPE_CHECKING:
    from workloads.times.wide.fabric import Wide

MOST_COUNTED = 1 << 24
"""Flows that are hashed one by one: some seconds of ours."""
_BLOCK = 1 << 20


def crowd_of(ways: Wide) -> int | None:
    """Messages on the busiest link of the network; None where they are too many to count."""
    places, inside = ways.places, ways.scale_up is not None
    n = places.ranks
    own = n - 1
    match places:
        case Grid(dims):
            return max(own, *(n // d * sum(range(1, d // 2 + 1)) for d in dims))
        case Rails(servers, gpus, spines):
            own -= inside * (gpus - 1)
            if spines <= 1 or gpus == 1:
                return max(own, servers * (n - servers - inside * (gpus - 1))) if gpus > 1 else own
        case Tiers(per, leaves, spines, pods) if pods == 1 and (spines == 1 or leaves == 1):
            return max(own, per * (n - per)) if leaves > 1 else own
    return max(own, _counted(ways)) if n * n <= MOST_COUNTED else None


def _counted(ways: Wide) -> int:
    n = ways.places.ranks
    loads = np.zeros(ways.places.links, np.int64)
    everybody, most = np.arange(n), max(1, _BLOCK // n)
    for first in range(0, n, most):
        some = np.arange(first, min(first + most, n))
        source, target = np.repeat(some, n), np.tile(everybody, len(some))
        apart = source != target
        if ways.scale_up is not None:
            apart &= ~ways.places.inside(source, target)
        for _, ids in ways.places.between(source[apart], target[apart], ways.ports):
            loads += np.bincount(ids, minlength=len(loads))
    return int(loads.max())


def spread_ns(ways: Wide, crowd: int, chunk_bytes: int, costs: Costs) -> float:
    """Time in ns, if the busiest link carries `crowd` messages of so many bytes."""
    n = ways.places.ranks
    to = np.arange(1, n)  # in this order rank 0, as any other, posts
    paths, which, _, _ = ways.kinds(np.zeros_like(to), to)
    alone = np.array([max(received_ns(chunk_bytes, p, costs), sent_ns(chunk_bytes, p, costs)) for p in paths])
    posted = float((to * costs.post_ns + alone[which]).max())
    wire = chunk_bytes + costs.packets(chunk_bytes) * FRAME_BYTES + RETH_BYTES
    around = isinstance(ways.places, Grid) and len(ways.places.dims) == 1
    last = float(alone[which].mean() if around else alone.max())
    return costs.wake_ns + max(posted, costs.post_ns + last + (crowd - 1) * ways.cable.time_ns(wire))
