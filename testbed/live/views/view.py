"""A view: one entry of the registry, from its words to its tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from testbed.base.errors import InputError
from testbed.base.units import format_time
from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.words import kinds
from testbed.words.entry import Entry, Parameter
from testbed.words.kinds import Since

_CHANGED = "Count from then on (300us: so long ago; @300us: then); leave out what did not change."
CHANGED = Parameter("changed", kinds.SINCE, _CHANGED, True)
RATES = Parameter("rates", kinds.FLAG, "Per second of emulated time, not counts.", True)
NONZERO = Parameter("nonzero", kinds.FLAG, "Leave out what has counted nothing.", True)


@dataclass(frozen=True, kw_only=True)
class View(Entry):
    """Its tables are made by `make(look, **parameters)`; `show` does so as it was asked for."""

    make: Callable[..., list[Table]]
    rated: bool = False
    """It shows rates of its own, so a `Look` at it needs a `before`."""

    def show(
        self, look: Look, *, changed: Since | None = None, rates: bool = False, nonzero: bool = False, **values: Any
    ) -> list[Table]:
        """Raises InputError."""
        if rates and changed is None:
            if look.before is None:
                raise InputError("rates over what time?", self.words, f"{CHANGED.flag} SINCE")
            look = replace(look, then=look.before)
        elif changed is not None:
            look = look.changed(changed)
        tables = self.make(look, **values)
        if changed is not None or nonzero:
            tables = [without_zeros(table) for table in tables]
        return [_per_second(table, look.passed_ns) for table in tables] if rates else tables


def counting(*, parameters: tuple[Parameter, ...] = (), **about: Any) -> View:
    """A view of counters."""
    return View(parameters=(*parameters, CHANGED, RATES, NONZERO), **about)


def without_zeros(table: Table) -> Table:
    """Rows that counted something."""
    return replace(table, rows=[row for row in table.rows if any(table.counts(row).values())])


def _per_second(table: Table, passed_ns: float) -> Table:
    if table.watermarks:
        return table
    rows = [{**row, **{k: _rate(v, passed_ns) for k, v in table.counts(row).items()}} for row in table.rows]
    over = f"per second of emulated time, over the last {format_time(passed_ns)}"
    return replace(table, rows=rows, title=f"{table.title}, {over}" if table.title else over.capitalize())


def _rate(count: float, passed_ns: float) -> float | None:
    return round(count * 1e9 / passed_ns) if passed_ns > 0 else None
