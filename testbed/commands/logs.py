"""`testbed logs`: what the parts of a live or dead fabric have written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from testbed.base.ranges import Whole
from testbed.commands import _fabric

PARTS = {
    "fabricd": ("fabricd.log",),
    "controller": ("controller.log", "controller.out"),
    "ovs": ("ovs/*.log",),
    "workers": ("container*.log", "runc.log"),
    "jobs": ("jobs/*.log",),
}


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
    names = [pattern for p in ([part] if part else PARTS) for pattern in PARTS[p]]
    files = [path for pattern in names for path in sorted(record.dir.glob(pattern))]
    if as_json:
        found = {str(path.relative_to(record.dir)): last(path, lines) for path in files}
        click.echo(json.dumps({"fabric": record.id, "dir": str(record.dir), "logs": found}))
    elif follow:
        os.execvp("tail", ["tail", "-n", str(lines), "-F", *map(str, files)])
    else:
        for path in files:
            click.echo(f"==> {path} <==")
            click.echo("".join(f"{line}\n" for line in last(path, lines)))


def last(path: Path, lines: int) -> list[str]:
    """The last lines of a file, without what could move a terminal's cursor."""
    from testbed.base.text import printable

    text = path.read_text(errors="replace").splitlines()
    return [printable(line) for line in (text[-lines:] if lines else [])]
