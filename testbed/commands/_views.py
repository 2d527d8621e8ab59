"""The views of a live fabric under `testbed show`: one command an entry of `VIEWS`, all with the same options."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from testbed.base.ranges import Number
from testbed.commands import _entries
from testbed.live.views import VIEWS
from testbed.live.views.view import without_zeros

if TYPE_CHECKING:
    from testbed.live.look.look import Source
    from testbed.live.look.table import Counters, Table
    from testbed.live.views.view import View

PERIOD_S = 1.0


def _own() -> list[click.Option]:
    """The options that all views have."""
    return [
        click.Option(["-c", "--clear"], is_flag=True, help="Count from now on; nothing is shown. Watermarks stay."),
        click.Option(["-d", "--delete"], is_flag=True, help="Forget -c: count from when the fabric came up."),
        click.Option(["-p", "--period"], type=Number(0.01, 3600), default=PERIOD_S, show_default=True,
                     metavar="SECONDS", help="Wall time over which rates are taken."),
        click.Option(["--nonzero"], is_flag=True, help="Leave out rows in which all counters are 0."),
        click.Option(["--watch"], is_flag=True, help="Print again each period, until Ctrl-C."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print the rows as JSON."),
    ]  # fmt: skip


def options(function: Callable[..., None]) -> Callable[..., None]:
    """The options of views of counters, for a command that shows one among other things."""
    counting = [p for p in _entries.parameters(VIEWS["interfaces counters"]) if isinstance(p, click.Option)]
    own = [option for option in _own() if option.name not in {one.name for one in counting}]
    made = [*getattr(function, "__click_params__", ()), *reversed([*own, *counting])]
    function.__click_params__ = made  # type: ignore[attr-defined]  # as click.option does
    return function


def commands() -> _entries.Makers:
    """The commands under `testbed show` that look at live fabrics."""

    return {words: partial(_command, view) for words, view in VIEWS.items()}


def _command(view: View) -> click.Command:
    def run(fabric: str | None, **given: Any) -> None:
        live(view, fabric, **given)

    own = [option for option in _own() if option.name not in {p.name for p in view.parameters}]
    return _entries.command(view, "show", own, run)


def live(
    view: View,
    fabric: str | None,
    *,
    clear: bool = False,
    delete: bool = False,
    period: float = PERIOD_S,
    nonzero: bool = False,
    watch: bool = False,
    as_json: bool = False,
    **given: Any,
) -> None:
    """Shows a view of a live fabric, once or each period."""
    import time

    from testbed.base.errors import InputError
    from testbed.commands._held import source_of
    from testbed.fabric.lab import Lab
    from testbed.live.look.look import Look

    if clear and delete:
        raise InputError("-c and -d are each other's opposites", "command line", "give one of them")
    with closing(Lab.attach(fabric)) as lab:
        source = source_of(lab)
        kept = lab.dir / f"cleared-{view.words.replace(' ', '-')}.json"
        if clear:
            kept.write_text(json.dumps(source.counters()))
            click.echo(f"{view.words} of fabric {lab.id} count from now on", err=True)
            return
        if delete:
            kept.unlink(missing_ok=True)
        values = view.values(_entries.texts(view, given), lab.fabric)
        cleared = json.loads(kept.read_text()) if kept.exists() else None
        before = None
        if view.rated or given.get("rates"):
            before = _before(source, period)
        while True:
            now = source.counters()
            tables = view.show(Look(source, now, before, cleared), **values)
            if watch and not as_json:
                click.clear()
                click.echo(f"fabric {lab.id}, emulated time {now['time_ns'] / 1000:.3f} us")
            tables = [without_zeros(t) if nonzero else t for t in tables]
            if as_json:
                click.echo(json.dumps({t.name: t.rows for t in tables} if len(tables) > 1 else tables[0].rows))
            else:
                show_tables(tables, nonzero=nonzero or bool(given.get("changed")))
            if not watch:
                return
            before = now
            time.sleep(period)


def _before(source: Source, period: float) -> Counters:
    """The counters of a moment ago: of a world that stands still the last that were kept."""
    import time

    now = source.counters()
    for time_ns, counters in reversed(source.history()):
        if time_ns < now["time_ns"]:
            return counters
    time.sleep(period)
    return now


def show_tables(tables: list[Table], *, nonzero: bool = False) -> None:
    """Prints them one below the other; `nonzero`: what is not there was zero."""
    from testbed.tables.results import counters, show

    for number, table in enumerate(tables):
        if number:
            click.echo()
        if table.title:
            click.echo(table.title)
        if table.rows or not nonzero:
            show(counters(table.name, table.rows, whole=True), wide=True)
        else:
            click.echo(f"{table.name}: nothing but zeros")
