"""The drill's own lines: time, hints, answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from drills.playing import Line, Output, Play, parameter, table_text
from drills.report import as_text
from drills.session import clock
from drills.sheet.answer import FORM
from testbed.base.errors import InputError
from testbed.live.views.job import under_way
from testbed.operate.steps.action import Action
from testbed.words import kinds
from testbed.words.entry import Entry, Parameter, find
from testbed.words.kinds import Wrong

AMOUNTS = "200us, or 10 steps"
DEFAULT_UNTIL_NS = 1e6
MOST_STEPS = 100_000
HELP_WIDE, HELP_AT = 80, 30
"""Characters of a line of help, and where what it says begins."""


def advance(game: Play, values: Mapping[str, Any], _: Sequence[str]) -> Output:
    words = str(values["amount"]).split()
    if len(words) == 2 and words[1] in ("step", "steps"):
        return game.advance_steps(_step_count(words[0]))
    try:
        ns = kinds.TIME.read(" ".join(words), game.fabric)
    except Wrong as wrong:
        raise InputError(wrong.what, "advance", f"such as advance {AMOUNTS}") from None
    return game.advance(ns)


def _step_count(word: str) -> int:
    if not word.isascii() or not word.isdecimal() or not 1 <= int(word[:9]) <= MOST_STEPS:
        raise InputError(f"{word[:20]!r} is no number of steps", "advance", f"1 to {MOST_STEPS}")
    return int(word)


def status(game: Play, _: Mapping[str, Any], __: Sequence[str]) -> Output:
    state = {key: value for key, value in game.state().items() if key != "topology"}
    left = f"{clock(state['budget_left_ns'])} and {_count(state['answers_left'], 'answer')} left"
    text = f"drill {game.code}: emulated time {clock(state['time_ns'])}, {left}, " + (
        "over" if state["over"] else f"{_count(state['hints_left'], 'hint')} to be had"
    )
    recent = [f"{step['step_ns'] / 1000:.1f}" for step in state["steps"][-10:]]
    text += f"\nlast steps {' '.join(recent)} us, at first {game.stage.healthy_step_ns / 1000:.1f}" if recent else ""
    if stands := "" if state["over"] else under_way(game.stage.world.steps, state["time_ns"]):
        text += f"\n{stands}"
    text += "".join(f"\nINSTRUCTOR  {one['text']}" for one in state["messages"])
    text += "\nthe instructor has paused the drill" if state["paused"] else ""
    return text, state


def topology(game: Play, _: Mapping[str, Any], __: Sequence[str]) -> Output:
    """As it was planned: what is really plugged in where, `show lldp neighbors` says."""
    fabric = game.fabric
    ranks = {nic.name: f"{nic.name} (rank {nic.rank})" for nic in fabric.nics}
    text = [f"{fabric.kind}: {fabric.ranks} ranks, {_count(len(fabric.switches), 'switch', 'es')}, "
            f"{len(fabric.cables)} cables, as planned (as it is: show lldp neighbors)", "", "hosts",
            *(f"  {host.name:8} {'  '.join(ranks[nic] for nic in host.nics)}" for host in fabric.hosts),
            "", "switches, and what is in their ports"]  # fmt: skip
    for switch in fabric.switches:
        cables = [(n, fabric.cable_at.get((switch.name, n))) for n in range(1, switch.ports + 1)]
        ends = [(n, cable.other(switch.name)) for n, cable in cables if cable]
        ports = [f"{n} {ranks.get(end.node, f'{end.node}:{end.port}')}" for n, end in ends]
        text.append(f"  {switch.name:8} {switch.role:6}  {'  '.join(ports)}")
    return "\n".join(text), fabric.to_dict()


def classes(game: Play, _: Mapping[str, Any], __: Sequence[str]) -> Output:
    from testbed.faults import GROUPS

    rows = [
        {"class": cls.name, "where": " ".join(cls.on), "what it is": cls.summary.replace("`", "")}
        for faults in GROUPS.values()
        for cls in faults
    ]
    return table_text("classes", rows), {"classes": rows}


def actions(game: Play, _: Mapping[str, Any], __: Sequence[str]) -> Output:
    rows = [
        {"n": e.number, "time": clock(e.time_ns), "took": clock(e.took_ns), "line": e.line, "ok": e.ok}
        for e in game.entries
        if (e.acts or not e.ok) and not e.by
    ]
    return table_text("actions", rows), {"actions": rows}


def report(game: Play, _: Mapping[str, Any], __: Sequence[str]) -> Output:
    data = game.report()
    return as_text(data), data


def help_(game: Play, values: Mapping[str, Any], _: Sequence[str]) -> Output:
    words = str(values["command"] or "").split()
    if words:
        return _help_of(game, words)
    further: dict[str, list[str]] = {}  # by the first word
    for line in game.lines.values():
        first, _, rest = line.words.partition(" ")
        further.setdefault(first, []).append(rest)
    rows = []
    for first, rests in further.items():
        known = game.lines.get(first)
        usage, about = (known.entry.usage, known.entry.about) if known else (first, ", ".join(sorted(rests)))
        rows += _help_lines(usage, about)
    text = "\n".join(["help COMMAND says more of each.", *rows])
    return text, {"commands": [line.entry.usage for line in game.lines.values()]}


def _help_lines(usage: str, about: str) -> list[str]:
    """What it does stands beside its usage, or below a long one; no line is wider than a terminal."""
    lines = wrap(about, HELP_WIDE - HELP_AT, break_long_words=False, break_on_hyphens=False)
    head = f"  {usage}"
    beside = lines.pop(0) if lines and len(head) < HELP_AT else ""
    return [f"{head:{HELP_AT}}{beside}".rstrip(), *(" " * HELP_AT + line for line in lines)]


def _help_of(game: Play, words: list[str]) -> Output:
    entries = [line.entry for line in game.lines.values()]
    under = [entry for entry in entries if entry.words.split()[: len(words)] == words]
    if len(under) > 1:
        text = "\n".join(line for entry in under for line in _help_lines(entry.usage, entry.about))
        return text, {"commands": [entry.usage for entry in under]}
    entry = under[0] if under else find(entries, words, "help")[0]
    about = [line for p in entry.parameters for line in _help_lines(p.usage, p.help)]
    if isinstance(entry, Action):
        about += [line for what, text in entry.consequences.items() for line in _help_lines(what, text)]
    return "\n".join([entry.usage, f"  {entry.about}", *about]), {"usage": entry.usage, "about": entry.about}


_AMOUNT = parameter("amount", "TIME | N steps", AMOUNTS, required=True, rest=True)
_CONDITION = parameter("condition", "CONDITION", "such as 'step > 1.2x'", required=True, rest=True)
_FOR = Parameter("for", kinds.TIME, "at most so long (1ms)", True)
_ANSWER = parameter("answer", "ANSWER", FORM, required=True, rest=True)
_COMMAND = parameter("command", "COMMAND", "one of them", rest=True)

LINES = (
    Line(Entry(words="ticket", about="What somebody complains of, and what is asked."),
         lambda game, _, __: (game.ticket_text(), game.ticket()), False, after=True),
    Line(Entry(words="status", about="Time, what is left of the budget, the last steps."), status, False, after=True),
    Line(Entry(words="topology", about="Hosts, ranks, switches, and what is plugged in where."), topology, False,
         after=True),
    Line(Entry(words="advance", about="Let emulated time pass.", parameters=(_AMOUNT,)), advance, True),
    Line(Entry(words="until", about="Let time pass until a condition holds.", parameters=(_CONDITION, _FOR)),
         lambda game, values, _: game.until(str(values["condition"]), values["for"] or DEFAULT_UNTIL_NS), True),
    Line(Entry(words="classes", about="All classes of faults that an answer may name."), classes, False, after=True),
    Line(Entry(words="actions", about="What you have done so far."), actions, False, after=True),
    Line(Entry(words="hint", about="The next hint; it costs."), lambda game, _, __: game.hint(), True),
    Line(Entry(words="submit", about="Give an answer.", parameters=(_ANSWER,)),
         lambda game, values, _: game.submit(str(values["answer"])), True),
    Line(Entry(words="give-up", about="End the drill without an answer, and see the truth."),
         lambda game, _, __: game.end(None), True),
    Line(Entry(words="report", about="When it is over: the truth, and what you did."), report, False, after=True),
    Line(Entry(words="help", about="What there is.", parameters=(_COMMAND,)), help_, False, after=True),
)  # fmt: skip


def _count(n: int, what: str, more: str = "s") -> str:
    return f"{n} {what}{'' if n == 1 else more}"
