"""What is known of a collective and of an algorithm for it: an entry each, which names everything (registry.py).

Code stands by its name, "module:object", and is imported when somebody asks for it: whoever reads entries needs neither
numpy nor the rooms above this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from workloads.base.vocabulary import DTYPES

EVEN, POWERS = "even", "powers of two"


class NoModel(ValueError):
    """What there is no model of, and a hint; `key` of the step that says so.

    `others`: each message could be followed, or another algorithm taken: `hint` goes behind their names.
    """

    def __init__(self, what: str, hint: str = "", key: str = "algorithm", *, others: bool = False) -> None:
        super().__init__(what)
        self.what, self.hint, self.key, self.others = what, hint, key, others


@dataclass(frozen=True)
class Factor:
    """Bus bandwidth over algorithm bandwidth, by the number of ranks; `text` is the formula for people."""

    text: str
    of: Callable[[int], float]


@dataclass(frozen=True)
class Collective:
    """What ranks do together, whoever does it for them.

    A step's `size_bytes` is what nccl-tests calls size, and `size` says what that is.
    """

    name: str
    summary: str  # what it leaves behind
    size: str
    busbw: Factor
    part: str = ""  # "module:class": what each rank starts with and must end with, where hosts follow a schedule
    ops: tuple[str, ...] = ()  # () when nothing is reduced
    in_parts: bool = False  # each rank has a part of its own, and nccl-tests counts the elements of one
    rooted: bool = False  # the first rank of the group is the root
    transposed: bool = False  # unequal counts are those of the way there, backwards
    one_row: bool = False  # unequal counts are what each rank has of the vector
    meets: bool = False  # no rank is through before all have begun
    sized: bool = True  # False: it moves no data, and `sizes` may be left out
    unpredicted: str = ""  # why there is no model of it, whatever the algorithm


@dataclass(frozen=True)
class Algorithm:
    """How a collective is carried out: what it accepts, where its code is, what it should cost."""

    collective: Collective
    name: str
    summary: str
    code: str  # "module:class" of its Part
    time: str
    """Its closed form, "module:function": (Case) -> ns with a schedule, else (ranks, size, path, costs) -> ns.

    With a schedule it may be "": then every message is followed, however many there are.
    """
    schedule: str = ""  # "module:function" of what the hosts carry out; "": its Part knows by itself
    ops: tuple[str, ...] = ()  # those of the collective that it can do
    dtypes: tuple[str, ...] = tuple(DTYPES)
    min_ranks: int = 2
    max_ranks: int | None = None  # None: any number
    layout: str = ""
    """"ring": next in order is near.  What the group must be: "grid", several domains of equal size: "rails".

    "ports": as "ring", for NICs with several, among which flows choose.  "domain": GPUs of one scale-up domain.
    """
    lengths: str = ""  # what the dimensions of a grid, or else the number of ranks, must be: EVEN or POWERS; "": any
    chunk_bytes: int | None = None  # pieces that a schedule is pipelined by, unless the step says; None: whole messages
    wide: str = ""  # "module:object", its Model for large fabrics (workloads/times/wide/model.py); "": there is none
    unpredicted: str = ""  # why there is no model of it even on small ones
    offloaded: bool = False  # NICs or switches do it: a group is asked of the fabric
    multicast: bool = False  # switches copy what it sends
    accelerators: bool = False  # adds up in switches
    shared_slots: bool = False  # in slots that jobs share, with a host as parameter server
    engines: bool = False  # adds up in NICs
    on_complexes: bool = False  # compute complexes of off-path SmartNICs help: `helpers` of a plan's step
    helped_by: str = ""
    """Whose complexes: "module:function", (ranks, plan's step) -> some of the ranks.  "": the first `aggregators`."""
    anywhere: bool = False  # also between compute complexes of off-path SmartNICs, and between these and ranks
    instead: Algorithm | None = None  # what the ranks do by themselves when they do not get what they ask for
    in_turn: bool = False  # its messages must come in the order of sending: not with `transport.ordering: any`
    waits: bool = False  # its part waits by itself: it cannot be one of several tasks at a time
    extra: tuple[str, ...] = ()  # keys of a step that only some algorithms heed
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of those that are not null by default
    own: Any = None  # the schedule itself of a user's file (workloads/own/); None: `schedule` names it
    by_library: bool = False  # as `library` of its step says, which only a library's choice can
    apart: bool = False  # its result is in the output, where its collective has it in the vector

    def __str__(self) -> str:
        return f"{self.collective.name} by {self.name}"

    @property
    def shaped(self) -> bool:
        """Whether not every group of ranks will do."""
        return self.layout not in ("", "ring")

    @property
    def parameters(self) -> tuple[str, ...]:
        """The keys of an experiment's collective step that this entry heeds."""
        return ("sizes", "dtype", *(("op",) if self.ops else ()), "iterations", "warmup", "ranks", *self.extra)

    def fits(self, ranks: int, dims: Sequence[int] = ()) -> bool:
        """Whether so many ranks, on a grid with these dimensions, can do it."""
        lengths = dims or [ranks]
        if self.lengths == EVEN:
            return all(n % 2 == 0 for n in lengths)
        return self.lengths != POWERS or all(n & n - 1 == 0 for n in lengths)

    def jobs(self, told: Mapping[str, Any]) -> int:
        """How many groups its ranks ask of the fabric.  `told`: to them."""
        return self.offloaded * ((told.get("trees") or 1) if self.accelerators else 1)

    def load(self) -> Any:
        """The code that a rank runs: its Part (imports numpy)."""
        return named(self.code)


def named(place: str) -> Any:
    """What stands at "module:object"."""
    module, name = place.split(":")
    return getattr(import_module(module), name)
