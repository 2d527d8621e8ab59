"""The check of a drill: places can be drawn, the fault is seen, the solver finds it and nothing else.

Everything goes by what a student may see: the views of two games of the same case, one with its faults and one without.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from drills import twins
from drills.check import evidence, real
from drills.check.looked import playing, views
from drills.check.players import Worth, answers, worth
from drills.game import Game
from drills.sheet.answer import parse
from drills.sheet.case import Case
from drills.sheet.drill import Drill, Level
from drills.sheet.score import NOTHING_TO_WIN, kinds
from drills.sheet.truth import HEALTHY
from drills.solve.solver import solve
from hardware.client import FabricdError
from testbed.base.errors import InputError, UserError

SEEDS = tuple(f"{k}C{k % 7}" for k in range(20))
"""Of the places that must be drawn."""
WINDOWS = 3
WINDOW_NS = 200_000
WATCHED_NS = 4_000_000
"""What is given as evidence has to show in so much emulated time, or in the drill's `tau` if that is less."""
ENOUGH = 80.0
NOTHING_BACK = 0.05
"""Of what is left of the points for mending: less is none."""

NOTHING_LOST = "it asks to mend, and the fault costs the job nothing here: leave `fix` out, or draw other places"
LOOKED_UP = ("loudest", "thresholds")
"""Players who only look up what is over a limit: what they find at once is not hard."""


@dataclass
class Checked:
    """What came of it; `wrong` is empty if the drill passes."""

    drill: str
    seed: str
    truth: str = ""
    differs: tuple[str, ...] = ()  # views that differ from the healthy twin's
    healthy: str = ""  # the solver's answer of the healthy twin
    answer: str = ""
    score: float | None = None
    level: Level = "easy"
    ill: dict[str, Worth] = field(default_factory=dict)  # what each player would have got, and for the healthy twin
    well: dict[str, Worth] = field(default_factory=dict)
    took_s: float = 0.0
    wrong: list[str] = field(default_factory=list)
    unfit: bool = False
    """This machine could not keep time, so one of its worlds says nothing."""

    @property
    def passes(self) -> bool:
        return not self.wrong

    @property
    def verdict(self) -> str:
        if self.passes:
            return "ok"
        return "not fit" if self.unfit and len(self.wrong) == 1 else "FAILS"

    def to_dict(self) -> dict[str, Any]:
        worths = {key: {name: one.to_dict() for name, one in getattr(self, key).items()} for key in ("ill", "well")}
        return {**vars(self), **worths, "passes": self.passes}


def check(drill: Drill, seed: str, solution: Sequence[str] = (), more: Sequence[str] = ()) -> Checked:
    """All of it. `solution`: lines that are played instead of the solver's, which is then not asked; `more`: seeds of
    worlds that are looked at, too, and not played. Raises nothing for what is wrong with the drill."""
    found = Checked(drill.id, seed, level=drill.level)
    began = time.monotonic()
    try:
        found.wrong += undrawable(drill)
        if drill.on_real_clock:
            measured(drill, seed, found)
            found.took_s = time.monotonic() - began
            return found
        with playing(drill, seed, healthy=True) as well:
            said = answers(well)
            if drill.faults:
                with playing(drill, seed, healthy=False) as ill:
                    looked = answers(ill)
                    found.truth = " ".join(map(str, ill.stage.drawn.truth))
                    found.differs = _activated(well, ill)
                    if not found.differs:
                        found.wrong.append("no view differs from the healthy twin's: the fault does nothing here")
                    if solution:
                        played(ill, solution, found)
                    else:
                        solved(ill, found)
                    if ill.ending is not None:
                        found.ill = {name: worth(ill, one, ill.ending.outcome) for name, one in looked.items()}
                        f1 = kinds(parse(found.answer, ill.fabric).claims, ill.stage.drawn.truth)
                        found.ill["solution" if solution else "solver"] = Worth(found.answer, found.score or 0.0, f1)
                        not_hard(found)
            if not solution:
                found.healthy = said["solver"] = solve(well)
                if found.healthy != HEALTHY:
                    found.wrong.append(f"the solver takes the healthy twin for {found.healthy}")
            found.well = {name: worth(well, one) for name, one in said.items()}
        for one in (seed, *more) if drill.faults else ():
            found.wrong += [what if one == seed else f"seed {one}: {what}" for what in glance(drill, one)]
    except FabricdError as error:
        found.wrong.append(f"the world has died: {error}")
    except UserError as error:
        found.wrong.append(f"{error.what} ({error.where})" if error.where else error.what)
    found.took_s = time.monotonic() - began
    return found


def measured(drill: Drill, seed: str, found: Checked) -> None:
    """With the real clock: one world after the other, again if this machine was not fit for it."""
    well = real.play(drill, seed, healthy=True)
    found.healthy = well.answer
    if well.unfit:
        found.wrong.append(f"the healthy twin: {well.unfit}")
        found.unfit = True
        return
    if well.answer != HEALTHY:
        found.wrong.append(f"the solver takes the healthy twin for {well.answer}")
    if not drill.faults:
        return
    ill = real.play(drill, seed, healthy=False)
    found.truth, found.answer, found.score = ill.truth, ill.answer, ill.score
    found.differs = real.shows(ill, well)
    if ill.unfit:
        found.wrong.append(ill.unfit)
        found.unfit = True
    elif not found.differs:
        found.wrong.append("no counter of errors moves that stands still in the healthy twin, and the job goes on")
    elif ill.score is None or ill.score < ENOUGH:
        found.wrong.append(f"the solver gets {ill.score or 0.0:.1f}, with {ill.answer}")


def undrawable(drill: Drill) -> list[str]:
    """Seeds for which no place can be drawn; the first one says it for all."""
    failed: dict[str, list[str]] = {}
    for seed in SEEDS:
        try:
            Case.of(drill, seed, False)
        except InputError as error:
            failed.setdefault(f"{error.what} ({error.where})", []).append(seed)
    return [f"{what}: seeds {', '.join(seeds[:5])}" for what, seeds in failed.items()]


def _activated(well: Game, ill: Game) -> tuple[str, ...]:
    """The views that differ; if none does, some time is let pass in both."""
    for window in range(WINDOWS + 1):
        one, other = views(ill), views(well)
        differs = tuple(words for words in one if one[words] != other.get(words))
        if differs or window == WINDOWS:
            return differs
        for game in (well, ill):
            game.command(f"advance {WINDOW_NS}ns")
    return ()


def glance(drill: Drill, seed: str) -> list[str]:
    """What is wrong with a world without anybody playing it: evidence that is not so, a fault to be mended that costs
    nothing."""
    told = evidence.Watched(evidence.claims(drill.evidence))
    wrong = evidence.unknown(drill.evidence)
    with playing(drill, seed, healthy=True) as well, playing(drill, seed, healthy=False) as ill:
        told.look(ill, well)
        window, began_ns = WINDOW_NS, ill.time_ns
        while told.open and ill.time_ns + window - began_ns <= min(WATCHED_NS, drill.budget.tau_ns):
            for game in (well, ill):
                game.command(f"advance {window}ns")
            told.look(ill, well)
            window *= 2
        told.measure(ill, well)
        if drill.asks_to_fix:
            sick, usual = (twins.Course.of(game.stage, game.time_ns).speed for game in (ill, well))
            wrong += [NOTHING_LOST] if usual - sick <= NOTHING_TO_WIN * usual else []
    return wrong + told.wrong()


def not_hard(found: Checked) -> None:
    """Whether it is called hard, and is found by who compares nothing and tries nothing."""
    for name in LOOKED_UP:
        if found.level == "hard" and found.ill[name].f1 == 1.0:
            found.wrong.append(f"it is called hard, and `{name}` names it at the first look, by one limit")


def solved(game: Game, found: Checked) -> None:
    found.answer = solve(game)
    answer = game.command(f"submit {found.answer}")
    if game.ending is None and answer.ok:  # a wrong one, and there is another: it is what counts
        game.command(f"submit {found.answer}")
    if game.ending is None:
        found.wrong.append(f"the solver's answer ends nothing: {answer.text}")
        return
    if judged(game, found, "the solver") < NOTHING_BACK and game.touched():
        found.wrong.append("what the solver does brings the job nothing back: leave `fix` out of the question")


def played(game: Game, solution: Sequence[str], found: Checked) -> None:
    """Its author's way to solve it, line by line as at the prompt; the last one answers."""
    for number, line in enumerate(solution, 1):
        answer = game.command(line)
        if not answer.ok:
            found.wrong.append(f"line {number} of the solution ({line}): {answer.text}")
            return
        if game.ending is not None:
            found.answer = str(game.ending.answer or HEALTHY)
            judged(game, found, "the solution")
            return
    found.wrong.append("the solution ends without a last `submit ANSWER`")


def judged(game: Game, found: Checked, who: str) -> float:
    """What an answer was worth; returns the share of the lost speed that is back, 1 if none or enough was lost."""
    assert game.ending is not None and game.ending.score is not None
    score = game.ending.score
    found.score = score.total
    if found.score >= ENOUGH:
        return 1.0
    found.wrong.append(f"{who} gets {found.score:.1f}, with {found.answer}")
    return 1.0 if score.fixed is None else score.fixed
