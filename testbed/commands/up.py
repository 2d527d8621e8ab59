"""`testbed up`: a fabric that stays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from testbed.commands._complete import FILE

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.fabric.lab import Lab


@click.command()
@click.argument("file", shell_complete=FILE)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the experiment; may repeat.")
@click.option("--virtual", is_flag=True, help="With the virtual clock: no ping, no iperf3, only workloads.")
@click.option("--job", is_flag=True, help="With --virtual: repeat the workload for ever; the clock is held.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(file: str, settings: tuple[str, ...], virtual: bool, job: bool, as_json: bool) -> None:
    """Bring up the fabric of an experiment, and leave it up.

    Its clock is real; with --virtual it stands still until something runs.

    The fabric then belongs to its fabricd. Faults of the file's `inject:` are put in; its `workload:` is left, and
    `testbed run FILE --fabric ID` runs it. Look at the fabric with `testbed status`, use it with
    `testbed shell` and `testbed exec`, end it with `testbed down`.

    `clock: virtual` in the file is for runs. With --virtual, or --set clock=virtual, the fabric has it, too.

    With --virtual --job the workload is a job that is repeated for ever, and the clock stands still but for
    `testbed advance`.

    \b
    Examples:
      testbed up experiments/quickstart.yaml
      testbed up experiments/quickstart.yaml --set 'fabric.topology={star: {hosts: 4}}'
      testbed up experiments/quickstart.yaml --json | jq -r .id
      testbed up experiments/quickstart.yaml --virtual --job
    """
    from testbed.base.errors import InputError
    from testbed.experiment.overrides import changed, load_with, override
    from testbed.fabric.lab import Lab

    experiment = load_with(file, settings)
    virtual = _virtual(experiment, settings, virtual)
    if job and not virtual:
        raise InputError("a job is repeated with the virtual clock alone", "command line: --job", "add --virtual")
    if virtual and experiment.clock.mode == "real":
        experiment = changed(experiment, [("clock", "virtual", "")], "command line: --virtual")
    if job:
        _up_held(experiment, as_json)
        return
    if not virtual and experiment.clock.mode == "virtual":
        experiment = override(experiment, ["clock=real"])
    lab = Lab.up(experiment, persistent=True)
    try:
        faults, left = _inject(lab, experiment)
    except BaseException:
        lab.down()
        raise
    about = lab.describe() | {"faults": faults, "left": left, "workload": len(experiment.workload)}
    lab.close()
    if as_json:
        click.echo(json.dumps(about))
    else:
        _show(lab, about, file)


def _virtual(experiment: Experiment, settings: tuple[str, ...], virtual: bool) -> bool:
    """Whether the clock is to be virtual: what the command line says of it. The file's `clock: virtual` is for runs."""
    from testbed.base.errors import InputError

    settings_of_clock = [setting for setting in settings if setting.partition("=")[0].split(".")[0] == "clock"]
    if settings_of_clock and virtual and experiment.clock.mode == "real":
        where = f"command line: --virtual --set {settings_of_clock[-1]}"
        raise InputError("the clock cannot be both virtual and real", where, "leave one of them out")
    return virtual or (bool(settings_of_clock) and experiment.clock.mode == "virtual")


def _up_held(experiment: Experiment, as_json: bool) -> None:
    """With a job that is repeated: a keeper holds its clock."""
    from testbed.base.errors import InputError
    from testbed.world.keeper import keep

    if not experiment.workload:
        hint = "name at least one step, such as {collective: all_reduce, sizes: [256KiB]}"
        raise InputError("there is no workload to repeat", experiment.place("workload"), hint)
    faults = {f"f{n}": f"{one.fault.name} on {one.on}" for n, one in enumerate(experiment.inject, 1)}
    about = keep(experiment) | {"faults": faults, "left": [], "workload": len(experiment.workload), "held_ns": 0}
    fabric = about["id"]
    if as_json:
        click.echo(json.dumps(about))
        return
    click.echo(f"fabric {fabric} is up: {about['topology']}; clock virtual, held at 0 ns; its job is about to begin")
    for name, what in faults.items():
        click.echo(f"  fault {name}: {what}")
    click.echo(f"  testbed advance 10 steps --fabric {fabric}   lets time go on")
    click.echo(f"  testbed show job {fabric}                    the steps of its job")
    click.echo(f"  testbed down {fabric}")


def _inject(lab: Lab, experiment: Experiment) -> tuple[dict[str, str], list[str]]:
    """Puts the file's faults in, as u1, u2 ..; returns what they are, and what only a run can do."""
    from testbed.faults import CannotInject
    from testbed.inject.live import put_in

    done, left = {}, []
    for number, injection in enumerate(experiment.inject, 1):
        what = f"{injection.fault.name} on {injection.on}"
        try:
            done[put_in(lab, injection, f"u{number}")] = what
        except CannotInject as error:
            left.append(f"{what}: {error.what}")
    return done, left


def _show(lab: Lab, about: dict[str, object], file: str) -> None:
    from testbed.fabric.inventory import clock_text

    hosts, switches = [h.name for h in lab.fabric.hosts], [s.name for s in lab.fabric.switches]
    more = ["..."] if len(switches) > 6 else []
    click.echo(f"fabric {lab.id} is up: {about['topology']}; clock {clock_text(lab.state['clock'])}")
    click.echo(f"  hosts {hosts[0]} to {hosts[-1]}, switches {', '.join(switches[:6] + more)}")
    nics = lab.fabric.nics
    click.echo(f"  ranks {nics[0].rank} to {nics[-1].rank}: addresses {nics[0].ip} to {nics[-1].ip}")
    faults, left = about["faults"], about["left"]
    assert isinstance(faults, dict)
    assert isinstance(left, list)
    for name, what in faults.items():
        click.echo(f"  fault {name}: {what}")
    for what in left:
        click.echo(f"  fault left to a run: {what}")
    if lab.kernel:
        click.echo(f"  testbed shell {lab.id}                    Mininet's command line")
        click.echo(f"  testbed exec --fabric {lab.id} 0 -- CMD   in the container of rank 0")
    else:
        click.echo("  time stands still until a workload or program runs")
        click.echo("  hosts have no interfaces: no ping from shell or exec")
    if about["workload"]:
        click.echo(f"  testbed run {file} --fabric {lab.id}   its workload, which has not run")
    click.echo(f"  testbed status {lab.id}                   how it is")
    click.echo(f"  testbed down {lab.id}")
