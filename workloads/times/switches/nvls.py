"""What sums and copies in the switch of a scale-up domain should take, by counting (workloads/offloads/nvls.py).

Of a vector of V bytes each of n GPUs owns V/n.  For a reduce-scatter it sends its shares of all parts, V bytes, and
gets its own sums, V/n; for an all-gather it sends V/n and gets V, its own part, too.  An all-reduce is both at once:
V (1 + 1/n) each way, where a ring has 2 V (n - 1)/n.  Besides, each block that is loaded is asked for, at all GPUs.

Before the first block each GPU hears of all others that they are there.
"""

from __future__ import annotations

from dataclasses import dataclass

from topologies.graph.frames import FRAME_BYTES, OFFLOAD_BYTES, SHORTEST_BYTES
from workloads.times.messages import Costs, Path

LOADS = 128
"""Of a GPU at a time (LOADS_MAX of offload/domain/domain.h)."""


@dataclass(frozen=True)
class _Domain:
    """`n` GPUs, whose link takes `bit_ns` for a bit, and what is owned in blocks of a packet."""

    n: int
    owned_bytes: int  # of each GPU's, the most
    path: Path
    costs: Costs

    def frame_ns(self, payload_bytes: int) -> float:
        nbytes = max(SHORTEST_BYTES, FRAME_BYTES + OFFLOAD_BYTES + -(-payload_bytes // 4) * 4)
        return nbytes * 8e9 / self.path.links[0].rate_bps

    @property
    def delay_ns(self) -> float:
        return self.path.links[0].delay_ns

    @property
    def blocks(self) -> int:
        return max(1, -(-self.owned_bytes // self.costs.mtu))

    def owned_ns(self) -> float:
        """What one GPU's part takes of a link."""
        last = self.owned_bytes - (self.blocks - 1) * self.costs.mtu
        return (self.blocks - 1) * self.frame_ns(self.costs.mtu) + self.frame_ns(last)

    def first_ns(self) -> float:
        """A block by itself."""
        return self.frame_ns(min(self.owned_bytes, self.costs.mtu))

    def began_ns(self) -> float:
        """From the call until a GPU has heard of all."""
        return self.costs.post_ns + self.costs.pcie_latency_ns + self.n * self.frame_ns(0) + self.delay_ns

    def window_ns(self) -> float:
        """What all blocks take if a GPU has no more loads under way than it may."""
        alone = self.frame_ns(0) + self.first_ns() + 2 * self.delay_ns
        return self.blocks / LOADS * alone


def carried_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """What an all-reduce takes of a link into a GPU: all copies, its own sums, and the loads of all."""
    d = _Domain(ranks, -(-size_bytes // ranks), path, costs)
    return (ranks + 1) * d.owned_ns() + ranks * d.blocks * d.frame_ns(0)


def all_reduce_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """The links into the GPUs are full from the first copies on; sums and loads that come before find them free.

    A store waits behind the shares that its NIC has in its transmit buffer already.
    """
    d = _Domain(ranks, -(-size_bytes // ranks), path, costs)
    first, delay, copies = d.first_ns(), d.delay_ns, ranks * d.owned_ns()
    waits = max(0.0, min(costs.tx_buffer_bytes * 8e9 / path.links[0].rate_bps, copies - delay))
    begins = d.frame_ns(0) + 3 * delay + first + waits  # a load, a share, the sum, and its store
    early = min(d.blocks, (waits + first + delay) / (ranks * first)) * first
    late = max(0, d.blocks - LOADS) * ranks * d.frame_ns(0)
    carried = copies + d.owned_ns() - early + late
    return d.began_ns() + begins + max(carried, d.window_ns()) + costs.wake_ns


def reduce_scatter_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    d = _Domain(ranks, -(-size_bytes // ranks), path, costs)
    carried = ranks * d.owned_ns() + d.blocks * d.frame_ns(0)
    return d.began_ns() + 2 * d.delay_ns + max(carried, d.window_ns()) + costs.wake_ns


def all_gather_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    d = _Domain(ranks, -(-size_bytes // ranks), path, costs)
    return d.began_ns() + d.delay_ns + ranks * d.owned_ns() + costs.wake_ns


def broadcast_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    d = _Domain(ranks, size_bytes, path, costs)
    return d.began_ns() + d.delay_ns + d.owned_ns() + costs.wake_ns
