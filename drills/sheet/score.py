"""The score of a game. Nothing here knows a fabric.

    S = 100 (0.10 D + 0.35 L + 0.25 T + 0.20 M + 0.10 E) - H - B - W        0 at least, 100 at most

    D  1 if healthy or faulty is right
    L  F1 of the sets of places: 2 hit / (answered + true)
    T  F1 of pairs of class and place: 2 w / (answered + true); w counts 1.0 for the class, 0.7 for one of its family
    M  how much of the lost job speed is back: (v - v_fault) / (v_mended - v_fault), from 0 to 1
    E  L exp(-t / tau): a fast answer counts as far as it names the right places
    H  0, 5, 10, 20 for no, one, two, three hints        W  10 for each wrong answer before the last
    B  30 x job time that the student's actions have cost, of the time from the first look to the last answer

If mending is not asked for, or the fault has cost the job less than 1 % of its healthy speed, M's weight goes to L and
T in equal parts.  Of a healthy world
S = 100 for `healthy` and 0 for anything else, less H, B and W.

v is the speed of the job (right steps per emulated time), 0 if in the end another workload runs than the drill's;
v_fault is that of the twin world in which the student did nothing, v_mended that in which the cause was healed when
he first acted on the fabric, all at the same emulated time. If that twin is no faster than v_fault by 1 % of the
healthy speed (the cause was healed too late to show, or the job's queue pairs are dead until it begins anew), the
healthy speed stands for v_mended: acting late never voids M. E has L as a factor because otherwise a list of
everything would have D's and E's weight for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from drills.sheet.answer import Claim, Submission
from drills.sheet.truth import Cause, Truth, kind_of

DETECTED, PLACE, KIND, MENDED, SPEED = 0.10, 0.35, 0.25, 0.20, 0.10
FAMILY = 0.7
HINTS = (0.0, 5.0, 10.0, 20.0)
WRONG = 10.0
DAMAGE = 30.0
DIGITS = 4
NOTHING_TO_WIN = 0.01
"""Share of the healthy speed that must be lost by the fault for M to say anything."""

Families = Mapping[tuple[str, str], frozenset[str]]
"""By the kind of place and a class, the classes that no permitted evidence separates from it there."""
NO_FAMILIES: Families = MappingProxyType({})


@dataclass(frozen=True)
class Conduct:
    """What counts besides the answer."""

    t_ns: float = 0.0  # emulated time from the first look to the last answer
    tau_ns: float = 1.0
    hints: int = 0
    wrong: int = 0  # answers before the last
    lost_ns: float = 0.0  # job time that the student's actions have cost
    speed: float | None = None  # of the job; None: mending is not asked for
    speed_fault: float = 0.0
    speed_mended: float = 0.0
    speed_healthy: float = 0.0  # 0: that of the mended twin


@dataclass(frozen=True)
class Score:
    """Its parts, each from 0 to 1, what is taken off, and the sum."""

    detected: float
    where: float
    what: float
    fixed: float | None  # None: does not count
    speed: float
    hints: float
    damage: float
    wrong: float
    total: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def score(answer: Submission | None, truth: Truth, course: Conduct, families: Families = NO_FAMILIES) -> Score:
    """Of an answer, or of none at all: that is 0."""
    hints = HINTS[min(course.hints, len(HINTS) - 1)]
    wrong = WRONG * course.wrong
    damage = DAMAGE * min(1.0, max(0.0, course.lost_ns) / course.t_ns) if course.t_ns > 0 else 0.0
    taken = hints + wrong + damage
    if answer is None:
        return Score(0.0, 0.0, 0.0, None, 0.0, hints, damage, wrong, 0.0)
    detected = float(answer.healthy == (not truth))
    if not truth:
        total = _bounded(100 * detected - taken)
        return Score(detected, detected, detected, None, detected, hints, damage, wrong, total)
    where, what = places(answer.claims, truth), kinds(answer.claims, truth, families)
    fixed = mended(course)
    speed = where * math.exp(-course.t_ns / course.tau_ns)
    spare = MENDED / 2 if fixed is None else 0.0
    gained = DETECTED * detected + (PLACE + spare) * where + (KIND + spare) * what + SPEED * speed
    gained += MENDED * (fixed or 0.0)
    return Score(detected, where, what, fixed, speed, hints, damage, wrong, _bounded(100 * gained - taken))


def right(answer: Submission, truth: Truth, families: Families = NO_FAMILIES) -> bool:
    """Whether nothing is missing and nothing is too much; a class of the family will do."""
    if answer.healthy or not truth:
        return answer.healthy and not truth
    matched, count = _matched(answer.claims, truth, families)
    return len(matched) == len(truth) == count and places(answer.claims, truth) == 1.0


def places(claims: Sequence[Claim], truth: Sequence[Cause]) -> float:
    """L."""
    true = {cause.place: cause.resources for cause in truth}
    hit: set[str] = set()
    others: set[str] = set()
    for place in {claim.place: None for claim in claims}:
        names = [canonical for canonical, resources in true.items() if place in resources]
        if names:
            hit.add(next((name for name in names if name not in hit), names[0]))
        else:
            others.add(place)
    return 2 * len(hit) / (len(hit) + len(others) + len(true)) if truth else 0.0


def kinds(claims: Sequence[Claim], truth: Sequence[Cause], families: Families = NO_FAMILIES) -> float:
    """T."""
    matched, count = _matched(claims, truth, families)
    return 2 * sum(matched.values()) / (count + len(truth)) if truth else 0.0


def _matched(claims: Sequence[Claim], truth: Sequence[Cause], families: Families) -> tuple[dict[int, float], int]:
    """The causes that were named, with their weight, and how many different pairs were claimed (a class at two names
    of one place is one)."""
    matched: dict[int, float] = {}
    pairs: set[tuple[str, str]] = set()
    for weight in (1.0, FAMILY):
        for claim in claims:
            pair = (claim.kind, _canonical(claim.place, truth))
            if pair in pairs:
                continue
            for k, cause in enumerate(truth):
                family = families.get((kind_of(cause.place), cause.kind), ())
                same = claim.kind == cause.kind if weight == 1.0 else claim.kind in family
                if k not in matched and same and claim.place in cause.resources:
                    matched[k] = weight
                    pairs.add(pair)
                    break
    return matched, len({(claim.kind, _canonical(claim.place, truth)) for claim in claims})


def _canonical(place: str, truth: Sequence[Cause]) -> str:
    return next((cause.place for cause in truth if place in cause.resources), place)


def mended(course: Conduct) -> float | None:
    """M; None if it does not count."""
    if course.speed is None:
        return None
    healthy = max(course.speed_healthy, course.speed_mended)
    least = NOTHING_TO_WIN * healthy
    if healthy - course.speed_fault <= least:
        return None
    lost = course.speed_mended - course.speed_fault
    if lost <= least:
        lost = healthy - course.speed_fault
    return min(1.0, max(0.0, (course.speed - course.speed_fault) / lost))


def _bounded(value: float) -> float:
    return round(min(100.0, max(0.0, value)), DIGITS)
