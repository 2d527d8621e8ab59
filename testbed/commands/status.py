"""`testbed status`: which fabrics there are, how one of them is, and where its parts are on this machine."""

from __future__ import annotations

import json
from contextlib import closing, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import click

from testbed.commands import _fabric

if TYPE_CHECKING:
    from testbed.machine.ownership import Record


@click.command()
@_fabric.either
@click.option("--all", "every", is_flag=True, help="All fabrics of this machine, a line each.")
@click.option(
    "--where",
    is_flag=True,
    help="Where its parts, ranks and switches are: processes, namespaces, interfaces, ports.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(fabric: str | None, every: bool, where: bool, as_json: bool) -> None:
    """Show which fabrics there are, and how one is.

    Of one: clock, fidelity, controller, faults, job. Without ID it is of the only fabric that is up, and if there are
    several, a line for each. The verdict is of all
    that was since the fabric came up; lateness counts from when its last job began. Of a fabric that is dead it says
    why.

    The last lines of --where are to be typed as they stand: they look at a switch from where it is.

    \b
    Examples:
      testbed status
      testbed status --all
      testbed status 3f2a --json
      testbed status --where
    """
    from testbed.base.errors import InputError, UserError
    from testbed.machine import ownership

    if every and (where or fabric):
        raise InputError("--all shows every fabric, ID and --where one of them", "command line", "give one of them")
    if where:
        _show_places(fabric, as_json)
        return
    record = None
    with suppress(UserError) if fabric is None else nullcontext():
        record = None if every else ownership.find(fabric)
    if record is None:
        _show_all(as_json)
    else:
        _show_one(record, as_json)


def _show_one(record: Record, as_json: bool) -> None:
    from testbed.live.status import status

    about = status(record)
    if as_json:
        click.echo(json.dumps(about))
        return
    click.echo(f"fabric {about['id']}: {about['name']}, {about['topology']}, {about['ranks']} ranks, {about['state']}")
    if "why" in about:
        click.echo(f"  why         {about['why']}")
        click.echo(f"  what to do  {about['hint']}")
        click.echo(f"  logs        testbed show logging {about['id']}")
        return
    for head, text in _lines(about):
        click.echo(f"  {head:<11} {text}")


def _show_all(as_json: bool) -> None:
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
        named = (f["id"], f["state"], f["name"], f["topology"], f["clock"])
        rows.append((*named, str(f["ranks"]), owner, _age(f["age_s"])))
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


def _show_places(fabric: str | None, as_json: bool) -> None:
    from testbed.fabric.lab import Lab
    from testbed.live.places import places
    from testbed.tables.results import counters, show

    with closing(Lab.attach(fabric)) as lab:
        about = places(lab)
    if as_json:
        click.echo(json.dumps(about))
        return
    for name in ("parts", "ranks", "switches"):
        rows = [
            {key: ", ".join(value) if isinstance(value, list) else value for key, value in row.items()}
            for row in about[name]
        ]
        show(counters(name, rows, whole=True), wide=True)
        click.echo()
    for line in about["type"]:
        click.echo(line)


def _lines(about: dict[str, Any]) -> list[tuple[str, str]]:
    passed = f"{about['time_ns'] / 1000:.3f} us of emulated time have passed"
    stands = "; it stands still until a workload runs" if about["clock"] == "virtual" and not about["running"] else ""
    if about["held"]:
        stands = "; it is held: testbed advance lets it go on"
    fidelity, controller = about["fidelity"], about["controller"]
    lines = [("clock", f"{about['clock']}; {passed}{stands}"), ("fidelity", fidelity["verdict"])]
    lines += [("", reason) for reason in (*fidelity["reasons"], *fidelity["advice"])]
    lines.append(("controller", _controller(controller)))
    rest = [one["text"] for one in about["troubles"] if (one["part"], one["state"]) != ("controller", "ended")]
    rest += [f"rank {one['rank']}: its worker is gone: {one['reason']}" for one in about["lost"]]
    lines += [("" if n else "troubles", text) for n, text in enumerate(rest)]
    faults = [
        f"{f['id']} {f.get('fault', '')} on {f.get('on', '?')}: {f['state']}, {f['hits']} hits" for f in about["faults"]
    ]
    lines += [("faults" if n == 0 else "", text) for n, text in enumerate(faults or ["none"])]
    job = about["job"]
    if about["held"]:
        return [*lines, ("job", f"its own, repeated for ever; testbed show job {about['id']}")]
    if job is None:
        return [*lines, ("job", f"none; testbed job start FILE --fabric {about['id']}")]
    of = "" if job["of"] is None else f" of {job['of']}"
    return [*lines, ("job", f"{job['job']} ({job['name']}), process {job['pid']}, {job['runs']}{of} runs done")]


def _controller(about: dict[str, Any]) -> str:
    if not about["alive"]:
        return f"has ended (process {about['pid']}): forwarding goes on, failures are not routed around"
    heard = "" if about["heard_s"] is None else f", heard {about['heard_s']:.1f} s ago"
    silent = "" if about["answers"] else ", does not answer"
    return (
        f"{about['library']}, process {about['pid']}, connected to {about['connected']} of {about['switches']} switches"
        f"{heard}{silent}"
    )
