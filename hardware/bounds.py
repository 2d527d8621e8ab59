"""What follows from the hardware's parameters: headroom, ECN profiles, the idle fabric's round-trip time."""

from __future__ import annotations

import math
from collections.abc import Callable

from topologies.graph.fabric import OWN_PORTS, Cable, Fabric, Switch
from topologies.graph.frames import (
    ACK_FRAME,
    FCS_BYTES,
    HEADER_BYTES,
    MOST_HEADERS,
    OUTSIDE_BYTES,
    SHORTEST_BYTES,
    ser_ns,
)
from topologies.graph.search import hops

STAMPS = 5
"""Hops that a packet has room for to hear of, at least, if its congestion control wants to hear of any."""

ECN_PROFILES = {25e9: (100, 400, 0.2), 50e9: (200, 800, 0.2), 100e9: (400, 1600, 0.2), 200e9: (300, 1200, 0.8),
                400e9: (800, 3200, 0.2)}  # fmt: skip
"""Cable rate -> Kmin and Kmax in KB, and Pmax (SimAI's defaults)."""


def telemetry_bytes(stamps: int) -> int:
    """What rides behind a packet for its congestion control, with room for so many hops."""
    return 16 + 16 * stamps


def headroom_bytes(rate_bps: float, delay_ns: float, mtu: int, stamps: int = STAMPS) -> int:
    """Headroom that a lossless class needs so that nothing is lost, whatever traffic there is in both directions.

    Frames of different lengths may need more than equal ones: all that starts in that time, the frame that makes the
    switch send XOFF, and one of full length that has started at the last moment.
    """
    frame = mtu + MOST_HEADERS + telemetry_bytes(stamps)
    open_ns = 2 * delay_ns + ser_ns(frame, rate_bps) + SHORTEST_BYTES * 8e9 / rate_bps
    return int(open_ns * rate_bps / 8e9 * frame / (frame + OUTSIDE_BYTES)) + 1 + 2 * frame


def ecn_profile(rate_bps: float) -> tuple[int, int, float]:
    """Kmin and Kmax in bytes, Pmax for a cable rate: those of the next lower listed rate; below 25G in proportion."""
    lower = [r for r in ECN_PROFILES if r <= rate_bps] or [25e9]
    kmin, kmax, pmax = ECN_PROFILES[max(lower)]
    share = min(rate_bps / 25e9, 1.0)
    return max(int(kmin * 1000 * share), 1), max(int(kmax * 1000 * share), 2), pmax


def most_switches(fabric: Fabric) -> int:
    """Switches on the longest of the shortest paths between two NICs."""
    nics = [n.name for n in fabric.nics]
    alike = {frozenset(fabric.neighbours[name]): name for name in nics}  # one of the NICs that have these
    lengths = {name: hops(fabric, name) for name in alike.values()}
    return max((lengths[a][b] - 1 for a in lengths for b in nics if a != b and b in lengths[a]), default=1)


def longest_ns(fabric: Fabric, over: Callable[[Cable], float], through: Callable[[Switch], float]) -> float:
    """The longest time of all shortest paths between two NICs: the sum over cables and switches."""
    cost = {c.name: over(c) for c in fabric.cables}
    passing = {s.name: through(s) for s in fabric.switches}
    ends = {s.name for s in fabric.switches if s.role == OWN_PORTS}
    beside: dict[str, list[tuple[str, float]]] = {s: [] for s in passing}
    at_nics: dict[str, float] = {}  # switch -> its costliest NIC's cable
    several = set()
    for cable in fabric.cables:
        a, b = cable.a.node, cable.b.node
        if a in passing and b in passing:
            beside[a].append((b, cost[cable.name]))
            beside[b].append((a, cost[cable.name]))
            continue
        switch = a if a in passing else b
        if switch in at_nics:
            several.add(switch)
        at_nics[switch] = max(at_nics.get(switch, 0.0), cost[cable.name])
    longest = 0.0
    for source, first in at_nics.items():
        front = {source: first + passing[source]}
        known = set(front)
        if source in several:
            longest = max(longest, front[source] + first)
        while front:
            reached: dict[str, float] = {}
            for switch, so_far in front.items():
                if switch in ends and switch != source:
                    continue
                for there, crossing in beside[switch]:
                    if there not in known:
                        reached[there] = max(reached.get(there, 0.0), so_far + crossing + passing[there])
            known |= reached.keys()
            front = reached
            longest = max([longest, *(at_nics[s] + t for s, t in reached.items() if s in at_nics)])
    return longest


def hop_ns(*, rate_bps: float, delay_ns: float, latency_ns: float, mtu: int, cut_through: bool = False) -> float:
    """What one switch more on the way adds to a round trip in an idle fabric."""
    if cut_through:
        return 2 * (HEADER_BYTES * 8e9 / rate_bps + delay_ns + latency_ns)
    return _cable_ns(rate_bps, delay_ns, mtu) + 2 * latency_ns


def _cable_ns(rate_bps: float, delay_ns: float, mtu: int) -> float:
    """A cable with a packet, and with its acknowledgement."""
    return ser_ns(mtu + MOST_HEADERS, rate_bps) + ser_ns(ACK_FRAME, rate_bps) + 2 * delay_ns


NOTE_BYTES = 8
"""Of a note between the ends of a cable (fabricd's link/notes.c)."""
CREDIT_BLOCK = 64
"""Bytes that a credit is for, as InfiniBand's."""


def credit_room_bytes(rate_bps: float, delay_ns: float, latency_ns: float, frame: int) -> int:
    """Room with which credits never hold up frames of this length that leave a switch at once.

    A frame has to come in whole, goes through the switch, waits there for another and makes it, as does the note that
    its room is free, and both go over the cable.
    """
    loop_ns = 2 * delay_ns + latency_ns + NOTE_BYTES * 8e9 / rate_bps
    blocks = -(-(frame + FCS_BYTES) // CREDIT_BLOCK)
    frames_under_way = math.ceil(loop_ns / ser_ns(frame, rate_bps)) + 4
    return frames_under_way * blocks * CREDIT_BLOCK


def credits_share(rate_bps: float, delay_ns: float, held_ns: float, frame: int, room: int) -> float:
    """What credits let through of a cable's rate, of frames of this length that the far end holds for so long."""
    ser = ser_ns(frame, rate_bps)
    loop_ns = ser + 2 * delay_ns + held_ns + NOTE_BYTES * 8e9 / rate_bps
    blocks = -(-(frame + FCS_BYTES) // CREDIT_BLOCK)
    return min(1.0, room // CREDIT_BLOCK // blocks * ser / loop_ns)


def retry_share(rate_bps: float, delay_ns: float, frame: int, buffer: int) -> float:
    """What a replay buffer lets through, likewise: a frame starts as long as it has any room."""
    ser = ser_ns(frame, rate_bps)
    loop_ns = ser + 2 * delay_ns + NOTE_BYTES * 8e9 / rate_bps
    return min(1.0, math.ceil(buffer / (frame + FCS_BYTES)) * ser / loop_ns)


def replay_buffer_bytes(rate_bps: float, delay_ns: float, frame: int) -> int:
    """A replay buffer that never fills without a loss.

    A frame has to come in whole, and its acknowledgement may have to wait for a frame on its way.
    """
    loop_ns = 2 * delay_ns + NOTE_BYTES * 8e9 / rate_bps
    return (math.ceil(loop_ns / ser_ns(frame, rate_bps)) + 3) * (frame + FCS_BYTES)


def fetch_ns(mtu: int, pcie_bps: float, pcie_ns: float) -> float:
    """From the time at which an idle NIC asks for a packet to the time at which it has it."""
    return mtu * 8e9 / pcie_bps + pcie_ns


def base_rtt_ns(
    switches: int, *, rate_bps: float, delay_ns: float, latency_ns: float, mtu: int, pcie_bps: float, pcie_ns: float,
    cut_through: bool = False,
) -> float:  # fmt: skip
    """From asking for a packet's payload over PCIe to its acknowledgement, in an idle fabric.

    It is that of a packet that asks for its acknowledgement: those that wait for a later one are not measured either.
    """
    hop = hop_ns(rate_bps=rate_bps, delay_ns=delay_ns, latency_ns=latency_ns, mtu=mtu, cut_through=cut_through)
    hops = switches * hop
    return fetch_ns(mtu, pcie_bps, pcie_ns) + _cable_ns(rate_bps, delay_ns, mtu) + hops
