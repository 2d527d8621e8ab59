"""`testbed report`: a run or a sweep as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.commands._complete import RUN
from testbed.commands._page import PAGE, checked


@click.command()
@click.argument("run", shell_complete=RUN)
@click.option("-o", "--out", type=PAGE, help="File, .html (default: RUN-report.html).")
def command(run: str, out: Path | None) -> None:
    """Write a report of a run or a sweep.

    It is one HTML file that any browser opens, offline. Verdict, figures, the
    network coloured by what its ports counted, queues and rates over time (of runs with `measure: {sample: ..}`), the
    ranks' timeline, drops, what was asked, and how to get it again.

    \b
    Examples:
      testbed report quickstart
      testbed run experiments/congestion/incast.yaml --out results/runs/incast
      testbed report incast -o incast.html
    """
    from results.store.load import find
    from testbed.report.html import report

    if out is not None:
        checked(out)
    path = find(run)
    click.echo(str(report(path, out or Path(f"{path.resolve().name}-report.html"))))
