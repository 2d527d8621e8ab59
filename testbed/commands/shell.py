"""`testbed shell`: Mininet's command line on a live fabric."""

from __future__ import annotations

import os
import sys
from contextlib import closing

import click

from testbed.commands import _fabric


@click.command()
@_fabric.either
@click.option("-c", "commands", multiple=True, metavar="CMD", help="Run this command and leave; may repeat.")
def command(fabric: str | None, commands: tuple[str, ...]) -> None:
    """Talk to a live fabric on Mininet's command line.

    Commands can also come from standard input. Then, and with -c, the exit code is that of the last command that
    failed. `link A B down` is the fault cable_down: `testbed show faults` lists it, and `link A B up` or `testbed heal`
    ends it.

    \b
    Examples:
      testbed shell
      testbed shell -c 'h0 ping -c1 h1'
      testbed shell 3f2a -c 'link rail0 spine0 down' -c 'h0 ping -c1 h1'
      testbed shell -c 'show pfc' -c 'inject loss --on nic:1 --rate 0.01'
      echo 'h0 ping -c1 h1' | testbed shell
    """
    from testbed.fabric.lab import Lab

    with closing(Lab.attach(fabric)) as lab:
        from testbed.fabric.shell import interact, run_commands
        from testbed.inject.links import mininet

        _fabric.note_without_interfaces(lab)
        os.environ.update(lab.ovs.env)  # so that `sh ovs-vsctl show` asks the fabric's

        if not commands and sys.stdin.isatty():
            interact(mininet(lab))
            return
        code = run_commands(mininet(lab), commands or sys.stdin)
    sys.exit(code)
