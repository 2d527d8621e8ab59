"""`testbed report`: a run or a sweep as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.commands._complete import RUN
from testbed.commands._page import PAGE, checked


@click.command()
@click.argument("run", shell_complete=RUN)
@click.option("-o", "--out", type=PAGE, help="File (default: RUN-report.html); .md, .tex: only tables.")
def command(run: str, out: Path | None) -> None:
    """Write a report of a run or a sweep.

    It is one HTML file that any browser opens, offline. Verdict, figures, the
    network coloured by what its ports counted, queues and rates over time (of runs with `measure: {sample: ..}`), the
    ranks' timeline, drops, what was asked, and how to get it again. With .md or .tex it is what `testbed run` printed,
    as tables for a page or a paper (LaTeX with booktabs).

    \b
    Examples:
      testbed report quickstart
      testbed run experiments/congestion/incast.yaml --out results/runs/incast
      testbed report incast -o incast.html
      testbed report incast -o incast.tex
    """
    from results.store.load import find
    from testbed.report.html import report

    if out is not None:
        checked(out)
    path = find(run)
    if out is not None and out.suffix.lower() != ".html":
        _tables(path, out)
        return
    click.echo(str(report(path, out or Path(f"{path.resolve().name}-report.html"))))


def _tables(path: Path, out: Path) -> None:
    from results import Run
    from results.store.sweeps import sweep
    from testbed.tables.paper import write
    from testbed.tables.results import of_run, of_sweep

    swept = sweep(path)
    write(of_run(Run(path)) if swept is None else of_sweep(swept, labelled=True), out)
    click.echo(str(out))
