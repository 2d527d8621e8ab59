"""How hard a drill is, and whether its answer is the only one, from what was seen of it and the table of signatures.

Difficulty is log2 of the hypotheses that the three first looks leave, one for each view that is needed beyond one, and
one for each twist of the sketch. A hypothesis is a class at a place. Who plays does not know where a drill draws its
places from, so a class may be at any place of the fabric that the job passes and that such a fault can strike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
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
class Measured:
    """Of one cause."""

    classes: tuple[str, ...]  # that look like it in the three first looks, itself among them
    hypotheses: int  # those classes, each at every place that those looks leave
    views: tuple[str, ...]  # that tell it from all that can be told from it
    rivals: tuple[str, ...]  # classes that no permitted view tells from it


def level_of(difficulty: float) -> Level:
    return "easy" if difficulty < EASY else "medium" if difficulty < MEDIUM else "hard"


def difficulty(causes: Iterable[Measured], twists: int) -> float:
    every = list(causes)
    hypotheses = sum(math.log2(one.hypotheses) for one in every)
    views = len({view for one in every for view in one.views})
    return round(hypotheses + max(0, views - 1) + twists, 3)


def measured(own: Signature, kind: str, rows: Mapping[str, Signature], places: Callable[[str], int]) -> Measured:
    """`rows`: of the same setting and sight, by recipe. A class is like it if one of its recipes is. `places`: how many
    the first looks leave of a class."""
    others: dict[str, list[Signature]] = {}
    for key, one in rows.items():
        others.setdefault(RECIPES[key].fault, []).append(one)
    others.pop(kind, None)

    def left(views: Collection[str]) -> set[str]:
        its = signs.of_views(own, views)
        return {
            other for other, ones in others.items() if any(signs.resemble(its, signs.of_views(s, views)) for s in ones)
        }

    every = sorted({view for one in (own, *rows.values()) for view in signs.by_view(one)})
    rivals = left(every)
    chosen: list[str] = []
    while not chosen or left(chosen) - rivals:
        rest = [view for view in every if view not in chosen]
        if not rest:
            break
        chosen.append(min(rest, key=lambda view: (len(left([*chosen, view])), view not in signs.FIRST_LOOKS, view)))
    classes = (kind, *sorted(left(signs.FIRST_LOOKS)))
    return Measured(classes, sum(places(one) for one in classes), tuple(chosen), tuple(sorted(rivals)))


def places_of(kind: str, ground: Ground) -> list[str]:
    """All places at which a class can be: a cable and the ports and NICs at its ends are one. Only those that the job
    passes, where some of its kind are known to be; `all` if it has no place of its own."""
    on = CATALOGUE[kind].on
    kinds: list[str] = [one for one in ("cable", "switch") if one in on]
    kinds += [one for one in ("nic", "port", "flow") if one in on and "cable" not in on and "switch" not in on]
    return [place for one in kinds for place in _passed(ground.all_of(one), ground)] or ["all"]


def _passed(places: list[str], ground: Ground) -> list[str]:
    return [place for place in places if place in ground.carries] or places


def places_left(kind: str, ground: Ground, named: Collection[str], narrow: bool) -> int:
    """How many places the first looks leave of a class; `narrow`: it is at one of those that they name."""
    every = places_of(kind, ground)
    return max(1, len([place for place in every if is_named(place, ground, named)])) if narrow else len(every)


def is_named(place: str, ground: Ground, named: Collection[str]) -> bool:
    """Whether a row names the place, or an end of it, or a port of it. NICs tell who suffers, ports tell where: a NIC's
    row names its cable only if no row names a port."""
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
    """The rivals that are not of its family: of the computed ones at that kind of place, or of those that the whole
    sight of the setting makes."""
    by_class: dict[str, Signature] = {}
    for key, one in rows.items():
        by_class.setdefault(RECIPES[key].fault, one)
    near = set(known.get((at, kind), ()))
    near |= {other for group in indistinct(by_class) if kind in group for other in group}
    return sorted(set(rivals) - near)
