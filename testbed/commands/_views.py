"""The views of a live fabric under `testbed show`: pfc, ecn, queues, interfaces .., all with the same options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.base.ranges import Number
from testbed.commands import _fabric

if TYPE_CHECKING:
    from testbed.fabric.lab import Lab
    from testbed.live.views import Counters, Table

PERIOD_S = 1.0
_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("-c", "--clear", is_flag=True, help="Count from now on; nothing is shown. Watermarks stay."),
    click.option("-d", "--delete", is_flag=True, help="Forget -c: count from when the fabric came up."),
    click.option("-p", "--period", type=Number(0.01, 3600), default=PERIOD_S, show_default=True,
                 metavar="SECONDS", help="Wall time over which rates are taken."),
    click.option("--nonzero", is_flag=True, help="Leave out rows in which all counters are 0."),
    click.option("--watch", is_flag=True, help="Print again each period, until Ctrl-C."),
    click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON."),
)  # fmt: skip


def options(function: Callable[..., None]) -> Callable[..., None]:
    """The options that all views have."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def add(group: click.Group) -> None:
    """Adds the views to `testbed show`."""
    _view(group, "pfc", "Show PFC frames received and sent, by priority, of a live fabric's ports.")
    _view(group, "ecn", "Show ECN marks by queue, and congestion notifications by NIC, of a live fabric.")
    _view(group, "queues", "Show queue counters and watermarks of a live fabric's switches.")
    _view(group, "qps", "Show the queue pairs of a live fabric's NICs.")
    _view(group, "drops", "Show what a live fabric has dropped, where and why.")

    @group.group("interfaces")
    def interfaces() -> None:
        """Show the interfaces of a live fabric: `status` or `counters`.

        \b
        Examples:
          testbed show interfaces status
          testbed show interfaces counters -c
        """

    _view(interfaces, "status", "Show speed, MTU, state and peer of every port of a live fabric.", "interfaces status")
    _view(interfaces, "counters", "Show frames, rates and drops of a live fabric's switches.", "interfaces counters")


def _view(group: click.Group, name: str, about: str, words: str = "") -> None:
    words = words or name
    text = f"{about}\n\n\b\nExamples:\n  testbed show {words}\n  testbed show {words} 3f2a --watch"

    @group.command(name, help=text)
    @_fabric.either
    @options
    def show_view(fabric: str | None, **chosen: Any) -> None:
        live(name, fabric, **chosen)


def live(
    view: str,
    fabric: str | None,
    *,
    clear: bool = False,
    delete: bool = False,
    period: float = PERIOD_S,
    nonzero: bool = False,
    watch: bool = False,
    as_json: bool = False,
) -> None:
    """Shows a view of a live fabric, once or each period."""
    import time

    from testbed.base.errors import InputError
    from testbed.fabric.lab import Lab
    from testbed.live.views import VIEWS, Snapshot

    if clear and delete:
        raise InputError("-c and -d are each other's opposites", "command line", "give one of them")
    lab = Lab.attach(fabric)
    try:
        kept = lab.dir / f"cleared-{view}.json"
        if clear:
            kept.write_text(json.dumps(lab.fabricd.request("counters")))
            click.echo(f"{view} of fabric {lab.id} count from now on", err=True)
            return
        if delete:
            kept.unlink(missing_ok=True)
        cleared = json.loads(kept.read_text()) if kept.exists() else None
        before = _sample_before(lab, view, period)
        while True:
            now = lab.fabricd.request("counters")
            tables = VIEWS[view](Snapshot(now, before, cleared, mtu_of_nics(lab.dir)))
            if watch and not as_json:
                click.clear()
                click.echo(f"fabric {lab.id}, emulated time {now['time_ns'] / 1000:.3f} us")
            _print([_without_zeros(t) if nonzero else t for t in tables], as_json, nonzero)
            if not watch:
                return
            before = now
            time.sleep(period)
    finally:
        lab.close()


def mtu_of_nics(folder: Path) -> int:
    """The NICs' MTU, from the live fabric's experiment."""
    return int(json.loads((folder / "experiment.json").read_text())["fabric"]["nic"]["mtu"])


def _sample_before(lab: Lab, view: str, period: float) -> Counters | None:
    """The counters of a period ago, for rates."""
    import time

    if view != "counters":
        return None
    before = lab.fabricd.request("counters")
    time.sleep(period)
    return before


def _without_zeros(table: Table) -> Table:
    """Rows that counted something: a number in a column that is not part of the row's name."""
    from dataclasses import replace

    named = ("MTU", "rank", "qp", "peer", "peer_qp")
    rows = [r for r in table.rows if any(v for k, v in r.items() if isinstance(v, int | float) and k not in named)]
    return replace(table, rows=rows)


def _print(tables: list[Table], as_json: bool, nonzero: bool) -> None:
    from testbed.run.table import counters, show

    if as_json:
        many = len(tables) > 1
        click.echo(json.dumps({t.name: t.rows for t in tables} if many else tables[0].rows))
        return
    for number, table in enumerate(tables):
        if number:
            click.echo()
        if table.title:
            click.echo(table.title)
        if table.rows or not nonzero:
            show(counters(table.name, table.rows, whole=True), wide=True)
        else:
            click.echo(f"{table.name}: nothing but zeros")


def is_fabric(name: str) -> bool:
    """Whether that is the id of a fabric, and no folder."""
    from testbed.machine import ownership

    return not Path(name).exists() and name in {r.id for r in ownership.fabrics()}
