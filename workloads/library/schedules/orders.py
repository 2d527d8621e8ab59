"""In which order a channel goes through the ranks: NCCL's rings, and its chains below trees.

The ring of a channel comes into a server at the GPU beside the channel's NIC, goes on to the GPU before it, and so on
around; it leaves by the same NIC, through that GPU (PXN).  Where rings cross, every other one goes the other way
around, so that it ends beside the next NIC; every other server takes the channels in pairs exchanged, so that each
message stays on its rail (src/graph/connect.cc).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache


@lru_cache(maxsize=1024)
def inside(channel: int, gpus: int, nics: int, *, crossing: bool = False, odd: bool = False) -> Sequence[int]:
    """The GPUs of a server in the order of a channel's ring, the one at the NIC by which it comes in first."""
    nic = channel % nics
    if crossing and odd:
        nic ^= 1
    first = nic * gpus // nics
    way = 1 if crossing and nic % 2 else -1
    return [(first + way * k) % gpus for k in range(gpus)]


@lru_cache(maxsize=256)
def ring(channel: int, ranks: int, gpus: int, nics: int, *, crossing: bool = False) -> Sequence[int]:
    """All ranks in the order of a channel's ring."""
    found: list[int] = []
    for server in range(ranks // gpus):
        order = inside(channel, gpus, nics, crossing=crossing, odd=server % 2 == 1)
        found += [server * gpus + gpu for gpu in order]
    return found
