"""`testbed run`: one measured run of an experiment."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.base.ranges import Whole
from testbed.commands._complete import FABRIC, FILE, RUN

if TYPE_CHECKING:
    from testbed.base.progress import Progress
    from testbed.experiment import Experiment
    from testbed.run.outcome import RunResult


@click.command()
@click.argument("file", shell_complete=FILE)
@click.option("--out", metavar="DIR", help="Folder for the run (default: results/runs/<timestamp>-<name>).")
@click.option("--seed", type=Whole(0), metavar="N", help="Seed, instead of the experiment's.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the experiment; may repeat.")
@click.option("--fabric", metavar="ID", shell_complete=FABRIC, help="Run on this fabric, which is up; it stays up.")
@click.option(
    "--on",
    metavar="WHERE",
    help="Run a sweep's points several at a time: local:N here, or a FILE that names machines (docs/machines.md).",
)
@click.option("--retries", type=Whole(0), metavar="N", help="With --on: run a failed point again, N times at most.")
@click.option(
    "--failed",
    metavar="SWEEP",
    shell_complete=RUN,
    help="Take the points that were done from SWEEP, which has ended, and run the others again.",
)
@click.option("--host", is_flag=True, help="Also show host time and bytes sent, of a rank.")
@click.option("--profile", is_flag=True, help="Also show where wall time went, and store it in profile.json.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout, everything else on stderr.")
def command(
    file: str,
    out: str | None,
    seed: int | None,
    settings: tuple[str, ...],
    fabric: str | None,
    on: str | None,
    retries: int | None,
    failed: str | None,
    host: bool,
    profile: bool,
    as_json: bool,
) -> None:
    """Run an experiment: fabric up, workload, figures, fabric down.

    \b
    Examples:
      testbed run experiments/quickstart.yaml
      testbed run experiments/quickstart.yaml --out results/runs/quickstart
      testbed run experiments/quickstart.yaml --set workload.0.sizes=[64KiB] --set workload.0.iterations=10
      testbed run experiments/quickstart.yaml --json > quickstart.json
      testbed run experiments/quickstart.yaml --fabric 3f2a
      testbed run experiments/quickstart.yaml --profile
      testbed run experiments/congestion/incast.yaml --on local:4
      testbed run experiments/congestion/incast.yaml --on machines.yaml

    With --fabric the workload runs on a fabric that `testbed up` has brought up, as often as you like; what the file
    says of the fabric must be as it is there, or be left out. `testbed job` does the same in the background.

    With `sweep:` in the file it runs every point, says how far it is, and goes on after a point that failed. Ctrl-C
    ends it; what was measured until then is kept. With --on several points run at a time, and a sweep that was begun so
    and ended early goes on where it stopped. All figures stay the same.

    Exit codes: 0 done, 1 the run or a point of the sweep failed, 2 bad input, 3 the machine cannot (see `testbed
    doctor`), 130 ended by Ctrl-C, 143 by SIGTERM.
    """
    from results.store import environment

    if fabric is None and os.geteuid() == 0:
        _begin_processes()
    environment.begin()
    from testbed.base.errors import InputError
    from testbed.experiment.overrides import load_with
    from testbed.run.run import run

    settings = (*settings, *([f"seed={seed}"] if seed is not None else []))
    if on is None and failed is not None:
        on = "local:1"
    if on is None and retries is not None:
        raise InputError("--retries is for points that run several at a time", "command line", "--on WHERE")
    if fabric is not None:
        if on is not None:
            what = "--fabric runs on a fabric that is up, and --on brings one up for each point"
            raise InputError(what, "command line", "leave one of them out")
        from testbed.run.job import run_on

        _run(lambda progress: run_on(fabric, file, settings, out, progress, profile=profile), host, as_json)
        return
    if on is not None and on.startswith("local:") and on != "local:1":
        from testbed.machines.processes import fork_server

        fork_server()
    experiment = load_with(file, settings)
    if experiment.sweep and profile:
        raise InputError("--profile is for one run, and this is a sweep", file, "--set sweep={} and one point's values")
    if on is not None and not experiment.sweep:
        name = "--on" if failed is None else "--failed"
        raise InputError(f"{name} is for the points of a sweep, and there is no `sweep:`", file, f"leave {name} out")
    if experiment.sweep:
        _sweep(experiment, out, as_json, on, retries or 0, failed)
        return
    shown = (lambda: None) if as_json else _imports_for_showing

    def measured(progress: Progress) -> RunResult:
        if experiment.clock.mode == "real":
            _say_how_slow(experiment, progress)
        return run(experiment, out, progress, profile=profile, meanwhile=shown)

    _run(measured, host, as_json)


def _begin_processes() -> None:
    """What most runs need and takes long to import begins now, while we import: it ends with us in any case."""
    from testbed.containers import forked
    from testbed.fabric import fork_server

    forked.server().begin()
    fork_server.server().begin()


def _say_how_slow(experiment: Experiment, progress: Progress) -> None:
    """How much slower than the network its clock goes; how long the workload takes, if there is a model of it."""
    from testbed.base.errors import UserError
    from testbed.base.progress import duration
    from testbed.plan.dilation import automatic
    from testbed.plan.hardware import hardware_of
    from testbed.predict.predict import predict

    dilation = experiment.clock.dilation or automatic(experiment.build_fabric(), hardware_of(experiment))
    total_ns = 0.0
    with suppress(UserError):  # of groups that work side by side the first one says how long
        total_ns = sum(one.time_ns * one.times for one in predict(experiment).figures if not one.group)
    wall_s = total_ns * dilation / 1e9
    took = f": {total_ns / 1e6:.3g} ms of its time take at least {duration(wall_s)}" if wall_s >= 1 else ""
    if dilation > 1:
        progress.note(f"the real clock goes {dilation:,} times slower than the network{took}")


def _run(do: Callable[[Progress], RunResult], host: bool, as_json: bool) -> None:
    from testbed.base.progress import for_stderr
    from testbed.run.outcome import RunFailed

    try:
        with for_stderr() as progress:
            result = do(progress)
    except RunFailed as failure:
        if as_json:
            click.echo(json.dumps({"error": failure.to_dict(), "run": str(failure.folder)}))
            sys.exit(failure.exit_code)
        if failure.results:
            _show(failure.folder, host)
        click.echo(f"What was measured until then is in {failure.folder}", err=True)
        raise
    if as_json:
        click.echo(json.dumps(result.to_dict()))
    else:
        _show(result.folder, host, result.experiment)


def _imports_for_showing() -> None:
    import results
    import testbed.tables.results  # noqa: F401

    assert results


def _sweep(
    experiment: Experiment, out: str | None, as_json: bool, on: str | None, retries: int, failed: str | None
) -> None:
    from railbed.points import run_points
    from results.store.sweeps import SWEEP, Sweep
    from testbed.base.errors import RUN_FAILED
    from testbed.base.progress import for_stderr
    from testbed.run.sweep import SweepEnded
    from testbed.tables.results import of_sweep, show

    try:
        folder, rows = run_points(experiment, out, for_stderr(), on=on, retries=retries, failed=failed)
    except SweepEnded as ended:
        if not (ended.folder / SWEEP).exists():  # there was no room even for that
            raise
        if as_json:
            click.echo(json.dumps(Sweep(ended.folder).to_dict()))
            sys.exit(ended.exit_code)
        show(of_sweep(Sweep(ended.folder)), wide=True)
        raise
    if as_json:
        click.echo(json.dumps(Sweep(folder).to_dict()))
    else:
        show(of_sweep(Sweep(folder)), wide=True)
    if any("error" in row for row in rows):
        sys.exit(RUN_FAILED)


def _show(folder: Path, host: bool, experiment: Mapping[str, Any] | None = None) -> None:
    """Shows a run; its experiment is read from the folder if it is not known."""
    from results import load
    from testbed.run.profile import FILE
    from testbed.tables.results import of_profile, of_run, show

    run = load(folder)
    if experiment:
        run.experiment = dict(experiment)
    show(of_run(run, host=host))
    if run.experiment.get("cluster"):
        from testbed.experiment import load as load_experiment
        from testbed.predict.expected_error import expected_errors, in_words

        of_cluster = load_experiment(folder / "experiment.yaml")
        for line in in_words(of_cluster, expected_errors(of_cluster)):
            click.echo(f"# {line}")
    if (folder / FILE).exists():
        show(of_profile(json.loads((folder / FILE).read_text())))
