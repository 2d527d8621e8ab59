"""What a rank's part of a workload works with: its device, its memory, and what host work costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from workloads.base.data import Inputs
from workloads.verbs import Device, Region
from workloads.verbs.wire import Record


@dataclass(frozen=True)
class HostCosts:
    """Emulated time of work on the host: `reduce_bps` counts the bits of one operand, None costs nothing.

    `by_channel`: each lane of a schedule reduces by itself, beside the others and the host.

    Posting is charged by the NIC itself (`post_ns`), waking up by the device (`wake_ns`).
    """

    reduce_bps: float | None = None
    wake_ns: float = 0.0
    by_channel: bool = False
    convert_bps: float | None = None
    cache_bytes: float | None = None  # a working set larger than that is reduced at memory_reduce_bps
    memory_reduce_bps: float | None = None

    @classmethod
    def from_plan(cls, costs: Mapping[str, Any]) -> HostCosts:
        return cls(**{f.name: costs[f.name] for f in fields(cls) if costs.get(f.name) is not None})

    def reduce_ns(self, nbytes: int, working_set_bytes: int = 0) -> float:
        """Time to reduce two operands of `nbytes` each into one, by a program that touches `working_set_bytes`."""
        cached = self.cache_bytes is None or working_set_bytes <= self.cache_bytes
        rate = self.reduce_bps if cached else self.memory_reduce_bps
        return nbytes * 8e9 / rate if rate else 0.0


def _nothing(done: int, of: int) -> None:
    pass


@dataclass
class Context:
    """A rank's session.  `largest_bytes` bounds the sizes of all its collectives.

    Memory is registered under a name and kept, because the fabric has no call to give it back.  `options` are the
    plan's keys of the step at hand.  `completed` says who takes the completions of a queue pair: a rank has one
    completion queue, and a peer that is ahead may begin what comes next while this rank is still at what came before.
    `computed`: what is to be called when a computation is through, by its wr_id.
    """

    device: Device
    seed: int
    costs: HostCosts
    largest_bytes: int = 1
    tick: Callable[[int, int], None] = _nothing  # called between the messages of a long operation
    options: Mapping[str, Any] = field(default_factory=dict)
    completed: dict[int, Callable[[Record], None]] = field(default_factory=dict)
    computed: dict[int, Callable[[], None]] = field(default_factory=dict)
    engine: Callable[..., Any] | None = None  # makes what carries out schedules; None: one with its own connections
    reducer: Callable[[int, float, Callable[[], None]], None] | None = None  # of a part that works while others do
    alone: bool = True  # what a part has under way may go on by itself: nobody else need look at each step
    _inputs: dict[tuple[int, str, str | None], Inputs] = field(default_factory=dict)
    _regions: dict[str, Region] = field(default_factory=dict)
    _of_parts: dict[int, dict[str, Region]] = field(default_factory=dict)

    def beside(self, number: int, largest_bytes: int, options: Mapping[str, Any]) -> Context:
        """For a part that works while others do: its memory is its own, and later that of the next of its number.

        Computations are the others': what it reduces, its host does, or the `reducer` that it is given.
        """
        own: dict[str, Any] = {"_regions": self._of_parts.setdefault(number, {}), "_of_parts": {}, "completed": {}}
        own["alone"] = False
        own["costs"] = replace(self.costs, by_channel=False)
        return replace(self, largest_bytes=largest_bytes, options=options, tick=_nothing, **own)

    def inputs(self, ranks: int, dtype: str, op: str | None) -> Inputs:
        """The inputs of so many ranks."""
        key = (ranks, dtype, op)
        if key not in self._inputs:
            self._inputs[key] = Inputs(self.seed, ranks, dtype, op)
        return self._inputs[key]

    def region(self, name: str, nbytes: int | None = None) -> Region:
        """The region called `name`, of `nbytes` at least (default: as large as the largest vector).

        One that has become too small is replaced by one of twice its size or more: there are few regions to be had.
        """
        least = max(self.largest_bytes if nbytes is None else nbytes, 1)
        region = self._regions.get(name)
        if region is None or len(region) < least:
            region = self._regions[name] = self.device.region(max(least, 2 * len(region) if region else 0))
        return region
