"""Sums in the network: how many slots of accelerators keep a cable full, and how long a block's sum may take.

`cable` is the worst one's rate and delay, `switches` how many the longest way has, `elements` a packet has so many.
With a `server` the sum is in a host's memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from workloads.times.switches.in_network import block_bytes

if TYPE_CHECKING:
    from testbed.experiment.blocks.fabric import FabricSpec

Cable = tuple[float, float]


def slots(fabric: FabricSpec, cable: Cable, switches: int, elements: int, *, server: bool = False) -> int:
    """Rate x round trip to the accelerators, in packets, rounded up to a power of two.

    SwitchML (Sapio et al., NSDI 2021), section 3.6.
    """
    in_packets = cable[0] * _rtt_ns(fabric, cable, switches, elements, server) / 8e9 / block_bytes(elements)
    return min(1 << max(math.ceil(in_packets) - 1, 0).bit_length(), 65535)


def timeout_ns(
    fabric: FabricSpec,
    cable: Cable,
    switches: int,
    elements: int,
    slots: int,
    ranks: int,
    *,
    groups: int,
    reduce_bps: float | None,
    server: bool,
) -> float:
    """How long the sum of a block may take when nothing is lost: slots x the time of a frame + round trip.

    The worst case: on the slowest stage the packets of all slots are before it, those of all `groups` of `ranks` each.
    With a `server` every slot may have been taken: then the packets of all other ranks go over the server's cable, and
    its host adds them up at `reduce_bps`.
    """
    accelerator, packet = fabric.switch.accelerator, block_bytes(elements)
    frame_ns = max(packet * 8e9 / cable[0], 4 * elements * 8e9 / fabric.nic.pcie.rate)
    if accelerator is not None and accelerator.rate is not None:
        frame_ns = max(frame_ns, (ranks + 1) * packet * 8e9 / accelerator.rate)
    if server:
        frame_ns = (ranks - 1) * max(frame_ns, 4 * elements * 8e9 / (reduce_bps or math.inf))
    rtt_ns = _rtt_ns(fabric, cable, switches, elements, server)
    if accelerator is not None:
        rtt_ns += 2 * switches * accelerator.latency
    return min(groups * slots * frame_ns + rtt_ns, 1e9)


def _rtt_ns(fabric: FabricSpec, cable: Cable, switches: int, elements: int, server: bool) -> float:
    """From a contribution to its sum, in an idle fabric: up to the accelerators (and a host's memory) and back.

    Each accelerator is a second pass.
    """
    rate, delay = cable
    rtt_ns = 2 * (switches + 1) * (delay + block_bytes(elements) * 8e9 / rate) + 3 * switches * fabric.switch.latency
    return rtt_ns + (3 if server else 1) * (fabric.nic.pcie.latency + 4 * elements * 8e9 / fabric.nic.pcie.rate)
