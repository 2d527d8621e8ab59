"""What recovery takes of a NIC where a file leaves it open: patience, and room for packets out of order."""

from __future__ import annotations

import math

LEAST_TIMEOUT_NS = 2e6
LEAST, MOST = 1024, 65536
TIMES = 4
"""That a packet may be sent before the sender has to wait for it: it is lost three times one in 1/p^3."""


def full_path_ns(switches: int, queue_bytes: float, rate_bps: float, rtt_ns: float) -> float:
    """From a packet to its acknowledgement, where nothing is lost and every queue on the way is full.

    Each of the switches holds `queue_bytes` before it, and all of that leaves over one cable, the slowest. Where PFC
    lets pauses spread, a flow that joins behind several merges may wait longer.
    """
    return switches * queue_bytes * 8e9 / rate_bps + rtt_ns


def timeout_ns(full_ns: float) -> float:
    """How long a NIC waits for an acknowledgement by default, in whole milliseconds."""
    return max(LEAST_TIMEOUT_NS, math.ceil(full_ns / 1e6) * 1e6)


def reorder_packets(rtt_ns: float, packet_ns: float, waiting: float) -> int:
    """Packets that a NIC keeps out of order by default: what is sent while one of them is sent four times.

    `packet_ns` is the time of a packet on the cable or PCIe, the longer one; `waiting` packets stand in the sender's
    NIC before one that is sent again.
    """
    packets = TIMES * (rtt_ns / packet_ns + waiting)
    return min(max(1 << math.ceil(math.log2(packets)), LEAST), MOST)
