"""`testbed logs`: what the parts of a live or dead fabric have written."""

from __future__ import annotations

import json
import os

import click

from testbed.base.ranges import Whole
from testbed.commands import _fabric
from testbed.live.logs import PARTS, last, written


@click.command()
@_fabric.either
@click.option("--part", type=click.Choice(list(PARTS)), help="Only what this part has written.")
@click.option("-n", "--lines", type=Whole(0), default=20, show_default=True, help="Lines of each file.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(fabric: str | None, part: str | None, lines: int, follow: bool, as_json: bool) -> None:
    """Show the logs of the fabric ID (default: the only one that is up): fabricd, controller, ovs, workers, jobs.

    What the workers of a run have written is in the run's folder, `logs/`.

    \b
    Examples:
      testbed logs
      testbed logs 3f2a --part ovs -n 5
    """
    from testbed.machine import ownership

    record = ownership.find(fabric)
    files = written(record.dir, [part] if part else list(PARTS))
    if as_json:
        found = {str(path.relative_to(record.dir)): last(path, lines) for path in files}
        click.echo(json.dumps({"fabric": record.id, "dir": str(record.dir), "logs": found}))
    elif follow:
        os.execvp("tail", ["tail", "-n", str(lines), "-F", *map(str, files)])
    else:
        for path in files:
            click.echo(f"==> {path} <==")
            click.echo("".join(f"{line}\n" for line in last(path, lines)))
