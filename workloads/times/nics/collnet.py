"""Sums in scale-up domains first, then in switches along the rails (workloads/collectives/collnet.py).

A piece is sent to its owner and added up, goes through the rail's accelerators, and to the server's other GPUs.  The
first one is alone in each stage; all others follow as fast as the slowest stage lets them.  Both ways over the domain
share its links, which may be what takes longest.
"""

from __future__ import annotations

from workloads.collectives.rails import channels_of
from workloads.times.case import Case
from workloads.times.nics.rails import Servers
from workloads.times.switches import nvls
from workloads.times.switches.in_network import Sums


def all_reduce(case: Case, sums: Sums) -> float:
    """`sums`: along a rail."""
    return _time(case, sums, *case.pieces(case.share(case.shape.dims[1])), gathers=True)


def reduce_scatter(case: Case, sums: Sums) -> float:
    """Likewise.  A GPU's share is the parts of all ranks on its rail."""
    count, piece = case.pieces(case.share(case.n))
    return _time(case, sums, case.shape.dims[0] * count, piece, gathers=False)


def _time(case: Case, sums: Sums, count: int, piece: int, *, gathers: bool) -> float:
    its, costs = Servers(case, piece), case.costs
    reduced, line, ways = costs.reduce_ns(piece), its.line(its.domain), 1 + gathers
    lanes = min(count, channels_of(its.others + 1)) if costs.by_channel else 1
    posts = (ways * its.others + 1) * (costs.post_ns + costs.wake_ns)
    adding, rail = its.others * reduced / lanes, sums.busy_ns(piece)
    inside = ways * its.others * line  # what goes to owners, and what comes back
    first = its.to_others() + its.others * reduced
    host = max(adding, posts) if costs.by_channel else adding + posts
    way = first + (count - 1) * max(host, rail) + sums.alone_ns(piece) + gathers * its.to_others(sent=True)
    return max(way, count * inside + its.message(its.domain, sent=True))


def nvls_all_reduce(case: Case, sums: Sums) -> float:
    """In slabs, of which each GPU of a server has a part: in the domain's switch, along the rail, and to all."""
    gpus, costs = case.shape.dims[1], case.costs
    count = max(1, -(-case.size // (gpus * (case.chunk or case.size))))
    slab = case.share(count)
    part, domain = case.share(gpus, slab), case.ways.path([(0, 1)])
    inside, out = nvls.reduce_scatter_ns(gpus, slab, domain, costs), nvls.all_gather_ns(gpus, slab, domain, costs)
    line = max(nvls.carried_ns(gpus, slab, domain, costs), sums.busy_ns(part), 3 * (costs.post_ns + costs.wake_ns))
    return inside + sums.alone_ns(part) + out + (count - 1) * line
