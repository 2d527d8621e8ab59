"""`testbed inspect`: where on this machine a live fabric is."""

from __future__ import annotations

import json
from typing import Any

import click

from testbed.commands import _fabric


@click.command()
@_fabric.either
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(fabric: str | None, as_json: bool) -> None:
    """Show where each rank of the fabric ID is (host, container, interface, addresses, switch port), and each switch.

    The last lines are to be typed as they stand: they look at a switch from where it is.

    \b
    Examples:
      testbed inspect
      testbed inspect 3f2a --json
    """
    from testbed.fabric.lab import Lab
    from testbed.live.inspection import inspect_fabric

    lab = Lab.attach(fabric)
    try:
        found = inspect_fabric(lab)
    finally:
        lab.close()
    if as_json:
        click.echo(json.dumps(found))
        return
    _show("ranks", found["ranks"])
    click.echo()
    _show("switches", found["switches"])
    click.echo()
    for line in found["type"]:
        click.echo(line)


def _show(name: str, rows: list[dict[str, Any]]) -> None:
    from testbed.tables.results import counters, show

    flat = [{key: ", ".join(value) if isinstance(value, list) else value for key, value in row.items()} for row in rows]
    show(counters(name, flat, whole=True), wide=True)
