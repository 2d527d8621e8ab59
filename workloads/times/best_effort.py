"""What a best-effort all-reduce should take when every block finds a slot (docs/best-effort.md derives it).

As in_network_time, with one stage more: sums go from the last accelerator over the parameter server's cable into its
host's memory, are added to what its own rank has, and come back over that cable to all.
"""

from __future__ import annotations

from collections.abc import Sequence

from workloads.times.in_network import ELEMENTS, SLOTS, block_bytes
from workloads.times.messages import Costs, Path


def best_effort_all_reduce_ns(
    ranks: int,
    size_bytes: int,
    path: Path,
    costs: Costs,
    *,
    width: int = 4,
    elements: int = ELEMENTS,
    slots: int = SLOTS,
    fixed_point: bool = True,
    convert_bps: float | None = None,
    accelerators: Sequence[tuple[float, int]] = (),
) -> float:
    """`path` leads from the farthest rank to the server's; `accelerators` on it have a rate and children.

    `width` is bytes of an element in memory.
    """
    count = max(1, size_bytes // width)
    blocks = -(-count // elements)
    full, last = min(elements, count), count - (blocks - 1) * elements

    def pcie_ns(n: int) -> float:
        return 4 * n * 8e9 / costs.pcie_rate_bps

    def slowest_ns(n: int) -> float:
        add = 4 * n * 8e9 / costs.reduce_bps if costs.reduce_bps else 0.0
        return max(pcie_ns(n), add, *(link.time_ns(block_bytes(n)) for link in path.links))

    def block_ns(n: int) -> float:
        """From a lane's having a block until its sum is there."""
        wire = block_bytes(n)
        one_way = sum(link.time_ns(wire) for link in path.links) + path.constant_ns
        latency = path.switch_latency_ns[0] if path.switch_latency_ns else 0.0
        again = sum((children + 1) * wire * 8e9 / bps + latency for bps, children in accelerators)
        add = 4 * n * 8e9 / costs.reduce_bps if costs.reduce_bps else 0.0
        fetch = costs.pcie_latency_ns + pcie_ns(n)
        return fetch + one_way + again + fetch + add + fetch + one_way

    line, alone = slowest_ns(full), block_ns(full)
    rounds = -(-blocks // slots)
    left = blocks - (rounds - 1) * slots
    end = (rounds - 1) * max(slots * line, alone) + (left - 1) * line + block_ns(last)
    exponents = block_ns(0) if fixed_point else 0.0
    conversion = 2 * width * 8e9 * full / convert_bps if convert_bps and fixed_point else 0.0
    into_memory = pcie_ns(last) + costs.pcie_latency_ns
    return costs.post_ns + costs.pcie_latency_ns + exponents + conversion + end + into_memory + costs.wake_ns
