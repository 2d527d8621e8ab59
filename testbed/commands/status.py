"""`testbed status`: how a live fabric is."""

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
    from testbed.live.state import state
    from testbed.machine import ownership

    said = state(ownership.find(fabric))
    if as_json:
        click.echo(json.dumps(said))
        return
    click.echo(f"fabric {said['id']}: {said['name']}, {said['topology']}, {said['ranks']} ranks, {said['state']}")
    if "why" in said:
        click.echo(f"  why         {said['why']}")
        click.echo(f"  logs        testbed logs {said['id']}")
        return
    for head, text in _lines(said):
        click.echo(f"  {head:<11} {text}")


def _lines(said: dict[str, Any]) -> list[tuple[str, str]]:
    passed = f"{said['time_ns'] / 1000:.3f} us of emulated time have passed"
    stands = "; it stands still until a workload runs" if said["clock"] == "virtual" and not said["running"] else ""
    fidelity, controller = said["fidelity"], said["controller"]
    lines = [("clock", f"{said['clock']}; {passed}{stands}"), ("fidelity", fidelity["verdict"])]
    lines += [("", reason) for reason in (*fidelity["reasons"], *fidelity["advice"])]
    lines.append(("controller", _controller(controller)))
    faults = [
        f"{f['id']} {f.get('fault', '')} on {f.get('on', '?')}: {f['state']}, {f['hits']} hits" for f in said["faults"]
    ]
    lines += [("faults" if n == 0 else "", text) for n, text in enumerate(faults or ["none"])]
    job = said["job"]
    if job is None:
        return [*lines, ("job", f"none; testbed job start FILE --fabric {said['id']}")]
    of = "" if job["of"] is None else f" of {job['of']}"
    return [*lines, ("job", f"{job['job']} ({job['name']}), process {job['pid']}, {job['runs']}{of} runs done")]


def _controller(said: dict[str, Any]) -> str:
    if not said["alive"]:
        return f"has ended (process {said['pid']}): forwarding goes on, failures are not routed around"
    heard = "" if said["heard_s"] is None else f", heard {said['heard_s']:.1f} s ago"
    silent = "" if said["answers"] else ", does not answer"
    return (
        f"{said['library']}, process {said['pid']}, connected to {said['connected']} of {said['switches']} switches"
        f"{heard}{silent}"
    )
