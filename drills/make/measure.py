"""How hard a drill is, and whether its answer is the only one, from its views and the table of signatures.

Difficulty is log2 of the hypotheses that the first looks leave, one for each view that is needed beyond one, and one
for each twist of the sketch. A hypothesis is a class at a place. A player does not know where a drill draws its places
from, so a class may be at any place that the job passes and that such a fault can strike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from drills.check.marks import Signature
from drills.check.rivals import indistinct
from drills.make import signs
from drills.make.stock import RECIPES
from drills.sheet.drill import Level
from drills.sheet.places import Ground
from drills.sheet.score import Families
from testbed.faults import CATALOGUE
from topologies.graph.targets import CableTarget, NicTarget, PortTarget, SwitchTarget

EASY, MEDIUM = 2.0, 4.0


@dataclass(frozen=True)
class Hardness:
    """Of one cause."""

    classes: tuple[str, ...]  # that look like it in the first looks, itself among them
    hypotheses: int  # those classes, each at every place that those looks leave
    views: tuple[str, ...]  # that tell it from all that can be told from it
    rivals: tuple[str, ...]  # classes that no permitted view tells from it


def level_of(difficulty: float) -> Level:
    return "easy" if difficulty < EASY else "medium" if difficulty < MEDIUM else "hard"


def difficulty(causes: Sequence[Hardness], twists: int) -> float:
    hypotheses = sum(math.log2(one.hypotheses) for one in causes)
    views = len({view for one in causes for view in one.views})
    return round(hypotheses + max(0, views - 1) + twists, 3)


def measured(own: Signature, kind: str, rows: Mapping[str, Signature], places: Callable[[str], int]) -> Hardness:
    """`rows`: signatures of the same setting and sight, by recipe. A class is like it if one of its recipes is.
    `places`: how many the first looks leave of a class."""
    others = [(RECIPES[key].fault, signature) for key, signature in rows.items() if RECIPES[key].fault != kind]

    def left(views: Collection[str]) -> set[str]:
        seen = signs.of_views(own, views)
        return {other for other, signature in others if signs.resemble(seen, signs.of_views(signature, views))}

    every = sorted({view for one in (own, *rows.values()) for view in signs.by_view(one)})
    rivals = left(every)
    chosen: list[str] = []
    while not chosen or left(chosen) - rivals:
        rest = [view for view in every if view not in chosen]
        if not rest:
            break
        chosen.append(min(rest, key=lambda view: (len(left([*chosen, view])), view not in signs.FIRST_LOOKS, view)))
    classes = (kind, *sorted(left(signs.FIRST_LOOKS)))
    return Hardness(classes, sum(places(one) for one in classes), tuple(chosen), tuple(sorted(rivals)))


def places_of(kind: str, ground: Ground) -> list[str]:
    """All places at which a class can be, where a cable and the ports and NICs at its ends are one. Of each kind those
    that the job passes, if any; `all` if the class has no place."""
    on = CATALOGUE[kind].on
    kinds: list[str] = [one for one in ("cable", "switch") if one in on]
    kinds = kinds or [one for one in ("nic", "port", "flow") if one in on]

    def passed(places: list[str]) -> list[str]:
        return [place for place in places if place in ground.carries] or places

    return [place for one in kinds for place in passed(ground.all_of(one))] or ["all"]


def places_left(kind: str, ground: Ground, named: Collection[str], narrow: bool) -> int:
    """How many places the first looks leave for a class; `narrow`: only those that they name."""
    every = places_of(kind, ground)
    return max(1, len([place for place in every if is_named(place, ground, named)])) if narrow else len(every)


def is_named(place: str, ground: Ground, named: Collection[str]) -> bool:
    """Whether a row names the place, or an end or port of it. NICs show who suffers, ports show where: a NIC's row
    names its cable only if no row names a port."""
    if place in named:
        return True
    fabric = ground.fabric
    ports = any(one.startswith("port:") for one in named)
    match ground.target(place):
        case CableTarget(cable):
            nodes = () if ports else (cable.a.node, cable.b.node)
            nics = [f"nic:{fabric.nic_by_name[node].rank}" for node in nodes if node in fabric.nic_by_name]
            return any(end in named for end in (*nics, *(f"port:{e.node}:{e.port}" for e in (cable.a, cable.b))))
        case PortTarget(cable=cable):
            return is_named(f"cable:{cable.name}", ground, named)
        case NicTarget(nic):
            return any(one.startswith(f"port:{nic.name}:") for one in named)
        case SwitchTarget(switch):
            return any(one.startswith(f"port:{switch.name}:") for one in named)
    return False


def beyond(rivals: Collection[str], kind: str, at: str, known: Families, rows: Mapping[str, Signature]) -> list[str]:
    """The rivals that are not of its family, by the known families at that kind of place, and by the signatures of the
    setting at full sight."""
    by_class: dict[str, Signature] = {}
    for key, one in rows.items():
        by_class.setdefault(RECIPES[key].fault, one)
    near = set(known.get((at, kind), ()))
    near |= {other for group in indistinct(by_class) if kind in group for other in group}
    return sorted(set(rivals) - near)
