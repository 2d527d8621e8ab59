"""`testbed status`: the status of a live fabric."""

from __future__ import annotations

import json
from typing import Any

import click

from testbed.commands import _fabric


@click.command()
@_fabric.either
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(fabric: str | None, as_json: bool) -> None:
    """Show how the fabric ID (default: the only one that is up) is: clock, fidelity, controller, faults, job.

    The verdict is of all that was since the fabric came up; lateness counts from when its last job began. Of a fabric
    that is dead it says why.

    \b
    Examples:
      testbed status
      testbed status 3f2a --json
    """
    from testbed.live.status import status
    from testbed.machine import ownership

    found = status(ownership.find(fabric))
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(f"fabric {found['id']}: {found['name']}, {found['topology']}, {found['ranks']} ranks, {found['state']}")
    if "why" in found:
        click.echo(f"  why         {found['why']}")
        click.echo(f"  logs        testbed logs {found['id']}")
        return
    for head, text in _lines(found):
        click.echo(f"  {head:<11} {text}")


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    passed = f"{found['time_ns'] / 1000:.3f} us of emulated time have passed"
    stands = "; it stands still until a workload runs" if found["clock"] == "virtual" and not found["running"] else ""
    if found["held"]:
        stands = "; it is held: testbed advance lets it go on"
    fidelity, controller = found["fidelity"], found["controller"]
    lines = [("clock", f"{found['clock']}; {passed}{stands}"), ("fidelity", fidelity["verdict"])]
    lines += [("", reason) for reason in (*fidelity["reasons"], *fidelity["advice"])]
    lines.append(("controller", _controller(controller)))
    faults = [
        f"{f['id']} {f.get('fault', '')} on {f.get('on', '?')}: {f['state']}, {f['hits']} hits" for f in found["faults"]
    ]
    lines += [("faults" if n == 0 else "", text) for n, text in enumerate(faults or ["none"])]
    job = found["job"]
    if found["held"]:
        return [*lines, ("job", f"its own, repeated for ever; testbed show job {found['id']}")]
    if job is None:
        return [*lines, ("job", f"none; testbed job start FILE --fabric {found['id']}")]
    of = "" if job["of"] is None else f" of {job['of']}"
    return [*lines, ("job", f"{job['job']} ({job['name']}), process {job['pid']}, {job['runs']}{of} runs done")]


def _controller(found: dict[str, Any]) -> str:
    if not found["alive"]:
        return f"has ended (process {found['pid']}): forwarding goes on, failures are not routed around"
    heard = "" if found["heard_s"] is None else f", heard {found['heard_s']:.1f} s ago"
    silent = "" if found["answers"] else ", does not answer"
    return (
        f"{found['library']}, process {found['pid']}, connected to {found['connected']} of {found['switches']} switches"
        f"{heard}{silent}"
    )
