"""`testbed exec`: a command in a rank's container, or in those of all ranks."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.commands import _fabric

if TYPE_CHECKING:
    from testbed.fabric.lab import Lab


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_fabric.option
@click.option("--tty/--no-tty", default=None, help="With a terminal of its own (default: if we have one).")
@click.option("--all", "everywhere", is_flag=True, help="At all ranks at a time, in torchrun's environment.")
@click.option("--ssh", is_flag=True, help="As ssh does: CMD is a line for sh.")
@click.argument("words", nargs=-1, metavar="[RANK] CMD...")
def command(fabric: str | None, tty: bool | None, everywhere: bool, ssh: bool, words: tuple[str, ...]) -> None:
    """Run CMD in the container of RANK: its number, or a NIC's or host's name that is its alone.

    It has our standard input and output, and its exit code is ours. That is 127 if there is no such command, and 126
    if it cannot be executed. A rank of a fabric that was left up gets
    its container with the first command; it stays until the fabric goes down.

    With --all it runs at every rank, and lines of its output begin with [RANK]. RANK, WORLD_SIZE, MASTER_ADDR and the
    like are in its environment, and GLOO_SOCKET_IFNAME. If one fails, the others are ended (docs/programs.md).

    \b
    Examples:
      testbed exec 0 -- id
      testbed exec 2 -- ping -c3 10.0.0.1
      testbed exec --fabric 3f2a 0 -- bash
      testbed exec --all -- hostname
    """
    from testbed.base.errors import InputError
    from testbed.fabric.lab import Lab

    rank, argv = ("", words) if everywhere else (words[0] if words else "", words[1:])
    behind, argv = _fabric.leading(argv)  # `exec 0 --fabric ID -- CMD`
    argv = argv[1:] if argv[:1] == ("--",) else argv
    if not argv:
        raise InputError("the command to run is missing", "command line", "testbed exec --help")
    if everywhere and (ssh or tty):
        raise InputError("--all gives nobody a terminal, and is no ssh", "command line", "leave --ssh and --tty out")
    with closing(Lab.attach(_fabric.one_of(behind, fabric))) as lab:
        if everywhere:
            from testbed.live.everywhere import execute

            code = execute(lab, _through_env(lab, argv))
        else:
            terminal = sys.stdin.isatty() and sys.stdout.isatty() if tty is None else tty
            argv = ("sh", "-c", " ".join(argv)) if ssh else argv
            number = _fabric.rank_of(lab, rank)
            run, env = lab.exec_command(number, _through_env(lab, argv), tty=terminal and not ssh)
        if sys.stderr.isatty():  # for a terminal only: a program gets the command's own output
            _fabric.note_without_interfaces(lab)
    if everywhere:
        sys.exit(code)
    os.execvpe(run[0], run, env)


def _through_env(lab: Lab, argv: tuple[str, ...]) -> tuple[str, ...]:
    """By way of env, which ends with 127 where there is no such command, as a shell does; runc always says 255."""
    image = lab.state.get("image")
    there = image is None or (Path(image["rootfs"]) / "usr/bin/env").exists()
    return ("env", "--", *argv) if there and argv and "=" not in argv[0] else argv
