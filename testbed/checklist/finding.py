"""A finding, and the register of checks: one function for each, which says what it finds in an experiment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from testbed.checklist.exchange import Exchange, Pair
from testbed.checklist.exchanges import exchanges
from testbed.experiment.basis import Basis
from topologies.graph.fabric import Fabric
from topologies.ranks.hops import Hops

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.blocks.transport import Sending


@dataclass(frozen=True)
class Finding:
    """`what` is seen at `where` (file, line, key), and `hint` is what to do about it."""

    check: str
    what: str
    where: str
    hint: str

    def to_dict(self) -> dict[str, str]:
        return asdict(self)


class Sender(NamedTuple):
    path: tuple[str | int, ...]  # where it is said
    sending: Sending
    traffic_class: int


class Case:
    """An experiment, and what several checks want to know of it."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    @cached_property
    def fabric(self) -> Fabric:
        """The graph, without the compute complexes in NICs."""
        return self.hops.fabric

    @cached_property
    def hops(self) -> Hops:
        return Hops(self.experiment.build_fabric())

    @cached_property
    def basis(self) -> Basis:
        return Basis(self.experiment)

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """Who sends what to whom, step by step."""
        return exchanges(self.experiment)

    @cached_property
    def senders(self) -> list[Sender]:
        """All that senders send by, each once, and in which class."""
        found: dict[tuple[int | None, str], Sender] = {}
        for path, sending in self.experiment.senders():
            its = self._class(path, sending)
            found.setdefault((its, sending.model_dump_json()), Sender(path, sending, its))
        return list(found.values())

    def _class(self, path: tuple[str | int, ...], sending: Sending) -> int:
        if path[:2] == ("transport", "classes"):
            return int(path[2])
        its: Any = self.experiment
        for key in path[:-1]:
            its = getattr(its, key) if isinstance(key, str) and hasattr(its, key) else its[key]
        own = getattr(its, "traffic_class", None) if path[0] == "workload" else None
        return self.experiment.fabric.switch.classes[sending.dscp] if own is None else int(own)

    def place(self, *path: str | int) -> str:
        """File, line and key."""
        return self.experiment.place(*path)


def over_network(case: Case, one: Exchange) -> list[Pair]:
    """Its pairs that share no scale-up domain."""
    return [pair for pair, n in one.sent.items() if n and not case.hops.in_scale_up(*pair)]


Found = Iterator[tuple[str, tuple[str | int, ...], str]]
"""What is seen, the path of the key, what to do."""


@dataclass(frozen=True)
class Check:
    name: str
    about: str  # what it looks at, when all is well
    find: Callable[[Case], Found]
    figures: Callable[[Case], Iterator[str]] | None = None  # what it can say of any experiment

    def __call__(self, case: Case) -> list[Finding]:
        return [Finding(self.name, what, case.place(*path), hint) for what, path, hint in self.find(case)]


CHECKS: dict[str, Check] = {}


def check(
    name: str, about: str, figures: Callable[[Case], Iterator[str]] | None = None
) -> Callable[[Callable[[Case], Found]], Callable[[Case], Found]]:
    """Registers a function as the check of that name; they run and are shown in this order."""

    def register(find: Callable[[Case], Found]) -> Callable[[Case], Found]:
        CHECKS[name] = Check(name, about, find, figures)
        return find

    return register


def some(names: Any, most: int = 3) -> str:
    """The first few of many names."""
    listed = [str(n) for n in names]
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def size(count: float) -> str:
    """35.7 KB, 600 B"""
    for unit, of in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= of:
            return f"{count / of:.4g} {unit}"
    return f"{count:g} B"
