"""A drill made from a seed: drawn, played with its fault and without, measured, solved; or refused, with the reason."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from drills.check.check import ENOUGH, NOTHING_BACK, Checked, solved, undrawable
from drills.check.looked import playing
from drills.check.marks import Signature
from drills.check.players import Worth, answers, worth
from drills.check.probes import MESH
from drills.check.symptom import steps, symptom
from drills.game import Game
from drills.make import measure, signs
from drills.make.measure import Measured
from drills.make.signatures import table
from drills.make.sketch import Sketch, sketch
from drills.sheet.carried import measured as carried
from drills.sheet.carried import possible
from drills.sheet.case import Case
from drills.sheet.drill import Drill
from drills.sheet.families import of as known_families
from drills.sheet.families import sight_name
from drills.sheet.file import loads
from drills.sheet.places import Ground
from drills.sheet.score import score
from drills.sheet.truth import HEALTHY, kind_of
from drills.solve.solver import solve
from hardware.client import FabricdError
from testbed.base.errors import UserError
from testbed.world.base import WorldGone

TITLES = {
    "stopped": ("The job has stopped, and nobody has stopped it", "No step has ended for a while",
                "A job hangs in the middle of a step"),
    "wrong": ("The loss explodes, and nobody has changed the model", "Two runs of the same job disagree"),
    "unsteady": ("Some steps take far longer than others", "No two steps take the same time"),
    "slower": ("A training job is slower since this morning", "Steps take longer than they did",
               "A job has lost a part of its speed"),
    "same": ("The job is as fast as ever, and an alert has fired", "Monitoring has turned red over night"),
}  # fmt: skip
TICKETS = ("", "Nothing was changed by us.", "Somebody was in the room on Friday.", "There was an update last week.",
           "Other jobs are fine, they say.")  # fmt: skip


@dataclass
class Made:
    """What came of a seed; `refused` is empty if it gives a drill."""

    seed: str
    aim: str = ""
    level: str = ""
    difficulty: float | None = None
    setting: str = ""
    classes: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    score: float | None = None
    text: str = ""
    refused: str = ""
    died: bool = False
    """Refused because a world has died, which says nothing of the seed."""
    players: dict[str, Worth] = field(default_factory=dict)
    """What those would have got who only look."""
    took_s: float = 0.0
    measured: list[Measured] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        told = {key: value for key, value in vars(self).items() if key not in ("text", "measured")}
        told["players"] = {name: one.to_dict() for name, one in self.players.items()}
        told["measured"] = [asdict(one) for one in self.measured]
        return {**told, "passes": not self.refused}


class Refused(Exception):
    """The seed gives no drill; why."""


def made(seed: str, level: str | None = None, family: str | None = None) -> Made:
    """Raises UserError only for what no seed can help."""
    found = Made(seed)
    began = time.monotonic()
    its = sketch(seed, level, family)
    found.aim, found.setting = its.aim, its.setting.name
    found.classes = tuple(r.fault for r in its.recipes)
    table(its.setting.name)  # without it nothing can be measured
    try:
        _make(its, level, found)
    except Refused as why:
        found.refused = str(why)
    except FabricdError as error:
        found.refused, found.died = f"the world has died: {error}", True
    except UserError as error:
        found.died = isinstance(error, WorldGone)
        found.refused = f"{error.what} ({error.where})" if error.where else error.what
    found.took_s = round(time.monotonic() - began, 1)
    return found


def _make(its: Sketch, level: str | None, found: Made) -> None:
    drill = drill_of(its, "A drill that is being made")
    if wrong := undrawable(drill):
        raise Refused(wrong[0])
    _must_be_unique(its, drill)
    with playing(drill, its.seed, healthy=True) as well, playing(drill, its.seed, healthy=False) as ill:
        seen, usual = signs.seen(ill, drill.views), signs.seen(well, drill.views)
        if seen == usual:
            raise Refused("not activated: no permitted view differs from the healthy twin's")
        job = symptom(steps(ill), steps(well), drill.warmup)
        own = signs.signed(seen, usual, job)
        found.measured = _measured(its, drill, ill, signs.named(seen, usual))
        found.views = tuple(dict.fromkeys(view for one in found.measured for view in one.views))
        found.difficulty = measure.difficulty(found.measured, len(its.twists))
        found.level = measure.level_of(found.difficulty)
        if level and found.level != level:
            raise Refused(f"it is {found.level} (difficulty {found.difficulty:g}), not {level}")
        if not _must_be_solved(drill, well, ill, found):
            its = its.without_mending()
    titles = TITLES[job]
    title, ticket = titles[its.dice % len(titles)], TICKETS[its.dice // 16 % len(TICKETS)]
    found.text = its.text(title, ticket, found.level, _evidence(own, found.views))


def _must_be_unique(its: Sketch, drill: Drill) -> None:
    """By the table alone, so before anything is brought up. Of which kind its place is does not depend on which of
    those that the job may pass is drawn."""
    case = Case.of(drill, its.seed, False)
    causes = case.draw(possible(case.experiment)).truth
    rows, whole = _rows(its, drill), table(its.setting.name)[sight_name(signs.SIGHTS[0])]
    for recipe, cause in zip(its.recipes, causes, strict=True):
        if not rows.get(recipe.key, frozenset()) - signs.NOTHING:
            raise Refused(f"not activated: {recipe.fault} shows nothing in the setting {its.setting.name}")
        one = measure.measured(rows[recipe.key], recipe.fault, rows, lambda _: 1)
        near = known_families(drill.views)
        if alike := measure.beyond(one.rivals, recipe.fault, kind_of(cause.place), near, whole):
            raise Refused(f"not unique: no permitted view tells {recipe.fault} from {', '.join(alike)}")


def _must_be_solved(drill: Drill, well: Game, ill: Game, found: Made) -> bool:
    """Whether mending may be asked for, too: not if what mends the fault brings the job nothing back."""
    answer = solve(well)
    if answer != HEALTHY:
        raise Refused(f"not solvable: the solver takes the healthy twin for {answer}")
    looked = answers(ill)
    checked = Checked(drill.id, found.seed)
    solved(ill, checked)
    ending = ill.ending
    if ending is None or ending.score is None:
        raise Refused(f"not solvable: {'; '.join(checked.wrong)}")
    course, points, mends = ending.outcome, ending.score.total, True
    if checked.wrong and ending.score.fixed is not None and ending.score.fixed < NOTHING_BACK:
        course, mends = replace(course, speed=None), False
        points = score(ending.answer, ill.stage.drawn.truth, course, ill.families).total
    found.score = points
    if checked.wrong and (mends or points < ENOUGH):
        raise Refused(f"not solvable: {'; '.join(checked.wrong)}")
    found.players = {name: worth(ill, one, course) for name, one in looked.items()}
    return mends


def _rows(its: Sketch, drill: Drill) -> Mapping[str, Signature]:
    return table(its.setting.name)[sight_name(drill.views)]


def _evidence(own: Signature, needed: Sequence[str]) -> list[str]:
    """Which views tell it, and by what."""
    parts = signs.by_view(own)
    found = []
    for view in dict.fromkeys((*needed, *signs.FIRST_LOOKS)):
        columns = sorted({column.rpartition(".")[2] for column in parts.get(view, ())})
        if view == signs.JOB:
            found.append(f"`show job`: the job is {columns[0]}" if columns else "`show job`: as ever")
        elif view == MESH:
            found.append("`probe mesh`: latencies")
        elif columns:
            found.append(f"`show {view}`: {', '.join(columns[:6])}")
    return found


def drill_of(its: Sketch, title: str) -> Drill:
    return loads(its.text(title, "", its.aim, ()), f"seed {its.seed}", id="drill")


def _measured(its: Sketch, drill: Drill, ill: Game, named: set[str]) -> list[Measured]:
    """A cause at a time, by the table's signatures of this setting at this sight."""
    rows = _rows(its, drill)
    fabric = ill.fabric
    ground = Ground(fabric, carried(fabric, ill.case.experiment, ill.stage.world.counters()["ports"]))
    found = []
    for recipe, cause in zip(its.recipes, ill.stage.drawn.truth, strict=True):
        narrow = any(measure.is_named(place, ground, named) for place in cause.resources)
        left = partial(measure.places_left, ground=ground, named=named, narrow=narrow)
        found.append(measure.measured(rows[recipe.key], recipe.fault, rows, left))
    return found
