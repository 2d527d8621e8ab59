"""A star whose senders lose packets, and when what leaves and comes back: round trips of an idle one, worked out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardware import bounds
from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric
from tests.parts.traffic_fabric import frame_bytes, nic, switch
from tests.parts.wire_view import ACK, WireFrame
from topologies.graph import frames

MTU, LINE = 4096, 400e9
T = frames.ser_ns(frame_bytes(), LINE)
FETCH = bounds.fetch_ns(MTU, 512e9, 500)
ROUND_TRIP = 2 * T + 2 * frames.ser_ns(frames.ACK_FRAME, LINE) + 4 * 500 + 2 * 500
LAST, ACK_EVERY = 63, 16
FIRST_START = 10_000 + FETCH + frames.ser_ns(frame_bytes() + 16, LINE) - T
"""Of packet 0 of a flow that starts at 10 us, if it were as short as the others."""


def lossy(**more: Any) -> Hardware:
    its_nic = {**nic(), "recovery": "selective_repeat", "lossless": []}
    return Hardware(switch=switch(headroom=0, lossless=[], alpha=64), nic=its_nic, **more)


def lose(f: BareFabric, name: str, at_ns: float, for_ns: float) -> None:
    f.fabricd.request(
        "inject", fault=name, primitive="frames", effect="drop", ports=["h1:1"], at_ns=at_ns, for_ns=for_ns
    )


def lose_last(f: BareFabric, count: int) -> None:
    lose(f, "x", FIRST_START + (LAST + 1 - count) * T - T / 2, count * T)


def sent(frames: Sequence[WireFrame]) -> list[WireFrame]:
    return [fr for fr in frames if fr.out and fr.opcode != ACK]
