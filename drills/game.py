"""A game: one player on a stage. It reads his lines, keeps the log, and ends when the budget is used up.

Everything is a function of the case and of the lines that act: looking costs no time and changes nothing.
"""

from __future__ import annotations

import traceback
from importlib.metadata import version
from typing import Any, Self

from drills import registry
from drills.log import REAL, RULES, Log, LogEntry
from drills.playing import Line, Play, completions, last_word
from drills.session import Answer
from drills.sheet.answer import offered
from drills.sheet.case import Case
from drills.stage import Stage, Up, world_of
from hardware.client import FabricdError
from testbed.base.errors import InputError, UserError
from testbed.world.base import WorldGone

OVER = "the drill is over"


class Game(Play):
    """A `Session` in this process."""

    lines = registry.lines()
    _digest = ""
    """Of the world after the last line that acts, if it is known."""
    _closed = False

    @classmethod
    def start(cls, case: Case, *, up: Up = world_of, **settings: Any) -> Self:
        """Brings the world up, to the moment when the player gets it; `settings` are those of `Play`. Raises UserError;
        nothing is left then."""
        return cls(Stage.up(case, up), up=up, **settings)

    def command(self, line: str, page: bool = False) -> Answer:
        """`page`: nobody has typed it, a page has asked to draw its picture."""
        began, known = self.time_ns, None
        try:
            if not self.over and self.budget_left_ns <= 0:  # on the real clock it goes while nothing is typed
                return Answer(True, began, *self.end(None))
            known, rest = self.line_of(line)
            if self.over and not known.after:
                raise InputError(OVER, known.words, "report says how it went")
            if self.paused and known.acts and not self.over:
                raise InputError("the instructor has paused the drill", known.words, "looking goes")
            values = known.entry.read(rest, self.fabric)
            self._stopped, self._notes = False, ()
            if known.touches and not self._digest:
                self._digest = self.stage.world.digest()
            text, data = known.run(self, values, rest)
            if self._stopped and not known.touches:  # in a replay it ends at the same time
                line = f"advance {self.time_ns - began}ns"
            self.note(line, began, acts=known.acts, by="page" if page and not known.acts else "")
            return Answer(True, self.time_ns, self._with_end(text), data)
        except (WorldGone, FabricdError) as error:
            self.gone = True
            died = UserError(f"the world has died: {error}", "drill", "this game counts for nothing: start it again")
            return Answer(False, began, error_text(died), None, died.to_dict())
        except UserError as error:
            return self._failed(line, began, known, error)
        except Exception as error:  # a mistake of ours is no end of a game, least of all a free one
            traceback.print_exc()
            what = f"this line cannot be carried out: {type(error).__name__}"
            return self._failed(line, began, known, UserError(what, "drill", "the game goes on; it is in drilld's log"))

    def _with_end(self, text: str) -> str:
        """Ends the game if the budget is used up."""
        return text if self.over or self.budget_left_ns > 0 else f"{text}\n{self.end(None)[0]}".strip()

    def _failed(self, line: str, began_ns: int, known: Line | None, error: UserError) -> Answer:
        """A line that has failed acts if it has changed the world before; it may have used the budget up."""
        text = error_text(error)
        try:
            self.note(line, began_ns, ok=False, acts=known is not None and self._changed(began_ns, known))
            text = self._with_end(text)
        except (WorldGone, FabricdError):
            self.gone = True
        return Answer(False, self.time_ns, text, None, error.to_dict())

    def _changed(self, began_ns: int, known: Line) -> bool:
        """Whether a line that has failed has changed the world."""
        if self.over or not known.acts:
            return False
        if self.time_ns != began_ns:
            return True
        return known.touches and bool(self._digest) and self._digest_now() != self._digest

    def complete(self, line: str) -> list[str]:
        words, begun = last_word(line)
        if words[:1] == ["submit"]:
            return offered(begun, self.fabric)
        entries = [one.entry for one in self.lines.values()]
        return completions(entries, words[1:] if words[:1] == ["help"] else words, begun, self.fabric)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.stage.close()

    def note(self, line: str, began_ns: int, *, ok: bool = True, acts: bool = False, by: str = "") -> None:
        """Each who acts has numbers of his own: a gap would tell a player that there is another."""
        if self.over and not acts:
            return
        number = 1 + sum(entry.by == by for entry in self.entries)
        digest = self._digest_now() if acts and not self.over else ""
        if acts:
            self._digest = digest
        took = self.time_ns - began_ns if not self.over else 0
        self.entries.append(LogEntry(number, line.strip(), began_ns, took, ok, acts, digest, by, self._notes))

    def _digest_now(self) -> str:
        """Of the world; empty if it cannot be had: what was done is done."""
        try:
            return self.stage.world.digest()
        except (WorldGone, FabricdError):
            raise
        except UserError:
            traceback.print_exc()
            return ""

    def log(self) -> Log:
        """When it is over."""
        assert self.ending is not None
        case = self.case
        head = {
            "version": version("railbed"), "rules": RULES, "began": self.began, "code": self.code,
            "drill": case.drill.id, "text": case.drill.text,
            "seed": case.seed, "seed_by": self.seed_by, "healthy": case.healthy, "exam": self.exam,
            **({REAL: True} if case.drill.on_real_clock else {}),
            "player": self.player, "instructed": self.instructed, "sealed": self.seal.commitment,
            "truth": self.seal.truth, "salt": self.seal.salt,
        }  # fmt: skip
        return Log(head, tuple(self.entries), {**self.ending.to_dict(), "report": self.report()})


def error_text(error: UserError) -> str:
    """An error as a prompt prints it."""
    problems = [error.to_dict(), *(p.to_dict() for p in error.also)]
    return "\n".join(
        f"{p['where']}: {p['what']}" + (f"\n  {p['hint']}" if p["hint"] else "") if p["where"] else p["what"]
        for p in problems
    )
