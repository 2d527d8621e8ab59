"""`testbed ethtool`: a NIC's counters."""

from __future__ import annotations

import json

import click

from testbed.commands import _fabric


@click.command()
@click.argument("rank")
@_fabric.option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(rank: str, fabric: str | None, as_json: bool) -> None:
    """Print the counters of RANK's NIC as `ethtool -S` does, with mlx5's names.

    \b
    Examples:
      testbed ethtool 0
      testbed ethtool 3 | grep -E 'pause|cnp|out_of'
    """
    from testbed.fabric.lab import Lab
    from testbed.live.look.lab import OfLab
    from testbed.live.look.look import Look
    from testbed.live.views.nics import counted

    lab = Lab.attach(fabric)
    try:
        source = OfLab(lab)
        found = counted(Look(source, source.counters()), _fabric.rank_of(lab, rank))
    finally:
        lab.close()
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo("NIC statistics:")
    for name, value in found.items():
        click.echo(f"     {name}: {value}")
