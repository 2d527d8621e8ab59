"""All-to-all among all ranks of a large fabric: how many messages the busiest link carries, without going through all.

All messages at once fill the busiest link without a gap, and the last of them still has its way to go: the longest, on
a ring, where near ones come last, the mean.  Small messages take their posts.  On a torus or ring all links of a
dimension that go the same way carry as many.  Behind switches every rank sends and gets n - 1; what goes up is even
where there is one spine, and counted flow by flow where ECMP's hash spreads it.

Around a ring messages downwards are posted behind those upwards, which the NIC has fetched by then as far as its buffer
has room.  And where what crosses a dateline has a class of its own, both classes end together at the link before it, so
that the last one goes over one link more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workloads.times.messages import Costs, Link, received_ns, sent_ns
from workloads.times.wide.places import Grid, Places, Rails, Tiers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from workloads.times.wide.fabric import Wide

MOST_COUNTED = 1 << 24
"""Flows that are hashed one by one: some seconds of ours."""
_BLOCK = 1 << 20
MOST_SENDERS = 32
"""Ranks whose messages are looked at one by one where cables differ."""


class Crowd(NamedTuple):
    """The link that is busy longest, and how many messages it carries.

    `behind`: how many a rank has posted before the first that takes such a link.
    """

    messages: int
    link: Link
    behind: int = 0


def crowds_of(ways: Wide) -> list[Crowd] | None:
    """Links of which one is busy longest; None where flows are too many to count."""
    places, inside = ways.places, ways.scale_up is not None
    n = places.ranks
    own, between = n - 1, np.zeros(places.links, np.int64)
    match places:
        case Grid((d,)) if ways.own is None:
            up, down = d // 2, (d - 1) // 2
            upwards, downwards = (d * (d + 1) // 2 for d in (up, down))
            return [Crowd(max(own, upwards), ways.cable), Crowd(downwards, ways.cable, up)]
        case Grid(dims):
            every = between.reshape(-1, len(dims), 2)  # by node, dimension, and whether up
            for k, d in enumerate(dims):
                every[:, k, 0] = n // d * sum(range(1, (d - 1) // 2 + 1))
                every[:, k, 1] = n // d * sum(range(1, d // 2 + 1))
        case Rails(servers, gpus):
            own -= inside * (gpus - 1)
            between[:] = servers * (n - servers - inside * (gpus - 1)) if gpus > 1 else 0
        case Tiers(per, leaves):
            between[:] = per * (n - per) if leaves > 1 else 0
    if _chooses(places):
        if n * n > MOST_COUNTED:
            return None
        between = _counted(ways)
    if ways.own is None:
        return [Crowd(max(own, int(between.max(initial=0))), ways.cable)]
    loads = np.concatenate([np.full(2 * n, own), np.zeros(2 * n, np.int64), between])
    busiest = int(np.argmax(loads * ways.own.slowness[ways.own.which]))
    return [Crowd(int(loads[busiest]), ways.own.kinds[ways.own.which[busiest]])]


def _chooses(places: Places) -> bool:
    """Whether there are several ways for ECMP's hash to choose from, or pods."""
    match places:
        case Rails(_, gpus, spines):
            return gpus > 1 and spines > 1
        case Tiers(_, leaves, spines, pods):
            return pods > 1 or (leaves > 1 and spines > 1)
    return False


def _counted(ways: Wide) -> NDArray[np.int64]:
    n = ways.places.ranks
    loads = np.zeros(ways.places.links, np.int64)
    everybody, most = np.arange(n), max(1, _BLOCK // n)
    for first in range(0, n, most):
        some = np.arange(first, min(first + most, n))
        source, target = np.repeat(some, n), np.tile(everybody, len(some))
        apart = source != target
        if ways.scale_up is not None:
            apart &= ~ways.places.inside(source, target)
        for _, ids in ways.places.between(source[apart], target[apart], ways.flows):
            loads += np.bincount(ids, minlength=len(loads))
    return loads


def spread_ns(ways: Wide, crowds: Sequence[Crowd], chunk_bytes: int, costs: Costs) -> float:
    """Time in ns, if the busiest link is one of these."""
    n = ways.places.ranks
    senders, far = _senders(ways), np.arange(1, n)  # in this order any rank posts
    source, by = np.repeat(senders, n - 1), np.tile(far, len(senders))
    paths, which = ways.alone(source, (source + by) % n)
    alone = np.array([max(received_ns(chunk_bytes, p, costs), sent_ns(chunk_bytes, p, costs)) for p in paths])
    posted = float((by * costs.post_ns + alone[which]).max())
    wire = chunk_bytes + costs.headers_bytes(chunk_bytes)
    last = float(alone.max())
    if isinstance(ways.places, Grid) and len(ways.places.dims) == 1:
        beyond = ways.cable.delay_ns + ways.latency_ns + ways.cable.time_ns(min(wire, costs.packet_wire_bytes))
        last = float(alone[which].mean()) + (ways.dateline and n > 2) * beyond
    busy = max(_begins(one, wire, costs) + (one.messages - 1) * one.link.time_ns(wire) for one in crowds)
    return costs.wake_ns + max(posted, last + busy)


def _begins(crowd: Crowd, wire: float, costs: Costs) -> float:
    """When a rank's first message to such a link leaves: behind those before it, or behind a full buffer of these."""
    posted = (crowd.behind + 1) * costs.post_ns
    fetched = costs.post_ns + crowd.link.time_ns(crowd.behind * wire)
    return max(posted, min(fetched, posted + crowd.link.time_ns(costs.tx_buffer_bytes)))


def _senders(ways: Wide) -> NDArray[np.int64]:
    """Ranks that stand for all: one, or where cables differ one with each kind of cable, and some others."""
    n = ways.places.ranks
    if ways.own is None:
        return np.zeros(1, np.int64)
    _, unlike = np.unique(ways.own.which[:n], return_index=True)
    return np.union1d(unlike, np.arange(0, n, -(-n // MOST_SENDERS)))
