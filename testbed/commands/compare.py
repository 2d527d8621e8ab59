"""`testbed compare`: runs or sweeps against each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.base.errors import RUN_FAILED
from testbed.commands._complete import RUN
from testbed.commands._page import PAGE, checked

if TYPE_CHECKING:
    from results.compare.comparison import Comparison
    from results.compare.limit import Limit


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN..", shell_complete=RUN)
@click.option(
    "--fail-if",
    "limits",
    multiple=True,
    metavar="LIMIT",
    help='Exit with 1 if it holds: a figure, <, <=, >, >=, == or !=, and a ratio to the first RUN, as "busbw < 0.98". '
    "May repeat.",
)
@click.option(
    "--significant",
    is_flag=True,
    help="With --fail-if: only differences count that stand out of the spread over seeds (five on each side, or more).",
)
@click.option("-o", "--out", type=PAGE, help="Also write it: a page (.html), or the tables (.md, .tex).")
@click.option("--all", "every", is_flag=True, help="Also figures that are equal, and all counters that moved.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(
    runs: tuple[str, ...],
    limits: tuple[str, ...],
    significant: bool,
    out: Path | None,
    every: bool,
    as_json: bool,
) -> None:
    """Compare runs or sweeps with the first one.

    Which keys differ, figures with their ratios, counters that moved. Of sweeps, points with the same swept values
    are compared, seed by seed; over five seeds or more with an interval that says whether a difference stands out.

    \b
    Examples:
      testbed run experiments/quickstart.yaml --out results/runs/before
      testbed run experiments/quickstart.yaml --set fabric.cable.rate=100Gbps --out results/runs/after
      testbed compare before after
      testbed compare before after --fail-if "busbw < 0.98" --json
      testbed compare before after --fail-if "time > 1" --significant
      testbed compare before after -o difference.html
      testbed compare before after -o difference.tex
    """
    from results.compare.comparison import compare
    from results.compare.limit import Limit, LimitError
    from testbed.base.errors import InputError

    if out is not None:
        checked(out)
    if significant and not limits:
        raise InputError("--significant is of limits, and there is none", "command line", '--fail-if "busbw < 0.98"')
    try:
        asked = [Limit.parse(limit, significant=significant) for limit in limits]
        comparison = compare(runs)
        met = [why for limit in asked for why in limit.met(comparison)]
        _print(comparison, asked, met, every, as_json)
        if out is not None:
            _write(comparison, met, out, every)
    except LimitError as error:
        raise InputError(error.what, "command line: --fail-if", error.hint) from None
    if met:
        raise SystemExit(RUN_FAILED)


def _print(comparison: Comparison, limits: list[Limit], met: list[str], every: bool, as_json: bool) -> None:
    if as_json:
        more = {"failed_if": met} if limits else {}
        click.echo(json.dumps({**comparison.to_dict(), **more}, allow_nan=False))
        return
    from testbed.tables.comparison import of_comparison
    from testbed.tables.results import show

    show(of_comparison(comparison, every=every), wide=True)
    for why in met:
        click.echo(f"failed: {why}")


def _write(comparison: Comparison, met: list[str], out: Path, every: bool) -> None:
    if out.suffix.lower() == ".html":
        from testbed.report.html import compared

        compared(comparison, met, out, every=every)
        return
    from testbed.tables.comparison import of_comparison
    from testbed.tables.paper import write

    write(of_comparison(comparison, every=every, whole=True), out)
