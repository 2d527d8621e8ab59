"""`testbed exec`: a command in a rank's container."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.commands import _fabric

if TYPE_CHECKING:
    from testbed.fabric.lab import Lab


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_fabric.option
@click.option("--tty/--no-tty", default=None, help="With a terminal of its own (default: if we have one).")
@click.argument("rank")
@click.argument("argv", nargs=-1, required=True, metavar="CMD...")
def command(fabric: str | None, tty: bool | None, rank: str, argv: tuple[str, ...]) -> None:
    """Run CMD in the container of RANK, with our standard input and output; its exit code is ours.

    That is 127 if there is no such command, and 126 if it cannot be executed. A rank of a fabric that was left up gets
    its container with the first command; it stays until the fabric goes down.

    \b
    Examples:
      testbed exec 0 -- id
      testbed exec 2 -- ping -c3 10.0.0.1
      testbed exec --fabric 3f2a 0 -- bash
    """
    from testbed.base.errors import InputError
    from testbed.fabric.lab import Lab

    behind, argv = _fabric.leading(argv)  # `exec 0 --fabric ID -- CMD`
    if not argv or argv == ("--",):
        raise InputError("the command to run is missing", "command line", "testbed exec --help")
    fabric = _fabric.one_of(behind, fabric)
    lab = Lab.attach(fabric)
    try:
        terminal = sys.stdin.isatty() and sys.stdout.isatty() if tty is None else tty
        run, env = lab.exec_command(
            _fabric.rank_of(lab, rank), _through_env(lab, argv[1:] if argv[0] == "--" else argv), tty=terminal
        )
        if sys.stderr.isatty():  # for a terminal only: a program gets the command's own output
            _fabric.note_without_interfaces(lab)
    finally:
        lab.close()
    os.execvpe(run[0], run, env)


def _through_env(lab: Lab, argv: tuple[str, ...]) -> tuple[str, ...]:
    """By way of env, which ends with 127 where there is no such command, as a shell does; runc always says 255."""
    image = lab.state.get("image")
    there = image is None or (Path(image["rootfs"]) / "usr/bin/env").exists()
    return ("env", "--", *argv) if there and argv and "=" not in argv[0] else argv
