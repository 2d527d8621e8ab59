"""A drill as its clients reach it: prompts, programs, agents and pages play by a `Session` and by nothing else.

Its ticket is what a player reads before the first line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from testbed.base.units import format_time

if TYPE_CHECKING:
    from drills.sheet.case import Case
    from topologies.graph.fabric import Fabric

ASKED = {
    "healthy": "Is anything wrong?",
    "where": "Where?",
    "what": "What?",
    "fix": "If it costs the job anything, mend it before you answer.",
}
"""What a ticket asks, by the words of a drill's `question`."""
_JOB = ("collective", "algorithm", "size", "sizes")
_UNITS = (("s", 1e9), ("ms", 1e6), ("us", 1e3))


def clock(ns: float) -> str:
    """A time as drills print it: `20ms`, of 1546642 ns `1546.642us`, and of what is longer `3887.173ms`, `61.25s`."""
    short = format_time(ns)
    if len(short) < 8:
        return short
    unit, one = next(((unit, one) for unit, one in _UNITS if ns >= 10 * one), _UNITS[-1])
    return f"{ns / one:.3f}".rstrip("0").rstrip(".") + unit


@dataclass(frozen=True)
class Answer:
    """What a command answers: `text` for a prompt, `data` for JSON, or an error."""

    ok: bool
    time_ns: float
    text: str = ""
    data: Any = None
    error: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        return vars(self)


class Session(Protocol):
    def command(self, line: str) -> Answer:
        """Carries out one line, such as `show job` or `advance 200us`. Never raises for what a player types."""

    def ticket(self) -> dict[str, Any]:
        """drill (its code), title, text, level, question, views, budget, sealed."""

    def state(self) -> dict[str, Any]:
        """time_ns, what is left of the budget, whether it is over, the score then, steps, topology."""

    def complete(self, line: str) -> list[str]:
        """What the last word of a line may become."""

    def close(self) -> None:
        """Ends the drill, and takes its fabric down."""


def ticket(case: Case, fabric: Fabric, sealed: str, code: str, seed: str | None) -> dict[str, Any]:
    """`seed`: None where the player must not know it."""
    from testbed.fabric.inventory import topology_text

    drill, topology = case.drill, case.experiment.fabric.topology
    jobs = "; ".join(", ".join(f"{k} {v}" for k, v in step.items() if k in _JOB) or "tasks" for step in drill.job)
    return {
        "drill": code,
        "seed": seed,
        "title": drill.title,
        "text": drill.ticket,
        "level": drill.level,
        "world": f"{topology_text(topology.kind, topology.params)}, {fabric.ranks} ranks, {jobs}",
        "question": drill.question,
        "asked": " ".join(ASKED[one] for one in drill.question),
        "views": drill.views.model_dump(mode="json"),
        "clock": drill.clock.mode,
        "budget": {"emulated_ns": drill.budget.emulated, "answers": drill.budget.answers, "hints": len(drill.hints)},
        "slo": drill.slo.step,
        "sealed": sealed,
    }


def ticket_text(ticket: dict[str, Any], time_ns: int, dilation: int = 1) -> str:
    """As a prompt prints it, when the clock stands at `time_ns`; `dilation` is the real clock's."""
    seed = f", seed {ticket['seed']}" if ticket["seed"] else ""
    budget = ticket["budget"]
    if ticket["clock"] == "virtual":
        time = f"The clock stands at {clock(time_ns)}, and goes on only by what you type (help)."
    else:
        wall_s = round(budget["emulated_ns"] * dilation / 1e9)
        time = f"The clock is real, {dilation} times slower, and goes on while you think: {wall_s} s are left (help)."
    return "\n".join([
        f"drill {ticket['drill']}{seed}: {ticket['world']}. sealed {ticket['sealed'][:16]}",
        f"TICKET  {ticket['title']}",
        *([f"        {ticket['text']}"] if ticket["text"] else []),
        f"ASKED   {ticket['asked']}",
        f"BUDGET  {clock(budget['emulated_ns'])} of emulated time, {budget['answers']} answers. {time}",
    ])  # fmt: skip
