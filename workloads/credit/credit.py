"""What packets wait for whose receiver lets them go (docs/credits.md), and how long, where nothing else wants any.

The first packets go without: what the control has for that, or as far as the NIC comes in a round trip.  Each further
one leaves when its credit is there.  The receiver begins to grant when the first packet has come in, and grants so much
at a time as its cable brings, at a share of the rate (docs/closed-form.md derives it).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

IN_TURN, AHEAD, PULLS, SHORTEST = "in turn", "ahead", "pulls", "shortest"
"""All the same; who has what he asked for gets more ahead; a packet for one that came; the shortest message first."""
DEMAND_BYTES = 16  # behind a data packet, and in a credit


@dataclass(frozen=True)
class Loop:
    """Between two NICs, for full packets, in ns.

    `told`: from a packet's turn in its NIC until the receiver's has it, and `back` a credit's way.  A packet is `sent`
    after the one before, and `brought` by the receiver's own cable and PCIe.  `ahead`: packets that have left, or that
    the NIC's buffer has, when the first credit is there.
    """

    told: float
    back: float
    sent: float
    brought: float
    ahead: int


@dataclass(frozen=True)
class Credit:
    """What senders and receivers of a control by credit go by.

    `initial_bytes` go without; `window_bytes` at most were granted and have not come.  A credit is for so many
    `packets` at most, and all of them have a `share` of the rate.  `by`: how receivers choose; `active` have turns at a
    time (0: all).  `anew`: who has had nothing to send begins as at first.
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

    def waits_ns(self, packets: int, mtu: int, loop: Loop) -> float | None:
        """From the turn of a row's first packet to that of its last one.  None: nothing waits for credit."""
        free = min(ceil(self.initial_bytes / mtu), loop.ahead)
        if packets <= free:
            return None
        most = min(self.window_bytes, self.initial_bytes) if self.by == PULLS else self.window_bytes
        window = (1 + (self.by == AHEAD)) * most / mtu
        pulled = max(loop.brought / self.share, (loop.told + loop.back) / max(1, ceil(window)))
        turns, rest = divmod(packets - free - 1, self.packets)
        return loop.told + loop.back + turns * self.packets * pulled + rest * loop.sent
