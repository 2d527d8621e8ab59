"""Frames on a cable, by arithmetic alone: what goes around a payload, in bytes, and how long a frame takes, in ns."""

from __future__ import annotations

ETHERNET, IPV4, UDP, BTH, ICRC, AETH = 14, 20, 8, 12, 4, 4
RETH_BYTES = 16
IMM_BYTES = 4
OFFLOAD_BYTES = 24  # of our extension header
FCS_BYTES = 4
GAP_BYTES = 20  # preamble and gap: on the cable, and in no counter of bytes
OUTSIDE_BYTES = FCS_BYTES + GAP_BYTES  # of a cable, not of a buffer
FRAME_BYTES = ETHERNET + IPV4 + UDP + BTH + ICRC + OUTSIDE_BYTES  # around the payload of any packet
MOST_HEADERS = FRAME_BYTES + RETH_BYTES + IMM_BYTES - OUTSIDE_BYTES  # of a packet in a buffer
ACK_BYTES = FRAME_BYTES + AETH
ACK_FRAME = ACK_BYTES - OUTSIDE_BYTES
SHORTEST_BYTES = 64 + GAP_BYTES
HEADER_BYTES = 8 + 64  # what a cut-through switch looks up a frame by: preamble, and as much as the shortest has


def wire_bytes(payload_bytes: int, headers_bytes: int = 0) -> int:
    """What a data packet takes of a cable: `headers_bytes` of RETH and immediate; payload is padded to words."""
    return max(SHORTEST_BYTES, FRAME_BYTES + headers_bytes + -(-payload_bytes // 4) * 4)


def ser_ns(frame_bytes: int, rate_bps: float) -> float:
    """Time of a frame (without FCS) on a cable, preamble and gap included."""
    return max(frame_bytes + FCS_BYTES, 64) * 8e9 / rate_bps + GAP_BYTES * 8e9 / rate_bps
