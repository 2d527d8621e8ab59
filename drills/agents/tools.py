"""The tools of agents, one table: JSON lines and MCP are made from it. A tool makes a line of a session.

What a line may be, and what its words mean, is the session's business: views, probes and actions come from their
registries, and are refused there.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from drills.sheet.answer import FORM
from testbed.base.errors import InputError
from testbed.base.types import unknown
from testbed.faults import CATALOGUE
from testbed.live.tools import TOOLS as MEASURING
from testbed.live.views import VIEWS
from testbed.operate.registry import ACTIONS

LONGEST = 2000
"""Characters of a text that is given."""
MOST = 10**12
Given = Mapping[str, Any]
_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "number": (int, float)}


@dataclass(frozen=True)
class Argument:
    name: str
    type: str  # JSON Schema's: string, integer, number
    about: str
    required: bool = False
    one_of: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        bounds: dict[str, Any] = {"maxLength": LONGEST} if self.type == "string" else {"minimum": 0, "maximum": MOST}
        return {
            "type": self.type, "description": self.about, **bounds,
            **({"enum": list(self.one_of)} if self.one_of else {}),
        }  # fmt: skip

    def check(self, value: Any, tool: str) -> None:
        """Raises InputError."""
        where = f"{tool}: {self.name}"
        if isinstance(value, bool) or not isinstance(value, _TYPES[self.type]):
            raise InputError(f"this is no {self.type}", where, self.about)
        if isinstance(value, str):
            if len(value) > LONGEST:
                raise InputError(f"{len(value)} characters", where, f"{LONGEST} at most")
            if self.one_of and value not in self.one_of:
                what, hint = unknown(self.name, value[:80], list(self.one_of))
                raise InputError(what, where, hint)
        elif isinstance(value, int | float) and not 0 <= value <= MOST:  # also what is no number
            raise InputError("out of bounds", where, f"0 to {MOST}")


@dataclass(frozen=True)
class Tool:
    name: str
    about: str
    line: Callable[[Given], str]
    """The session's line. Raises InputError."""
    arguments: tuple[Argument, ...] = ()

    @property
    def every(self) -> tuple[Argument, ...]:
        return (*self.arguments, *ALWAYS)

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {argument.name: argument.schema() for argument in self.every},
            "required": [argument.name for argument in self.arguments if argument.required],
            "additionalProperties": False,
        }

    def check(self, given: Given) -> None:
        """Raises InputError."""
        known = {argument.name: argument for argument in self.every}
        for name, value in given.items():
            if name not in known:
                what, hint = unknown("argument", name[:80], list(known))
                raise InputError(what, self.name, hint)
            known[name].check(value, self.name)
        for argument in self.arguments:
            if argument.required and argument.name not in given:
                raise InputError(f"{argument.name} is missing", self.name, argument.about)


def _show(given: Given) -> str:
    line = f"show {given['view']} {given.get('options', '')}".strip()
    since = given.get("changed_since")
    return f"{line} --changed {shlex.quote(since)}" if since else line


def _advance(given: Given) -> str:
    said = [name for name in ("us", "steps", "until") if name in given]
    if said not in (["us"], ["steps"], ["until"], ["us", "until"]):
        raise InputError("say how far", "advance", "us, or steps, or until (with us: at most so long)")
    if "until" in given:
        limit = f" --for {_us(given['us'])}" if "us" in given else ""
        return f"until {shlex.quote(given['until'])}{limit}"
    return f"advance {_us(given['us'])}" if "us" in given else f"advance {given['steps']} steps"


def _us(value: float) -> str:
    return f"{value:f}".rstrip("0").rstrip(".") + "us" if isinstance(value, float) else f"{value}us"


def _probe(given: Given) -> str:
    ends = [str(given[name]) for name in ("a", "b") if name in given]
    return " ".join(["probe", given["kind"], *ends])


def _capture(given: Given) -> str:
    line = f"capture {shlex.quote(given['place'])}"
    if "us" in given:
        line += f" --for {_us(given['us'])}"
    return line + (f" --filter {shlex.quote(given['filter'])}" if given.get("filter") else "")


_KINDS = tuple(words.partition(" ")[2] for words in MEASURING if words.startswith("probe "))

TOOLS: tuple[Tool, ...] = (
    Tool("ticket", "What somebody complains of, what is asked, and the budget. Takes no time.", lambda _: "ticket"),
    Tool("topology", "The fabric as planned: hosts, ranks, switches, cables. Takes no time.", lambda _: "topology"),
    Tool("job", "The training job's steps: how long, who was last, wrong elements. Takes no time.",
         lambda _: "show job"),
    Tool("show", "A view of the fabric as operators know it. Takes no time.", _show, (
        Argument("view", "string", "which view", True, tuple(VIEWS)),
        Argument("changed_since", "string", "only what has changed since: 300us is so long ago, @300us that moment"),
        Argument("options", "string", "further words of the view, such as a switch or --level warning"),
    )),
    Tool("ethtool", "A NIC's counters by mlx5's names. Takes no time.", lambda g: f"show ethtool {g['rank']}", (
        Argument("rank", "integer", "the NIC's rank", True),
    )),
    Tool("logs", "What switches, NICs and the controller have logged. Takes no time.",
         lambda g: f"show logging --who {shlex.quote(g['who'])}" if g.get("who") else "show logging",
         (Argument("who", "string", "only this one: a switch, nicRANK, rankRANK, controller"),)),
    Tool("flows", "The OpenFlow rules of a switch, with what each has counted. Takes no time.",
         lambda g: f"show flows {shlex.quote(g['switch'])}", (Argument("switch", "string", "its name", True),)),
    Tool("probe", "Measure small RDMA writes (lat), a large one (bw), or all pairs (mesh); on the real clock run ping "
         "or iperf3. Takes emulated time.",
         _probe, (Argument("kind", "string", "what to measure", True, _KINDS),
                  Argument("a", "integer", "rank that sends (not of mesh)"),
                  Argument("b", "integer", "rank that receives (not of mesh)"))),
    Tool("capture", "Capture what goes by at a port or NIC. Takes emulated time.", _capture, (
        Argument("place", "string", "a port (leaf0:1) or a NIC (nic:3)", True),
        Argument("us", "number", "for so many us of emulated time"),
        Argument("filter", "string", "only frames that pass it (help capture)"),
    )),
    Tool("advance", "Let emulated time pass: the world stands still otherwise.", _advance, (
        Argument("us", "number", "so many us; with until: at most"),
        Argument("steps", "integer", "until so many steps of the job have ended"),
        Argument("until", "string", "a condition, such as: step > 1.2x"),
    )),
    Tool("config", "Act as an operator; takes effect now, then its time passes. 'rollback N' takes one back. Actions: "
         + "; ".join(action.usage for action in ACTIONS.values()), lambda g: f"config {g['command']}",
         (Argument("command", "string", "such as: interface shutdown leaf0:4", True),)),
    Tool("classes", "All classes of faults that an answer may name: where each can be, and what it is. Takes no time.",
         lambda _: "classes"),
    Tool("hint", "The next hint. It costs points.", lambda _: "hint"),
    Tool("submit", f"Answer: {FORM}. Places: cable:A-B, switch:NAME, port:SWITCH:N, nic:RANK, all, controller. "
         f"Classes: {', '.join(CATALOGUE)}.", lambda g: f"submit {g['answer']}",
         (Argument("answer", "string", "healthy, or CLASS@PLACE ..", True),)),
    Tool("give_up", "End the drill without an answer.", lambda _: "give-up"),
)  # fmt: skip

ALWAYS = (
    Argument("cursor", "string", "the `next` of an answer: brings the rest of it, and does nothing else"),
    Argument("form", "string", "text as a person reads it, or the same as JSON in `text`", one_of=("text", "json")),
)

BY_NAME: dict[str, Tool] = {tool.name: tool for tool in TOOLS}
