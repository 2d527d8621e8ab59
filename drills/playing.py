"""A game as the lines of its player use it: what each does to the world, and what it brings."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from drills import report, session
from drills.ending import Ending, ending_of
from drills.log import LogEntry
from drills.looking import Counted, Seen, look
from drills.measured import ending_of_real
from drills.proof.seal import Seal
from drills.session import clock
from drills.sheet import families
from drills.sheet.answer import Submission, must_fit, parse
from drills.sheet.case import Case
from drills.sheet.daily import CHOSEN, tells_seed
from drills.sheet.score import HINTS, right
from drills.sheet.truth import as_answer
from drills.stage import Stage, Up, world_of
from testbed.base.errors import InputError
from testbed.base.text import printable
from testbed.live.views.job import gone, under_way
from testbed.live.views.view import NONZERO, without_zeros
from testbed.operate.carry_out import config
from testbed.operate.record import log as config_log
from testbed.operate.steps.site import Site
from testbed.words import kinds
from testbed.words.entry import Entry, Parameter, find, offers
from testbed.world.condition import parse as parse_condition
from testbed.world.operator import LastingJob, RepeatedJob

if TYPE_CHECKING:
    from testbed.live.look.table import Table
    from testbed.live.tools.tool import Tool
    from testbed.live.views.view import View
    from topologies.graph.fabric import Fabric

SHOWN = 12
"""So many steps are told of when time has passed: the newest."""
SCREEN = 20
"""Of more rows that have counted nothing it is said how they are left out."""
PATIENCE = 4
"""Times a healthy step that each step is waited for."""


Output = tuple[str, Any]  # text, data
Run = Callable[["Play", Mapping[str, Any], Sequence[str]], Output]
"""Carries out a line: the game, the values of its parameters, the words behind its own."""


@dataclass(frozen=True)
class Line:
    """A line that a player may type."""

    entry: Entry
    run: Run
    acts: bool
    """It changes the world or the game."""
    touches: bool = False
    """It changes the world otherwise than by letting time pass."""
    after: bool = False
    """It may be asked for when the game is over."""

    @property
    def words(self) -> str:
        return self.entry.words


def last_word(line: str) -> tuple[list[str], str]:
    """The whole words of a line that is being typed, and the one that is not whole yet."""
    words = line.split()
    return words, "" if not line or line[-1].isspace() else words.pop()


def completions(entries: Iterable[Entry], words: Sequence[str], begun: str, fabric: Fabric) -> list[str]:
    """What `begun` may become behind these words."""
    return sorted({word for word, _ in offers(entries, words, fabric) if word.startswith(begun)})


def table_text(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    from testbed.tables.results import counters, lines

    return "\n".join(lines(counters(name, rows, whole=True)))


def parameter(name: str, metavar: str, about: str, *, required: bool = False, rest: bool = False) -> Parameter:
    """A word (or the rest of a line) that the command reads by itself."""
    return Parameter(name, kinds.Kind("text", metavar), about, required=required, rest=rest)


class Play:
    """What `Line`s work on; its `Game` reads lines and keeps the log."""

    lines: dict[str, Line]

    def __init__(
        self,
        stage: Stage,
        *,
        exam: bool = False,
        player: str = "",
        seed_by: str = CHOSEN,
        prints: bool = True,
        up: Up = world_of,
    ) -> None:
        self.stage = stage
        self.prints = prints
        """Whether views come as text, too, which takes time."""
        self.began = datetime.now(UTC).isoformat(timespec="milliseconds")
        """For leaderboards: of two games of one world the first counts."""
        self.seed_by = seed_by
        """Whose choice the seed was (drills/sheet/daily.py)."""
        self.exam = exam
        self.player = printable(player)
        self.families = families.of(stage.case.drill.views)
        self.seal = Seal(as_answer(stage.drawn.truth), stage.case.drill.text)
        self.entries: list[LogEntry] = []
        self.hints = 0  # those of the drill, and an instructor's own
        self.own_hints = 0  # those of the drill
        self.wrong = 0
        self.ending: Ending | None = None
        self.gone = False
        """The world has died: the game counts for nothing."""
        self.paused = False
        """By the instructor: nothing that acts is carried out."""
        self.instructed = False
        """Its instructor has seen the truth."""
        self.messages: list[dict[str, Any]] = []
        """What the instructor has said to the player."""
        self.interrupted: Callable[[], bool] = lambda: False
        self.ends_ns: int | None = None
        """In a replay: when the line had ended, for a tool may have been stopped."""
        self._seen = Seen(stage)
        self._up = up
        self._stopped = False
        self._digest = ""
        """Of the world after the last line that acts, if it is known."""
        self._notes: tuple[str, ...] = ()
        """What the action that was just carried out has said."""

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

    @property
    def over(self) -> bool:
        return self.ending is not None

    @property
    def is_replay(self) -> bool:
        return self.ends_ns is not None

    def ticket(self) -> dict[str, Any]:
        seed = self.case.seed if self.tells_seed else None
        return session.ticket(self.case, self.fabric, self.seal.commitment, self.code, seed)

    def ticket_text(self) -> str:
        lab = getattr(self.stage.world, "lab", None)
        dilation = lab.dilation if lab is not None and self.case.drill.on_real_clock else 1
        return session.ticket_text(self.ticket(), self.time_ns, dilation)

    def state(self) -> dict[str, Any]:
        steps = self.stage.world.steps
        ending = self.ending
        return {
            "drill": self.code,
            "time_ns": self.time_ns,
            "began_ns": self.stage.began_ns,
            "healthy_step_ns": self.stage.healthy_step_ns,
            "budget_left_ns": max(0, self.budget_left_ns),
            "answers_left": 0 if ending else self.case.drill.budget.answers - self.wrong,
            "hints_taken": self.hints,
            "hints_left": len(self.case.drill.hints) - self.own_hints,
            "over": self.over,
            "paused": self.paused,
            "messages": list(self.messages),
            "score": ending.score.to_dict() if ending and ending.score else None,
            "environment_invalid": bool(ending and not ending.score),
            "steps": [{"number": s.number, "start_ns": s.start_ns, "step_ns": s.end_ns - s.start_ns} for s in steps],
            "topology": self.fabric.to_dict(),
        }

    @property
    def budget_left_ns(self) -> int:
        return self.stage.began_ns + round(self.case.drill.budget.emulated) - self.time_ns

    def show(self, view: View, values: Mapping[str, Any]) -> Output:
        tables = view.show(look(self._seen, self.case.drill.views), **values)
        text, data = self._printed(tables)
        idle = 0 if values.get(NONZERO.name, True) else sum(len(t.rows) - len(without_zeros(t).rows) for t in tables)
        if self.prints and idle > SCREEN:
            text += f"\n{idle} rows have counted nothing: {NONZERO.flag} leaves them out"
        return text, data

    def use(self, tool: Tool, values: Mapping[str, Any]) -> Output:
        """Runs until it has ended, the budget is used up, or the player interrupts."""

        def stop() -> bool:
            ended = self.ends_ns is not None and self.time_ns >= self.ends_ns
            return self.budget_left_ns <= 0 or ended or self.interrupted()

        return self._printed(tool.run(cast(Any, self.stage.world), stop, **values))

    def _printed(self, tables: Sequence[Table]) -> Output:
        texts = []
        for table in tables if self.prints else ():
            if table.rows:
                texts.append("\n".join([*filter(None, [table.title]), table_text(table.name, table.rows)]))
            else:
                texts.append(f"{table.title}\nnothing" if table.title else f"{table.name}: nothing")
        return "\n\n".join(texts), {table.name: table.rows for table in tables}

    def advance(self, ns: float) -> Output:
        before = len(self.stage.world.steps)
        if ns > self.budget_left_ns and not self.is_replay and not self.case.drill.on_real_clock:
            hint = "the drill ends when they are used up"
            raise InputError(f"{clock(self.budget_left_ns)} are left", "advance", hint)
        self._until(lambda world: False, ns)
        return self._passed(before)

    def advance_steps(self, count: int) -> Output:
        began = self.time_ns
        before = len(self.stage.world.steps)
        limit = PATIENCE * count * self.stage.healthy_step_ns
        reached = self._until(lambda world: len(world.steps) >= before + count, limit)
        text, data = self._passed(before)
        if not reached and not self._stopped:
            ended = f"{len(data['steps_ns'])} of {count} have ended within {clock(data['time_ns'] - began)}"
            text += f"; {ended} (advance TIME waits longer)"
        return text, data

    def until(self, condition: str, limit_ns: float) -> Output:
        before = len(self.stage.world.steps)
        if self.case.drill.views.drops == "asic" and condition.strip().startswith("drops"):
            raise InputError("no drop shows in this drill", "until", "wait for step, wrong, marks, cnps or time")
        counted = cast(Any, Counted(self._seen, self.case.drill.views, self.stage.world))
        met = parse_condition(condition, "until").watched(counted)
        reached = self._until(lambda world: met(counted), limit_ns)
        text, data = self._passed(before)
        return ("" if reached else f"not within {clock(limit_ns)}: ") + text, {**data, "held": reached}

    def _until(self, met: Callable[[Any], bool], limit_ns: float) -> bool:
        """Whether the condition was met before the limit, the end of the budget, or the player's interrupt."""
        reached = False

        def over(world: Any) -> bool:
            nonlocal reached
            reached = met(world)
            self._stopped = not reached and self.interrupted()
            return reached or self._stopped

        self.stage.world.until(over, min(round(limit_ns), self.budget_left_ns))
        return reached

    def _passed(self, before: int) -> Output:
        """The steps that have ended since there were `before`."""
        times = [step.end_ns - step.start_ns for step in self.stage.world.steps[before:]]
        shown = " ".join(f"{ns / 1000:.1f}" for ns in times[-SHOWN:])
        more = f"{len(times) - SHOWN} steps and then " if len(times) > SHOWN else "steps "
        text = f"{more}{shown} us" if times else "no step has ended"
        stands = not times and under_way(self.stage.world.steps, self.time_ns)
        if stands and (lost := gone(self.stage.world.request("status")["workers"])):
            text += f"; {lost}"
        return text, {"time_ns": self.time_ns, "steps_ns": times}

    def configure(self, words: Sequence[str]) -> Output:
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
        texts += [f"  {note}" for note in self._notes]
        texts += [self._passed(before)[0]] if len(world.steps) > before else []
        return "\n".join(texts), {"done": [asdict(one) for one in done]}

    def _spend(self, ns: float) -> None:
        self.stage.world.advance(min(round(ns), self.budget_left_ns))

    def config_log(self) -> Output:
        rows = [
            {"n": d.number, "time": clock(d.time_ns), "what": d.line, "took": clock(d.cost_ns), "state": d.state}
            for d in config_log(cast(Any, self.stage.world).lab.dir)
        ]
        return table_text("actions", rows), {"log": rows}

    def hint(self) -> Output:
        hints = self.case.drill.hints
        if self.own_hints >= len(hints):
            raise InputError("there are no more hints" if hints else "this drill has no hints", "hint")
        text = self.next_hint()
        return f"{text}  (hints have cost {self.pay_hint():g} points)", {"hint": text}

    def next_hint(self) -> str:
        """The first of the drill's own that was not given yet. There has to be one."""
        self.own_hints += 1
        return self.case.drill.hints[self.own_hints - 1]

    def pay_hint(self) -> float:
        """Counts one more; returns what all have cost."""
        self.hints += 1
        return HINTS[min(self.hints, len(HINTS) - 1)]

    def submit(self, text: str) -> Output:
        answer = parse(text, self.fabric)
        if not self.is_replay:
            must_fit(answer)
        good = right(answer, self.stage.drawn.truth, self.families)
        if good or self.wrong + 1 >= self.case.drill.budget.answers:
            return self.end(answer)
        self.wrong += 1
        left = self.case.drill.budget.answers - self.wrong
        return f"not right, or not all of it; {left} left", {"right": False, "answers_left": left}

    def end(self, answer: Submission | None) -> Output:
        of: Callable[..., Ending] = ending_of_real if self.case.drill.on_real_clock else partial(ending_of, up=self._up)
        self.ending = of(self.stage, answer, self.touched(), hints=self.hints, wrong=self.wrong, families=self.families)
        return self.ending.text, self.ending.to_dict()

    def report(self) -> dict[str, Any]:
        """Everything that may be told when it is over."""
        if self.ending is None:
            raise InputError("the drill is not over", "report", "submit an answer, or give-up")
        return report.data(self.code, self.stage, self.entries, self.ending)

    def touched(self) -> list[LogEntry]:
        """The player's entries that have changed the world otherwise than by letting time pass."""
        return [e for e in self.entries if e.acts and not e.by and self.touches(e)]

    def touches(self, entry: LogEntry) -> bool:
        return self.line_of(entry.line)[0].touches

    def line_of(self, line: str) -> tuple[Line, list[str]]:
        """The `Line` that is typed, and the words behind its own. Raises InputError."""
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise InputError(f"{str(error).lower()}", "drill") from None
        if not words:
            raise InputError("which command?", "drill", "help lists them")
        entry, rest = find([one.entry for one in self.lines.values()], words, "drill")
        return self.lines[entry.words], rest
