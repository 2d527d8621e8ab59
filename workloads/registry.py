"""What workers can run: one entry per collective and per algorithm (entries/), and nothing about it in a second place.

The experiment file is validated against these entries, the worker loads an algorithm's code from here, and tables, also
those of docs/collectives.md, take from here what they say.  Imports neither numpy nor anything that touches a machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.base.entry import Algorithm, Collective
from workloads.base.vocabulary import AUTO, LIBRARY
from workloads.entries.hosts import HOSTS
from workloads.entries.library import BY_LIBRARY
from workloads.entries.offloads import OFFLOADS
from workloads.entries.programs import PROGRAMS
from workloads.own.name import FORM, parse


class UnknownCollective(ValueError):
    """No such entry: `what` names it, `hint` lists the ones there are."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what} ({hint})")
        self.what = what
        self.hint = hint


_ENTRIES = (*HOSTS, *OFFLOADS, *PROGRAMS)

ALGORITHMS: dict[tuple[str, str], Algorithm] = {(e.collective.name, e.name): e for e in _ENTRIES}
"""(collective, algorithm) -> entry.  The first algorithm of a collective is its default."""

_BY_LIBRARY: dict[str, dict[str | None, Algorithm]] = {}
for _one in BY_LIBRARY:
    _BY_LIBRARY.setdefault(_one.collective.name, {})[_one.name] = _one

COLLECTIVES: dict[str, Collective] = {e.collective.name: e.collective for e in _ENTRIES}


def algorithms(collective: str) -> list[Algorithm]:
    """The algorithms of a collective, its default first.  Raises UnknownCollective."""
    if collective not in COLLECTIVES:
        raise UnknownCollective(f"no collective called {collective!r}", f"there are {', '.join(COLLECTIVES)}")
    return [entry for entry in _ENTRIES if entry.collective.name == collective]


def find(collective: str, algorithm: str | None = None) -> Algorithm:
    """The entry of a collective and algorithm (None: its default; or of a user's file).  Raises UnknownCollective."""
    known = {entry.name: entry for entry in algorithms(collective)}
    if algorithm in _BY_LIBRARY.get(collective, {}):
        return _BY_LIBRARY[collective][algorithm]
    if algorithm is not None and (name := parse(algorithm)) and name.digest:
        from workloads.own.algorithm import entry_of

        return entry_of(_like(collective), algorithm)
    if algorithm is not None and algorithm not in known:
        raise UnknownCollective(f"{collective} has no algorithm called {algorithm!r}", f"it has {', '.join(known)}")
    return known[algorithm or next(iter(known))]


def shipped(told: Mapping[str, Any]) -> Algorithm:
    """The entry that a plan's step names; of a user's file without the file, with what the plan has of it."""
    if "programs" not in told:
        return find(told["collective"], told["algorithm"])
    from workloads.own.shipped import shipped

    return shipped(_like(told["collective"]), told["algorithm"], told)


def _like(collective: str) -> Algorithm:
    """What algorithms of a user's own have in common with ours.  Raises UnknownCollective."""
    if not (found := choices(collective)):
        raise UnknownCollective(f"{collective} is not done by schedules of hosts", f"not by {FORM}")
    return found[0]


def choices(collective: str, *, offloads: bool = False) -> list[Algorithm]:
    """The algorithms that AUTO chooses from; with what NICs and switches do, too.  Raises UnknownCollective."""
    return [entry for entry in algorithms(collective) if entry.schedule or (offloads and entry.offloaded)]


def any_of(collective: str, algorithm: str) -> Algorithm:
    """The entry; of AUTO any that it may choose, for what all have in common.  Raises UnknownCollective."""
    if algorithm == LIBRARY and collective in _BY_LIBRARY:
        return next(iter(_BY_LIBRARY[collective].values()))
    if algorithm != AUTO:
        return find(collective, algorithm)
    if not (found := choices(collective)):
        raise UnknownCollective(f"{collective} has no algorithms to choose from", "leave algorithm out")
    return found[0]


def by_library() -> dict[str, list[str]]:
    """Which collectives steps may have carried out as a library does, and its algorithms for each."""
    return {name: [its.name for its in entries.values()] for name, entries in _BY_LIBRARY.items()}


def unpredicted(collective: str, algorithm: str) -> tuple[str, str] | None:
    """Which of a step's two keys says what there is no model of (AUTO: of none of its choices), and why there is none.

    Raises UnknownCollective.
    """
    if why := COLLECTIVES[collective].unpredicted:
        return "collective", why
    entries = choices(collective) if algorithm == AUTO else [any_of(collective, algorithm)]
    return ("algorithm", entries[0].unpredicted) if entries and all(e.unpredicted for e in entries) else None


def extra(collective: str, algorithm: str) -> tuple[str, ...]:
    """The keys of a step that not every collective heeds, and this algorithm (AUTO: one of its choices) does."""
    heeding = choices(collective) if algorithm == AUTO else [any_of(collective, algorithm)]
    return tuple(dict.fromkeys(key for entry in heeding for key in entry.extra))


def unequal(collective: str) -> bool:
    """Whether its ranks' parts differ, while the factor of its bus bandwidth takes them as equal."""
    its = COLLECTIVES.get(collective)
    return its is not None and its.busbw.of(2) != 1 and any("parts" in entry.extra for entry in algorithms(collective))


def heeding(key: str) -> str:
    """Who heeds a key of a step, in words: collectives, or algorithms of some."""
    heeds = [entry for entry in _ENTRIES if key in entry.extra]
    whole = {c.name for c in COLLECTIVES.values() if all(key in entry.extra for entry in algorithms(c.name))}
    words = [c for c in dict.fromkeys(entry.collective.name for entry in heeds) if c in whole]
    for name in dict.fromkeys(entry.name for entry in heeds if entry.collective.name not in whole):
        its = [entry.collective.name for entry in heeds if entry.name == name]
        has_it = [entry.collective.name for entry in _ENTRIES if entry.name == name]
        words.append(name if its == has_it else f"{' and '.join(its)} by {name}")
    return ", ".join(words)
