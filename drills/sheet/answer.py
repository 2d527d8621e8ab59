"""An answer as it is written: `healthy`, or `CLASS@PLACE` of each cause.

All classes of the catalogue and all places of the fabric can be answered, so that the grammar leaks nothing of a drill.
"""

from __future__ import annotations

from dataclasses import dataclass

from drills.sheet.truth import HEALTHY, kind_of
from testbed.base.errors import InputError, Problem
from testbed.base.types import unknown
from testbed.faults import CATALOGUE
from topologies.graph.fabric import Fabric, TopologyError
from topologies.graph.targets import FORMS, named, resolve

FORM = "healthy, or CLASS@PLACE, such as loss@cable:leaf0-spine0; of several causes several, with a space between"
MOST = 1000


@dataclass(frozen=True)
class Claim:
    """One cause that is claimed; the place by its canonical name."""

    kind: str
    place: str

    def __str__(self) -> str:
        return f"{self.kind}@{self.place}"


@dataclass(frozen=True)
class Submission:
    """What was answered: `claims` are none for `healthy`."""

    claims: tuple[Claim, ...]

    @property
    def healthy(self) -> bool:
        return not self.claims

    def __str__(self) -> str:
        return " ".join(map(str, self.claims)) or HEALTHY


def parse(text: str, fabric: Fabric) -> Submission:
    """Raises InputError, with everything that is wrong."""
    words = text.replace(",", " ").split()
    if not words:
        raise InputError("an answer is missing", "submit", FORM)
    if words == [HEALTHY]:
        return Submission(())
    if HEALTHY in words:
        raise InputError("either it is healthy or something is wrong", f"submit {text[:80]}", FORM)
    if len(words) > MOST:
        raise InputError(f"{len(words)} causes", "submit", f"{MOST} at most")
    problems: list[Problem] = []
    claims: dict[Claim, None] = {}
    for word in words:
        try:
            claims[_claim(word, fabric)] = None
        except InputError as error:
            problems.append(Problem(error.what, error.where, error.hint))
    if problems:
        raise InputError.several(problems)
    return Submission(tuple(claims))


def _claim(word: str, fabric: Fabric) -> Claim:
    kind, at, place = word.partition("@")
    where = f"submit {word[:80]}"
    if not at or not place:
        raise InputError(f"{word[:60]!r} names no place", where, FORM)
    if kind not in CATALOGUE:
        what, hint = unknown("class", kind, list(CATALOGUE))
        raise InputError(what, where, hint)
    try:
        return Claim(kind, str(resolve(fabric, named(fabric, place) or place)))
    except TopologyError as error:
        raise InputError(f"{place[:60]}: {error.what}", where, error.hint or FORMS) from None


def fits(kind: str, place: str) -> bool:
    """Whether a class can be at such a place. A cable is also named by the ports at its ends."""
    on = CATALOGUE[kind].on
    return kind_of(place) in on or ("cable" in on and kind_of(place) == "port")


def must_fit(answer: Submission) -> None:
    """Raises InputError, with every claim whose class cannot be there."""
    problems = [
        Problem(f"{one.kind} is at: {' '.join(CATALOGUE[one.kind].on)}", f"submit {one}", "classes lists all of them")
        for one in answer.claims
        if not fits(one.kind, one.place)
    ]
    if problems:
        raise InputError.several(problems)


def offered(begun: str, fabric: Fabric) -> list[str]:
    """Whole answers that begin so, the same in every drill."""
    from drills.sheet.places import Ground

    kind, at, _ = begun.partition("@")
    if not at:
        return [name for name in (HEALTHY, *(f"{name}@" for name in CATALOGUE)) if name.startswith(begun)]
    ground = Ground(fabric, ())
    places = [place for of in ("cable", "switch", "port", "nic") for place in ground.all_of(of)]
    return [whole for place in (*places, "all", "controller") if (whole := f"{kind}@{place}").startswith(begun)]
