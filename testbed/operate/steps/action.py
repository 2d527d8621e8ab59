"""An action of the registry: a command, what it costs, whom it touches, and the steps that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from testbed.base.units import format_time
from testbed.operate.steps.steps import Step
from testbed.words.entry import Entry
from testbed.words.kinds import listed


@dataclass(frozen=True, kw_only=True)
class Action(Entry):
    """`steps(site, **parameters)` says what is done; it does nothing itself, and raises InputError for what cannot be.

    Commands, help, documentation, a drill's prompt and an agent's tools are made from these entries.
    """

    steps: Callable[..., Iterator[Step]]
    cost_ns: float
    """Emulated time that passes before the operator can do anything else."""
    cost_from: str
    passes: bool = False
    """Its steps let that time pass themselves."""
    blast: str
    """What it touches besides what it is for."""
    traffic: str
    """What becomes of frames under way, queues and pauses."""
    configures: tuple[str, ...] = ()
    """Faults that it configures away: what it sets lies over them."""
    example: str
    """As it may be written on a clos of 2 leaves, 2 spines and 2 hosts a leaf, with DCQCN and accelerators: for the
    page, and for tests that go through the registry."""

    @property
    def consequences(self) -> dict[str, str]:
        """What an operator should know before: for the page, and for a drill's help."""
        return {
            "takes": f"{format_time(self.cost_ns)} ({self.cost_from})",
            "touches": self.blast,
            "frames, queues": self.traffic,
        }

    @property
    def mends(self) -> tuple[str, ...]:
        """Faults whose cause it removes."""
        from testbed.faults import CATALOGUE

        return tuple(name for name, fault in CATALOGUE.items() if self.words in fault.mended_by)


def ranks(numbers: list[int]) -> str:
    """Such as `rank 3`, `ranks 0, 1, 2`."""
    return f"rank{'s' * (len(numbers) > 1)} {listed(list(map(str, numbers)))}"
