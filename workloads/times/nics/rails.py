"""Inside scale-up domains and along rails at once (workloads/collectives/rails.py).

What takes longest decides: the rails' hops one behind the other, the domain's bytes, or the host's own work; before and
behind the hops a piece passes the domain once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from workloads.collectives.rails import channels_of, together
from workloads.times.case import Case
from workloads.times.exchange import unequal
from workloads.times.messages import Path, acks_ns, line_ns
from workloads.times.ways import Pair


@dataclass(frozen=True)
class Servers:
    """Of a case, cut in messages of `piece` bytes: what one takes, and keeps of the rail, and of the domain."""

    case: Case
    piece: int

    @property
    def servers(self) -> int:
        return self.case.shape.dims[0]

    @property
    def others(self) -> int:
        """GPUs of a server but one."""
        return self.case.shape.dims[1] - 1

    @cached_property
    def rail(self) -> Path:
        n, gpus = self.case.n, self.others + 1
        pairs: list[Pair] = [(i, (i + gpus) % n) for i in range(n)]
        return self.case.ways.path(pairs)

    @cached_property
    def domain(self) -> Path:
        gpus = self.others + 1
        return self.case.ways.path([(i, i - i % gpus + (i + 1) % gpus) for i in range(self.case.n)])

    def line(self, path: Path) -> float:
        costs = self.case.costs
        return line_ns(self.piece, path, costs) + acks_ns(self.piece, path, costs)

    def message(self, path: Path, *, sent: bool = False) -> float:
        return self.case.message(self.piece, path, sent=sent)

    def to_others(self, *, sent: bool = False) -> float:
        """A piece to every other GPU of the server, until the last one has it."""
        waits = max(self.line(self.domain), self.case.costs.post_ns)
        return self.message(self.domain, sent=sent) + (self.others - 1) * waits


def _around(case: Case, *, reduces: bool, gathers: bool) -> float:
    """What takes longest in each half, and a piece's way over the domain before the first one and after the last."""
    count, piece = case.pieces(case.share(case.n))
    its, costs, m = Servers(case, piece), case.costs, case.shape.dims[0]
    reduced, hop = costs.reduce_ns(piece), its.message(its.rail)
    hops, inside = (m - 1) * count, m * count * its.others  # messages of a half along the rail, and in the domain
    posts = (hops + inside) * (costs.post_ns + costs.wake_ns)
    rail, domain = max(hops * its.line(its.rail), posts), inside * its.line(its.domain)
    once = hop - its.line(its.rail)
    behind = max(rail + its.to_others(sent=True), domain + its.message(its.domain, sent=True))
    gathered = (m - 1) * hop + its.to_others(sent=True)
    if not reduces:
        return max(behind, rail + once + its.to_others(sent=True), gathered)
    adding, first = (hops + inside) * reduced, its.to_others() + its.others * reduced
    lanes = first + max(rail, adding / channels_of(its.others + 1)) + reduced + once
    total, way = max(lanes, domain + its.message(its.domain) + reduced), first + (m - 1) * (hop + reduced)
    host = 0.0 if costs.by_channel else its.message(its.domain) + posts + adding
    if gathers:  # what the host reduces last is on its next hop meanwhile
        return max(total + behind, host + behind - rail / (m - 1), way + gathered)
    return max(total, host, way + max(0.0, its.message(its.rail, sent=True) - hop - reduced))


def all_reduce(case: Case) -> float:
    return _around(case, reduces=True, gathers=True)


def reduce_scatter(case: Case) -> float:
    return _around(case, reduces=True, gathers=False)


def all_gather(case: Case) -> float:
    return _around(case, reduces=False, gathers=True)


def broadcast(case: Case) -> float:
    """A share of each rail: into the first server's domain, from server to server, and to all GPUs there."""
    count, piece = case.pieces(case.share(case.shape.dims[1]))
    its, costs, m = Servers(case, piece), case.costs, case.shape.dims[0]
    way = its.message(its.domain) + (m - 1) * its.message(its.rail) + its.to_others(sent=True)
    posts = (its.others + 1) * (costs.post_ns + costs.wake_ns)
    return way + (count - 1) * max(its.line(its.rail), (its.others + 1) * its.line(its.domain), posts)


def all_to_all(case: Case) -> float:
    """As long as the busiest NIC, or domain link, has to send or receive, and one message's way.

    A host first posts all that it hands over in its server, which the rail may have to wait for.
    """
    along, inside, largest = _bytes(case)
    its, (m, gpus) = Servers(case, largest), case.shape.dims
    post, handed = case.costs.post_ns, m * (gpus - 1)
    domain, messages = its.message(its.domain), inside / max(largest, 1)
    within = domain + max(0.0, messages - 1) * its.line(its.domain)
    if together(case.shape, [largest // case.width]):
        return max(within, _in_one(case, its, along))
    sent, line, count = its.message(its.rail, sent=True), its.line(its.rail), along / max(largest, 1)
    waits = max(handed * post, domain) - line if count > 1 else 0.0
    posts = (handed + (m - 1) * gpus - 1) * post
    return max(within, max(0.0, waits) + (count - 1) * line + sent, sent + posts)


def _in_one(case: Case, its: Servers, along: int) -> float:
    """A message to each other server, one after the other, when what is for it has come from the other GPUs."""
    m, gpus = case.shape.dims
    post = case.costs.post_ns
    one = Servers(case, -(-along // (m - 1)))
    way = its.message(its.domain) - post
    host, rail = m * (gpus - 1) * post, 0.0
    for far in range(1, m):
        host = max(host, far * (gpus - 1) * max(post, its.line(its.domain)) + way) + post
        rail = max(rail + one.line(one.rail), host)
    return rail - post + one.message(one.rail, sent=True)


def _bytes(case: Case) -> tuple[int, int, int]:
    """Of an all-to-all, on the busiest NIC's cable, on the busiest GPU's link into its domain, and of a message."""
    m, gpus = case.shape.dims
    if not case.shape.counts:
        chunk = case.share(case.n)
        return (m - 1) * gpus * chunk, m * (gpus - 1) * chunk, chunk
    along, inside = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for (source, target), nbytes in unequal(case).items():
        by = source // gpus * gpus + target % gpus  # whose NIC sends it
        if source // gpus != target // gpus:
            along.update({("from", by): nbytes, ("to", target): nbytes})
        if source != by:
            inside.update({("from", source): nbytes, ("to", by): nbytes})
    most = max(nbytes for (a, b), nbytes in unequal(case).items() if a != b)
    return max(along.values()), max(inside.values()), most
