"""What can be reached of a drill: prompts, programs, agents and pages play by a `Session` and by nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from testbed.base.units import format_time


def clock(ns: float) -> str:
    """A time as drills print it: `20ms`, and of 1546642 ns `1546.642us`."""
    short = format_time(ns)
    if len(short) < 8:
        return short
    return f"{ns / 1000:.3f}".rstrip("0").rstrip(".") + "us"


@dataclass(frozen=True)
class Answer:
    """What a command has brought: `text` as a prompt prints it, `data` as JSON has it, or an error."""

    ok: bool
    time_ns: float
    text: str = ""
    data: Any = None
    error: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        return vars(self)


class Session(Protocol):
    def command(self, line: str) -> Answer:
        """Carries out one line, such as `show job` or `advance 200us`. Never raises for what a player says."""
        ...

    def ticket(self) -> dict[str, Any]:
        """drill (its code), title, text, level, question, views, budget, sealed."""
        ...

    def state(self) -> dict[str, Any]:
        """time_ns, what is left of the budget, whether it is over, the score then, steps, topology."""
        ...

    def complete(self, line: str) -> list[str]:
        """What the last word of a line may become."""
        ...

    def close(self) -> None:
        """Ends the drill, and takes its fabric down."""
        ...
