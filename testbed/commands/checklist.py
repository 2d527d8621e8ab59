"""`testbed checklist`: what should be looked at before an experiment is run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from testbed.base.errors import RUN_FAILED
from testbed.commands._complete import FILE

if TYPE_CHECKING:
    from testbed.checklist import Finding


@click.command(short_help="Say what to look at before an experiment is run.")
@click.argument("file", shell_complete=FILE)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the experiment; may repeat.")
@click.option("--strict", is_flag=True, help="Exit with 1 if there is anything to look at.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(ctx: click.Context, file: str, settings: tuple[str, ...], strict: bool, as_json: bool) -> None:
    """Go through the experiment in FILE before it is run: do its traffic, network, NICs and hosts fit each other?

    It starts nothing, and needs no root. Each finding has its place in the file, and what to do. Of a sweep all points
    are looked at. A finding is no error: a study may want just that.

    \b
    Examples:
      testbed checklist experiments/quickstart.yaml
      testbed checklist experiments/quickstart.yaml --set fabric.nic.mtu=512
      testbed checklist experiments/congestion/pfc-victim.yaml --json
    """
    from testbed.checklist import CHECKS, figures, review
    from testbed.experiment.overrides import load_with

    experiment = load_with(file, settings)
    findings, lines = review(experiment), figures(experiment)
    if as_json:
        review_of = {"checks": list(CHECKS), "findings": [f.to_dict() for f in findings], "figures": lines}
        click.echo(json.dumps({"file": file, **review_of}))
    else:
        _show(file, findings, lines)
    ctx.exit(RUN_FAILED if strict and findings else 0)


def _show(file: str, findings: list[Finding], figures: dict[str, list[str]]) -> None:
    from rich.console import Console
    from rich.text import Text

    from testbed.checklist import CHECKS

    console = Console(highlight=False, soft_wrap=True)
    for check in CHECKS.values():
        found = [f for f in findings if f.check == check.name]
        if not found:
            console.print(Text.assemble(("ok    ", "green"), check.name, (f": {check.about}", "dim")))
        for finding in found:
            console.print(Text.assemble(("look  ", "bold yellow"), f"{finding.check}: {finding.what}"))
            console.print(Text.assemble(("      at: ", "dim"), finding.where))
            console.print(Text.assemble(("      do: ", "cyan"), finding.hint))
        for line in figures.get(check.name, ()):
            console.print(f"      {line}")
    verdict = (
        f"{len(findings)} things to look at" if len(findings) > 1 else "1 thing to look at" if findings else "nothing"
    )
    console.print(f"{file}: {verdict}")
