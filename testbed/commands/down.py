"""`testbed down`: takes down a fabric that was left up."""

from __future__ import annotations

import json

import click

from testbed.commands import _fabric


@click.command()
@_fabric.either
@click.option("--all", "everything", is_flag=True, help="Every fabric that `testbed up` left up.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(fabric: str | None, everything: bool, as_json: bool) -> None:
    """Take down a live fabric.

    A fabric of a `testbed run` that still goes on belongs to that run: stop the run, or use `testbed clean ID --force`.

    \b
    Examples:
      testbed down
      testbed down 3f2a
      testbed down --all
    """
    from testbed.base.errors import InputError
    from testbed.fabric.lab import take_down
    from testbed.machine import ownership

    if fabric and everything:
        raise InputError("either a fabric or --all, not both", where="command line")
    if everything:
        records = [r for r in ownership.fabrics() if r.state == "alive" and r.standing]
    else:
        records = [ownership.find(fabric)]
    removed = [take_down(record) for record in records]
    if as_json:
        click.echo(json.dumps({"down": [r.to_dict() for r in removed]}))
        return
    for one in removed:
        click.echo(f"fabric {one.id} is down")
    if not removed:
        click.echo("no fabric is up")
