"""What a message and a flow should take, by arithmetic alone (docs/closed-form.md derives it).

A message is a row of packets that pass a row of stages: the sender's PCIe, each link, the receiver's PCIe.  Every stage
takes one packet at a time, and between stages lie constant delays.  The formulas hold on paths that nothing else uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from topologies.graph.frames import (
    ACK_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    IMM_BYTES,
    OUTSIDE_BYTES,
    RETH_BYTES,
    wire_bytes,
)
from workloads.base.vocabulary import FLOW_MESSAGE_BYTES
from workloads.credit.credit import DEMAND_BYTES, Credit, Loop


@dataclass(frozen=True)
class Link:
    """One direction of a cable, or of several beside each other that packets are spread over.

    `spread`: how many packets go at the same time, on average; `rate_bps` is that of each.  Less than 1: packets wait
    besides, for credits or for a shaper, which lets `burst_bytes` pass before.  `cuts`: the switch behind it sends
    packets on while they still come in, by links that are no faster.
    """

    rate_bps: float
    delay_ns: float
    spread: float = 1.0
    cuts: bool = False
    burst_bytes: float = 0.0

    @property
    def together_bps(self) -> float:
        return self.rate_bps * self.spread

    def time_ns(self, wire_bytes: float) -> float:
        return wire_bytes * 8e9 / self.rate_bps

    def cuts_into(self, link: Link) -> bool:
        """Whether packets start on `link`, the next one, while they still come in over this one."""
        return self.cuts and link.rate_bps <= self.rate_bps


@dataclass(frozen=True)
class MemoryPath:
    """What leads from a NIC to memory: PCIe, or of a compute complex its own way."""

    rate_bps: float
    latency_ns: float


@dataclass(frozen=True)
class Path:
    """From NIC to NIC: the links in order, and the latency of the switch behind each but the last.

    A `scale_up` domain is one link that leads from GPU memory to GPU memory, without PCIe.  `memories`: the sender's
    and the receiver's, where they are not both what the costs say.
    """

    links: tuple[Link, ...]
    switch_latency_ns: tuple[float, ...] = ()
    scale_up: bool = False
    memories: tuple[MemoryPath, MemoryPath] | None = None

    def __post_init__(self) -> None:
        if len(self.switch_latency_ns) != len(self.links) - 1:
            raise ValueError(f"{len(self.links)} links with {len(self.switch_latency_ns)} switches between them")

    @classmethod
    def uniform(cls, switches: int, *, rate_bps: float, delay_ns: float, latency_ns: float) -> Path:
        """Over so many equal switches by equal cables (0: a cable from NIC to NIC)."""
        return cls((Link(rate_bps, delay_ns),) * (switches + 1), (latency_ns,) * switches)

    @property
    def first(self) -> Path:
        """Its first link alone: the sender's own."""
        return Path(self.links[:1], (), self.scale_up, self.memories)

    @property
    def last(self) -> Path:
        """Its last one: the receiver's own."""
        return Path(self.links[-1:], (), self.scale_up, self.memories)

    @property
    def constant_ns(self) -> float:
        """What a frame of no length would take."""
        return sum(link.delay_ns for link in self.links) + sum(self.switch_latency_ns)

    def back_ns(self, wire_bytes: float = ACK_BYTES) -> float:
        """An acknowledgement, or another such answer, on its way back (over the same links, in the other direction)."""
        back = self.links[::-1]
        met = [link.cuts for link in self.links[-2::-1]] + [
            False
        ]  # the switch behind a link is before it on the way back
        back = tuple(replace(link, cuts=cuts) for link, cuts in zip(back, met, strict=True))
        return self.constant_ns + sum(stage.passing_ns(0.0, wire_bytes) for stage in stages_over(back))


@dataclass(frozen=True)
class Costs:
    """What a host and its NIC take, the same at both ends.  `reduce_bps`: bits of one operand, None costs nothing.

    `by_channel`: each lane of a schedule reduces by itself, beside the others and the host.  `reths`: each packet of a
    write has a RETH, not the first alone (`transport.ordering: any`).  `behind_bytes`: of a packet, what controls by
    `credit` say there.  `queue_pairs`: of a connection, which messages take in turn, or are `split` over
    (workloads/verbs/bond.py).
    """

    mtu: int = 4096
    post_ns: float = 100.0
    pcie_rate_bps: float = 512e9
    pcie_latency_ns: float = 500.0
    ack_every: int = 16
    tx_buffer_bytes: int = 128 << 10
    wake_ns: float = 0.0
    reduce_bps: float | None = None
    by_channel: bool = False
    engine_reduce_bps: float = 400e9
    engine_packets_per_s: float = 595.2e6
    reths: bool = False
    behind_bytes: int = 0
    credit: Credit | None = None
    queue_pairs: int = 1
    split: bool = False

    @property
    def more_posts_ns(self) -> float:
        """What a host posts for a message beside the first request."""
        return (self.queue_pairs - 1) * self.post_ns * self.split

    def engine_ns(self, nbytes: float) -> float:
        """What a packet to be added (0: one that only passes) keeps the NIC's engine."""
        return max(nbytes * 8e9 / self.engine_reduce_bps, 1e9 / self.engine_packets_per_s)

    def reduce_ns(self, nbytes: float) -> float:
        return nbytes * 8e9 / self.reduce_bps if self.reduce_bps else 0.0

    def packets(self, size_bytes: int) -> int:
        """How many packets carry a message."""
        return max(1, -(-size_bytes // self.mtu))

    @property
    def frame_bytes(self) -> int:
        """Around the payload of a packet, but for RETH and immediate."""
        return FRAME_BYTES + self.behind_bytes

    @property
    def later_reth(self) -> int:
        """Bytes of the RETH of a write's packets but the first."""
        return RETH_BYTES * self.reths

    @property
    def packet_wire_bytes(self) -> int:
        """What a full packet of a write takes of a cable, but for the first."""
        return wire_bytes(self.mtu, self.later_reth + self.behind_bytes)

    def headers_bytes(self, size_bytes: int) -> int:
        """What is around the payload of a write, without an immediate."""
        packets = self.packets(size_bytes)
        return packets * self.frame_bytes + RETH_BYTES + (packets - 1) * self.later_reth

    def message_wire_bytes(self, size_bytes: int) -> int:
        """What a write with immediate takes of a cable."""
        whole, rest = divmod(size_bytes, self.mtu)
        of_rest = wire_bytes(rest, self.later_reth + self.behind_bytes) if rest else 0
        packets = whole * self.packet_wire_bytes + of_rest
        return packets + RETH_BYTES - self.later_reth + IMM_BYTES


# Messages


@dataclass(frozen=True)
class Packets:
    """The packets of a transfer, each as (payload, wire bytes): the first, the mean of those between, the last."""

    count: int
    first: tuple[float, float]
    middle: tuple[float, float]
    last: tuple[float, float]

    @classmethod
    def of(cls, size_bytes: int, costs: Costs, *, reth: bool, imm: bool, message_bytes: int | None = None) -> Packets:
        """`size_bytes` in messages of `message_bytes` (None: in one); a RETH in each, an immediate in the last."""
        message_bytes = message_bytes or max(size_bytes, 1)
        messages = max(1, -(-size_bytes // message_bytes))
        rest = size_bytes - (messages - 1) * message_bytes
        count = (messages - 1) * costs.packets(message_bytes) + costs.packets(rest)
        behind = costs.behind_bytes
        if count == 1:
            only = (size_bytes, wire_bytes(size_bytes, RETH_BYTES * reth + IMM_BYTES * imm + behind))
            return cls(1, only, only, only)
        payload = min(costs.mtu, message_bytes)
        first = (payload, wire_bytes(payload, RETH_BYTES * reth + behind))
        payload = rest - (costs.packets(rest) - 1) * costs.mtu
        has_reth = reth and (costs.reths or rest <= costs.mtu)
        last = (payload, wire_bytes(payload, RETH_BYTES * has_reth + IMM_BYTES * imm + behind))
        between = max(count - 2, 1)
        reths = (count if costs.reths else messages) - has_reth
        total = size_bytes - payload + count * costs.frame_bytes + reths * RETH_BYTES * reth
        middle = ((size_bytes - first[0] - last[0]) / between, (total - costs.frame_bytes - first[1]) / between)
        return cls(count, first, middle, last)

    def through(self, stages: Sequence[Stage]) -> float:
        """Time from the first packet's start on the first stage to the last one's end on the last.

        The last packet leaves the last stage after the longest chain of packets that wait for each other: the first
        packet up to stage b, those between from b to c, most at the slowest stage there, the last one from c on.
        A packet that waits for another at a stage waits for its share there, where several go at the same time.
        """
        if lags := [stage.lag_ns for stage in stages if stage.spread < 1]:
            free = self._through([replace(stage, spread=max(stage.spread, 1.0)) for stage in stages])
            return max(free, self._through(stages) - max(lags))
        return self._through(stages)

    def _through(self, stages: Sequence[Stage]) -> float:
        first = [stage.passing_ns(*self.first) for stage in stages]
        middle = [stage.passing_ns(*self.middle) for stage in stages]
        last = [stage.passing_ns(*self.last) for stage in stages]
        between = [stage.time_ns(*self.middle) / stage.spread for stage in stages]
        behind = [stage.time_ns(*self.last) / stage.spread for stage in stages]
        if self.count == 1:
            return sum(last)
        if self.count == 2:
            return max(sum(first[: c + 1]) + sum([behind[c], *last[c + 1 :]]) for c in range(len(stages)))
        return max(
            sum(first[: b + 1])
            + sum([between[b], *middle[b + 1 : c + 1]])
            + (self.count - 3) * max(between[b : c + 1])
            + sum([behind[c], *last[c + 1 :]])
            for b in range(len(stages))
            for c in range(b, len(stages))
        )


@dataclass(frozen=True)
class Stage:
    rate_bps: float
    wire: bool  # carries whole frames (a link), or payloads only (PCIe)
    spread: float = 1.0  # as a link's
    lag_ns: float = 0.0  # how early packets may be at a shaper
    behind_bps: float | None = None  # the rate of the link before, of which it waits for a packet's header alone

    def time_ns(self, payload: float, wire_bytes: float) -> float:
        return (wire_bytes if self.wire else payload) * 8e9 / self.rate_bps

    def passing_ns(self, payload: float, wire_bytes: float) -> float:
        """From a packet's end on the stage before to its end on this one, where nothing is in its way."""
        early = (wire_bytes - HEADER_BYTES) * 8e9 / self.behind_bps if self.behind_bps else 0.0
        return self.time_ns(payload, wire_bytes) - early


def stages_over(links: Sequence[Link]) -> list[Stage]:
    """Of links, each behind the one before."""
    met = [None, *(link.rate_bps if link.cuts_into(after) else None for link, after in pairwise(links))]
    return [
        Stage(link.rate_bps, True, link.spread, link.burst_bytes * 8e9 / link.together_bps, rate)
        for link, rate in zip(links, met, strict=True)
    ]


def stages_of(path: Path, costs: Costs, *, to_memory: bool) -> list[Stage]:
    """What a message passes on its way to the receiver's NIC, or into its memory."""
    links = stages_over(path.links)
    if path.scale_up:
        return links
    read, write = (Stage(memory.rate_bps, wire=False) for memory in memories_of(path, costs))
    return [read, *links, write] if to_memory else [read, *links]


def memories_of(path: Path, costs: Costs) -> tuple[MemoryPath, MemoryPath]:
    """The sender's and the receiver's."""
    pcie = MemoryPath(costs.pcie_rate_bps, costs.pcie_latency_ns)
    return path.memories or (pcie, pcie)


def pcie_ns(path: Path, costs: Costs, *, to_memory: bool) -> float:
    """PCIe latencies on the way: the doorbell's, that of fetching, that of writing."""
    read, write = memories_of(path, costs)
    return read.latency_ns if path.scale_up else 2 * read.latency_ns + to_memory * write.latency_ns


@lru_cache(maxsize=4096)  # formulas ask for few that differ, of each of many ranks
def received_ns(size_bytes: int, path: Path, costs: Costs, *, reth: bool = True, imm: bool = True) -> float:
    """From the end of posting to the receiver's completion: doorbell, fetch, path, into the receiver's memory."""
    packets = Packets.of(size_bytes, costs, reth=reth, imm=imm)
    pcie = pcie_ns(path, costs, to_memory=True)
    forth = path.constant_ns + packets.through(stages_of(path, costs, to_memory=True))
    return pcie + forth + _waiting_ns(packets, path, costs)


@lru_cache(maxsize=4096)
def sent_ns(size_bytes: int, path: Path, costs: Costs, *, message_bytes: int | None = None) -> float:
    """From the end of posting to the last sender's completion: doorbell, fetch, path, the acknowledgement's way back.

    `message_bytes`: in messages of that size (None: in one), the last with an immediate.
    """
    packets = Packets.of(size_bytes, costs, reth=True, imm=True, message_bytes=message_bytes)
    pcie = pcie_ns(path, costs, to_memory=False) + memories_of(path, costs)[0].latency_ns
    forth = path.constant_ns + packets.through(stages_of(path, costs, to_memory=False))
    waiting = _waiting_ns(packets, path, costs)
    if costs.credit and costs.credit.by_message and message_bytes and message_bytes < size_bytes:
        whole, rest = divmod(size_bytes, message_bytes)
        each = (Packets.of(n, costs, reth=True, imm=True) for n in (message_bytes, rest))
        waiting = sum(n * _waiting_ns(one, path, costs) for n, one in zip((whole, rest > 0), each, strict=True))
    return pcie + forth + waiting + path.back_ns()


def _waiting_ns(packets: Packets, path: Path, costs: Costs) -> float:
    """For credit: how much later the last packet is at the receiver's NIC."""
    if costs.credit is None or path.scale_up:
        return 0.0
    waits = costs.credit.waits_ns(packets.count, costs.mtu, loop_of(path, costs))
    if waits is None:
        return 0.0
    stages = stages_of(path, costs, to_memory=False)
    return max(0.0, waits + sum(stage.passing_ns(*packets.last) for stage in stages) - packets.through(stages))


def loop_of(path: Path, costs: Costs) -> Loop:
    """There with a full packet, and back with a credit for another one."""
    (read, write), full = memories_of(path, costs), costs.packet_wire_bytes
    stages = stages_of(path, costs, to_memory=False)
    way = path.constant_ns + sum(stage.passing_ns(costs.mtu, full) for stage in stages)
    told, back = read.latency_ns + way, path.back_ns(FRAME_BYTES + DEMAND_BYTES)
    fetched, stored = (costs.mtu * 8e9 / memory.rate_bps for memory in (read, write))
    first, last = (full * 8e9 / link.together_bps for link in (path.links[0], path.links[-1]))
    sent = max(first, fetched)
    buffered = -(-costs.tx_buffer_bytes // (full - OUTSIDE_BYTES))
    ahead = 1 + int((way + back - fetched) / sent) + buffered
    return Loop(told, back, sent, max(last, stored), ahead)


def flow_ns(size_bytes: int, path: Path, costs: Costs) -> float:
    """A flow, from its start to the sender's last completion."""
    return costs.post_ns + sent_ns(size_bytes, path, costs, message_bytes=FLOW_MESSAGE_BYTES)


def ping_pong_write_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """There and back by RDMA write with immediate."""
    return 2 * (costs.post_ns + received_ns(size_bytes, path, costs) + costs.wake_ns)


def ping_pong_send_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """There and back by send and receive."""
    return 2 * (costs.post_ns + received_ns(size_bytes, path, costs, reth=False, imm=False) + costs.wake_ns)


def acks_ns(chunk_bytes: int, path: Path, costs: Costs) -> float:
    """What the acknowledgements of the chunk coming in take of the port while a chunk goes out.

    Those of its last `ack_every` packets follow when the outgoing chunk is through.
    """
    acks = (costs.packets(chunk_bytes) - 1) // costs.ack_every
    return acks * path.links[0].time_ns(ACK_BYTES)


@lru_cache(maxsize=4096)
def line_ns(size_bytes: int, path: Path, costs: Costs) -> float:
    """How long a message with immediate keeps the slowest part of its way busy."""
    return Packets.of(size_bytes, costs, reth=True, imm=True).through([slowest_stage(path, costs)])


def link_ns(size_bytes: int, link: Link, costs: Costs) -> float:
    """Likewise a link of its way."""
    return Packets.of(size_bytes, costs, reth=True, imm=True).through([Stage(link.rate_bps, True, link.spread)])


def slowest_stage(path: Path, costs: Costs) -> Stage:
    """Where full packets take longest."""
    found = min(
        stages_of(path, costs, to_memory=True),
        key=lambda stage: stage.rate_bps * stage.spread * (1.0 if stage.wire else costs.packet_wire_bytes / costs.mtu),
    )
    return replace(found, behind_bps=None)
