"""How hard a drill is, and whether its answer is the only one, from what was seen of it and the table of signatures.

Difficulty is log2 of the hypotheses (classes and places) that the three first looks leave, one for each view that is
needed beyond one, and one for each twist of the sketch.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from testbed.drill.check.rivals import Signature, families
from testbed.drill.make import signs
from testbed.drill.make.stock import RECIPES
from testbed.drill.sheet.drill import Level
from testbed.drill.sheet.places import Ground
from testbed.drill.sheet.score import Families

EASY, MEDIUM = 2.0, 4.0


@dataclass(frozen=True)
class Measured:
    """Of one cause, or summed up of several."""

    classes: int  # that look like it in the three first looks, itself among them
    places: int  # that those looks leave
    views: tuple[str, ...]  # that tell it from all that can be told from it
    rivals: tuple[str, ...]  # classes that no permitted view tells from it


def level_of(difficulty: float) -> Level:
    return "easy" if difficulty < EASY else "medium" if difficulty < MEDIUM else "hard"


def difficulty(causes: Iterable[Measured], twists: int) -> float:
    every = list(causes)
    hypotheses = sum(math.log2(one.classes * one.places) for one in every)
    views = len({view for one in every for view in one.views})
    return round(hypotheses + max(0, views - 1) + twists, 3)


def measured(own: Signature, kind: str, rows: Mapping[str, Signature], places: int) -> Measured:
    """`rows`: of the same setting and sight, by recipe. A class is like it if one of its recipes is."""
    others: dict[str, list[Signature]] = {}
    for key, one in rows.items():
        others.setdefault(RECIPES[key].fault, []).append(one)
    others.pop(kind, None)

    def left(views: Collection[str]) -> set[str]:
        its = signs.of_views(own, views)
        return {
            other for other, ones in others.items() if any(signs.alike(its, signs.of_views(s, views)) for s in ones)
        }

    every = sorted({view for one in (own, *rows.values()) for view in signs.by_view(one)})
    rivals = left(every)
    chosen: list[str] = []
    while not chosen or left(chosen) - rivals:
        rest = [view for view in every if view not in chosen]
        if not rest:
            break
        chosen.append(min(rest, key=lambda view: (len(left([*chosen, view])), view not in signs.FIRST_LOOKS, view)))
    return Measured(1 + len(left(signs.FIRST_LOOKS)), max(1, places), tuple(chosen), tuple(sorted(rivals)))


def places_left(candidates: Iterable[str], ground: Ground, named: Collection[str]) -> int:
    """How many of the places are named by what differs in the first looks; all, if none is."""
    every = list(candidates)
    fabric = ground.fabric

    def is_named(place: str) -> bool:
        if place in named:
            return True
        kind, _, name = place.partition(":")
        if kind == "switch":
            return any(one.startswith(f"port:{name}:") for one in named)
        if kind != "cable":
            return False
        cable = fabric.cable_by_name[name]
        ends = [f"port:{end.node}:{end.port}" for end in (cable.a, cable.b)]
        return any(end in named for end in ends)

    return len([place for place in every if is_named(place)]) or len(every)


def beyond(rivals: Collection[str], kind: str, known: Families, rows: Mapping[str, Signature]) -> list[str]:
    """The rivals that are not of its family: of the computed ones, or of those that the whole sight of the setting
    makes."""
    by_class: dict[str, Signature] = {}
    for key, one in rows.items():
        by_class.setdefault(RECIPES[key].fault, one)
    near = {other for group in (*known, *families(by_class)) if kind in group for other in group}
    return sorted(set(rivals) - near)
