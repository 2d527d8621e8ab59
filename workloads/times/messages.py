"""What the emulated hardware should take, by arithmetic alone (docs/closed-form.md derives it).

A message is a row of packets that pass a row of stages: the sender's PCIe, each link, the receiver's PCIe.  Every stage
takes one packet at a time, and between stages lie constant delays.  The formulas hold on paths that nothing else uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workloads.registry import FLOW_MESSAGE_BYTES

FRAME_BYTES = 14 + 20 + 8 + 12 + 4 + 4 + 20  # Ethernet, IPv4, UDP, BTH, ICRC, FCS, preamble and gap
SHORTEST_BYTES = 64 + 20  # frame with FCS, preamble and gap
RETH_BYTES = 16
IMM_BYTES = 4
ACK_BYTES = FRAME_BYTES + 4  # AETH


def wire_bytes(payload_bytes: int, headers_bytes: int = 0) -> int:
    """What a data packet takes of a link: `headers_bytes` of RETH and immediate; payload is padded to words."""
    return max(SHORTEST_BYTES, FRAME_BYTES + headers_bytes + -(-payload_bytes // 4) * 4)


@dataclass(frozen=True)
class Link:
    """One direction of a cable."""

    rate_bps: float
    delay_ns: float

    def time_ns(self, wire_bytes: float) -> float:
        return wire_bytes * 8e9 / self.rate_bps


@dataclass(frozen=True)
class Path:
    """From NIC to NIC: the links in order, and the latency of the switch behind each but the last.

    A `scale_up` domain is one link that leads from GPU memory to GPU memory, without PCIe.
    """

    links: tuple[Link, ...]
    switch_latency_ns: tuple[float, ...] = ()
    scale_up: bool = False

    def __post_init__(self) -> None:
        if len(self.switch_latency_ns) != len(self.links) - 1:
            raise ValueError(f"{len(self.links)} links with {len(self.switch_latency_ns)} switches between them")

    @classmethod
    def uniform(cls, switches: int, *, rate_bps: float, delay_ns: float, latency_ns: float) -> Path:
        """Over so many equal switches by equal cables (0: a cable from NIC to NIC)."""
        return cls((Link(rate_bps, delay_ns),) * (switches + 1), (latency_ns,) * switches)

    @property
    def constant_ns(self) -> float:
        """What a frame of no length would take."""
        return sum(link.delay_ns for link in self.links) + sum(self.switch_latency_ns)

    def ack_ns(self) -> float:
        """An acknowledgement on its way back (over the same links, in the other direction)."""
        return self.constant_ns + sum(link.time_ns(ACK_BYTES) for link in self.links)


@dataclass(frozen=True)
class Costs:
    """What a host and its NIC take, the same at both ends.  `reduce_bps`: bits of one operand, None costs nothing."""

    mtu: int = 4096
    post_ns: float = 100.0
    pcie_rate_bps: float = 512e9
    pcie_latency_ns: float = 500.0
    ack_every: int = 16
    tx_buffer_bytes: int = 128 << 10
    wake_ns: float = 0.0
    reduce_bps: float | None = None
    engine_reduce_bps: float = 400e9
    engine_packets_per_s: float = 595.2e6

    def engine_ns(self, nbytes: float) -> float:
        """What a packet to be added (0: one that only passes) keeps the NIC's engine."""
        return max(nbytes * 8e9 / self.engine_reduce_bps, 1e9 / self.engine_packets_per_s)

    def reduce_ns(self, nbytes: float) -> float:
        return nbytes * 8e9 / self.reduce_bps if self.reduce_bps else 0.0

    def packets(self, size_bytes: int) -> int:
        """How many packets carry a message."""
        return max(1, -(-size_bytes // self.mtu))


# Messages


@dataclass(frozen=True)
class _Packets:
    """The packets of a transfer, each as (payload, wire bytes): the first, the mean of those between, the last."""

    count: int
    first: tuple[float, float]
    middle: tuple[float, float]
    last: tuple[float, float]

    @classmethod
    def of(cls, size_bytes: int, costs: Costs, *, reth: bool, imm: bool, message_bytes: int | None = None) -> _Packets:
        """`size_bytes` in messages of `message_bytes` (None: in one); a RETH in each, an immediate in the last."""
        message_bytes = message_bytes or max(size_bytes, 1)
        messages = max(1, -(-size_bytes // message_bytes))
        rest = size_bytes - (messages - 1) * message_bytes
        count = (messages - 1) * costs.packets(message_bytes) + costs.packets(rest)
        if count == 1:
            only = (size_bytes, wire_bytes(size_bytes, RETH_BYTES * reth + IMM_BYTES * imm))
            return cls(1, only, only, only)
        payload = min(costs.mtu, message_bytes)
        first = (payload, wire_bytes(payload, RETH_BYTES * reth))
        payload = rest - (costs.packets(rest) - 1) * costs.mtu
        last = (payload, wire_bytes(payload, RETH_BYTES * (reth and rest <= costs.mtu) + IMM_BYTES * imm))
        between = max(count - 2, 1)
        total = size_bytes - payload + count * FRAME_BYTES + (messages - (rest <= costs.mtu)) * RETH_BYTES * reth
        middle = ((size_bytes - first[0] - last[0]) / between, (total - FRAME_BYTES - first[1]) / between)
        return cls(count, first, middle, last)

    def through(self, stages: Sequence[_Stage]) -> float:
        """Time from the first packet's start on the first stage to the last one's end on the last.

        The last packet leaves the last stage after the longest chain of packets that wait for each other: the first
        packet up to stage b, those between from b to c, most at the slowest stage there, the last one from c on.
        """
        first = [stage.time_ns(*self.first) for stage in stages]
        middle = [stage.time_ns(*self.middle) for stage in stages]
        last = [stage.time_ns(*self.last) for stage in stages]
        if self.count == 1:
            return sum(last)
        if self.count == 2:
            return max(sum(first[: c + 1]) + sum(last[c:]) for c in range(len(stages)))
        return max(
            sum(first[: b + 1]) + sum(middle[b : c + 1]) + (self.count - 3) * max(middle[b : c + 1]) + sum(last[c:])
            for b in range(len(stages))
            for c in range(b, len(stages))
        )


@dataclass(frozen=True)
class _Stage:
    rate_bps: float
    wire: bool  # carries whole frames (a link), or payloads only (PCIe)

    def time_ns(self, payload: float, wire_bytes: float) -> float:
        return (wire_bytes if self.wire else payload) * 8e9 / self.rate_bps


def _stages(path: Path, costs: Costs, *, to_memory: bool) -> list[_Stage]:
    links = [_Stage(link.rate_bps, wire=True) for link in path.links]
    if path.scale_up:
        return links
    pcie = _Stage(costs.pcie_rate_bps, wire=False)
    return [pcie, *links, pcie] if to_memory else [pcie, *links]


def _pcie_ns(path: Path, costs: Costs, *, to_memory: bool) -> float:
    """PCIe latencies on the way: the doorbell's, that of fetching, that of writing."""
    crossings = 1 if path.scale_up else 2 + to_memory
    return crossings * costs.pcie_latency_ns


def received_ns(size_bytes: int, path: Path, costs: Costs, *, reth: bool = True, imm: bool = True) -> float:
    """From the end of posting to the receiver's completion: doorbell, fetch, path, into the receiver's memory."""
    packets = _Packets.of(size_bytes, costs, reth=reth, imm=imm)
    pcie = _pcie_ns(path, costs, to_memory=True)
    return pcie + path.constant_ns + packets.through(_stages(path, costs, to_memory=True))


def sent_ns(size_bytes: int, path: Path, costs: Costs, *, message_bytes: int | None = None) -> float:
    """From the end of posting to the last sender's completion: doorbell, fetch, path, the acknowledgement's way back.

    `message_bytes`: in messages of that size (None: in one), the last with an immediate.
    """
    packets = _Packets.of(size_bytes, costs, reth=True, imm=True, message_bytes=message_bytes)
    pcie = _pcie_ns(path, costs, to_memory=False) + costs.pcie_latency_ns
    there = path.constant_ns + packets.through(_stages(path, costs, to_memory=False))
    return pcie + there + path.ack_ns()


def flow_ns(size_bytes: int, path: Path, costs: Costs) -> float:
    """A flow, from its start to the sender's last completion."""
    return costs.post_ns + sent_ns(size_bytes, path, costs, message_bytes=FLOW_MESSAGE_BYTES)


def flow_limit_bps(path: Path, costs: Costs) -> float:
    """Payload per second of an endless flow: the slowest link's rate x payload / wire bytes, or PCIe's."""
    links = min(link.rate_bps for link in path.links) * costs.mtu / wire_bytes(costs.mtu)
    return links if path.scale_up else min(links, costs.pcie_rate_bps)


def ping_pong_write_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """There and back by RDMA write with immediate."""
    return 2 * (costs.post_ns + received_ns(size_bytes, path, costs) + costs.wake_ns)


def ping_pong_send_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """There and back by send and receive."""
    return 2 * (costs.post_ns + received_ns(size_bytes, path, costs, reth=False, imm=False) + costs.wake_ns)


# Rings


def ring_all_reduce_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """A reduce-scatter and an all-gather of n - 1 hops each."""
    return _ring_ns([True] * (ranks - 1) + [False] * (ranks - 1), -(-size_bytes // ranks), path, costs)


def ring_reduce_scatter_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """n - 1 hops, a reduction after each."""
    return _ring_ns([True] * (ranks - 1), -(-size_bytes // ranks), path, costs)


def ring_all_gather_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """n - 1 hops."""
    return _ring_ns([False] * (ranks - 1), -(-size_bytes // ranks), path, costs)


def acks_ns(chunk_bytes: int, path: Path, costs: Costs) -> float:
    """What the acknowledgements of the chunk coming in take of the port while a chunk goes out.

    Those of its last `ack_every` packets follow when the outgoing chunk is through.
    """
    acks = (costs.packets(chunk_bytes) - 1) // costs.ack_every
    return acks * path.links[0].time_ns(ACK_BYTES)


def _ring_ns(reduces: list[bool], chunk_bytes: int, path: Path, costs: Costs) -> float:
    """Equal hops: post, message, wake up, and reduce where the hop does; then the last message's acknowledgement."""
    message = received_ns(chunk_bytes, path, costs) + acks_ns(chunk_bytes, path, costs)
    reduce = costs.reduce_ns(chunk_bytes)
    hops = len(reduces) * (costs.post_ns + message + costs.wake_ns) + sum(reduces) * reduce
    acknowledged = sent_ns(chunk_bytes, path, costs) + acks_ns(chunk_bytes, path, costs)
    if acknowledged <= message:  # both completions are there when the rank wakes up
        return hops
    late = acknowledged - message - costs.wake_ns - reduces[-1] * reduce
    return hops + max(late, 0.0) + costs.wake_ns


def ring_over_ns(reduces: Sequence[bool], chunk_bytes: int, paths: Sequence[Path], costs: Costs) -> float:
    """A ring whose edges differ: `paths[i]` leads from rank i to rank i + 1, `reduces[k]` says whether hop k reduces.

    Rank i's hop k + 1 waits for hop k from its left, and for its own message before on the same path.
    """
    n = len(paths)
    messages = [received_ns(chunk_bytes, p, costs) + acks_ns(chunk_bytes, p, costs) for p in paths]
    acknowledged = [sent_ns(chunk_bytes, p, costs) + acks_ns(chunk_bytes, p, costs) for p in paths]
    busy = [line_ns(chunk_bytes, p, costs) for p in paths]
    ready, free, sent = [0.0] * n, [0.0] * n, [0.0] * n
    for reducing in reduces:
        begin = [max(ready[i] + costs.post_ns, free[i]) for i in range(n)]
        sent = [begin[i] + acknowledged[i] for i in range(n)]
        free = [begin[i] + busy[i] for i in range(n)]
        arrived = [begin[i - 1] + messages[i - 1] for i in range(n)]
        awake = [max(ready[i] + costs.post_ns, arrived[i]) + costs.wake_ns for i in range(n)]
        ready = [t + reducing * costs.reduce_ns(chunk_bytes) for t in awake]
    ends = [r if s <= a else max(s, r) + costs.wake_ns for r, s, a in zip(ready, sent, arrived, strict=True)]
    return max(ends)


def line_ns(size_bytes: int, path: Path, costs: Costs) -> float:
    """How long a message with immediate keeps the slowest part of its way busy."""
    return _Packets.of(size_bytes, costs, reth=True, imm=True).through([_slowest(path, costs)])


def _slowest(path: Path, costs: Costs) -> _Stage:
    return min(
        _stages(path, costs, to_memory=True),
        key=lambda stage: stage.rate_bps * (1.0 if stage.wire else 1 + FRAME_BYTES / costs.mtu),
    )


# Rings of NICs


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
    packets = _Packets.of(last, costs, reth=False, imm=False)
    begin = costs.post_ns + 2 * costs.pcie_latency_ns + min(costs.mtu, chunk_bytes) * 8e9 / costs.pcie_rate_bps
    carried = path.constant_ns + packets.through(_stages(path, costs, to_memory=False)[1:])
    payload = packets.last[0]
    result = costs.engine_ns(payload * adds[-1]) + payload * 8e9 / costs.pcie_rate_bps + costs.pcie_latency_ns
    return begin + sum(steps) + carried + result + costs.wake_ns


def _direct_step_ns(part_bytes: int, before: int, adds: int, path: Path, costs: Costs) -> float:
    """From the beginning of a hop to that of the next: the first packet's arrival, or the end of sending."""
    packets = _Packets.of(part_bytes, costs, reth=False, imm=False)
    payload, wire = packets.first
    crossing = path.constant_ns + sum(link.time_ns(wire) for link in path.links) + costs.engine_ns(payload * adds)
    acks = (packets.count - 1) // costs.ack_every + 1
    sending = packets.through([_slowest(path, costs)]) + acks * path.links[0].time_ns(ACK_BYTES)
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
