"""`testbed runs`: what is stored here; tags; what may go."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from testbed.base.ranges import Whole
from testbed.commands._complete import RUN

if TYPE_CHECKING:
    from results.store.shelf import Stored

_STATES = ("complete", "failed", "killed", "running", "damaged")
_AGES = {"min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


class Age(click.ParamType[float]):
    """`30min`, `12h`, `7d`, `2w`, in seconds."""

    name = "age"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(min|h|d|w)", str(value))
        if match is None:
            self.fail(f"{value!r} is no age: say 30min, 12h, 7d or 2w", param, ctx)
        return float(match[1]) * _AGES[match[2]]


_NAME = click.option("--name", "names", multiple=True, metavar="PATTERN", help="Only these, as incast*; may repeat.")
_STATE = click.option("--state", "states", multiple=True, type=click.Choice(_STATES), help="Only these; may repeat.")
_TAG = click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only those with this tag; may repeat.")


@click.group(invoke_without_command=True)
@_NAME
@_STATE
@_TAG
@click.option(
    "--sort", type=click.Choice(("began", "name", "size")), default="began", help="The latest, or largest, first."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@click.pass_context
def command(
    ctx: click.Context,
    names: tuple[str, ...],
    states: tuple[str, ...],
    tags: tuple[str, ...],
    sort: str,
    as_json: bool,
) -> None:
    """List what is stored in results/runs, tag it, prune it.

    Of each run and sweep its state, verdict, size, tags. `tag` and `untag` mark them, `prune`
    throws away those that are no longer needed.

    \b
    Examples:
      testbed runs
      testbed runs --name "incast*" --state complete --sort size
      testbed runs --json
    """
    if ctx.invoked_subcommand is not None:
        if names or states or tags or as_json or sort != "began":
            raise click.UsageError(f"options of a list stand behind {ctx.invoked_subcommand}, or without it", ctx)
        return
    from results.store.shelf import shelf

    stored = shelf(names=names, states=states, tags=tags, sort=sort)
    if as_json:
        click.echo(json.dumps({"runs": [run.to_dict() for run in stored]}))
    elif stored:
        _show(stored)
    else:
        click.echo("no runs" + (" that match" if names or states or tags else " in results/runs"))


@command.command("tag")
@click.argument("run", shell_complete=RUN)
@click.argument("tags", nargs=-1, required=True, metavar="TAG..")
def add(run: str, tags: tuple[str, ...]) -> None:
    """Give RUN tags. What has a tag is not pruned.

    \b
    Examples:
      testbed runs tag quickstart paper figure-3
    """
    _change(run, tags, ())


@command.command("untag")
@click.argument("run", shell_complete=RUN)
@click.argument("tags", nargs=-1, required=True, metavar="TAG..")
def remove(run: str, tags: tuple[str, ...]) -> None:
    """Take tags of RUN away.

    \b
    Examples:
      testbed runs untag quickstart figure-3
    """
    _change(run, (), tags)


def _change(run: str, add: Sequence[str], remove: Sequence[str]) -> None:
    from results.store.load import find
    from results.store.shelf import tag

    path = find(run)
    click.echo(f"{path.name}: {', '.join(tag(path, add, remove)) or 'no tags'}")


@command.command("prune")
@_NAME
@_STATE
@_TAG
@click.option("--keep", type=Whole(0), default=0, metavar="N", help="Not the latest N of those.")
@click.option("--older", type=Age(), metavar="AGE", help="Only what began so long ago: 12h, 7d, 2w.")
@click.option("--yes", is_flag=True, help="Remove them; without it only say what would go.")
def prune(
    names: tuple[str, ...], states: tuple[str, ...], tags: tuple[str, ...], keep: int, older: float | None, yes: bool
) -> None:
    """Remove stored runs. Say which: by name, state, tag, age, or all but the latest. What still runs stays, and so
    does what has a tag, unless it is asked for.

    \b
    Examples:
      testbed runs prune --state failed --state killed
      testbed runs prune --older 4w --keep 20
    """
    from results.store.folder import StoreError
    from results.store.shelf import shelf, superfluous, throw_away
    from testbed.base.errors import InputError, MachineError

    if not (names or states or tags or keep or older):
        hint = "--name, --state, --tag, --older or --keep"
        raise InputError("nothing says which runs may go", "command line", hint)
    gone = superfluous(shelf(names=names, states=states, tags=tags), keep=keep, older_s=older or 0, tags=tags)
    for run in gone:
        if yes:
            try:
                throw_away(run)
            except StoreError as error:
                raise MachineError(error.what, error.where, error.hint) from None
        click.echo(f"{'removed' if yes else 'would remove'} {run.path} ({_bytes(run.size_bytes)})")
    if not gone:
        click.echo("nothing to remove")
    elif not yes:
        click.echo(f"{len(gone)} runs, {_bytes(sum(run.size_bytes for run in gone))}: --yes removes them")


def _show(stored: Sequence[Stored]) -> None:
    from rich.markup import escape
    from rich.table import Column, Table

    from testbed.tables.results import show

    table = Table("run", "state", "verdict", "began", Column("size", justify="right"), "tags", box=None, pad_edge=False)
    for run in stored:
        points = f", {run.points} points" if run.points is not None else ""
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.began))
        cells = (run.name, run.state + points, run.verdict or "", began, _bytes(run.size_bytes), " ".join(run.tags))
        table.add_row(*map(escape, cells))
    show(table, wide=True)


def _bytes(count: int) -> str:
    from results.figures.values import size_label

    return size_label(count)
