"""What selective repeat needs of a NIC."""

from __future__ import annotations

import math

LEAST, MOST = 1024, 65536
TIMES = 4
"""That a packet may be sent before the sender has to wait for it: it is lost three times one in 1/p^3."""


def reorder_packets(rtt_ns: float, packet_ns: float, waiting: float) -> int:
    """Packets that a NIC keeps out of order by default: what is sent while one of them is sent four times.

    `packet_ns` is the time of a packet on the cable or PCIe, the longer one; `waiting` packets stand in the sender's
    NIC before one that is sent again.
    """
    packets = TIMES * (rtt_ns / packet_ns + waiting)
    return min(max(1 << math.ceil(math.log2(packets)), LEAST), MOST)
