"""What of a clock a file may leave open: how much slower the real one runs, and how a fabric is divided."""

from __future__ import annotations

from hardware.config import Hardware
from topologies import Fabric
from topologies.graph import search
from topologies.graph.frames import FRAME_BYTES, IMM_BYTES

# CPU per frame and hop, measured: Open vSwitch alone, which is the slower of the two.
_FRAME_HOP_NS = 7_000.0
_SHARE = 0.5  # of a core
_WORTH_NICS = (
    1024  # below that what belongs to all frames finds room in the caches, and windows cost more than they save
)
_PARTITION_NICS = 128  # what belongs to their frames stays in a core's cache for a window


def automatic(fabric: Fabric, hardware: Hardware) -> int:
    """How much slower than the emulated fabric the real clock runs, so that this machine can keep up.

    The smallest power of ten at which all NICs sending at once keep Open vSwitch at half a core.
    """
    bits = 8.0 * (hardware.mtu + FRAME_BYTES + IMM_BYTES)
    frames_per_s = sum(hardware.nic_bps(fabric, nic.name) for nic in fabric.nics) / bits
    cpu = frames_per_s * _hops(fabric) * _FRAME_HOP_NS / 1e9  # seconds of CPU for a second of emulated time
    dilation = 1
    while cpu / dilation > _SHARE:
        dilation *= 10
    return dilation


def _hops(fabric: Fabric) -> float:
    """Switches on the way from a NIC to the others, on average (from one NIC in each place, all are alike)."""
    lengths = search.hops(fabric, fabric.nics[0].name)
    hops = [lengths[n.name] - 1 for n in fabric.nics[1:] if n.name in lengths]
    return sum(hops) / len(hops) if hops else 1.0


def partitions_of(fabric: Fabric) -> int:
    """Into how many partitions fabricd divides a fabric on the virtual clock."""
    return len(fabric.nics) // _PARTITION_NICS if len(fabric.nics) >= _WORTH_NICS else 1
