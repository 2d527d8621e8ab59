"""`testbed up`: a fabric that stays."""

from __future__ import annotations

import json

import click

from testbed.commands._complete import FILE


@click.command()
@click.argument("file", shell_complete=FILE)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the experiment; may repeat.")
@click.option("--virtual", is_flag=True, help="Keep a virtual clock (no ping, no iperf3: RDMA workers only).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(file: str, settings: tuple[str, ...], virtual: bool, as_json: bool) -> None:
    """Bring up the fabric of the experiment in FILE with the real clock, and leave it up.

    The fabric then belongs to its fabricd; its workload is not run. Use it with `testbed shell` and `testbed exec`,
    end it with `testbed down`.

    \b
    Examples:
      testbed up experiments/quickstart.yaml
      testbed up experiments/quickstart.yaml --set 'fabric.topology={star: {hosts: 4}}'
      testbed up experiments/quickstart.yaml --json
    """
    from testbed.inventory import clock_text
    from testbed.lab import Lab
    from testbed.overrides import override
    from testbed.spec import load

    experiment = override(load(file), settings)
    if experiment.clock.mode == "virtual" and not virtual:
        experiment = override(experiment, ["clock=real"])
    lab = Lab.up(experiment, persistent=True)
    about = lab.describe()
    lab.close()
    if as_json:
        click.echo(json.dumps(about))
        return
    more = ["..."] if len(about["switches"]) > 6 else []
    switches = ", ".join(about["switches"][:6] + more)
    hosts, clock = about["hosts"], clock_text(lab.state["clock"])
    click.echo(f"fabric {lab.id} is up: {about['topology']}; clock {clock}")
    click.echo(f"  hosts {hosts[0]} to {hosts[-1]}, switches {switches}")
    click.echo(f"  testbed shell {lab.id}                    Mininet's command line")
    click.echo(f"  testbed exec --fabric {lab.id} 0 -- CMD   in the container of rank 0")
    click.echo(f"  testbed down {lab.id}")
