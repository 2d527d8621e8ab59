"""What a command prints: whoever has written it, it moves no cursor and sets no title."""

from __future__ import annotations

import click

from testbed.base.text import fit


def say(text: object, *, err: bool = False) -> None:
    click.echo(fit(str(text)), err=err)
