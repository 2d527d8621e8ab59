"""A game replayed from its log: the same world, the same lines, and so to the byte the same end."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drills.game import Game
from drills.instructor import Instructor
from drills.log import REAL, Log, LogEntry, of_another_version, read
from drills.proof.seal import commitment
from drills.session import Answer
from drills.sheet import file
from drills.sheet.case import Case
from drills.sheet.daily import CHOSEN
from drills.sheet.drill import Drill
from drills.stage import Up, world_of
from testbed.base.errors import InputError, UserError


@dataclass(frozen=True)
class Replayed:
    """`differs` says where the replay first differs from the log ("": nowhere)."""

    log: Log
    differs: str
    score: float | None
    report: dict[str, Any] | None = None


def replay(
    log: Log, name: str, up: Up = world_of, on_line: Callable[[LogEntry, Answer], None] = lambda entry, answer: None
) -> Replayed:
    """`on_line` gets each line that acts, and its answer. Raises UserError for a drill that cannot be played here."""
    head = log.head
    if head.get(REAL):
        raise on_real_clock("replay", name)
    if other := of_another_version(head):  # a difference would look like cheating
        raise InputError(other, name, "play it again with that version")
    drill = file.loads(head["text"], name, Path(name).parent, id=head["drill"])
    truth = head.get("truth", log.end["truth"])  # at the start: an instructor may have added to it
    _may_be_played(drill, name)
    if drill.on_real_clock:  # whatever its head says
        raise on_real_clock("replay", name)
    sealed = commitment(head["salt"], truth, head["text"])
    if sealed != head["sealed"]:
        return Replayed(log, "its truth is not the one that was sealed", None)
    game = Game.start(
        Case.of(drill, head["seed"], head["healthy"]),
        exam=head["exam"],
        player=head.get("player", ""),
        seed_by=head.get("seed_by", CHOSEN),
        up=up,
    )
    try:
        if game.seal.truth != truth:
            return Replayed(log, f"the truth is {game.seal.truth}, not {truth}", None)
        for entry in log.entries:
            if not entry.acts:
                continue
            answer, differs = again(game, entry)
            on_line(entry, answer)
            if differs:
                return Replayed(log, f"line {entry.number} ({entry.line}): {differs}", None)
        if game.ending is None:  # its player went away
            game.command("give-up")
        assert game.ending is not None
        ending = json.loads(json.dumps(game.ending.to_dict()))
        assert game.ending.score is not None
        total = game.ending.score.total
        if ending != {key: value for key, value in log.end.items() if key != "report"}:
            return Replayed(log, f"the end is another: score {total:.1f}, not {log.end['score']['total']:.1f}", total)
        return Replayed(log, "", total, game.report())
    finally:
        game.close()


def on_real_clock(where: str, name: str) -> InputError:
    """That a game cannot be played again, so that what its log claims cannot be proved."""
    what = f"{name} is on the real clock: it never goes the same way twice, so it cannot be played again"
    return InputError(what, where, "its log says how it went: testbed drill report LOG")


def again(game: Game, entry: LogEntry) -> tuple[Answer, str]:
    """Carries out a line that acts; returns how it differs from the log ("": not at all)."""
    game.ends_ns = entry.time_ns + entry.took_ns
    try:
        answer = Instructor(game).command(entry.line) if entry.by else game.command(entry.line)
    finally:
        game.ends_ns = None
    return answer, _differs(entry, answer, game)


def _may_be_played(drill: Drill, name: str) -> None:
    """A log may be a stranger's: a drill of the catalogue must be as it is here, and none may run programs. Raises
    InputError."""
    if drill.id in file.catalogue():
        if file.load(drill.id).text != drill.text:
            raise InputError(f"its drill is not {drill.id} as it is here", name, "play the drill of this version")
    elif drill.control.get("apps"):
        raise InputError("its drill starts programs of its own (control.apps)", name, "a log of a drill without them")


def _differs(entry: LogEntry, answer: Answer, game: Game) -> str:
    if answer.ok != entry.ok:
        return "it was refused, and is not" if answer.ok else str((answer.error or {}).get("what"))
    now = next((e for e in reversed(game.entries) if e.acts), None)
    if now is None:
        return "it changes nothing"
    if now.time_ns != entry.time_ns or now.took_ns != entry.took_ns:
        return f"at {now.time_ns} for {now.took_ns} ns, not at {entry.time_ns} for {entry.took_ns}"
    # a digest that could not be computed is empty
    return "" if now.digest == entry.digest or not entry.digest else "the world after it is another"


def replayed(path: Path, up: Up = world_of) -> Replayed:
    """Raises UserError."""
    log = read(path)
    try:
        return replay(log, str(path), up)
    except UserError as error:
        return Replayed(log, f"{error.what} ({error.where})", None)
