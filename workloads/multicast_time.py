"""What broadcast and all-gather by multicast should take, by arithmetic alone (docs/multicast.md derives it)."""

from __future__ import annotations

from workloads.closed_form import Costs, Path, _Packets, _pcie_ns, _stages, received_ns, wire_bytes
from workloads.collectives.dissemination import distances

OFFLOAD_BYTES = 24
"""The extension header of a multicast datagram."""


def _around_ns(ranks: int, datagrams_ns: float, path: Path, costs: Costs) -> float:
    """What is armed, the barrier's rounds, the datagrams from the start on, and that the right neighbour has all."""
    message = costs.post_ns + received_ns(0, path, costs) + costs.wake_ns
    return costs.post_ns + (len(distances(ranks)) + 1) * message + costs.post_ns + datagrams_ns + costs.wake_ns


def _datagram(payload_bytes: int) -> tuple[float, float]:
    return payload_bytes, wire_bytes(payload_bytes, OFFLOAD_BYTES)


def broadcast_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """The root's datagrams one behind the other, as one message's packets."""
    count = costs.packets(size_bytes)
    full = _datagram(min(costs.mtu, size_bytes))
    packets = _Packets(count, full, full, _datagram(size_bytes - (count - 1) * costs.mtu))
    datagrams = packets.through(_stages(path, costs, to_memory=True)) + path.constant_ns
    return _around_ns(ranks, datagrams + _pcie_ns(path, costs, to_memory=True), path, costs)


def all_gather_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """All send at once, each a datagram in the time that a link takes for one of every other rank.

    The last ones of all come together to each receiver's link, one behind the other.
    """
    part = -(-size_bytes // ranks)
    count = costs.packets(part)
    full, last = _datagram(min(costs.mtu, part)), _datagram(part - (count - 1) * costs.mtu)
    stages = _stages(path, costs, to_memory=True)
    spacing = (ranks - 1) * path.links[0].time_ns(full[1])
    burst = (ranks - 2) * max(link.time_ns(last[1]) for link in path.links)
    alone = sum(stage.time_ns(*last) for stage in stages) + path.constant_ns + _pcie_ns(path, costs, to_memory=True)
    return _around_ns(ranks, (count - 1) * spacing + burst + alone, path, costs)
