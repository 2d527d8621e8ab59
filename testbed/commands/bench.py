"""`testbed bench`: a collective over many sizes and several algorithms, as nccl-tests would measure it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import click

from testbed.base.ranges import Whole


def _count(least: int) -> dict[str, Any]:
    """An option that counts from its default on."""
    return {"type": Whole(least, 10**6), "default": least, "show_default": True, "metavar": "N"}


# fmt: off
@click.command()
@click.argument("collective")
@click.option("-b", "--minbytes", "begin", metavar="SIZE", help="Smallest size (default: 32M, or -e if smaller).")
@click.option("-e", "--maxbytes", "end", metavar="SIZE", help="Largest size (default: 32M, or -b if larger).")
@click.option("-f", "--stepfactor", "factor", type=int, metavar="N", help="Each size is N times the one before.")
@click.option("-i", "--stepbytes", "increment", metavar="SIZE", help="Each size is so much larger (default: 1M).")
@click.option("-g", "--ranks", type=int, metavar="N", help="Ranks (default: 8, or all of a topology file).")
@click.option("-n", "--iters", "iterations", **_count(1),
              help="Timed iterations. With the virtual clock they differ only where something is random.")
@click.option("-w", "--warmup_iters", "warmup", **_count(0), help="More iterations before, not timed.")
@click.option("-c", "--check", **_count(1), help="At least N iterations, the rest of them not timed; all are checked.")
@click.option("-d", "--datatype", "dtype", default="float32", show_default=True, metavar="TYPE",
              help="Element type, also by nccl-tests' names (float, half, double); or all.")
@click.option("-o", "--op", metavar="OP", help="Reduction: sum, min, max, prod, avg, or all (default: sum).")
@click.option("-r", "--root", metavar="RANK", help="Root, where the collective has one, or all (default: 0).")
@click.option("--algorithm", "algorithms", metavar="NAME,..",
              help="Algorithms to compare, also with keys or files: ring,ring[chunk=64KiB],./a.xml; or all that fit.")
@click.option("--topology", default="star", show_default=True, metavar="FILE|PRESET",
              help="YAML file with `fabric:`, {KIND: {..}}, or a kind that -g sizes, such as star, rail or clos.")
@click.option("--cc", metavar="NAME", help="Congestion control (default: none, or the file's).")
@click.option("--seed", type=Whole(0), metavar="N", help="Seed.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the experiment; may repeat.")
@click.option("--out", metavar="DIR", help="Folder for the run (default: results/runs/<timestamp>-<name>).")
@click.option("--host", is_flag=True, help="Columns of host time and bytes sent, of a rank.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout, everything else on stderr.")
# fmt: on
def command(algorithms: str | None, out: str | None, host: bool, as_json: bool, **options: Any) -> None:
    """Measure a collective over sizes, as nccl-tests does.

    Sizes are nccl-tests' (1K = 1024, 8M, 1G) or this project's (16MiB). All algorithms and sizes run on one fabric, one
    after the other, and every result is checked. A topology file may be a whole experiment: its transport, costs and
    faults hold, its workload and sweep do not.

    \b
    Examples:
      testbed bench all_reduce -b 1K -e 16M -f 4 -g 8
      testbed bench all_gather -b 1M -e 1M -g 16 --topology clos --cc dcqcn --json > bench.json
      testbed bench all_reduce --topology '{torus: {dims: [2, 2, 2]}}' -b 64K -e 1M -f 4
      testbed bench all_reduce --algorithm all -b 1M -e 1M
      testbed bench all_reduce -d all -o max -b 64K -e 64K --topology experiments/quickstart.yaml

    Exit codes: 0 done, 1 the run failed, 2 bad input, 3 the machine cannot (see `testbed doctor`).
    """
    from testbed.base.errors import require_root
    from testbed.base.progress import for_stderr
    from testbed.bench.experiment import Options, everything, experiment, split, types_left_out
    from testbed.bench.printer import Printer
    from testbed.run.outcome import RunFailed
    from testbed.run.run import run

    named = split(algorithms) if algorithms is not None else []
    chosen = Options(algorithms=named, **options)
    left_out: dict[str, str] = {}
    if "all" in named:
        chosen, left_out = everything(chosen)
    asked = experiment(chosen)
    require_root()
    for name, why in {**left_out, **types_left_out(chosen)}.items():
        click.echo(f"left out: {name} ({why})", err=True)
    printer = Printer(asked, for_stderr(), host=host, quiet=as_json)
    try:
        with printer.gather as rows:
            result = run(asked, out, rows)
    except RunFailed as failure:
        printer.end()
        if as_json:
            click.echo(json.dumps({"error": failure.to_dict(), "run": str(failure.folder)}))
            sys.exit(failure.exit_code)
        click.echo(f"What was measured until then is in {failure.folder}", err=True)
        raise
    printer.end(result)
    if as_json:
        click.echo(json.dumps({**result.to_dict(), "rows": [asdict(row) for row in printer.rows]}))
