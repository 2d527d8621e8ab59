"""What broadcast and all-gather by multicast should take, by arithmetic alone (docs/multicast.md derives it)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from topologies.graph.frames import OFFLOAD_BYTES, wire_bytes
from workloads.base.entry import NoModel
from workloads.collectives.exchange import distances
from workloads.times.messages import Costs, Link, Packets, Path, pcie_ns, received_ns, stages_of

Paths = Callable[[int, int], Path]
"""From one index of the group to another."""

Hops = Callable[[int, int], Sequence[Hashable]]
"""Names of the links on such a path, to tell who shares one."""

_Crowd = Mapping[Hashable, float]

PATIENT_DATAGRAMS = 8
"""A sender of so many, of whom nothing has come, is waited for whatever the cutoff."""


class Multicast(NamedTuple):
    """`waits_ns`: for how long a rank has nothing of what is due, at most.  A shorter cutoff ends it too soon."""

    time_ns: float
    waits_ns: float

    def in_time(self, cutoff_ns: float) -> float:
        """Its time.  Raises NoModel where ranks give its datagrams up and ask their neighbours for them."""
        if self.waits_ns > cutoff_ns:
            what = f"its cutoff of {cutoff_ns / 1e3:g}us ends before the first datagrams have come from afar"
            enough = f"{ceil(self.waits_ns / 1e3)}us is enough here; there is no model of repair"
            raise NoModel(f"{what}: a run repairs", enough, "cutoff")
        return self.time_ns


def broadcast_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """All over the same path."""
    return broadcast_over_ns(ranks, size_bytes, lambda a, b: path, costs).time_ns


def all_gather_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """All over the same path."""
    return all_gather_over_ns(ranks, size_bytes, lambda a, b: path, costs).time_ns


def broadcast_over_ns(
    ranks: int, size_bytes: int, paths: Paths, costs: Costs, *, messages: Paths | None = None
) -> Multicast:
    """The root's datagrams one behind the other, as one message's packets.

    `messages`: the paths of what the hosts send each other, where those differ (scale-up domains).
    """
    count = costs.packets(size_bytes)
    full = datagram(min(costs.mtu, size_bytes))
    packets = Packets(count, full, full, datagram(size_bytes - (count - 1) * costs.mtu))
    start = _started(ranks, messages or paths, costs)
    done_at, waits = [start[0]], 0.0
    for rank in range(1, ranks):
        path = paths(0, rank)
        through = packets.through(stages_of(path, costs, to_memory=True)) + path.constant_ns
        done_at.append(start[0] + pcie_ns(path, costs, to_memory=True) + through)
        waits = max(waits, start[0] - start[rank] + first_waits_ns(packets, path, costs))
    return Multicast(_all_have_ns(done_at, messages or paths, costs), waits)


def first_waits_ns(packets: Packets, path: Path, costs: Costs) -> float:
    """How long a rank that starts with the sender has nothing, beyond what all datagrams take of a cable."""
    if packets.count >= PATIENT_DATAGRAMS:
        return 0.0
    stages = stages_of(path, costs, to_memory=True)[:-1]
    first = path.constant_ns + sum(stage.passing_ns(*packets.first) for stage in stages)
    return costs.pcie_latency_ns + first - due_ns(packets.count, path.links[0], costs)


def due_ns(datagrams: int, cable: Link, costs: Costs) -> float:
    """What NICs expect all datagrams to take of their cable: each as much as a whole one."""
    return datagrams * cable.time_ns(datagram(costs.mtu)[1])


def shared(path: Path, shares: Sequence[float], mtu: int) -> Path:
    """Of datagrams that take several trees in turn: each link carries a share of them, each at the link's own rate."""
    links = []
    for link, share in zip(path.links, shares, strict=True):
        faster = replace(link, rate_bps=link.rate_bps / share)
        _, wire = datagram(mtu)
        links.append(replace(faster, delay_ns=link.delay_ns + link.time_ns(wire) - faster.time_ns(wire)))
    return replace(path, links=tuple(links))


def all_gather_over_ns(
    ranks: int,
    size_bytes: int,
    paths: Paths,
    costs: Costs,
    *,
    messages: Paths | None = None,
    hops: Hops | None = None,
    crowd: _Crowd | None = None,
) -> Multicast:
    """All send at once, each a datagram in the time that a link takes for one of every other rank.

    The last one of each goes its way alone to the receiver's link, where they stand one behind the other.  Where a link
    is slower than the senders' own (`hops` tells who shares it), all its datagrams stand there.  `crowd`: how many
    ranks' datagrams each link carries, where they take several trees.
    """
    part = -(-size_bytes // ranks)
    count = costs.packets(part)
    full, last = datagram(min(costs.mtu, part)), datagram(part - (count - 1) * costs.mtu)
    start = _started(ranks, messages or paths, costs)
    crowd = crowd or (crowd_of(ranks, hops) if hops else Counter())
    done_at, waits = [], 0.0
    for rank in range(ranks):
        done = 0.0
        others = [other for other in range(ranks) if other != rank]
        coming = [(start[other] + last_hop_ns(ranks, count, full, last, paths(other, rank), costs)) for other in others]
        link = paths(others[0], rank).links[-1]
        for arrival in sorted(coming):
            done = max(done, arrival) + link.time_ns(last[1])
        write = stages_of(paths(others[0], rank), costs, to_memory=True)[-1].time_ns(*last) + costs.pcie_latency_ns
        done_at.append(done + link.delay_ns + write)
        if hops:
            done_at[-1] = max(done_at[-1], _crowded_ns(start, rank, (count, full, last), paths, hops, crowd, costs))
        if count < PATIENT_DATAGRAMS:
            due = start[rank] + costs.pcie_latency_ns + due_ns(ranks * count, link, costs)
            firsts = (start[o] + last_hop_ns(ranks, 1, full, full, paths(o, rank), costs) for o in others)
            waits = max(waits, _longest_wait(sorted(firsts), link.time_ns(full[1]), link.delay_ns, due))
    return Multicast(_all_have_ns(done_at, messages or paths, costs), waits)


def _longest_wait(arrivals: Sequence[float], line: float, delay: float, due: float) -> float:
    """Of datagrams that stand one behind the other on a rank's cable: for how long none comes after `due`."""
    before, done, longest = 0.0, 0.0, 0.0
    for arrival in arrivals:
        done = max(done, arrival) + line
        longest = max(longest, min(done + delay - before, done + delay - due))
        before = done + delay
    return longest


_Part = tuple[int, tuple[float, float], tuple[float, float]]  # datagrams, a full one, the last one


def crowd_of(ranks: int, hops: Hops, senders: int | None = None) -> Counter[Hashable]:
    """Of how many senders (all) each link carries the datagrams: once each, however many ranks they are for."""
    users: set[tuple[int, Hashable]] = set()
    for a in range(ranks if senders is None else senders):
        for b in range(ranks):
            if a != b:
                users.update((a, hop) for hop in hops(a, b))
    return Counter(hop for _, hop in users)


def _crowded_ns(
    start: Sequence[float],
    rank: int,
    part: _Part,
    paths: Paths,
    hops: Hops,
    crowd: Mapping[Hashable, float],
    costs: Costs,
) -> float:
    """When the last datagram is here that a link on the way carries, if it carries all without a gap."""
    count, full, last = part
    first: dict[Hashable, float] = {}
    later: dict[Hashable, float] = {}  # from the first datagram's coming to a link until the last one is here
    for other, begun in enumerate(start):
        if other == rank:
            continue
        path = paths(other, rank)
        read, *links, write = stages_of(path, costs, to_memory=True)
        before = begun + 2 * costs.pcie_latency_ns + read.time_ns(*(full if count > 1 else last))
        after = path.constant_ns + sum(link.passing_ns(*last) for link in links) + write.time_ns(*last)
        latencies = (*path.switch_latency_ns, 0.0)
        for hop, link, stage, latency in zip(hops(other, rank), path.links, links, latencies, strict=True):
            after -= stage.passing_ns(*last)
            first[hop] = min(first.get(hop, before), before)
            line = (count - 1) * stage.time_ns(*full) + stage.time_ns(*last)
            later[hop] = crowd[hop] * line + after + costs.pcie_latency_ns
            passed = link.delay_ns + latency
            before += stage.passing_ns(*(full if count > 1 else last)) + passed
            after -= passed
    return max(first[hop] + later[hop] for hop in first)


def datagram(payload_bytes: int) -> tuple[float, float]:
    return payload_bytes, wire_bytes(payload_bytes, OFFLOAD_BYTES)


def last_hop_ns(
    ranks: int, count: int, full: tuple[float, float], last: tuple[float, float], path: Path, costs: Costs
) -> float:
    """From a sender's start to where its last datagram stands before the receiver's link."""
    spacing = (ranks - 1) * path.links[0].time_ns(full[1])
    stages = stages_of(path, costs, to_memory=True)[:-2]
    last_ns = sum(stage.passing_ns(*last) for stage in stages) + path.constant_ns - path.links[-1].delay_ns
    return (count - 1) * spacing + last_ns + 2 * costs.pcie_latency_ns


def _started(ranks: int, paths: Paths, costs: Costs) -> list[float]:
    """When each has armed, been through the barrier, and posted its start."""
    ready = [costs.post_ns] * ranks
    for far in distances(ranks):
        posted = [t + costs.post_ns for t in ready]
        received = [posted[i - far] + received_ns(0, paths((i - far) % ranks, i), costs) for i in range(ranks)]
        ready = [max(posted[i], received[i]) + costs.wake_ns for i in range(ranks)]
    return [t + costs.post_ns for t in ready]


def _all_have_ns(done_at: list[float], paths: Paths, costs: Costs) -> float:
    """When each knows that its right neighbour has all, too."""
    n = len(done_at)
    posted = [t + costs.wake_ns + costs.post_ns for t in done_at]
    received = [posted[(i + 1) % n] + received_ns(0, paths((i + 1) % n, i), costs) for i in range(n)]
    return max(map(max, posted, received)) + costs.wake_ns
