"""`testbed ovs`: a command where a fabric's Open vSwitch is."""

from __future__ import annotations

import os
import re

import click

from testbed.commands import _fabric

_ID = re.compile(r"[0-9a-f]{4}")


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_fabric.option
@click.argument("words", nargs=-1, required=True, metavar="[ID] CMD...")
def command(fabric: str | None, words: tuple[str, ...]) -> None:
    """Run CMD among the switches of a live fabric.

    It runs in the fabric's network namespace.

    Each fabric has an Open vSwitch of its own; there ovs-vsctl, ovs-ofctl and ovs-appctl find it. Bridges have their
    switches' names, and port 1 of rail0 is the device rail0-eth1. The exit code is that of CMD.

    \b
    Examples:
      testbed ovs ovs-vsctl show
      testbed ovs --fabric 3f2a ovs-ofctl -O OpenFlow13 dump-flows rail0
      testbed ovs ovs-appctl dpctl/dump-flows
      testbed ovs tcpdump -ni rail0-eth1
    """
    from testbed.base.errors import InputError, UserError
    from testbed.fabric.lab import ovs_command
    from testbed.machine.ownership import find

    known, argv = (words[0], words[1:]) if _ID.fullmatch(words[0]) else (None, words)
    argv = argv[1:] if argv[:1] == ("--",) else argv
    if not argv:
        raise InputError("the command to run is missing", where="command line", hint="testbed ovs --help")
    run, env = ovs_command(find(_fabric.one_of(known, fabric)), argv)
    try:
        os.execvpe(run[0], run, env)
    except FileNotFoundError:
        raise UserError(f"{run[0]} is not installed", hint="testbed doctor") from None
