"""How far a world shall go on, as it is written: `200us`, `10 steps`, `until step > 1.2x`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from testbed.base.errors import InputError
from testbed.base.units import UnitError, parse_time
from testbed.live.look.world import AnyHeld
from testbed.world.condition import parse

Going = Callable[[AnyHeld], bool]


def read(what: Sequence[str], limit: str) -> Going:
    """What to do with a world; False if what was waited for has not come within `limit`. Raises InputError."""

    def time_of(text: str, where: str) -> int:
        try:
            ns = parse_time(text)
        except UnitError as error:
            raise InputError(error.what, where, error.hint) from None
        if ns != int(ns) or not 0 < ns <= 1e12:
            raise InputError(f"{text} cannot be gone on by", where, "whole ns, from 1ns to 1000s")
        return int(ns)

    limit_ns = time_of(limit, "--limit")
    words = " ".join(what).split() or [""]
    if words[0] == "until":
        condition = " ".join(words[1:])
        parse(condition)
        return lambda kept: kept.until(condition, limit_ns)
    if words[-1] in ("step", "steps"):
        if len(words) != 2 or not words[0].isdecimal() or not 0 < int(words[0][:9]) <= 10**6:
            raise InputError(f"{' '.join(words)!r} is no number of steps", "how far", "such as: 10 steps")
        return lambda kept: kept.advance_steps(int(words[0]), limit_ns)
    if len(words) != 1 or not words[0][:1].isdigit():
        hint = "a time such as 200us, a number such as `10 steps`, or until 'step > 1.2x'"
        raise InputError(f"{' '.join(words)!r} does not say how far", "how far", hint)
    ns = time_of(words[0], "how far")

    def advance(kept: AnyHeld) -> bool:
        kept.advance(ns)
        return True

    return advance
