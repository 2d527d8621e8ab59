"""`testbed heal`: takes a fault out of a live fabric."""

from __future__ import annotations

import json

import click

from testbed.commands import _fabric
from testbed.commands._complete import HEALABLE


@click.command()
@click.argument("fault", metavar="ID|all", shell_complete=HEALABLE)
@_fabric.option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(fault: str, fabric: str | None, as_json: bool) -> None:
    """Undo the fault ID, or all of them.

    The others stay exactly as they are.

    \b
    Examples:
      testbed heal f1
      testbed heal all
    """
    from testbed.commands._held import held
    from testbed.inject.live import heal

    with held(fabric) as kept:
        healed = kept.take_out(fault) if kept else heal(fault, fabric)
    if as_json:
        click.echo(json.dumps({"healed": healed}))
    else:
        click.echo(f"healed: {', '.join(healed)}" if healed else "there was no fault")
