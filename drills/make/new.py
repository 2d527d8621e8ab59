"""A drill made from a seed: drawn, played with its fault and without, measured, solved; or refused, with the reason."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
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
from drills.make.measure import Hardness
from drills.make.signatures import table
from drills.make.sketch import Sketch, sketch
from drills.make.stock import Recipe
from drills.sheet.carried import measured as carried
from drills.sheet.carried import possible
from drills.sheet.case import Case
from drills.sheet.drill import Drill
from drills.sheet.families import of as known_families
from drills.sheet.families import sight_name
from drills.sheet.file import loads
from drills.sheet.places import Ground
from drills.sheet.score import score
from drills.sheet.truth import HEALTHY, Cause, kind_of
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
class MadeDrill:
    """`refused`: why the seed gives no drill ("": it does)."""

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
    """Refused because a world has died, which is not the seed's fault."""
    players: dict[str, Worth] = field(default_factory=dict)
    """Of players who only look."""
    took_s: float = 0.0
    measured: list[Hardness] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        data = {key: value for key, value in vars(self).items() if key != "text"}
        data["players"] = {name: one.to_dict() for name, one in self.players.items()}
        data["measured"] = [asdict(one) for one in self.measured]
        return {**data, "passes": not self.refused}


class NoDrill(Exception):
    """The seed gives no drill; why."""


def made(seed: str, level: str | None = None, family: str | None = None) -> MadeDrill:
    """Raises UserError if no seed could do better."""
    result = MadeDrill(seed)
    began = time.monotonic()
    drawn = sketch(seed, level, family)
    result.aim, result.setting = drawn.aim, drawn.setting.name
    result.classes = tuple(r.fault for r in drawn.recipes)
    table(drawn.setting.name)  # without it nothing can be measured
    try:
        _make(drawn, level, result)
    except NoDrill as why:
        result.refused = str(why)
    except FabricdError as error:
        result.refused, result.died = f"the world has died: {error}", True
    except UserError as error:
        result.died = isinstance(error, WorldGone)
        result.refused = f"{error.what} ({error.where})" if error.where else error.what
    result.took_s = round(time.monotonic() - began, 1)
    return result


def _make(drawn: Sketch, level: str | None, result: MadeDrill) -> None:
    drill = drill_of(drawn, "A drill that is being made")
    if wrong := undrawable(drill):
        raise NoDrill(wrong[0])
    _must_be_unique(drawn, drill)
    with playing(drill, drawn.seed, healthy=True) as well, playing(drill, drawn.seed, healthy=False) as ill:
        seen, usual = signs.seen(ill, drill.views), signs.seen(well, drill.views)
        if seen == usual:
            raise NoDrill("not activated: no permitted view differs from the healthy twin's")
        job = symptom(steps(ill), steps(well), drill.warmup)
        own = signs.signed(seen, usual, job)
        result.measured = _measured(drawn, drill, ill, signs.named(seen, usual))
        result.views = tuple(dict.fromkeys(view for one in result.measured for view in one.views))
        result.difficulty = measure.difficulty(result.measured, len(drawn.twists))
        result.level = measure.level_of(result.difficulty)
        if level and result.level != level:
            raise NoDrill(f"it is {result.level} (difficulty {result.difficulty:g}), not {level}")
        if not _must_be_solved(drill, well, ill, result):
            drawn = drawn.without_mending()
    titles = TITLES[job]
    title, ticket = titles[drawn.dice % len(titles)], TICKETS[drawn.dice // 16 % len(TICKETS)]
    result.text = drawn.text(title, ticket, result.level, list(_evidence(own, result.views)))


def _must_be_unique(drawn: Sketch, drill: Drill) -> None:
    """By the table alone, before any world is brought up: the kind of the place is the same whichever is drawn."""
    case = Case.of(drill, drawn.seed, False)
    causes = case.draw(possible(case.experiment)).truth
    rows, full_sight = _rows(drawn, drill), table(drawn.setting.name)[sight_name(signs.SIGHTS[0])]
    for recipe, cause in zip(drawn.recipes, causes, strict=True):
        if not rows.get(recipe.key, frozenset()) - signs.NOTHING:
            raise NoDrill(f"not activated: {recipe.fault} shows nothing in the setting {drawn.setting.name}")
        one = measure.measured(rows[recipe.key], recipe.fault, rows, lambda _: 1)
        known = known_families(drill.views)
        if alike := measure.beyond(one.rivals, recipe.fault, kind_of(cause.place), known, full_sight):
            raise NoDrill(f"not unique: no permitted view tells {recipe.fault} from {', '.join(alike)}")


def _must_be_solved(drill: Drill, well: Game, ill: Game, result: MadeDrill) -> bool:
    """Whether mending may be asked for, too: not if it brings the job nothing back."""
    answer = solve(well)
    if answer != HEALTHY:
        raise NoDrill(f"not solvable: the solver takes the healthy twin for {answer}")
    looked = answers(ill)
    checked = Checked(drill.id, result.seed)
    solved(ill, checked)
    ending = ill.ending
    if ending is None or ending.score is None:
        raise NoDrill(f"not solvable: {'; '.join(checked.wrong)}")
    conduct, points, mends = ending.conduct, ending.score.total, True
    if checked.wrong and ending.score.fixed is not None and ending.score.fixed < NOTHING_BACK:
        conduct, mends = replace(conduct, speed=None), False
        points = score(ending.answer, ill.stage.drawn.truth, conduct, ill.families).total
    result.score = points
    if checked.wrong and (mends or points < ENOUGH):
        raise NoDrill(f"not solvable: {'; '.join(checked.wrong)}")
    result.players = {name: worth(ill, one, conduct) for name, one in looked.items()}
    return mends


def _rows(drawn: Sketch, drill: Drill) -> Mapping[str, Signature]:
    return table(drawn.setting.name)[sight_name(drill.views)]


def _evidence(own: Signature, needed: Sequence[str]) -> Iterator[str]:
    """Which views show it, and by what columns."""
    parts = signs.by_view(own)
    for view in dict.fromkeys((*needed, *signs.FIRST_LOOKS)):
        columns = sorted({column.rpartition(".")[2] for column in parts.get(view, ())})
        if view == signs.JOB:
            yield f"`show job`: the job is {columns[0]}" if columns else "`show job`: as ever"
        elif view == MESH:
            yield "`probe mesh`: latencies"
        elif columns:
            yield f"`show {view}`: {', '.join(columns[:6])}"


def drill_of(drawn: Sketch, title: str) -> Drill:
    return loads(drawn.text(title, "", drawn.aim, ()), f"seed {drawn.seed}", id="drill")


def _measured(drawn: Sketch, drill: Drill, ill: Game, named: set[str]) -> list[Hardness]:
    """Of each cause, by the table's signatures of this setting at this sight."""
    rows, fabric = _rows(drawn, drill), ill.fabric
    ground = Ground(fabric, carried(fabric, ill.case.experiment, ill.stage.world.counters()["ports"]))

    def hardness(recipe: Recipe, cause: Cause) -> Hardness:
        narrow = any(measure.is_named(place, ground, named) for place in cause.resources)
        left = partial(measure.places_left, ground=ground, named=named, narrow=narrow)
        return measure.measured(rows[recipe.key], recipe.fault, rows, left)

    return list(map(hardness, drawn.recipes, ill.stage.drawn.truth))
