"""What an all-reduce by the switches should take, by arithmetic alone (docs/in-network.md derives it).

Every block passes the same stages: PCIe, the cables up to the root of the tree, each accelerator (a second pass through
its switch, and the children's contributions one after the other), the cables down, PCIe.  A slot has one block under
way; slots together keep the slowest stage busy.

Several trees share the vector among them.  A stage that some of them have in common takes their blocks in turn.

With best effort (docs/best-effort.md), if every block finds a slot, there is one more stage: the last accelerator sends
its sums over the parameter server's cable into the host's memory, the host adds its own rank's data, and the result
goes back over that cable to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from topologies.graph.frames import FRAME_BYTES, OFFLOAD_BYTES, SHORTEST_BYTES
from workloads.base.entry import Collective
from workloads.times.messages import Costs, Path

ELEMENTS, SLOTS = 256, 256


def block_bytes(elements: int) -> int:
    """What the packet of a block takes of a cable: elements travel as int32."""
    return max(SHORTEST_BYTES, FRAME_BYTES + OFFLOAD_BYTES + 4 * elements)


def travels(dtype: str, op: str | None, convert_bps: float | None) -> dict[str, Any]:
    """How elements do: sums of floating-point numbers in fixed point, their minima and maxima as ordered integers."""
    floats = "float" in dtype
    fixed_point = floats and op in (None, "sum", "avg")
    return {"fixed_point": fixed_point, "convert_bps": convert_bps if floats else None}


def apart(collective: Collective, ranks: int, largest_branch: int) -> float:
    """The share of the sums that one cable carries last, beside the results without elements of all others."""
    return 1.0 if collective.rooted else largest_branch / ranks if collective.in_parts else 0.0


def in_network_all_reduce_ns(ranks: int, size_bytes: int, path: Path, costs: Costs, **more: Any) -> float:
    """`more`: as `sums_of` takes it."""
    return sums_of(path, costs, **more).alone_ns(size_bytes)


def sums_of(
    path: Path,
    costs: Costs,
    *,
    width: int = 4,
    elements: int = ELEMENTS,
    slots: int = SLOTS,
    fixed_point: bool = True,
    convert_bps: float | None = None,
    accelerators: Sequence[tuple[float, int]] = (),
    accelerator_ns: float = 0.0,
    apart: float = 0.0,
    trees: int = 1,
    shared: Sequence[int] = (),
    contributions: Sequence[int] = (),
) -> Sums:
    """`path` leads from rank to rank over the root of the tree; `accelerators` on its way up have a rate and children.

    `width` is bytes of an element in memory, `accelerator_ns` the latency of each accelerator.  `apart`: see there.
    With several `trees`: of how many of them each of the path's links is (`shared`), and the children that each of the
    accelerators has in all of them (`contributions`).
    """
    way = _Way(path, costs, tuple(accelerators), accelerator_ns, trees, tuple(shared), tuple(contributions))
    return Sums(way, width, elements, slots, convert_bps, fixed_point, apart)


@dataclass(frozen=True)
class Sums:
    """Requests of a group, one of which is there before the last is through."""

    way: _Way
    width: int
    elements: int
    slots: int
    convert_bps: float | None
    fixed_point: bool
    apart: float = 0.0

    def alone_ns(self, nbytes: int) -> float:
        """One that no other is before, in equal shares over the trees."""
        its = self.width, self.elements, self.slots, self.convert_bps, self.fixed_point
        count = nbytes // self.width
        blocks = -(-count // self.elements)
        share = min(count, -(-blocks // self.way.trees) * self.elements)
        return _time_ns(self.way, share, *its) + self.apart * -(-share // self.elements) * self._beside_ns(share)

    def round_trip_slots(self, nbytes: int) -> int:
        """How many keep the slowest stage busy while a block is on its way to the root and back."""
        full = min(self.elements, nbytes // self.width)
        return ceil(self.way.block_ns(full) / self.way.slowest_ns(full))

    def _beside_ns(self, count: int) -> float:
        """What a block takes longer on the cable that carries its sum, and a result without elements."""
        full = min(self.elements, count)
        return max(0.0, self.way.cables_ns(full) + self.way.cables_ns(0) - self.way.slowest_ns(full))

    def busy_ns(self, nbytes: int) -> float:
        """What one keeps of the slowest stage: its exponents take their time there, too, and a slot meanwhile."""
        blocks = max(1, -(-nbytes // self.width // self.elements))
        used = min(blocks, self.slots) if self.fixed_point else 0
        full, none = min(self.elements, nbytes // self.width), 0
        line = blocks * self.way.slowest_ns(full) + used * self.way.slowest_ns(none)
        slots = (blocks * self.way.block_ns(full) + used * self.way.block_ns(none)) / self.slots
        return max(line, slots, nbytes * 8e9 / self.convert_bps if self.convert_bps else 0.0)


def _time_ns(
    way: _Way, count: int, width: int, elements: int, slots: int, convert_bps: float | None, fixed_point: bool
) -> float:
    costs, count = way.costs, max(1, count)
    blocks = -(-count // elements)
    full, last = min(elements, count), count - (blocks - 1) * elements
    line, alone = way.slowest_ns(full), way.block_ns(full)
    rounds = -(-blocks // slots)
    begun = (rounds - 1) * max(slots * line, alone)  # when the first block of the last round goes
    left = blocks - (rounds - 1) * slots
    end = begun + (left - 1) * line + way.block_ns(last)
    if left > 1:  # a short last block overtakes the one before neither on a cable nor over PCIe
        before = begun + (left - 2) * line + alone
        end = max(end, before + max(way.slowest_ns(last), way.pcie_ns(full)))
    end += line - way.alone.slowest_ns(full) + way.behind_ns(full, blocks, min(blocks, slots))
    exponents = way.block_ns(0) if fixed_point else 0.0
    conversion = 2 * width * 8e9 * full / convert_bps if convert_bps else 0.0
    into_memory = way.pcie_ns(last) + costs.pcie_latency_ns
    return costs.post_ns + costs.pcie_latency_ns + exponents + conversion + end + into_memory + costs.wake_ns


@dataclass(frozen=True)
class _Way:
    """From a rank's memory to the root and back to the rank's NIC."""

    path: Path
    costs: Costs
    accelerators: tuple[tuple[float, int], ...]
    accelerator_ns: float = 0.0
    trees: int = 1
    shared: tuple[int, ...] = ()
    contributions: tuple[int, ...] = ()

    @property
    def alone(self) -> _Way:
        """As if there were no other tree."""
        return replace(self, trees=1, shared=(), contributions=())

    def pcie_ns(self, elements: int) -> float:
        return 4 * elements * 8e9 / self.costs.pcie_rate_bps

    def slowest_ns(self, elements: int) -> float:
        """From one of a tree's blocks to the next, where the slowest stage is busy."""
        return max(self.trees * self.pcie_ns(elements), self.cables_ns(elements), self._adding_ns(elements))

    def cables_ns(self, elements: int, which: slice = slice(None)) -> float:
        """Likewise the slowest cable, of those."""
        wire, users = block_bytes(elements), self.shared or (1,) * len(self.path.links)
        cables = list(zip(self.path.links, users, strict=True))[which]
        return max((trees * link.time_ns(wire) for link, trees in cables), default=0.0)

    def behind_ns(self, elements: int, blocks: int, window: int) -> float:
        """How long the other trees are behind the first one, with whose `window` the NIC fills its transmit buffer.

        They make up for it where what all trees have in common is slower than what each has of its own.
        """
        wire = block_bytes(elements)
        common = max(self.pcie_ns(elements), *(self.path.links[k].time_ns(wire) for k in (0, -1)))
        own = max(self.cables_ns(elements, slice(1, -1)), self._adding_ns(elements))
        filled = min(window, ceil(self.costs.tx_buffer_bytes / wire)) * common if self.trees > 1 else 0.0
        return max(0.0, filled - blocks * max(0.0, self.trees * common - own))

    def _adding_ns(self, elements: int) -> float:
        """Likewise the slowest accelerator, into which all contributions go."""
        wire, all_of_it = block_bytes(elements), self.contributions or [children for _, children in self.accelerators]
        into = zip(self.accelerators, all_of_it, strict=True)
        return max((children * wire * 8e9 / bps for (bps, _), children in into), default=0.0)

    def block_ns(self, elements: int) -> float:
        """From a slot's having a block until its result is there."""
        wire = block_bytes(elements)
        up = (len(self.path.switch_latency_ns) + 1) // 2  # switches, the root with them
        adding = len(self.accelerators) or up  # a switch where no branches meet has none, and no second pass
        again = sum(self.path.switch_latency_ns[:up][-adding:]) + sum(
            (children + 1) * wire * 8e9 / bps + self.accelerator_ns for bps, children in self.accelerators
        )
        cables = sum(link.time_ns(wire) for link in self.path.links) + self.path.constant_ns
        return self.costs.pcie_latency_ns + self.pcie_ns(elements) + cables + again


class _BestEffortWay(_Way):
    """From a rank's memory to the server's and back to the rank's NIC."""

    def _add_ns(self, elements: int) -> float:
        return 4 * elements * 8e9 / self.costs.reduce_bps if self.costs.reduce_bps else 0.0

    def slowest_ns(self, elements: int) -> float:
        return max(self._add_ns(elements), super().slowest_ns(elements))

    def block_ns(self, elements: int) -> float:
        wire, path = block_bytes(elements), self.path
        one_way = sum(link.time_ns(wire) for link in path.links) + path.constant_ns
        latency = path.switch_latency_ns[0] if path.switch_latency_ns else 0.0
        again = sum((children + 1) * wire * 8e9 / bps + latency for bps, children in self.accelerators)
        fetch = self.costs.pcie_latency_ns + self.pcie_ns(elements)
        return fetch + one_way + again + fetch + self._add_ns(elements) + fetch + one_way


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
    way = _BestEffortWay(path, costs, tuple(accelerators))
    return _time_ns(way, size_bytes // width, width, elements, slots, convert_bps, fixed_point)
