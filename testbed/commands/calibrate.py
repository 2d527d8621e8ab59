"""`testbed calibrate`: the constants of a cluster from its logs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from testbed.base.ranges import Whole
from testbed.commands._complete import FILE


# fmt: off
@click.command(short_help="Fit a profile of your cluster to its logs.")
@click.argument("logs", nargs=-1, shell_complete=FILE, metavar="LOG..")
@click.option("--nics", metavar="NxRATE", help="NICs of a node and their rate, such as 8x400Gbps.")
@click.option("--nodes", type=Whole(1, 10**6), metavar="N", help="Nodes, of logs that do not say it.")
@click.option("--gpus", type=Whole(1, 1024), metavar="N", help="GPUs of each node, of logs that do not say it.")
@click.option("--topo", "topology", shell_complete=FILE, metavar="FILE", help="What NCCL_TOPO_DUMP_FILE has written.")
@click.option("--gpu", metavar="NAME", help="volta, ampere, hopper or blackwell (default: as the logs say).")
@click.option("--host", metavar="NAME", help="intel, amd, arm or power (default: as --topo says, or intel).")
@click.option("--library", metavar="nccl@X.Y.Z", help="Version of NCCL, of logs that do not say it.")
@click.option("--collective", metavar="NAME", help="Of tables that do not say it.")
@click.option("--hold", multiple=True, metavar="WHAT",
              help="Hold points back and predict them: all_reduce,nodes=8 (all conditions hold); may repeat. "
                   "each: every collective, nodes and GPUs in turn.")
@click.option("--name", metavar="NAME", help="Of the cluster (default: of --out, or of the first log).")
@click.option("--about", default="", metavar="TEXT", help="Where the logs are from, for the profile.")
@click.option("--out", metavar="FILE", help="Write the profile here, .yaml.")
@click.option("--report", metavar="DIR", help="Write a report here: HTML, text and JSON.")
@click.option("--ops", metavar="FILE", shell_complete=FILE,
              help="Operations that `python -m testbed.calibrate.measure_ops` has measured; no LOG is needed then.")
@click.option("--check", metavar="FILE", shell_complete=FILE,
              help="Fit nothing: does this profile still hold for these logs? Exit code 1 if not.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
# fmt: on
def command(
    logs: tuple[str, ...], nics: str | None, nodes: int | None, gpus: int | None, topology: str | None,
    gpu: str | None, host: str | None, library: str | None, collective: str | None, hold: tuple[str, ...],
    name: str | None, about: str, out: str | None, report: str | None, ops: str | None,
    check: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Fit the constants of NCCL's model to logs of your cluster, and say how well they are known.

    LOG is what nccl-tests, rccl-tests, OSU's benchmarks or perftest have printed, with NCCL_DEBUG=INFO or without, a
    JSON file of nccl-tests, or a table as CSV. An experiment with `cluster: my.yaml` takes the constants from there.

    \b
    Examples:
      testbed calibrate experiments/clusters/gb10-ring-of-4.csv --nics 1x200Gbps --gpu blackwell --out gb10.yaml
      testbed calibrate experiments/clusters/gb10-ring-of-4.csv --nics 1x200Gbps --gpu blackwell --hold 'size>=64MiB'
      testbed calibrate --check gb10.yaml experiments/clusters/gb10-ring-of-4.csv

    Exit codes: 0 done, 1 the profile does not hold (--check), 2 bad input.
    """
    from testbed.base.errors import InputError

    if not logs:
        if ops is None:
            raise InputError("no log is named", "command line", "testbed calibrate LOG.., or --ops FILE")
        _operations(ops, about, out, as_json)
        return
    from testbed.calibrate.found import Told, known, version_of
    from testbed.calibrate.work import Asked, work
    from workloads.library.servers import GPUS, HOSTS

    told = Told(
        nics, nodes, gpus, known(GPUS, gpu, "--gpu"), known(HOSTS, host, "--host"), version_of(library)
    )  # fmt: skip
    if check is not None:
        _check(check, logs, told, collective, as_json)
        return
    from testbed.base.progress import for_stderr

    with for_stderr() as progress:
        stem = Path(out).stem if out else None
        asked = Asked(logs, told, topology, collective, hold, name or stem, about, ops)
        outcome = work(asked, progress.note if not as_json else lambda text: None)
    if out:
        from testbed.calibrate.made import write

        write(outcome.profile, Path(out))
    if report:
        from testbed.report.calibration import write_report

        write_report(outcome, Path(report))
    if as_json:
        from testbed.calibrate.data import to_dict

        click.echo(json.dumps(to_dict(outcome)))
        return
    from testbed.calibrate.held import scores
    from testbed.calibrate.told import of_calibration, of_scores
    from testbed.tables.results import show

    show(of_calibration(outcome.log, outcome.sources, outcome.made, outcome.profile, outcome.made.model.unknown))
    if outcome.held:
        show(of_scores(outcome.held, scores(outcome.held, more_nodes=outcome.more_nodes)))
    if out:
        click.echo(f"# profile: {out}")


def _operations(path: str, about: str, out: str | None, as_json: bool) -> None:
    """The profile of a GPU alone."""
    from testbed.calibrate.made import write_plain
    from testbed.calibrate.ops import gpu_profile
    from testbed.calibrate.told import of_gpu
    from testbed.cluster.gpu import written_gpu
    from testbed.tables.results import show

    profile, notes = gpu_profile(path, about)
    if out:
        write_plain(written_gpu(profile), Path(out))
    if as_json:
        click.echo(json.dumps({"profile": written_gpu(profile), "notes": notes}))
        return
    show(of_gpu(profile, notes))
    if out:
        click.echo(f"# profile: {out}")


def _check(path: str, logs: tuple[str, ...], told: object, collective: str | None, as_json: bool) -> None:
    from testbed.base.errors import RUN_FAILED
    from testbed.calibrate.data import of_predicted
    from testbed.calibrate.found import Told
    from testbed.calibrate.told import of_check
    from testbed.calibrate.work import check, holds
    from testbed.tables.results import show

    assert isinstance(told, Told)
    profile, log, found = check(path, logs, told, collective)
    still = holds(found)
    if as_json:
        rows = [of_predicted(one) for one in found]
        click.echo(json.dumps({"profile": profile.cluster, "holds": still, "points": rows, "notes": log.warnings}))
    else:
        show(of_check(profile, log, found))
    if not still:
        sys.exit(RUN_FAILED)
