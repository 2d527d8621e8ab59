"""`testbed show`: a run's figures and counters, a topology, an experiment with all its defaults."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.base.ranges import Whole
from testbed.commands import _fabric
from testbed.commands._complete import FILE, RUN, RUN_OR_FABRIC
from testbed.commands._entries import Entries, Makers
from testbed.live.logs import PARTS

if TYPE_CHECKING:
    from topologies import Fabric


def _live() -> Makers:
    """The views of live fabrics; `flows` and `logging` are below."""
    from testbed.commands import _counters, _views

    views = _views.commands()
    return {"counters": lambda: _counters.command, **{w: views[w] for w in views if w not in ("flows", "logging")}}


class _Show(Entries):
    headings = {"Stored, or in a file": ("run", "experiment", "topology"), "Of both": ("counters", "flows")}
    others = "Of a live fabric"


@click.group(cls=_Show, more=_live, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Show what a run or a live fabric counts, and is.

    \b
    Examples:
      testbed show run quickstart
      testbed show counters quickstart nics
      testbed show topology torus dims=4,4 --svg torus.svg
      testbed show experiment experiments/quickstart.yaml
      testbed show interfaces status
    """


@command.command("run")
@click.argument("run", shell_complete=RUN)
@click.option("--host", is_flag=True, help="Also show host time and bytes sent, of a rank.")
@click.option("--json", "as_json", is_flag=True, help="Print what `testbed run --json` printed.")
def show_run(run: str, host: bool, as_json: bool) -> None:
    """Show the figures of RUN: a run folder, or its name in results/runs. Of a sweep: a line for each point.

    A name may go without the time stamp: `quickstart` is the latest of 20260101-120000-quickstart and the like.

    \b
    Examples:
      testbed run experiments/quickstart.yaml
      testbed show run quickstart
      testbed show run results/runs/quickstart --json
    """
    from results.store.load import load
    from results.store.sweeps import sweep
    from testbed.tables.results import of_run, of_sweep, show

    if swept := sweep(run):
        click.echo(json.dumps(swept.to_dict())) if as_json else show(of_sweep(swept), wide=True)
        return
    loaded = load(run)
    if not as_json:
        show(of_run(loaded, host=host))
    elif loaded.summary:
        click.echo(json.dumps(loaded.summary))
    else:
        error = loaded.state["error"] or {"what": f"the run is {loaded.state['state']}", "where": run, "hint": ""}
        click.echo(json.dumps({"error": error, "run": str(loaded.path)}))


@command.command("flows")
@click.argument("run", required=False, metavar="[RUN|ID]", shell_complete=RUN_OR_FABRIC)
@_fabric.option
@click.option("--switch", metavar="SWITCH", help="Only this one (default: all).")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as a JSON list.")
def show_flows(run: str | None, fabric: str | None, switch: str | None, as_json: bool) -> None:
    """Show the OpenFlow rules of a live fabric's switches, or of a stored RUN's, with what each has counted.

    `fast_packets` are those that did not go through Open vSwitch, because it was known what it does with them. A fabric
    that stands still does not say: how many they are depends on the machine.

    \b
    Examples:
      testbed show flows
      testbed show flows --switch rail0
      testbed show flows quickstart
    """
    from results.store.load import load
    from results.store.sweeps import sweep
    from testbed.base.errors import InputError
    from testbed.commands._held import source_of
    from testbed.commands._views import show_tables
    from testbed.fabric.lab import Lab
    from testbed.live.views.switches import of_flows

    if fabric or run is None or _fabric.is_fabric(run):
        with closing(Lab.attach(_fabric.one_of(run, fabric))) as lab:
            rows = source_of(lab).flows()
    else:
        rows = (sweep(run) or load(run)).rows("flows")
    names = list(dict.fromkeys(row["switch"] for row in rows))
    if switch is not None and switch not in names:
        raise InputError(f"there is no switch {switch}", "command line: --switch", f"switches: {', '.join(names)}")
    table = of_flows(rows, switch)
    if as_json:
        click.echo(json.dumps(table.rows))
    else:
        show_tables([table])


@command.command("logging")
@_fabric.either
@click.option("--who", metavar="WHO", help="Only this one: a switch, nicRANK, rankRANK, controller.")
@click.option("--level", type=click.Choice(["info", "warning", "error"]), help="At least so bad.")
@click.option(
    "--part", type=click.Choice(["all", *PARTS]), help="What this program of the fabric has written, instead."
)
@click.option("-n", "--lines", type=Whole(0), default=20, show_default=True, help="With --part: lines of each file.")
@click.option("-f", "--follow", is_flag=True, help="With --part: go on with what is written from now on, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON; with --part, the lines by file.")
def show_logging(fabric: str | None, part: str | None, lines: int, follow: bool, as_json: bool, **said_by: Any) -> None:
    """Show what switches, NICs and the controller have logged, or what the programs of a fabric have written.

    The log is of the emulated network, with emulated times. With --part it is of programs on this machine: fabricd, the
    controller, Open vSwitch, workers, jobs. A fabric that is dead has only those. What the workers of a run have
    written is in the run's folder, `logs/`.

    \b
    Examples:
      testbed show logging --level warning
      testbed show logging --who rail0
      testbed show logging --part controller
      testbed show logging 3f2a --part all -n 5
    """
    import os

    from testbed.commands._views import live
    from testbed.live.logs import last, written
    from testbed.live.views import VIEWS
    from testbed.machine import ownership

    record = ownership.find(fabric)
    if part is None and not follow and record.state != "dead":
        live(VIEWS["logging"], record.id, as_json=as_json, **said_by)
        return
    files = written(record.dir, list(PARTS) if part in (None, "all") else [part])
    if as_json:
        found = {str(path.relative_to(record.dir)): last(path, lines) for path in files}
        click.echo(json.dumps({"fabric": record.id, "dir": str(record.dir), "logs": found}))
    elif follow:
        os.execvp("tail", ["tail", "-n", str(lines), "-F", *map(str, files)])
    else:
        for path in files:
            click.echo(f"==> {path} <==")
            click.echo("".join(f"{line}\n" for line in last(path, lines)))


@command.command("faults")
@_fabric.either
@click.option("--json", "as_json", is_flag=True, help="Print the rows as a JSON list.")
def show_faults(fabric: str | None, as_json: bool) -> None:
    """Show the faults that are in a live fabric: what they are, whether they are on, how often they struck.

    \b
    Examples:
      testbed show faults
      testbed show faults 3f2a --json
    """
    from testbed.inject.live import listed
    from testbed.tables.results import counters, show

    rows = listed(fabric)
    click.echo(json.dumps(rows)) if as_json else show(counters("faults", rows), wide=True)


@command.command("topology")
@click.argument("what", metavar="FILE|KIND", shell_complete=FILE)
@click.argument("parameters", nargs=-1, metavar="[PARAMETER=VALUE]...")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw it into this SVG file.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole graph as JSON.")
def show_topology(what: str, parameters: tuple[str, ...], svg: Path | None, as_json: bool) -> None:
    """Show the topology of an experiment FILE, or of a KIND with its parameters. Nothing is created on the machine.

    \b
    Examples:
      testbed show topology experiments/quickstart.yaml
      testbed show topology rail servers=4 gpus=2 --svg rail.svg
      testbed show topology torus dims=4,4
    """
    from topologies.drawing import as_svg, as_text

    fabric = _built(what, parameters)
    if svg is not None:
        svg.write_text(as_svg(fabric))
        click.echo(f"drawn into {svg}", err=True)
    if as_json:
        click.echo(json.dumps(fabric.to_dict()))
    elif svg is None:
        click.echo(as_text(fabric))


def _built(what: str, parameters: tuple[str, ...]) -> Fabric:
    from testbed.base.errors import InputError
    from topologies import KINDS, TopologyError, build

    if what not in KINDS:
        from testbed.experiment import load

        if parameters:
            hint = f"kinds of topology: {', '.join(KINDS)}"
            raise InputError(f"parameters go with a kind of topology, and {what!r} is none", "command line", hint)
        if "." not in what and not Path(what).exists():
            hint = f"name an experiment file, or one of {', '.join(KINDS)}"
            raise InputError(f"there is no topology and no file called {what!r}", "command line", hint)
        return load(what).build_fabric()
    try:
        return build(what, dict(_parameter(p) for p in parameters))
    except TopologyError as error:
        raise InputError(error.what, f"command line: {error.key}", error.hint) from None


def _parameter(text: str) -> tuple[str, Any]:
    """`servers=4`, `dims=4,4` or `direct=true`."""
    from testbed.base.errors import InputError

    name, equals, value = text.partition("=")
    if not equals:
        raise InputError("a parameter is NAME=VALUE", f"command line: {text}", "such as servers=4 or dims=4,4")
    if value in ("true", "false"):
        return name, value == "true"
    numbers = [int(n) if n.lstrip("-").isdecimal() and len(n) < 20 else n for n in value.split(",")]
    return name, numbers if len(numbers) > 1 or name == "dims" else numbers[0]


@command.command("experiment")
@click.argument("file", shell_complete=FILE)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the experiment; may repeat.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON, without the thresholds.")
def show_experiment(file: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Show the experiment in FILE with every default written out, as it goes into a run's folder.

    Below it, as comments, the thresholds that follow from it: headroom, XOFF, XON, Kmin and Kmax of each kind of port.
    XOFF is where a port is paused that alone holds frames in a switch (xoff_alone), and where all are equally full
    (xoff_all), and the parameters of congestion control and recovery. Warnings on stderr say where ECN would mark only
    above PFC, or PCIe carries less than the cables.

    \b
    Examples:
      testbed show experiment experiments/quickstart.yaml
      testbed show experiment experiments/quickstart.yaml --set transport.cc=dctcp
      testbed show experiment experiments/quickstart.yaml --json
    """
    import sys
    from io import StringIO

    from testbed.base.yaml_writer import dump
    from testbed.experiment.overrides import load_with
    from testbed.plan import thresholds
    from testbed.plan.hardware import written_control
    from testbed.tables.results import counters, lines

    experiment = load_with(file, settings)
    if as_json:
        click.echo(json.dumps(experiment.resolved()))
    else:
        dump(experiment.resolved(), sys.stdout)
        for title, rows in (
            ("Thresholds of switches", thresholds.rows(experiment)),
            ("Receive buffers of NICs", thresholds.nic_rows(experiment)),
        ):
            click.echo(f"\n# {title}")
            for line in lines(counters("thresholds", [thresholds.readable(row) for row in rows])):
                click.echo(f"# {line}")
        click.echo("\n# Congestion control and recovery")
        control = StringIO()
        dump(written_control(experiment), control)
        for line in control.getvalue().splitlines():
            click.echo(f"# {line}")
    for warning in thresholds.warnings(experiment):
        click.echo(f"warning: {warning}", err=True)
