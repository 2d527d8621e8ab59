"""Actions carried out, recorded, and taken back.

An action takes effect at the emulated time at which it is given. Then its cost passes: on a world that holds `advance`
lets it, on any other fabric time passes by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from hardware.client import FabricdError
from testbed.base.errors import InputError, UserError
from testbed.operate.record import Done, Record, opened
from testbed.operate.registry import ACTIONS
from testbed.operate.steps.site import Site
from testbed.operate.steps.steps import Doing, take_back, undone
from testbed.words.entry import find

Advance = Callable[[float], object]
"""Lets so much emulated time pass, in ns."""
ROLLBACK = "rollback"


def config(site: Site, words: Sequence[str], advance: Advance | None = None) -> list[Done]:
    """Carries out a line of `config`: an action, or `rollback [N|all]`.

    Raises UserError: then nothing was done, unless it says so.
    """
    if words[:1] == [ROLLBACK]:
        return rollback(site, _which(words[1:]), advance)
    return [carry_out(site, words, advance)]


def carry_out(site: Site, words: Sequence[str], advance: Advance | None = None) -> Done:
    """Carries out the action that these words name. Raises UserError: then nothing was done, unless it says so."""
    action, rest = find(ACTIONS.values(), words)
    values = action.read(rest, site.fabric)
    with opened(site.directory) as record:
        before = record.entries()
        doing = Doing(site, len(before) + 1, " ".join(words))
        now_ns = site.now_ns
        try:
            for step in action.steps(site, **values):
                step.do(doing)
        except BaseException as error:
            undone(site, doing)
            if isinstance(error, FabricdError):
                raise UserError(str(error), action.words) from None
            if isinstance(error, UserError) and not error.where:
                error.where = action.words  # such as what Open vSwitch says of a flow
            raise
        for_good = "; ".join(doing.for_good) or ("" if doing.undo else "it changed nothing")
        undo = () if doing.for_good else tuple(doing.undo)
        done = Done(doing.number, doing.line, now_ns, action.cost_ns, tuple(doing.notes), undo, for_good)
        done = _recorded(site, record, done)
    if not action.passes:
        _pass(advance, action.cost_ns)
    return done


def rollback(site: Site, which: int | Literal["all"] | None, advance: Advance | None = None) -> list[Done]:
    """Takes back an action by its number, the last one that can be (None), or all, last first. Raises UserError."""
    with opened(site.directory) as record:
        entries = record.entries()
        left = [e for e in reversed(entries) if e.undo and e.rolled_back_ns is None]
        if which is None or which == "all":
            chosen = left if which == "all" else left[:1]
            if not chosen:
                raise InputError(
                    "there is nothing to take back", ROLLBACK, "testbed show config log lists what was done"
                )
        else:
            chosen = [_one(entries, which)]
        undone = [_back(site, record, entry) for entry in chosen]
    for done in undone:
        if not find(ACTIONS.values(), done.line.split())[0].passes:
            _pass(advance, done.cost_ns)
    return undone


def _one(entries: Sequence[Done], number: int) -> Done:
    entry = next((e for e in entries if e.number == number), None)
    if entry is None:
        known = (
            "nothing was done yet" if not entries else f"1 to {len(entries)}" if len(entries) > 1 else "there is one: 1"
        )
        raise InputError(f"there is no action {number}", ROLLBACK, known)
    if entry.rolled_back_ns is not None:
        raise InputError(f"{number} ({entry.line}) was rolled back already", ROLLBACK)
    if not entry.undo:
        raise InputError(f"{number} ({entry.line}) cannot be rolled back: {entry.for_good}", ROLLBACK)
    return entry


def _back(site: Site, record: Record, entry: Done) -> Done:
    now_ns = site.now_ns
    try:
        gone = take_back(site, list(entry.undo))
    except FabricdError as error:
        raise UserError(str(error), f"{ROLLBACK} {entry.number}") from None
    notes = ("a later action had undone it",) if len(gone) == len(entry.undo) else ()
    return _recorded(site, record, Done(entry.number, entry.line, now_ns, entry.cost_ns, notes, rollback=True))


def _recorded(site: Site, record: Record, done: Done) -> Done:
    """What was done stands in the record, and whether everybody has followed: also if nobody waits for it now."""
    late = "whether everybody has followed is not known"
    try:
        late = site.settle()
    except FabricdError as error:
        raise UserError(f"it is done, but {error}", done.line) from None
    finally:
        done = replace(done, notes=(*done.notes, *([late] if late else [])))
        record.add(done)
    return done


def _which(words: Sequence[str]) -> int | Literal["all"] | None:
    if not words:
        return None
    if list(words) == ["all"]:
        return "all"
    if len(words) == 1 and words[0].isascii() and words[0].isdecimal() and len(words[0]) < 10:
        return int(words[0])
    raise InputError(f"{' '.join(words)!r} names no action", ROLLBACK, "rollback, rollback N, or rollback all")


def _pass(advance: Advance | None, cost_ns: float) -> None:
    if advance is not None:
        advance(cost_ns)
