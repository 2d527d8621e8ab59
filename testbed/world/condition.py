"""What `testbed advance until ..` waits for: `step > 1.2x`, `step > 50us`, `drops > 0`.

A condition is one quantity, a comparison and a value. A quantity of steps is looked at for each step that ends, what
is counted is counted from the time when the wait began.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.base.units import UnitError, parse_time

if TYPE_CHECKING:
    from testbed.live.look.world import AnyHeld
    from testbed.world.steps import Step

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(r"\s*([a-z_]+)\s*(>=|<=|>|<)\s*(\S+)\s*")


@dataclass(frozen=True)
class Quantity:
    """What a condition may be about. One of the three says how it is had; `about` is for people."""

    about: str
    of_step: Callable[[Step], float] | None = None
    counted: Callable[[Mapping[str, Any]], float] | None = None
    of_world: Callable[[AnyHeld], float] | None = None
    time: bool = False
    """Its value is a time."""


def _sum(frame: str, *keys: str) -> Callable[[Mapping[str, Any]], float]:
    return lambda counters: float(sum(row.get(key, 0) for row in counters[frame] for key in keys))


QUANTITIES = {
    "step": Quantity("time of a step, also as a multiple of the best one: 1.2x", lambda s: s.time_ns, time=True),
    "wrong": Quantity("wrong elements in a step's results", lambda s: s.wrong),
    "drops": Quantity("frames that were dropped since", counted=_sum("drops", "count")),
    "marks": Quantity("frames that switches have marked since", counted=_sum("ports", "ecn_marked")),
    "cnps": Quantity("congestion notifications that NICs have sent since", counted=_sum("nics", "np_cnp_sent")),
    "time": Quantity("the clock", of_world=lambda world: world.time_ns, time=True),
}


@dataclass
class Condition:
    """A condition, and from when on it is looked at."""

    text: str
    quantity: Quantity
    compare: Callable[[float, float], bool]
    value: float
    relative: bool = False
    """The value is a multiple of the best step's."""

    def watched(self, world: AnyHeld) -> Callable[[AnyHeld], bool]:
        """The same from now on."""
        seen = len(world.steps)
        before = self.quantity.counted(world.counters()) if self.quantity.counted else 0.0

        def met(world: AnyHeld) -> bool:
            nonlocal seen
            if self.quantity.of_step:
                ended, seen = world.steps[seen:], len(world.steps)
                best = world.best_ns or 1.0
                return any(self._holds(self.quantity.of_step(step), best) for step in ended)
            if self.quantity.counted:
                return self._holds(self.quantity.counted(world.counters()) - before)
            assert self.quantity.of_world
            return self._holds(self.quantity.of_world(world))

        return met

    def _holds(self, is_now: float, best: float = 1.0) -> bool:
        return self.compare(is_now, self.value * best if self.relative else self.value)


def parse(text: str, where: str = "command line") -> Condition:
    """`where` it was written, for errors. Raises InputError."""
    match = _FORM.fullmatch(text)
    names = ", ".join(QUANTITIES)
    if not match:
        hint = f"QUANTITY > VALUE, such as 'step > 1.2x', 'step > 50us', 'drops > 0'; quantities: {names}"
        raise InputError(f"{text!r} is no condition", where, hint)
    name, sign, value = match.groups()
    if name not in QUANTITIES:
        raise InputError(f"{name!r} is nothing that can be waited for", where, f"quantities: {names}")
    quantity = QUANTITIES[name]
    if quantity.of_step and quantity.time and re.fullmatch(r"[0-9.]+x", value):
        return Condition(text, quantity, _COMPARISONS[sign], _number(text, value[:-1], where), relative=True)
    if quantity.time:
        try:
            return Condition(text, quantity, _COMPARISONS[sign], parse_time(value))
        except UnitError as error:
            more = ", or a multiple of the best step, such as 1.2x" if quantity.of_step else ""
            raise InputError(error.what, f"{where}: {text}", error.hint + more) from None
    return Condition(text, quantity, _COMPARISONS[sign], _number(text, value, where))


def _number(text: str, value: str, where: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(f"{value!r} is not a number", f"{where}: {text}", "such as 'drops > 0'") from None
