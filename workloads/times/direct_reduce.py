"""Rings of NICs (docs/direct-reduce.md), and an optimizer step by them or by the hosts."""

from __future__ import annotations

from workloads.times.messages import ACK_BYTES, Costs, Packets, Path, slowest_stage, stages_of, wire_bytes
from workloads.times.rings import ring_all_gather_ns, ring_reduce_scatter_ns


def direct_all_reduce_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """DirectReduce: n - 1 reducing and n - 1 gathering hops, each begun with the first packet of the one before."""
    chunk = -(-size_bytes // ranks)
    ring = _direct_ns([1] * (ranks - 1) + [0] * (ranks - 1), chunk, path, costs)
    last_pass = (chunk - 1) % (_PASS_PACKETS * costs.mtu) + 1 if chunk else 0
    gathered = (ranks - 1) * last_pass * 8e9 / costs.pcie_rate_bps
    return max(ring, _direct_sums_ns(ranks, chunk, path, costs) + gathered)


def direct_reduce_scatter_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """n - 1 hops, each packet added up."""
    chunk = -(-size_bytes // ranks)
    return max(_direct_ns([1] * (ranks - 1), chunk, path, costs), _direct_sums_ns(ranks, chunk, path, costs))


def direct_all_gather_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """n - 1 hops."""
    return _direct_ns([0] * (ranks - 1), -(-size_bytes // ranks), path, costs)


def optimus_nic_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """An all-reduce by NICs whose last reducing hop is gone over twice more (sgd): parameters and momentum."""
    adds = [1] * (ranks - 2) + [3] + [0] * (ranks - 1)
    return max(
        direct_all_reduce_ns(ranks, size_bytes, path, costs), _direct_ns(adds, -(-size_bytes // ranks), path, costs)
    )


_PASS_PACKETS = 256  # of a chunk that go round at a time


def _direct_ns(adds: list[int], chunk_bytes: int, path: Path, costs: Costs) -> float:
    """The first packet through all hops, or a cable that is never idle, whichever takes longer, pass after pass.

    `adds`: how often the engine goes over what a hop brings (0: it only passes).
    """
    most = _PASS_PACKETS * costs.mtu
    whole = max(chunk_bytes - 1, 0) // most
    before = [0, *adds[:-1]]  # what a hop sends has been through the engine in the hop before
    steps = [_direct_step_ns(most, *k, path, costs) for k in zip(before, adds, strict=True)] if whole else []
    last = chunk_bytes - whole * most
    steps = steps * whole + [_direct_step_ns(last, *k, path, costs) for k in zip(before[:-1], adds[:-1], strict=True)]
    packets = Packets.of(last, costs, reth=False, imm=False)
    begin = costs.post_ns + 2 * costs.pcie_latency_ns + min(costs.mtu, chunk_bytes) * 8e9 / costs.pcie_rate_bps
    carried = path.constant_ns + packets.through(stages_of(path, costs, to_memory=False)[1:])
    payload = packets.last[0]
    result = costs.engine_ns(payload * adds[-1]) + payload * 8e9 / costs.pcie_rate_bps + costs.pcie_latency_ns
    return begin + sum(steps) + carried + result + costs.wake_ns


def _direct_step_ns(part_bytes: int, before: int, adds: int, path: Path, costs: Costs) -> float:
    """From the beginning of a hop to that of the next: the first packet's arrival, or the end of sending."""
    packets = Packets.of(part_bytes, costs, reth=False, imm=False)
    payload, wire = packets.first
    crossing = path.constant_ns + sum(link.time_ns(wire) for link in path.links) + costs.engine_ns(payload * adds)
    acks = (packets.count - 1) // costs.ack_every + 1
    sending = packets.through([slowest_stage(path, costs)]) + acks * path.links[0].time_ns(ACK_BYTES)
    return max(crossing, sending, packets.count * costs.engine_ns(payload * before))


def _direct_sums_ns(ranks: int, chunk_bytes: int, path: Path, costs: Costs) -> float:
    """When the last sums are in memory, at the earliest: all chunks read, and added up one packet after the other.

    While a rank sends its own chunk for the first time, only what PCIe has left over is read to be added to.
    """
    payload = min(costs.mtu, chunk_bytes)
    read = payload * 8e9 / costs.pcie_rate_bps
    add = max(costs.engine_ns(payload), read)
    packets = chunk_bytes / payload if payload else 0
    first_pass = min(packets, _PASS_PACKETS)
    sent = path.links[0].time_ns(wire_bytes(payload))
    adds = (ranks - 1) * packets - first_pass * max(min(sent / read - 1, 1), 0) if payload else 0
    once = costs.post_ns + 3 * costs.pcie_latency_ns + costs.engine_ns(payload) + read
    return once + max(ranks * packets * read, first_pass * sent + adds * add) + costs.wake_ns


def host_optimizer_step_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """A ring reduce-scatter, an update that touches two arrays (sgd), a ring all-gather."""
    update = 2 * costs.reduce_ns(-(-size_bytes // ranks))
    scatter, gather = ring_reduce_scatter_ns, ring_all_gather_ns
    return scatter(ranks, size_bytes, path, costs) + update + gather(ranks, size_bytes, path, costs)
