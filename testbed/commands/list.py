"""`testbed list`: the fabrics on this machine."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(as_json: bool) -> None:
    """List the fabrics on this machine: those that are up, and dead ones that wait for `testbed clean`.

    \b
    Examples:
      testbed list
      testbed list --json
    """
    from testbed.fabric.inventory import inventory

    fabrics = inventory()
    if as_json:
        click.echo(json.dumps({"fabrics": fabrics}))
        return
    if not fabrics:
        click.echo("no fabrics")
        return
    rows = [("id", "state", "name", "topology", "clock", "ranks", "owner", "age")]
    for f in fabrics:
        owner = f"{f['owner']} {f['owner_name']}".strip()
        rows.append(
            (f["id"], f["state"], f["name"], f["topology"], f["clock"], str(f["ranks"]), owner, _age(f["age_s"]))
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for f in fabrics:
        if f["state"] == "alive" and not f["controller_alive"]:
            click.echo(f"the controller of {f['id']} has died; forwarding goes on, failures are not routed around")


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
