"""`testbed probe` and `testbed capture`: made from the entries of `TOOLS`."""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial
from typing import Any

import click

from testbed.commands import _entries, _views
from testbed.commands._held import held
from testbed.live.tools import TOOLS


def under(verb: str) -> _entries.Makers:
    """The commands of a verb, by the words that are left."""
    full = [words for words in TOOLS if words.split()[0] == verb]
    return {words.removeprefix(verb).strip(): partial(command, words) for words in full}


def command(words: str) -> click.Command:
    tool = TOOLS[words]

    def run(fabric: str | None, as_json: bool, **given: Any) -> None:
        from testbed.fabric.lab import Lab

        with held(fabric) as world, closing(world.lab if world else Lab.attach(fabric)) as lab:
            tables = tool.run(world or lab, **tool.values(_entries.texts(tool, given), lab.fabric))
        if as_json:
            click.echo(json.dumps({table.name: table.rows for table in tables}))
        else:
            _views.show_tables(tables)

    as_json = click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object on stdout.")
    made = _entries.command(tool, "", [as_json], run)
    made.name = words.rpartition(" ")[2]
    return made
