"""What a model of large fabrics is, and what it is asked: a collective among all ranks, its ways, a step's keys.

An entry of the registry names its model (Algorithm.wide).  A model gives times by size, or raises NoModel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from workloads.base.entry import Algorithm, NoModel, named
from workloads.base.vocabulary import DTYPES
from workloads.collectives.schedule import more_than, schedule_of
from workloads.collectives.shape import shape_of
from workloads.times.case import Case
from workloads.times.expected import replayed
from workloads.times.messages import Costs, Link
from workloads.times.queue_pairs import of_schedule
from workloads.times.wide.around import Ring
from workloads.times.wide.both_ways import Numbered
from workloads.times.wide.places import Places

if TYPE_CHECKING:
    from workloads.times.wide.fabric import Numbers, Wide
    from workloads.times.wide.peers import ConnectedPairs

MOST_FOLLOWED = 240_000
"""Messages of a schedule that are followed one by one where there is no model: some seconds of ours."""

Time = Callable[[int], float]
"""Of a size, in ns."""
OverRing = Callable[[int, Ring, Costs, int, Ring], float]
"""Of a size over a ring, with the arrays that an optimizer goes over, and the ring that hosts gather over."""


class Accelerator(Protocol):
    """Of a switch: `rate` in bit/s (None: of all its ports together), `latency` in ns."""

    @property
    def elements(self) -> int: ...
    @property
    def slots(self) -> int: ...
    @property
    def rate(self) -> int | None: ...
    @property
    def latency(self) -> float: ...


@dataclass(frozen=True)
class Adders:
    """What the fabric's accelerators are for a collective that switches add up."""

    of: Callable[[int], Accelerator]
    """For so many contributors at a switch; raises NoModel if it cannot have them."""
    slots: Callable[[Link, int, int], int]
    """That keep this cable full over so many switches, with so many elements in a block."""
    convert_bps: float | None


@dataclass(frozen=True)
class Asked:
    """`options`: the step's keys.  `bare`: all ways, without queue pairs; those that it makes are added to `made`."""

    entry: Algorithm
    options: Mapping[str, Any]
    sizes: Sequence[int]
    dtype: str
    seed: int
    bare: Wide
    made: ConnectedPairs
    costs: Costs
    job: int  # which of the fabric's offloaded collectives it is
    adders: Adders
    domain: Link | None = None  # the links of scale-up domains, whether it uses them or not

    @property
    def places(self) -> Places:
        return self.bare.places

    @property
    def n(self) -> int:
        return self.bare.places.ranks

    @property
    def width(self) -> int:
        return DTYPES[self.dtype]

    @property
    def order(self) -> Sequence[int]:
        """The group's: round a ring, or by number."""
        return self.places.order if self.entry.layout == "ring" else range(self.n)

    def chunk_bytes(self, size_bytes: int, parts: int = 1) -> int:
        """Of one of `parts` of a rank's share."""
        return -(-(size_bytes // self.width) // (parts * self.n)) * self.width

    def over(self, numbers: Numbers) -> Wide:
        """The ways over these queue pairs."""
        return replace(self.bare, numbers=numbers)

    def case(self, size_bytes: int, ways: Any, dims: Sequence[int] = ()) -> Case:
        options = {key: self.options[key] for key in self.entry.extra} | {"dims": dims}
        return Case.of(self.entry, self.n, size_bytes, self.width, options, self.seed, self.costs, ways)

    def followed(self) -> Time:
        """Message by message, as on a small fabric.  Raises NoModel where they are too many, as the time does."""
        entry, n, schedule, order = self.entry, self.n, schedule_of(self.entry), list(self.order)
        dims = [d for d in self.places.dims if d > 1] if entry.shaped else []
        options = {key: self.options[key] for key in entry.extra} | {"dims": dims}
        shapes = {size: shape_of(entry, n, size, self.width, options, self.seed) for size in self.sizes or [0]}
        few = [size for size, shape in shapes.items() if not more_than(schedule, shape, MOST_FOLLOWED)]
        what = f"there is no model of {entry} for {n} ranks, and more than {MOST_FOLLOWED:,} messages"
        too_many = NoModel(what, ", or a larger `chunk`" * any(s.chunk for s in shapes.values()), others=True)
        if not few:
            raise too_many
        calls = of_schedule(schedule, shapes[max(few)], order, inf)
        assert calls is not None
        ways = Numbered(self.bare, order, self.made.connected(calls))

        def time_ns(size_bytes: int) -> float:
            if size_bytes not in few:
                raise too_many
            found = replayed(self.case(size_bytes, ways, dims), schedule, inf)
            assert found is not None
            return found

        return time_ns


@dataclass(frozen=True)
class Model:
    """`whole`: of all ranks at once.  `among`: of groups that do the same at a time (groups.py)."""

    whole: Callable[[Asked], Time] | None = None
    among: Callable[[Any, Any, int, int], float] | None = None  # a Together, its groups, size, bytes of an element
    of_all: bool = False  # `among` holds where every rank is in a group
    powers: bool = False  # of two ranks
    unlike: bool = False  # where cables differ it knows as much as if each message was followed
    over: OverRing | None = None  # round any ring, of a few ranks, too

    def fits(self, ranks: int) -> bool:
        return not self.powers or ranks & ranks - 1 == 0


def model_of(entry: Algorithm) -> Model:
    """With nothing in it where there is none."""
    found: Model = named(entry.wide) if entry.wide else Model()
    return found
