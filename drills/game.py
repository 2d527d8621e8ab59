"""A game: one player on a stage. It carries out lines, keeps the log, and knows what an answer is worth.

Everything is a function of the case and of the lines that act: looking costs no time and changes nothing.
"""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cached_property, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self, cast

from drills import registry, session
from drills.ending import Ending, ending_of
from drills.lines import Brought, Line
from drills.log import REAL, RULES, Entry, Log
from drills.looking import Counted, Seen, look
from drills.measured import ending_of_real
from drills.proof.seal import Seal
from drills.session import Answer, clock
from drills.sheet import truth as truths
from drills.sheet.answer import Submission, must_fit, offered, parse
from drills.sheet.case import Case
from drills.sheet.daily import CHOSEN, tells_seed
from drills.sheet.families import of as computed
from drills.sheet.score import HINTS, Families, right
from drills.stage import Stage, Up, world_of
from hardware.client import FabricdError
from testbed.base.errors import InputError, UserError
from testbed.base.text import printable
from testbed.live.views.job import gone, under_way
from testbed.operate.carry_out import config
from testbed.operate.record import log as done_so_far
from testbed.operate.steps.site import Site
from testbed.tables.results import counters as as_table
from testbed.tables.results import lines as text_of
from testbed.words.entry import find, offers
from testbed.world.base import WorldGone
from testbed.world.condition import parse as parse_condition
from testbed.world.operator import LastingJob, RepeatedJob

if TYPE_CHECKING:
    from testbed.live.look.table import Table
    from testbed.live.tools.tool import Tool
    from testbed.live.views.view import View
    from topologies.graph.fabric import Fabric

OVER = "the drill is over"
SHOWN = 12
"""So many steps are told of when time has passed: the newest."""
PATIENCE = 4
"""Times a healthy step that each step is waited for."""


class Game:
    """A `Session` in this process."""

    def __init__(
        self,
        stage: Stage,
        *,
        exam: bool = False,
        player: str = "",
        seed_by: str = CHOSEN,
        families: Families | None = None,
        prints: bool = True,
        up: Up = world_of,
    ) -> None:
        self.stage = stage
        self.prints = prints
        """Whether views come as text, too: who reads their data alone saves the time that it takes."""
        self.began = datetime.now(UTC).isoformat(timespec="milliseconds")
        """When its player got it, for leaderboards: of two games of one world the first counts."""
        self.seed_by = seed_by
        """Whose choice the seed was (drills/sheet/daily.py)."""
        self.exam = exam
        self.player = printable(player)
        self.families = computed(stage.case.drill.views) if families is None else families
        self.seal = Seal(truths.said(stage.drawn.truth), stage.case.drill.text)
        self.entries: list[Entry] = []
        self.hints = 0  # those of the drill, and an instructor's own
        self.own_hints = 0  # those of the drill
        self.wrong = 0
        self.ending: Ending | None = None
        self.gone = False
        """The world has died: the game counts for nothing."""
        self.paused = False
        """By the instructor: until he lets it go on, nothing that acts is carried out."""
        self.instructed = False
        """Its instructor has looked in: somebody knew the truth."""
        self.messages: list[dict[str, Any]] = []
        """What the instructor has said to the player."""
        self.interrupted: Callable[[], bool] = lambda: False
        self.ends_ns: int | None = None
        """Played again: when the line had ended, for a tool may have been stopped."""
        self._seen = Seen(stage)
        self._up = up
        self._stopped = False
        self._digest = ""
        """Of the world after the last line that acts, if it is known."""
        self._closed = False
        self._notes: tuple[str, ...] = ()
        """What the action that was just carried out has said."""

    @classmethod
    def start(
        cls,
        case: Case,
        *,
        exam: bool = False,
        player: str = "",
        seed_by: str = CHOSEN,
        families: Families | None = None,
        prints: bool = True,
        up: Up = world_of,
    ) -> Self:
        """Brings the world up, to the moment when the player gets it. Raises UserError; nothing is left then."""
        stage = Stage.up(case, up)
        return cls(stage, exam=exam, player=player, seed_by=seed_by, families=families, prints=prints, up=up)

    # -- a session

    @property
    def case(self) -> Case:
        return self.stage.case

    @property
    def fabric(self) -> Fabric:
        return self.stage.world.fabric

    @property
    def time_ns(self) -> int:
        return self.stage.world.time_ns

    @property
    def code(self) -> str:
        return self.case.code if self.tells_seed else self.seal.commitment[:8]

    @property
    def tells_seed(self) -> bool:
        return tells_seed(exam=self.exam, seed_by=self.seed_by)

    @cached_property
    def lines(self) -> dict[str, Line]:
        return registry.lines()

    @property
    def over(self) -> bool:
        return self.ending is not None

    def command(self, line: str, page: bool = False) -> Answer:
        """`page`: nobody has typed it, a page has asked to draw its picture."""
        began, found = self.time_ns, None
        try:
            if not self.over and self.budget_left_ns <= 0:  # on the real clock it goes while nothing is typed
                return Answer(True, began, *self._end(None))
            words = _words(line)
            entry, rest = find([one.entry for one in self.lines.values()], words, "drill")
            found = self.lines[entry.words]
            if self.over and not found.after:
                raise InputError(OVER, entry.words, "report says how it went")
            if self.paused and found.acts and not self.over:
                raise InputError("the instructor has paused the drill", entry.words, "looking goes")
            values = entry.read(rest, self.fabric)
            self._stopped, self._notes = False, ()
            if found.touches and not self._digest:
                self._digest = self.stage.world.digest()
            text, data = found.run(self, values, rest)
            if self._stopped and not found.touches:  # played again it ends at the same time
                line = f"advance {self.time_ns - began}ns"
            self.note(line, began, acts=found.acts, by="page" if page and not found.acts else "")
            if not self.over and self.budget_left_ns <= 0:
                text = f"{text}\n{self._end(None)[0]}".strip()
            return Answer(True, self.time_ns, text, data)
        except (WorldGone, FabricdError) as error:
            self.gone = True
            died = UserError(f"the world has died: {error}", "drill", "this game counts for nothing: start it again")
            return Answer(False, began, said(died), None, died.to_dict())
        except UserError as error:
            return self._failed(line, began, found, error)
        except Exception as error:  # a mistake of ours is no end of a game, least of all a free one
            traceback.print_exc()
            what = f"this line cannot be carried out: {type(error).__name__}"
            return self._failed(line, began, found, UserError(what, "drill", "the game goes on; it is in drilld's log"))

    def _failed(self, line: str, began_ns: int, found: Line | None, error: UserError) -> Answer:
        """A line that has failed may have changed the world before: then it acts, and may have used the budget up."""
        text = said(error)
        try:
            self.note(line, began_ns, ok=False, acts=found is not None and self._changed(began_ns, found))
            if not self.over and self.budget_left_ns <= 0:
                text = f"{text}\n{self._end(None)[0]}"
        except (WorldGone, FabricdError):
            self.gone = True
        return Answer(False, self.time_ns, text, None, error.to_dict())

    def _changed(self, began_ns: int, found: Line) -> bool:
        """Whether the world is another than before a line that has failed."""
        if self.over or not found.acts:
            return False
        if self.time_ns != began_ns:
            return True
        return found.touches and bool(self._digest) and self._digest_now() != self._digest

    def ticket(self) -> dict[str, Any]:
        return session.ticket(
            self.case, self.fabric, self.seal.commitment, self.code, self.case.seed if self.tells_seed else None
        )

    def ticket_text(self) -> str:
        lab = getattr(self.stage.world, "lab", None)
        dilation = lab.dilation if lab is not None and self.case.drill.on_real_clock else 1
        return session.ticket_text(self.ticket(), self.time_ns, dilation)

    def state(self) -> dict[str, Any]:
        steps = self.stage.world.steps
        ended = self.ending
        return {
            "drill": self.code,
            "time_ns": self.time_ns,
            "began_ns": self.stage.began_ns,
            "healthy_step_ns": self.stage.healthy_step_ns,
            "budget_left_ns": max(0, self.budget_left_ns),
            "answers_left": 0 if ended else self.case.drill.budget.answers - self.wrong,
            "hints_taken": self.hints,
            "hints_left": len(self.case.drill.hints) - self.own_hints,
            "over": self.over,
            "paused": self.paused,
            "messages": list(self.messages),
            "score": ended.score.to_dict() if ended and ended.score else None,
            "environment_invalid": bool(ended and not ended.score),
            "steps": [{"number": s.number, "start_ns": s.start_ns, "step_ns": s.end_ns - s.start_ns} for s in steps],
            "topology": self.fabric.to_dict(),
        }

    def complete(self, line: str) -> list[str]:
        words = line.split()
        begun = "" if not line or line[-1].isspace() else words.pop()
        if words[:1] == ["submit"]:
            return offered(begun, self.fabric)
        if words[:1] == ["help"]:
            words = words[1:]
        known = [word for word, _ in offers([one.entry for one in self.lines.values()], words, self.fabric)]
        return sorted({word for word in known if word.startswith(begun)})

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.stage.close()

    @property
    def played_again(self) -> bool:
        """From a log: what was taken when it was written is taken again."""
        return self.ends_ns is not None

    # -- what lines do

    @property
    def end_ns(self) -> int:
        """When the budget is gone."""
        return self.stage.began_ns + round(self.case.drill.budget.emulated)

    @property
    def budget_left_ns(self) -> int:
        return self.end_ns - self.time_ns

    def show(self, view: View, values: Mapping[str, Any]) -> Brought:
        return self._printed(view.show(look(self._seen, self.case.drill.views), **values))

    def use(self, tool: Tool, values: Mapping[str, Any]) -> Brought:
        """A tool takes the emulated time that it takes, until the budget is gone or the player wants it to stop."""
        world: Any = self.stage.world

        def stop() -> bool:
            ended = self.ends_ns is not None and self.time_ns >= self.ends_ns
            return self.budget_left_ns <= 0 or ended or self.interrupted()

        return self._printed(tool.run(world, stop, **values))

    def _printed(self, tables: Sequence[Table]) -> Brought:
        texts = []
        for table in tables if self.prints else ():
            body = text_of(as_table(table.name, table.rows, whole=True)) if table.rows else [f"{table.name}: nothing"]
            texts.append("\n".join([*([table.title] if table.title else []), *body]))
        return "\n\n".join(texts), {table.name: table.rows for table in tables}

    def advance(self, ns: float) -> Brought:
        before = len(self.stage.world.steps)
        if ns > self.budget_left_ns and not self.played_again and not self.case.drill.on_real_clock:
            raise InputError(
                f"{clock(self.budget_left_ns)} are left",
                "advance",
                "the drill ends when they are used up",
            )
        self._until(lambda w: False, ns)
        return self._passed(before)

    def advance_steps(self, count: int) -> Brought:
        began = self.time_ns
        before = len(self.stage.world.steps)
        limit = PATIENCE * count * self.stage.healthy_step_ns
        met = self._until(lambda w: len(w.steps) >= before + count, limit)
        text, data = self._passed(before)
        if not met and not self._stopped:
            text += f"; {len(data['steps_ns'])} of {count} have ended within {clock(data['time_ns'] - began)}"
        return text, data

    def until(self, condition: str, limit_ns: float) -> Brought:
        before = len(self.stage.world.steps)
        if self.case.drill.views.drops == "asic" and condition.strip().startswith("drops"):
            raise InputError("no drop shows in this drill", "until", "wait for step, wrong, marks, cnps or time")
        counted = cast(Any, Counted(self._seen, self.case.drill.views, self.stage.world))
        met = parse_condition(condition, "until").watched(counted)
        held = self._until(lambda w: met(counted), limit_ns)
        text, data = self._passed(before)
        return ("" if held else f"not within {clock(limit_ns)}: ") + text, {**data, "held": held}

    def _until(self, met: Callable[[Any], bool], limit_ns: float) -> bool:
        """Lets the world go on until then, or the budget is gone, or the player wants it to stop."""

        held = False

        def over(world: Any) -> bool:
            nonlocal held
            held = met(world)
            self._stopped = not held and self.interrupted()
            return held or self._stopped

        self.stage.world.until(over, min(round(limit_ns), self.budget_left_ns))
        return held

    def _passed(self, before: int) -> Brought:
        times = [step.end_ns - step.start_ns for step in self.stage.world.steps[before:]]
        shown = " ".join(f"{ns / 1000:.1f}" for ns in times[-SHOWN:])
        more = f"{len(times) - SHOWN} steps and then " if len(times) > SHOWN else "steps "
        text = f"{more}{shown} us" if times else "no step has ended"
        stands = not times and under_way(self.stage.world.steps, self.time_ns)
        if stands and (lost := gone(self.stage.world.request("status")["workers"])):
            text += f"; {lost}"
        return text, {"time_ns": self.time_ns, "steps_ns": times}

    def configure(self, words: Sequence[str]) -> Brought:
        """An operator's action: it takes effect now, then the time passes that it takes."""
        world: Any = self.stage.world
        before = len(world.steps)
        if self.case.drill.on_real_clock:  # its time passes by itself
            done = config(Site(world.lab, world, world.take_out, LastingJob()), words)
        else:
            done = config(Site(world.lab, world, world.take_out, RepeatedJob(world)), words, self._spend)
        world.settle()
        self._notes = tuple(note for one in done for note in one.notes)
        texts = [f"{one.line}{' taken back' if one.rollback else ''}; took {clock(one.cost_ns)}" for one in done]
        texts += [f"  {note}" for one in done for note in one.notes]
        passed = self._passed(before)[0] if len(world.steps) > before else ""
        return "\n".join([*texts, *([passed] if passed else [])]), {"done": [asdict(one) for one in done]}

    def _spend(self, ns: float) -> None:
        self.stage.world.advance(min(round(ns), self.budget_left_ns))

    def config_log(self) -> Brought:
        world: Any = self.stage.world
        rows = [
            {"n": d.number, "time": clock(d.time_ns), "what": d.line, "took": clock(d.cost_ns), "state": d.state}
            for d in done_so_far(world.lab.dir)
        ]
        return "\n".join(text_of(as_table("actions", rows, whole=True))), {"log": rows}

    def hint(self) -> Brought:
        hints = self.case.drill.hints
        if self.own_hints >= len(hints):
            raise InputError("there are no more hints" if hints else "this drill has no hints", "hint")
        text = self.next_hint()
        return f"{text}  (hints have cost {self.pay_hint():g} points)", {"hint": text}

    def next_hint(self) -> str:
        """Of the drill's own, the first that was not given yet; it is given now. There has to be one."""
        self.own_hints += 1
        return self.case.drill.hints[self.own_hints - 1]

    def pay_hint(self) -> float:
        """One more was taken, or given; what all have cost."""
        self.hints += 1
        return HINTS[min(self.hints, len(HINTS) - 1)]

    def submit(self, text: str) -> Brought:
        answer = parse(text, self.fabric)
        if not self.played_again:
            must_fit(answer)
        good = right(answer, self.stage.drawn.truth, self.families)
        if good or self.wrong + 1 >= self.case.drill.budget.answers:
            return self._end(answer)
        self.wrong += 1
        left = self.case.drill.budget.answers - self.wrong
        return f"not right, or not all of it; {left} left", {"right": False, "answers_left": left}

    def give_up(self) -> Brought:
        return self._end(None)

    def _end(self, answer: Submission | None) -> Brought:
        of = partial(ending_of_real) if self.case.drill.on_real_clock else partial(ending_of, up=self._up)
        self.ending = of(self.stage, answer, self.touched(), hints=self.hints, wrong=self.wrong, families=self.families)
        return self.ending.text, self.ending.to_dict()

    def report(self) -> dict[str, Any]:
        """Everything that may be told when it is over."""
        if self.ending is None:
            raise InputError("the drill is not over", "report", "submit an answer, or give-up")
        from drills.report import told

        return told(self.code, self.stage, self.entries, self.ending)

    # -- the log

    def note(self, line: str, began_ns: int, *, ok: bool = True, acts: bool = False, by: str = "") -> None:
        """Numbers are of each who acts: a gap in his own would tell a player that there is another."""
        if self.over and not acts:
            return
        number = 1 + sum(entry.by == by for entry in self.entries)
        digest = self._digest_now() if acts and not self.over else ""
        if acts:
            self._digest = digest
        took = self.time_ns - began_ns if not self.over else 0
        self.entries.append(Entry(number, line.strip(), began_ns, took, ok, acts, digest, by, self._notes))

    def _digest_now(self) -> str:
        """Of the world; empty if it cannot be had now, for what was done is done."""
        try:
            return self.stage.world.digest()
        except (WorldGone, FabricdError):
            raise
        except UserError:
            traceback.print_exc()
            return ""

    def touched(self) -> list[Entry]:
        """The player's entries that have changed the world otherwise than by letting time pass."""
        return [e for e in self.entries if e.acts and not e.by and self.touches(e)]

    def touches(self, entry: Entry) -> bool:
        found, _ = find([one.entry for one in self.lines.values()], _words(entry.line), "drill")
        return self.lines[found.words].touches

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


def _words(line: str) -> list[str]:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InputError(f"{str(error).lower()}", "drill") from None
    if not words:
        raise InputError("which command?", "drill", "help lists them")
    return words


def said(error: UserError) -> str:
    """An error as a prompt prints it."""
    problems = [error.to_dict(), *(p.to_dict() for p in error.also)]
    return "\n".join(
        f"{p['where']}: {p['what']}" + (f"\n  {p['hint']}" if p["hint"] else "") if p["where"] else p["what"]
        for p in problems
    )
