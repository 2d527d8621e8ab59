"""Trees and chains of hosts, and what goes straight to or from one rank, all ranks at once.

A binomial tree is gone through by its levels: at each, every rank that has what it passes on sends one message, and
nobody who gets one has got one before.  The formulas are those for a few ranks (times/trees.py), which messages that
are followed one by one agree with: a rank does one thing after the other, so messages seldom meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from workloads.collectives.schedule import EAGER_BYTES, WINDOW, Shape
from workloads.collectives.trees import chain_reduce
from workloads.times.case import Case
from workloads.times.expected import replayed
from workloads.times.messages import Costs, Path, line_ns, link_ns, received_ns, sent_ns
from workloads.times.wide.both_ways import Some

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.times.wide.around import Ring
    from workloads.times.wide.fabric import Wide

    Numbers = NDArray[np.int64]
    Times = NDArray[np.float64]
    Time = Callable[[int, Path, Costs], float]


class HostTrees:
    """Of all ranks in a group's order (None: by number)."""

    def __init__(self, ways: Wide, costs: Costs, order: Numbers | None = None) -> None:
        self._ways, self._costs = ways, costs
        self._n = ways.places.ranks
        self._order = np.arange(self._n) if order is None else order

    # Binomial trees

    def broadcast_ns(self, size_bytes: int) -> float:
        """Whole messages down the tree, to each child in turn; large ones wait for those before (times/trees.py)."""
        return self._down(lambda child: np.full_like(child, size_bytes))

    def scatter_ns(self, count: int, width: int) -> float:
        """To each child what it and those under it need, of `count` elements in all."""
        return self._down(lambda child: self._under(child, count) * width)

    def reduce_ns(self, size_bytes: int) -> float:
        """Whole messages up the tree, each added when it comes."""
        return self._up(lambda child: np.full_like(child, size_bytes), reduce=True)

    def gather_ns(self, count: int, width: int) -> float:
        """From each child what it and those under it have."""
        return self._up(lambda child: self._under(child, count) * width, reduce=False)

    def scatter_all_gather_ns(self, count: int, width: int, ring: Ring) -> float:
        """A binomial scatter, then a ring of chunks.

        If the vector is large, nobody sends before its last one is known to be there.
        """
        chunk = -(-count // self._n) * width
        eager = count * width <= EAGER_BYTES
        each = received_ns, _leaves_ns if eager else sent_ns, sent_ns
        elapsed = [ring.of_all(lambda e, t=t: self._message(chunk, e.shared, t)) for t in each]  # type: ignore[misc]
        at, _ = self._scattered(lambda child: self._under(child, count) * width, count * width)
        if self._n > _HOPS:  # beside so many hops it is all the same when each begins
            received = elapsed[0].mean() if eager else elapsed[0].max()  # once round, or again and again the slowest
            late = max(0.0, float((elapsed[2] - elapsed[0]).max())) * eager
            return float(at.max() + (self._n - 1) * max(received, elapsed[1].max()) + late)
        for left in reversed(range(self._n - 1)):
            at = np.maximum(at + elapsed[1 if left else 2], np.roll(at + elapsed[0], 1))
        return float(at.max())

    def _down(self, nbytes: Callable[[Numbers], Numbers]) -> float:
        at, known = self._scattered(nbytes)
        return max(float(at.max()), known)

    def _scattered(self, nbytes: Callable[[Numbers], Numbers], longest: int | None = None) -> tuple[Times, float]:
        """When each is ready for what comes after, and when all is known to be there.

        A rank waits for acknowledgements if its longest message (`longest`: of its lane) is large.
        """
        at, known = np.zeros(self._n), 0.0
        waits = np.full(self._n, -1 if longest is None else longest > EAGER_BYTES)
        for far in reversed(self._distances()):
            child = np.arange(far, self._n, 2 * far)
            parent, carried = child - far, nbytes(child)
            at[child] = at[parent] + self._of_each(parent, child, carried, received_ns)
            first = waits[parent] < 0  # of its messages, which is the longest
            waits[parent] = np.where(first, carried > EAGER_BYTES, waits[parent])
            sent = self._of_each(parent, child, carried, sent_ns)
            known = max(known, float((at[parent] + sent).max()))
            at[parent] += np.where(waits[parent], sent, self._of_each(parent, child, carried, _leaves_ns))
        return at, known

    def _up(self, nbytes: Callable[[Numbers], Numbers], *, reduce: bool) -> float:
        at, end = np.zeros(self._n), 0.0
        for far in self._distances():
            child = np.arange(far, self._n, 2 * far)
            parent, carried = child - far, nbytes(child)
            requested = at[parent] + self._of_each(parent, child, np.zeros_like(child), received_ns)
            start = np.where(child + far > self._n, np.maximum(at[child], requested), at[child])  # early ones are asked
            end = max(end, float((start + self._of_each(child, parent, carried, sent_ns)).max()))
            adds = reduce * self._costs.reduce_ns(1) * carried
            arrived = start + self._of_each(child, parent, carried, received_ns)
            at[parent] = np.maximum(at[parent], arrived) + adds
        return max(end, float(at[0]))

    def _distances(self) -> list[int]:
        return [1 << k for k in range((self._n - 1).bit_length())]

    def _under(self, child: Numbers, count: int) -> Numbers:
        """Elements of a rank and all under it."""
        n = self._n
        end = np.minimum(child + (child & -child), n)
        each, more = divmod(count, n)
        return np.asarray(each * (end - child) + np.minimum(end, more) - np.minimum(child, more))

    # Chains

    def chain_ns(self, pieces: int, piece_bytes: int, *, reduce: bool) -> float:
        """From one to the next in pieces, from the first to the last, or towards the first and added on the way."""
        near, on = self._order[:-1], self._order[1:]
        edges = self._ways.edges(on, near) if reduce else self._ways.edges(near, on)
        costs = self._costs
        adds = reduce * costs.reduce_ns(piece_bytes)
        received = edges.of_all(lambda e: self._message(piece_bytes, e.shared, received_ns)) + adds
        last = edges.kinds[edges.which[0 if reduce else -1]].shared
        late = self._message(piece_bytes, last, sent_ns) - self._message(piece_bytes, last, received_ns) - adds
        end = float(received.sum()) + max(0.0, late)
        if pieces > 1 and reduce:
            return end + self._later_ns(pieces, piece_bytes, edges)
        line = max(self._line(piece_bytes, kind.shared, adds) for kind in edges.kinds)
        return end + (pieces - 1) * line

    def _later_ns(self, pieces: int, piece_bytes: int, edges: Ring) -> float:
        """How much later the last piece of a reducing chain comes than the first.

        The first rank has all pieces at once: the next one may get many while it adds one, adds up all that have come
        before it looks again, and sends nothing meanwhile.  What that makes of the distances between pieces is seen
        where the chain begins, message by message; further on nothing comes faster than it is added, or than the
        slowest of cables that differ lets it through.
        """
        network = np.flatnonzero([not kind.shared.scale_up for kind in edges.kinds])
        far = np.flatnonzero(np.isin(edges.which, network))[-_LONG_EDGES:]
        ranks = min(self._n - int(far[0]) if far.size else self._n, self._n, _FOLLOWED)
        some = Some(self._ways, self._order[-ranks:].tolist())

        def followed(count: int) -> float:
            shape = Shape(ranks, count * piece_bytes, piece_bytes)
            found = replayed(Case(shape, 1, self._costs, some), chain_reduce)
            assert found is not None
            return found

        few_pieces, most_pieces = min(pieces, _MOST_PIECES // 2), min(pieces, _MOST_PIECES)
        later = followed(most_pieces) - followed(1)
        if pieces > most_pieces:
            later += (
                (pieces - most_pieces) * (followed(most_pieces) - followed(few_pieces)) / (most_pieces - few_pieces)
            )
        if self._ways.own:
            adds = self._costs.reduce_ns(piece_bytes)
            lines = [self._line(piece_bytes, kind.shared, adds) for kind in edges.kinds]
            later = max(later, (pieces - 1) * max(lines))
        return later

    def _line(self, nbytes: int, path: Path, adds: float) -> float:
        """What one piece of many takes (times/case.py)."""
        host = self._costs.post_ns + self._costs.wake_ns + adds
        return max(line_ns(nbytes, path, self._costs), host, self._message(nbytes, path, sent_ns) / WINDOW)

    # One rank and all others

    def linear_scatter_ns(self, chunk_bytes: int) -> float:
        """The root posts all; its queue pairs take turns packet by packet."""
        ends = [0.0]
        for to, line, crowd in self._apart(chunk_bytes):
            first = chunk_bytes - (self._costs.packets(chunk_bytes) - 1) * self._costs.mtu
            packet_ns = line * self._wire(first) / self._wire(chunk_bytes)
            out = len(to) * (line - packet_ns) + np.arange(1, len(to) + 1) * packet_ns
            begun = np.maximum(to * self._costs.post_ns, out - line + self._costs.post_ns) - self._costs.post_ns
            for done in _BOTH:
                elapsed = self._of_each(np.zeros_like(to), to, np.full_like(to, chunk_bytes), done, alone=True)
                ends += [float((begun + elapsed).max()), bool(crowd) * float(elapsed.max()) + crowd]
        return max(ends)

    def linear_gather_ns(self, chunk_bytes: int) -> float:
        """All send at once; they stand one behind the other at the root's cable."""
        ends = [0.0]
        for each, line, crowd in self._apart(chunk_bytes):
            root, whole = np.zeros_like(each), np.full_like(each, chunk_bytes)
            arrived = np.sort(self._of_each(each, root, whole, received_ns, alone=True))
            known = self._of_each(each, root, whole, sent_ns, alone=True)
            end = float((arrived + np.arange(len(each) - 1, -1, -1) * line).max())
            ends.append(
                max(end, bool(crowd) * float(arrived.mean()) + crowd) + max(0.0, float(known.max() - arrived[-1]))
            )
        return max(ends)

    def _apart(self, chunk_bytes: int) -> Iterator[tuple[Numbers, float, float]]:
        """The places of those that the root reaches over its NIC, and in its domain; what a message takes at the root.

        And where cables differ what the others take of the link that is busy longest, beside the slowest one.
        """
        ways, costs = self._ways, self._costs
        every = np.arange(1, self._n)
        ranks = self._order[every]
        inside = ways.places.inside(np.full_like(ranks, self._order[0]), ranks) & bool(ways.scale_up)
        for places in (every[inside], every[~inside]):
            if places.size:
                root = np.full_like(places, self._order[0])
                paths, _, most, _ = ways.crowded(self._order[places], root, 0)
                line, crowd = line_ns(chunk_bytes, paths[0].last, costs), 0.0
                if ways.own:
                    busy = float(most.max()) * link_ns(chunk_bytes, ways.usual(paths[0]), costs)
                    if busy > 1.001 * len(places) * line:
                        crowd = busy - max(line_ns(chunk_bytes, path, costs) for path in paths)
                yield places, line, crowd

    def _wire(self, nbytes: int) -> int:
        return nbytes + self._costs.packets(nbytes) * (self._costs.frame_bytes + self._costs.later_reth)

    def _message(self, nbytes: int, path: Path, done: Time) -> float:
        return self._costs.post_ns + done(nbytes, path, self._costs) + self._costs.wake_ns

    def _of_each(self, source: Numbers, target: Numbers, nbytes: Numbers, done: Time, *, alone: bool = False) -> Times:
        """From posting to completion of a message between places in the order, while the others share its way."""
        ways, costs = self._ways, self._costs
        packet = costs.packet_wire_bytes
        paths, which, most, later = ways.crowded(self._order[source], self._order[target], packet)
        kinds, kind = np.unique(np.stack([which, nbytes]), axis=1, return_inverse=True)
        kind = np.asarray(kind).reshape(-1)
        elapsed = np.array([self._message(int(size), paths[k], done) for k, size in kinds.T])[kind]
        if alone or most.max() <= 1:
            return elapsed
        lines = np.array([line_ns(int(size), paths[k], costs) for k, size in kinds.T])[kind]
        usual = np.array([link_ns(int(size), ways.usual(paths[k]), costs) for k, size in kinds.T])[kind]
        return np.asarray(elapsed + np.maximum(most * usual - lines - later, 0.0))


def _leaves_ns(nbytes: int, path: Path, costs: Costs) -> float:
    """Until the next message may leave behind it, less what the host takes for each."""
    return max(0.0, line_ns(nbytes, path, costs) - costs.post_ns - costs.wake_ns)


_LONG_EDGES = 3
"""Edges over the network, from a chain's beginning, up to the last of which its messages are followed."""
_FOLLOWED = 64  # ranks of it, at most
_MOST_PIECES = 512  # of a message; where there are more, each takes as long as those of the second half
_HOPS = 1 << 13
"""Ranks whose ring is followed from when each begins."""
_BOTH: tuple[Time, Time] = (received_ns, sent_ns)
