"""The instructor of a game: he sees the truth and the transcript, pauses, says something, puts faults in.

What he does that changes the game is in its log under his name, so a replay has it. A fault that he puts in is part of
the truth from then on, in the game as in its twins. The player learns nothing of it but what is said.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from drills.game import OVER, Game, error_text
from drills.log import INSTRUCTOR
from drills.own import status
from drills.playing import Output, completions, last_word, parameter
from drills.session import Answer, clock
from drills.sheet.case import OF_PROCESSES
from drills.sheet.truth import as_answer
from hardware.client import FabricdError
from testbed.base.errors import InputError, UserError
from testbed.faults import CannotInject, Injection, Mistakes
from testbed.words.entry import Entry, find

MOST_TEXT = 8000
MOST_KEPT = 2000
_FORM = "CLASS@PLACE, then KEY=VALUE, such as loss@cable:leaf0-spine0 rate=0.02 for=100us every=1ms"


@dataclass
class Transcript:
    """What was typed and answered. A view that is repeated at the same emulated time is there once."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    _seen: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    _first: int = 0  # the number of the oldest that is kept

    def add(self, line: str, began_ns: int, answer: Answer, by: str = "") -> None:
        if answer.time_ns != began_ns:
            self._seen.clear()
        if (began_ns, line) in self._seen:
            return
        row = {
            "time_ns": began_ns, "took_ns": answer.time_ns - began_ns, "line": line, "ok": answer.ok, "by": by,
            "text": answer.text[:MOST_TEXT],
        }  # fmt: skip
        self.rows.append(row)
        if line.startswith("show "):
            self._seen[began_ns, line] = row
        if len(self.rows) > MOST_KEPT:
            del self.rows[0]
            self._first += 1

    def since(self, number: int) -> tuple[int, list[dict[str, Any]]]:
        """The number of the next, and the rows from `number` on."""
        return self._first + len(self.rows), self.rows[max(0, number - self._first) :]


class Instructor:
    """His end of a game."""

    def __init__(self, game: Game, transcript: Transcript | None = None) -> None:
        self.game = game
        self.transcript = transcript or Transcript()

    def command(self, line: str) -> Answer:
        """Carries out one line, as a session does. Raises nothing."""
        began = self.game.time_ns
        try:
            words = line.split()
            entry, rest = find([order.entry for order in ORDERS], words or ["help"], "instruct")
            order = next(order for order in ORDERS if order.entry is entry)
            values = entry.read(rest, self.game.fabric)
            if order.acts and self.game.over:
                raise InputError(OVER, entry.words)
            text, data = order.run(self, values)
            answer = Answer(True, self.game.time_ns, text, data)
            if order.acts:
                self.game.note(line, began, acts=True, by=INSTRUCTOR)
                self.transcript.add(line, began, answer, INSTRUCTOR)
            return answer
        except (UserError, FabricdError) as error:
            known = error if isinstance(error, UserError) else UserError(str(error), "instruct")
            return Answer(False, began, error_text(known), None, known.to_dict())

    def complete(self, line: str) -> list[str]:
        words, begun = last_word(line)
        if words[:1] == ["inject"]:
            return self.game.complete(f"submit {begun}")
        return completions([order.entry for order in ORDERS], words, begun, self.game.fabric)

    def watch(self, since: int) -> dict[str, Any]:
        """All that changes: the truth, the state, the transcript from that number on."""
        number, rows = self.transcript.since(since)
        return {
            "truth": self.truth(),
            "state": {key: value for key, value in self.game.state().items() if key != "topology"},
            "next": number,
            "transcript": rows,
            "did": [
                {"time_ns": e.time_ns, "line": e.line, "by": e.by}
                for e in self.game.entries
                if e.acts and (e.by or self.game.touches(e))
            ],
        }

    def truth(self) -> dict[str, Any]:
        stage = self.game.stage
        drill = stage.case.drill
        return {
            "drill": drill.id,
            "seed": stage.case.seed,
            "title": drill.title,
            "truth": as_answer(stage.drawn.truth),
            "faults": stage.written(),
            "benign": [injection.written() for injection in stage.drawn.benign],
            "later": [{"time_ns": at, "what": injection.fault.name} for at, injection in stage.later],
            "evidence": [] if stage.case.healthy else list(drill.evidence or drill.hints),
            "next_hint": next(iter(drill.hints[self.game.own_hints :]), None),
        }

    # -- what his lines do

    def say(self, text: str, *, hint: bool = False) -> Output:
        game = self.game
        cost = f"  (hints have cost {game.pay_hint():g} points)" if hint else ""
        game.messages.append({"time_ns": game.time_ns, "text": text + cost, "hint": hint})
        return f"said: {text}{cost}", game.messages[-1]

    def hint(self, text: str | None) -> Output:
        hints = self.game.case.drill.hints
        if text is None and self.game.own_hints >= len(hints):
            raise InputError("the drill has no further hint", "hint", "hint TEXT gives one of your own")
        return self.say(self.game.next_hint() if text is None else text, hint=True)

    def inject(self, text: str) -> Output:
        injection = _injection(text)
        workers = self.game.case.experiment.workers
        if injection.fault.name in OF_PROCESSES and workers.ranks_per_process != 1:
            raise InputError(
                f"{injection.fault.name} strikes a process, and ranks of this drill may share one", "inject",
                "it goes in drills whose own faults are of processes",
            )  # fmt: skip
        try:
            cause = self.game.stage.put_in(injection)
        except CannotInject as error:
            where = f"inject: {error.key}" if error.key else "inject"
            raise InputError(error.what, where, error.hint) from None
        truth = as_answer(self.game.stage.drawn.truth)
        return f"{cause} is in from {clock(self.game.time_ns)}; the truth is now: {truth}", injection.written()


def _injection(text: str) -> Injection:
    """Raises InputError."""
    first, *words = text.split()
    kind, at, place = first.partition("@")
    entry: dict[str, Any] = {"fault": kind, "on": place}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"{word!r} is no parameter", "inject", _FORM)
        entry[key] = _value(value)
    if not at:
        raise InputError(f"where does {kind} strike?", "inject", _FORM)
    try:
        return Injection.of(entry)
    except Mistakes as mistakes:
        path, what, hint = mistakes.found[0]
        raise InputError(what, ".".join(["inject", *map(str, path)]), hint) from None


def _value(text: str) -> Any:
    """Numbers, true and lists as such; all else is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class Order:
    """A line of the instructor's."""

    entry: Entry
    run: Callable[[Instructor, Mapping[str, Any]], Output]
    acts: bool = False
    """It changes the game, and so stands in the log."""


def _truth(instructor: Instructor, _: Mapping[str, Any]) -> Output:
    truth = instructor.truth()
    rows = [f"{truth['drill']}, seed {truth['seed']}: {truth['truth']}"]
    for name in ("faults", "benign"):
        for fault in truth[name]:
            more = ", ".join(f"{k} {v}" for k, v in fault.items() if k not in ("fault", "on") and v is not None)
            rows.append(f"  {name:7} {fault['fault']} on {fault['on']} ({more})")
    rows += [f"  {k}. {line}" for k, line in enumerate(truth["evidence"], 1)]
    return "\n".join(rows), truth


def _transcript(instructor: Instructor, _: Mapping[str, Any]) -> Output:
    rows = instructor.transcript.since(0)[1]
    return "\n".join(map(row_text, rows)) or "nothing was typed yet", {"transcript": rows}


def row_text(row: Mapping[str, Any]) -> str:
    """A row of a transcript, for a terminal."""
    who = f"{row['by']} " if row["by"] else ""
    return f"{who}{clock(row['time_ns'])}> {row['line']}\n{row['text']}".rstrip()


def _pause(instructor: Instructor, _: Mapping[str, Any]) -> Output:
    if instructor.game.case.drill.on_real_clock:
        raise InputError("the real clock goes on, and would take the player's budget", "pause", "hint and say go")
    instructor.game.paused = True
    return "paused: the player can look, and nothing else", None


def _resume(instructor: Instructor, _: Mapping[str, Any]) -> Output:
    instructor.game.paused = False
    return "the player may go on", None


def _help(_: Instructor, __: Mapping[str, Any]) -> Output:
    rows = [f"  {order.entry.usage:24} {order.entry.about}" for order in ORDERS]
    rows.append(f"  {'fork':24} The same world once more, up to now, on a fabric of its own.")
    rows.append(f"  {'watch':24} The transcript as it comes, until Enter.")
    return "\n".join(rows), {"commands": [order.entry.usage for order in ORDERS]}


_HINT = parameter("text", "TEXT", "what is said", rest=True)
_TEXT = parameter("text", "TEXT", "what is said", required=True, rest=True)
_FAULT = parameter("fault", "FAULT", _FORM, required=True, rest=True)
ORDERS: tuple[Order, ...] = (
    Order(Entry(words="truth", about="What is wrong, where, and the shortest way to it."), _truth),
    Order(Entry(words="transcript", about="What was typed so far, and what was answered."), _transcript),
    Order(Entry(words="status", about="Time, what is left of the budget, the last steps."),
          lambda instructor, _: status(instructor.game, {}, ())),
    Order(Entry(words="pause", about="The player can only look until you resume."), _pause),
    Order(Entry(words="resume", about="The player may go on."), _resume),
    Order(Entry(words="hint", about="Give the next hint, or one of your own; it costs points.", parameters=(_HINT,)),
          lambda instructor, values: instructor.hint(values["text"]), acts=True),
    Order(Entry(words="say", about="Say something; it costs nothing.", parameters=(_TEXT,)),
          lambda instructor, values: instructor.say(values["text"]), acts=True),
    Order(Entry(words="inject", about="Put one more fault in, now; it belongs to the truth.", parameters=(_FAULT,)),
          lambda instructor, values: instructor.inject(values["fault"]), acts=True),
    Order(Entry(words="help", about="What there is."), _help),
)  # fmt: skip
