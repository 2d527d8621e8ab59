"""The check of a drill: places can be drawn, the fault is seen, the solver finds it and nothing else.

It uses what a student may see: the views of two games of the same case, one with its faults and one without.
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
"""Places must be drawn for all of them."""
WINDOWS = 3
WINDOW_NS = 200_000
WATCHED_NS = 4_000_000
"""Evidence must show in so much emulated time, or in the drill's `tau` if that is less."""
ENOUGH = 80.0
NOTHING_BACK = 0.05
"""A share of the lost speed that counts as nothing."""

NOTHING_LOST = "it asks to mend, and the fault costs the job nothing here: leave `fix` out, or draw other places"
LOOKED_UP = ("loudest", "thresholds")
"""Players with fixed limits: what they find is not hard."""


@dataclass
class Checked:
    """`wrong` is empty if the drill passes."""

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
    """This machine could not keep time, so one of its worlds proves nothing."""

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
    """`solution`: lines that are played instead of the solver's; `more`: seeds of worlds in which only the evidence is
    checked. Raises nothing for what is wrong with the drill."""
    result = Checked(drill.id, seed, level=drill.level)
    began = time.monotonic()
    try:
        result.wrong += undrawable(drill)
        if drill.on_real_clock:
            _check_real(drill, seed, result)
        else:
            _check_virtual(drill, seed, solution, more, result)
    except FabricdError as error:
        result.wrong.append(f"the world has died: {error}")
    except UserError as error:
        what = f"{error.what} ({error.where})" if error.where else error.what
        if not any(what in one for one in result.wrong):
            result.wrong.append(what)
    result.took_s = time.monotonic() - began
    return result


def _check_virtual(drill: Drill, seed: str, solution: Sequence[str], more: Sequence[str], result: Checked) -> None:
    with playing(drill, seed, healthy=True) as well:
        well_answers = answers(well)
        if drill.faults:
            with playing(drill, seed, healthy=False) as ill:
                ill_answers = answers(ill)
                result.truth = " ".join(map(str, ill.stage.drawn.truth))
                result.differs = _activated(well, ill)
                if not result.differs:
                    result.wrong.append("no view differs from the healthy twin's: the fault does nothing here")
                if solution:
                    played(ill, solution, result)
                else:
                    solved(ill, result)
                if ill.ending is not None:
                    result.ill = {name: worth(ill, one, ill.ending.conduct) for name, one in ill_answers.items()}
                    f1 = kinds(parse(result.answer, ill.fabric).claims, ill.stage.drawn.truth)
                    result.ill["solution" if solution else "solver"] = Worth(result.answer, result.score or 0.0, f1)
                    not_hard(result)
        if not solution:
            result.healthy = well_answers["solver"] = solve(well)
            if result.healthy != HEALTHY:
                result.wrong.append(f"the solver takes the healthy twin for {result.healthy}")
        result.well = {name: worth(well, one) for name, one in well_answers.items()}
    for one in (seed, *more) if drill.faults else ():
        result.wrong += [what if one == seed else f"seed {one}: {what}" for what in glance(drill, one)]


def _check_real(drill: Drill, seed: str, result: Checked) -> None:
    """One world after the other, again if this machine was not fit for it."""
    well = real.play(drill, seed, healthy=True)
    result.healthy = well.answer
    if well.unfit:
        result.wrong.append(f"the healthy twin: {well.unfit}")
        result.unfit = True
        return
    if well.answer != HEALTHY:
        result.wrong.append(f"the solver takes the healthy twin for {well.answer}")
    if not drill.faults:
        return
    ill = real.play(drill, seed, healthy=False)
    result.truth, result.answer, result.score = ill.truth, ill.answer, ill.score
    result.differs = real.shows(ill, well)
    if ill.unfit:
        result.wrong.append(ill.unfit)
        result.unfit = True
    elif not result.differs:
        result.wrong.append("no counter of errors moves that stands still in the healthy twin, and the job goes on")
    elif ill.score is None or ill.score < ENOUGH:
        result.wrong.append(f"the solver gets {ill.score or 0.0:.1f}, with {ill.answer}")


def undrawable(drill: Drill) -> list[str]:
    """Why no place can be drawn, and for which seeds."""
    failed: dict[str, list[str]] = {}
    for seed in SEEDS:
        try:
            Case.of(drill, seed, False)
        except InputError as error:
            hint = f"; {error.hint}" if error.hint else ""
            failed.setdefault(f"{error.what} ({error.where}){hint}", []).append(seed)
    everywhere = len(SEEDS)
    return [
        what if len(seeds) == everywhere else f"with some seeds ({', '.join(seeds[:5])}): {what}"
        for what, seeds in failed.items()
    ]


def _activated(well: Game, ill: Game) -> tuple[str, ...]:
    """The views that differ; if none does, after some time."""
    for window in range(WINDOWS + 1):
        if window:
            for game in (well, ill):
                game.command(f"advance {WINDOW_NS}ns")
        one, other = views(ill), views(well)
        if differs := tuple(words for words in one if one[words] != other.get(words)):
            return differs
    return ()


def glance(drill: Drill, seed: str) -> list[str]:
    """What is wrong with a world that nobody plays: evidence that does not hold, a fault to be mended that costs
    nothing."""
    observed = evidence.Observed(evidence.claims(drill.evidence))
    wrong = evidence.unknown(drill.evidence)
    with playing(drill, seed, healthy=True) as well, playing(drill, seed, healthy=False) as ill:
        observed.look(ill, well)
        window, began_ns = WINDOW_NS, ill.time_ns
        while observed.open and ill.time_ns + window - began_ns <= min(WATCHED_NS, drill.budget.tau_ns):
            for game in (well, ill):
                game.command(f"advance {window}ns")
            observed.look(ill, well)
            window *= 2
        observed.measure(ill, well)
        if drill.asks_to_fix:
            sick, usual = (twins.Course.of(game.stage, game.time_ns).speed for game in (ill, well))
            wrong += [NOTHING_LOST] if usual - sick <= NOTHING_TO_WIN * usual else []
    return wrong + observed.wrong()


def not_hard(result: Checked) -> None:
    """Adds a mistake if it is called hard, and is found without comparing or trying anything."""
    for name in LOOKED_UP:
        if result.level == "hard" and result.ill[name].f1 == 1.0:
            result.wrong.append(f"it is called hard, and `{name}` names it at the first look, by one limit")


def solved(game: Game, result: Checked) -> None:
    result.answer = solve(game)
    answer = game.command(f"submit {result.answer}")
    if game.ending is None and answer.ok:  # wrong, and there is another answer: it counts
        game.command(f"submit {result.answer}")
    if game.ending is None:
        result.wrong.append(f"the solver's answer ends nothing: {answer.text}")
        return
    if judged(game, result, "the solver") < NOTHING_BACK and game.touched():
        result.wrong.append("what the solver does brings the job nothing back: leave `fix` out of the question")


def played(game: Game, solution: Sequence[str], result: Checked) -> None:
    """The author's solution, line by line as at the prompt; the last one answers."""
    for number, line in enumerate(solution, 1):
        answer = game.command(line)
        if not answer.ok:
            result.wrong.append(f"line {number} of the solution ({line}): {answer.text}")
            return
        if game.ending is not None:
            result.answer = str(game.ending.answer or HEALTHY)
            judged(game, result, "the solution")
            return
    result.wrong.append("the solution ends without a last `submit ANSWER`")


def judged(game: Game, result: Checked, who: str) -> float:
    """Returns the share of the lost speed that is back, 1 if none was lost or the score is enough."""
    assert game.ending is not None and game.ending.score is not None
    score = game.ending.score
    result.score = score.total
    if result.score >= ENOUGH:
        return 1.0
    result.wrong.append(f"{who} gets {result.score:.1f}, with {result.answer}")
    return 1.0 if score.fixed is None else score.fixed
