"""`testbed job`: workloads in the background, on a fabric that is up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from testbed.base.ranges import Whole
from testbed.commands import _fabric
from testbed.commands._complete import FILE

if TYPE_CHECKING:
    from testbed.live.jobs import Job

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")


def _of_a_job(function: Callable[..., None]) -> Callable[..., None]:
    """What a command about a job takes."""
    return click.argument("job", required=False, metavar="[ID]")(_fabric.option(_JSON(function)))


def _job_and_fabric(job: str | None, fabric: str | None) -> tuple[str | None, str | None]:
    """A fabric's id where a job's stands means that fabric, as in other commands; jobs are j1, j2 .."""
    from testbed.machine import ownership

    meant = job in {record.id for record in ownership.fabrics()}
    return (None, _fabric.one_of(job, fabric)) if meant else (job, fabric)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Run workloads on a live fabric in the background.

    A job goes on without this terminal, and ends with its fabric. A fabric has one job at a time.

    \b
    Examples:
      testbed job start experiments/quickstart.yaml --repeat 2
      testbed job status
      testbed job stop
    """


@command.command()
@click.argument("file", shell_complete=FILE)
@_fabric.option
@click.option("--repeat", type=Whole(1), metavar="N", help="Run it so many times (default: once).")
@click.option("--forever", is_flag=True, help="Run it again and again, until it is stopped; the last 10 runs are kept.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the experiment; may repeat.")
@click.option("--out", metavar="DIR", help="Folder for its runs (default: results/runs/<timestamp>-<name>).")
@_JSON
def start(
    file: str,
    fabric: str | None,
    repeat: int | None,
    forever: bool,
    settings: tuple[str, ...],
    out: str | None,
    as_json: bool,
) -> None:
    """Start the workload of FILE on a fabric that is up, and return at once.

    What the file says of the fabric must be as it is there, or be left out. Each run has a folder, 0001, 0002 .., like
    that of `testbed run`; the job ends at the first that fails.

    \b
    Examples:
      testbed job start experiments/quickstart.yaml --fabric 3f2a
    """
    from testbed.base.errors import InputError
    from testbed.run import job

    if repeat and forever:
        raise InputError("either --repeat or --forever, not both", where="command line")
    record, started = job.start(fabric, file, settings, out, None if forever else repeat or 1)
    if as_json:
        click.echo(json.dumps({"fabric": record.id, "job": started.id, "folder": started.info["folder"]}))
        return
    click.echo(f"job {started.id} runs on fabric {record.id}; its runs are in {started.info['folder']}")
    click.echo(f"  testbed job status {started.id} --fabric {record.id}")
    click.echo(f"  testbed job stop {started.id} --fabric {record.id}")


@command.command()
@_of_a_job
def status(job: str | None, fabric: str | None, as_json: bool) -> None:
    """Show the jobs of a fabric, or the job ID: its state, how many runs are done, and how the last one went.

    \b
    Examples:
      testbed job status
      testbed job status --json
    """
    from testbed.live import jobs
    from testbed.machine import ownership

    job, fabric = _job_and_fabric(job, fabric)
    record = ownership.find(fabric)
    listed = [jobs.find(record, job)] if job else jobs.all_jobs(record)
    if as_json:
        click.echo(json.dumps({"fabric": record.id, "jobs": [jobs.describe(j) for j in listed]}))
        return
    if not listed:
        click.echo(f"fabric {record.id} has had no job")
    for each in listed:
        click.echo(line(each))
        if job:
            _details(jobs.describe(each))


def line(job: Job) -> str:
    """What a person is told of it."""
    info = job.info
    of = "" if info["of"] is None else f" of {info['of']}"
    lasted = (info.get("ended") or time.time()) - info["began"]
    return f"job {job.id}: {info['name']}, {info['state']}, {info['runs']}{of} runs done, {lasted:.0f} s"


def _details(info: dict[str, Any]) -> None:
    click.echo(f"  file     {info['file']}")
    if info["folder"]:
        click.echo(f"  runs     {info['folder']}")
    if info["last"]:
        click.echo(f"  last run {info['last']['run']}: {info['last']['fidelity']['verdict']}")
    if info["error"]:
        click.echo(f"  error    {info['error']['what']}")


@command.command()
@_of_a_job
def stop(job: str | None, fabric: str | None, as_json: bool) -> None:
    """Stop the job ID (default: the one that runs). Its workers end; what was measured until then is kept.

    \b
    Examples:
      testbed job stop
    """
    from testbed.live import jobs
    from testbed.machine import ownership
    from testbed.run import job as background

    job, fabric = _job_and_fabric(job, fabric)
    record = ownership.find(fabric)
    stopped = jobs.find(record, job) if job else jobs.running(record)
    if stopped and stopped.info["state"] == jobs.RUNNING:
        stopped = background.stop(record, stopped)
    if as_json:
        click.echo(json.dumps({"fabric": record.id, "job": jobs.describe(stopped) if stopped else None}))
    else:
        click.echo(line(stopped) if stopped else f"no job runs on fabric {record.id}")
