"""The check of a drill: places can be drawn, the fault is seen, the solver finds it and nothing else.

Everything goes by what a student may see: the views of two games of the same case, one with its faults and one without.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from hardware.client import FabricdError
from testbed.base.errors import InputError, UserError
from testbed.drill.check import real
from testbed.drill.check.looked import playing, views
from testbed.drill.check.players import Worth, answers, worth
from testbed.drill.game import Game
from testbed.drill.sheet.answer import parse
from testbed.drill.sheet.case import Case
from testbed.drill.sheet.drill import Drill, Level
from testbed.drill.sheet.score import kinds
from testbed.drill.sheet.truth import HEALTHY
from testbed.drill.solve.solver import solve

SEEDS = tuple(f"{k}C{k % 7}" for k in range(20))
"""Of the places that must be drawn."""
WINDOWS = 3
WINDOW_NS = 200_000
ENOUGH = 80.0
NOTHING_BACK = 0.05
"""Of what is left of the points for mending: less is none."""


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


def check(drill: Drill, seed: str) -> Checked:
    """All of it. Raises nothing for what is wrong with the drill."""
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
                    solved(ill, found)
                    if ill.ending is not None:
                        found.ill = {name: worth(ill, one, ill.ending.course) for name, one in looked.items()}
                        f1 = kinds(parse(found.answer, ill.fabric).claims, ill.stage.drawn.truth)
                        found.ill["solver"] = Worth(found.answer, found.score or 0.0, f1)
            found.healthy = solve(well)
            found.well = {name: worth(well, one) for name, one in {**said, "solver": found.healthy}.items()}
            if found.healthy != HEALTHY:
                found.wrong.append(f"the solver takes the healthy twin for {found.healthy}")
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


def solved(game: Game, found: Checked) -> None:
    found.answer = solve(game)
    answer = game.command(f"submit {found.answer}")
    if game.ending is None and answer.ok:  # a wrong one, and there is another: it is what counts
        game.command(f"submit {found.answer}")
    if game.ending is None:
        found.wrong.append(f"the solver's answer ends nothing: {answer.text}")
        return
    score = game.ending.score
    assert score is not None
    found.score = score.total
    if found.score < ENOUGH:
        found.wrong.append(f"the solver gets {found.score:.1f}, with {found.answer}")
        if score.fixed is not None and score.fixed < NOTHING_BACK and game.touched():
            found.wrong.append("what the solver does brings the job nothing back: leave `fix` out of the question")
