"""Collectives in rounds, all ranks at once: in each round every rank sends one message and gets one.

A rank posts when it has what it sends and its NIC is through with the message before.  A message takes what it takes
alone, and the time of the others' bytes on the link of its way that most messages take: max-min sharing gives each of
those the same share there, and they end together.  What others have sent there before its first packet comes is not in
its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workloads.collectives.exchange import distances
from workloads.times.messages import Costs, Path, acks_ns, line_ns, received_ns, sent_ns, wire_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.times.wide.fabric import Wide


class Round(NamedTuple):
    """Rank i sends so many bytes to rank `to[i]`, where they are reduced or kept."""

    nbytes: int
    to: NDArray[np.int64]
    reduce: bool = False


def rounds_of(name: str, ranks: int, count: int, width: int) -> Iterator[Round]:
    """Of `count` elements in all; halving and doubling for powers of two."""
    me = np.arange(ranks)
    if name in ("halving_doubling", "halving", "recursive_doubling"):
        halves, left = [], count
        far = ranks // 2
        while far:
            left = -(-left // 2)
            halves.append(Round(left * width, me ^ far, True))
            far //= 2
        if name != "recursive_doubling":
            yield from halves
        if name != "halving":
            yield from (r._replace(reduce=False) for r in reversed(halves))
    elif name == "bruck":
        chunk = -(-count // ranks) * width
        yield from (Round(chunk * min(far, ranks - far), (me - far) % ranks) for far in distances(ranks))
    elif name == "pairwise":
        yield from (Round(-(-count // ranks) * width, (me + far) % ranks) for far in range(1, ranks))
    elif name == "dissemination":
        yield from (Round(0, (me + far) % ranks) for far in distances(ranks))
    else:
        yield Round(count * width, (me + 1) % ranks)  # shift


class _Message(NamedTuple):
    """Of each rank: until it is received, until that is known, and how long it keeps its own cable."""

    received: NDArray[np.float64]
    acknowledged: NDArray[np.float64]
    busy: NDArray[np.float64]


def rounds_ns(rounds: Iterator[Round], ways: Wide, costs: Costs, *, paced: bool = False) -> float:
    """Time in ns.  `paced`: who has not heard that its message has arrived sends no further one."""
    n = ways.places.ranks
    ready, free, known = np.zeros(n), np.zeros(n), np.zeros(n)
    for one in rounds:
        took = _messages(one, ways, costs)
        posted = ready + costs.post_ns
        begin = np.maximum(posted, free)
        free, known = begin + took.busy, begin + took.acknowledged
        arrived = np.empty(n)
        arrived[one.to] = begin + took.received
        ready = np.maximum(posted, arrived) + costs.wake_ns + one.reduce * costs.reduce_ns(one.nbytes)
        if paced:
            ready = np.where(known <= ready, ready, known + costs.wake_ns)
    return float(np.where(known <= ready, ready, known + costs.wake_ns).max())


def _messages(one: Round, ways: Wide, costs: Costs) -> _Message:
    """Messages are of few kinds: by their way, and by how many share it."""
    kinds, which, most, later = ways.kinds(np.arange(len(one.to)), one.to)

    def of_each(path_ns: list[float]) -> NDArray[np.float64]:
        return np.array(path_ns)[which]

    def line(path: Path) -> float:
        return line_ns(one.nbytes, path, costs)

    lines = of_each([line(path) for path in kinds])
    acks = of_each([acks_ns(one.nbytes, path, costs) for path in kinds])
    hop = ways.cable.time_ns(wire_bytes(min(one.nbytes, costs.mtu))) + ways.cable.delay_ns + ways.latency_ns
    others = np.maximum((most - 1) * lines - later * hop, 0.0)
    return _Message(
        of_each([received_ns(one.nbytes, path, costs) for path in kinds]) + acks + others,
        of_each([sent_ns(one.nbytes, path, costs) for path in kinds]) + acks + others,
        lines,
    )
