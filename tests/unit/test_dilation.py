"""The real clock's dilation, where a file leaves it open: all NICs may send at once, and half a core forwards it."""

from __future__ import annotations

import pytest

from hardware.config import Hardware
from testbed.plan.dilation import automatic
from topologies import build

WIRE_BITS = 8 * (4096 + 14 + 20 + 8 + 12 + 4 + 4 + 20 + 4)
"""A full frame with an immediate: payload, Ethernet, IPv4, UDP, BTH, ICRC, FCS, preamble and gap, immediate."""
BUSY_BPS = 0.5 / 7e-6 / 2 * WIRE_BITS
"""Two NICs at this rate, over one switch: each frame and hop takes 7 us of a core, half a core is busy."""


@pytest.mark.parametrize(
    ("rate_bps", "dilation"),
    [(0.999 * BUSY_BPS, 1), (1.001 * BUSY_BPS, 10), (9.99 * BUSY_BPS, 10), (10.01 * BUSY_BPS, 100), (400e9, 1000)],
)
def test_it_is_the_smallest_power_of_ten_that_leaves_half_a_core(rate_bps: float, dilation: int) -> None:
    assert automatic(build("star", {"hosts": 2}), Hardware(cable_rate_bps=rate_bps)) == dilation


@pytest.mark.parametrize(
    ("kind", "params", "nics", "hops"),
    [
        ("star", {"hosts": 8}, 8, 1),
        ("ring", {"nodes": 4}, 4, (2 + 3 + 2) / 3),  # to both neighbours, and to the one behind them
        ("clos", {"leaves": 2, "spines": 1, "hosts_per_leaf": 2}, 4, (1 + 3 + 3) / 3),
    ],
)
def test_it_grows_with_the_nics_and_the_switches_between_two_of_them(
    kind: str, params: dict[str, int], nics: int, hops: float
) -> None:
    most = 2 * BUSY_BPS / (nics * hops)
    fabric = build(kind, params)
    assert automatic(fabric, Hardware(cable_rate_bps=0.999 * most)) == 1
    assert automatic(fabric, Hardware(cable_rate_bps=1.001 * most)) == 10
