"""What a message takes longer whose packets wait for credit of their receiver, where nothing else wants any.

The first packets go without: what the control has for that, or as far as the NIC comes in a round trip.  Each further
one leaves when its credit is there.  The receiver begins to grant when the first packet has come in, and grants so much
at a time as its cable brings, at a share of the rate (docs/closed-form.md derives it).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from topologies.graph.frames import FRAME_BYTES, OUTSIDE_BYTES
from workloads.times.messages import Costs, Packets, Path, memories_of, stages_of

IN_TURN, AHEAD, PULLS, SHORTEST = "in turn", "ahead", "pulls", "shortest"
"""All the same; who has what he asked for gets more ahead; a packet for one that came; the shortest message first."""
DEMAND_BYTES = 16  # behind a data packet, and in a credit


@dataclass(frozen=True)
class Credit:
    """What senders and receivers of a control by credit go by.

    `initial_bytes` go without; `window_bytes` at most were granted and have not come.  A credit is for so many
    `packets` at most, and all of them have a `share` of the rate.  `by`: how receivers choose; `active` have turns at a
    time (0: all).  `anew`: who was idle begins as at first.
    """

    initial_bytes: float
    window_bytes: float
    packets: int
    share: float
    by: str = IN_TURN
    anew: bool = False
    active: int = 0

    @property
    def by_message(self) -> bool:
        """Each brings initial bytes of its own."""
        return self.by == SHORTEST

    def later_ns(self, packets: Packets, path: Path, costs: Costs) -> float:
        """How much later the last of these packets is at the receiver's NIC."""
        if path.scale_up or packets.count <= (free := self.free(path, costs)):
            return 0.0
        stages = stages_of(path, costs, to_memory=False)
        fetch_ns = memories_of(path, costs)[0].latency_ns
        last = fetch_ns + path.constant_ns + sum(stage.passing_ns(*packets.last) for stage in stages)
        alone = fetch_ns + path.constant_ns + packets.through(stages)
        turns, rest = divmod(packets.count - free - 1, self.packets)
        waits = turns * self.packets * self.pulled_ns(path, costs) + rest * _brought_ns(path, costs)
        return max(0.0, self.heard_ns(path, costs) + waits + last - alone)

    def told_ns(self, path: Path, costs: Costs) -> float:
        """From a packet's turn in its NIC until the receiver's has it."""
        full = costs.mtu, costs.packet_wire_bytes
        way = sum(stage.passing_ns(*full) for stage in stages_of(path, costs, to_memory=False))
        return memories_of(path, costs)[0].latency_ns + path.constant_ns + way

    def heard_ns(self, path: Path, costs: Costs) -> float:
        """From the first packet's turn until its sender has the first credit."""
        return self.told_ns(path, costs) + self.back_ns(path)

    def back_ns(self, path: Path) -> float:
        """A credit's."""
        return path.back_ns(FRAME_BYTES + DEMAND_BYTES)

    def rate_ns(self, path: Path, costs: Costs) -> float:
        """Between two packets that are granted, by the receiver's clock."""
        _, write = memories_of(path, costs)
        return max(_brought_ns(path, costs), costs.mtu * 8e9 / write.rate_bps) / self.share

    def pulled_ns(self, path: Path, costs: Costs) -> float:
        """Likewise, where the window allows that: with `ahead` as much again, and no more pulls than packets."""
        most = min(self.window_bytes, self.initial_bytes) if self.by == PULLS else self.window_bytes
        packets = (1 + (self.by == AHEAD)) * most / costs.mtu
        return max(self.rate_ns(path, costs), self.heard_ns(path, costs) / max(1, ceil(packets)))

    def free(self, path: Path, costs: Costs) -> int:
        """How many packets have gone when the first credit is there: into the NIC's buffer, or on."""
        read, _ = memories_of(path, costs)
        fetch_ns, full = costs.mtu * 8e9 / read.rate_bps, costs.packet_wire_bytes
        each_ns = max(full * 8e9 / path.links[0].together_bps, fetch_ns)
        sent = 1 + int(max(0.0, self.heard_ns(path, costs) - read.latency_ns - fetch_ns) / each_ns)
        return min(ceil(self.initial_bytes / costs.mtu), sent + ceil(costs.tx_buffer_bytes / (full - OUTSIDE_BYTES)))


def _brought_ns(path: Path, costs: Costs) -> float:
    return costs.packet_wire_bytes * 8e9 / path.links[-1].together_bps
