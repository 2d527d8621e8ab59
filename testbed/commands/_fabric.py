"""How a command gets the fabric that it is for: `--fabric ID`, and with many commands the ID alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.commands._complete import FABRIC

if TYPE_CHECKING:
    from testbed.fabric.lab import Lab

ABOUT = "The fabric (default: the only one that is up)."
option = click.option("--fabric", metavar="ID", shell_complete=FABRIC, help=ABOUT)


def named() -> click.Option:
    """`--fabric ID`, for a command that is made."""
    return click.Option(["--fabric"], metavar="ID", shell_complete=FABRIC, help=ABOUT)


def both() -> list[click.Parameter]:
    """`[ID]` and `--fabric ID`, for a command that is made and whose callback is `either_of` something."""
    by_option = click.Option(["--fabric", "by_option"], metavar="ID", shell_complete=FABRIC, help="The same as ID.")
    return [click.Argument(["fabric"], required=False, metavar="[ID]", shell_complete=FABRIC), by_option]


def either_of(function: Callable[..., None]) -> Callable[..., None]:
    """The function gets `fabric`, however it was named."""

    @wraps(function)
    def with_one(fabric: str | None, by_option: str | None, **others: Any) -> None:
        function(fabric=one_of(fabric, by_option), **others)

    return with_one


def either(function: Callable[..., None]) -> Callable[..., None]:
    """`[ID]` or `--fabric ID`: the function gets `fabric`."""
    argument = click.argument("fabric", required=False, metavar="[ID]", shell_complete=FABRIC)
    by_option = click.option("--fabric", "by_option", metavar="ID", shell_complete=FABRIC, help="The same as ID.")
    return argument(by_option(either_of(function)))


def one_of(fabric: str | None, by_option: str | None) -> str | None:
    """The fabric that was named, once or twice. Raises InputError for two."""
    from testbed.base.errors import InputError

    if fabric and by_option and fabric != by_option:
        raise InputError(f"two fabrics are named: {fabric} and --fabric {by_option}", "command line", "name one")
    return by_option or fabric


def leading(words: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """`--fabric ID` at the front of words that are otherwise a command's own, and the rest of them."""
    if words[:1] == ("--fabric",) and len(words) > 1:
        return words[1], words[2:]
    if words and words[0].startswith("--fabric="):
        return words[0].partition("=")[2], words[1:]
    return None, words


def note_without_interfaces(lab: Lab) -> None:
    """If hosts have no interfaces, says on stderr why ping and the like find no network."""
    if not lab.kernel:
        note = (
            "with the virtual clock a host has no network interface: no ping, no tcpdump; its workloads do not need one"
        )
        click.echo(f"note: {note}", err=True)


def rank_of(lab: Lab, word: str) -> int:
    """The rank that a word on the command line means, also by its NIC's name, or its host's if that has one.

    Raises InputError that says which there are.
    """
    from testbed.base.errors import InputError
    from testbed.words.kinds import RANK, Wrong

    try:
        return int(RANK.read(word, lab.fabric))
    except Wrong as wrong:
        raise InputError(wrong.what, "command line", wrong.hint) from None


def is_fabric(name: str) -> bool:
    """Whether that is the id of a fabric, and no folder."""
    from testbed.machine import ownership

    return not Path(name).exists() and name in {r.id for r in ownership.fabrics()}
