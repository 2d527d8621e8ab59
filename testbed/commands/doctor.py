"""`testbed doctor`: the findings as a table, or as JSON; what is missing installed."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import click

from testbed.base.errors import MACHINE_CANNOT, InputError

if TYPE_CHECKING:
    from testbed.doctor import Diagnosis


@click.command(short_help="Say whether this machine can run it, and what to mend.")
@click.option("--fix", is_flag=True, help="Install what is missing, and mend what a command mends; asks first.")
@click.option("--yes", is_flag=True, help="With --fix: do it without being asked.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.pass_context
def command(ctx: click.Context, fix: bool, yes: bool, as_json: bool) -> None:
    """Check everything that a run needs of this machine.

    Says of each lack what it costs and how to mend it.  Exits with 3 if a run is impossible.

    With --fix it installs what is missing of Debian's or Ubuntu's packages. It shows every command line first, and does
    nothing else.

    \b
    Examples:
      testbed doctor
      testbed doctor --json
      testbed doctor --fix
    """
    from testbed import doctor

    if yes and not fix:
        raise InputError("--yes answers what --fix asks", "command line", "doctor --fix --yes")
    if fix:
        from testbed.doctor.fix import require_root

        require_root()
    findings = doctor.examine()
    if fix and _mend(findings, yes):
        findings = doctor.examine()
    possible = all(f.status != "fail" for f in findings)
    if as_json:
        click.echo(json.dumps({"possible": possible, "checks": [f.to_dict() for f in findings]}))
    else:
        _show(findings, possible)
    ctx.exit(0 if possible else MACHINE_CANNOT)


def _mend(findings: list[Diagnosis], yes: bool) -> bool:
    """Whether anything was done."""
    from testbed.doctor.fix import plan

    steps = plan(findings)
    if not steps:
        click.echo("There is nothing that --fix could install or mend here.", err=True)
        return False
    click.echo("This would be done:", err=True)
    for step in steps:
        click.echo(f"  {step.shown}", err=True)
    if not yes:
        if not sys.stdin.isatty():
            raise InputError("nobody is there to say yes: this is no terminal", "command line", "doctor --fix --yes")
        if not click.confirm("Do it?", err=True):
            return False
    for step in steps:
        step.carry_out()
    return True


def _show(findings: list[Diagnosis], possible: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    table = Table(box=None, pad_edge=False)
    for heading in ("need", "", "found"):
        table.add_column(heading, overflow="fold")
    for f in findings:
        table.add_row(f.name, Text(f.status, colours[f.status]), Text(f.found))
        for label, text in (("costs", f.cost), ("mend", f.mend)):
            if text:
                table.add_row("", "", Text.assemble((f"{label}: ", "dim"), text))
    console = Console(highlight=False)
    console.print(table)
    if os.geteuid() != 0:
        console.print(f"This needs root: sudo {' '.join(sys.argv)}", style="bold red", soft_wrap=True)
    elif possible:
        console.print("This machine can run it: testbed run experiments/quickstart.yaml")
    elif any(f.packages or f.command for f in findings if f.status == "fail"):
        console.print("This machine cannot run it yet: testbed doctor --fix", style="bold red")
    else:
        console.print("This machine cannot run it: mend what says fail above.", style="bold red")
