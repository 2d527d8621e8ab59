"""`testbed down`: takes down a fabric that was left up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from testbed.commands import _fabric

if TYPE_CHECKING:
    from testbed.machine.ownership import Record


@click.command()
@_fabric.either
@click.option("--all", "everything", is_flag=True, help="Every fabric that `testbed up` left up, whosever it is.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(fabric: str | None, everything: bool, as_json: bool) -> None:
    """Take down a live fabric.

    Without ID it is the only one that is up, if this user has brought it up from this checkout and no job runs on it.

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
        records = [ownership.find(fabric) if fabric else _ours()]
    removed = [take_down(record) for record in records]
    if as_json:
        click.echo(json.dumps({"down": [r.to_dict() for r in removed]}))
        return
    for fabric_down in removed:
        click.echo(f"fabric {fabric_down.id} is down")
    if not removed:
        click.echo("no fabric is up")


def _ours() -> Record:
    """The only fabric that is up. Raises UserError for one that somebody else may need."""
    from testbed.base.errors import InputError
    from testbed.live import jobs
    from testbed.machine import ownership
    from testbed.machine.maker import Maker

    record = ownership.find(None)
    called = f"{record.id} ({record.name})"
    sure = f"testbed down {record.id} takes it down all the same"
    if record.by not in (Maker.here(), Maker()):
        what = f"{record.by.user} has brought up fabric {called}, from {record.by.checkout}"
        raise InputError(what, "command line", sure)
    if record.standing and (job := jobs.running(record)):
        what = f"job {job.id} ({job.info['name']}) runs on fabric {called}"
        raise InputError(what, "command line", f"testbed job stop {job.id}, or wait; {sure}")
    return record
