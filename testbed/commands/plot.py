"""`testbed plot`: pictures of a run or a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.commands._complete import RUN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("queue", "rate", "pauses", "fct", "sweep", "speedup", "heat", "times", "host", "sent")
_PICTURES = (".svg", ".png")


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN..", shell_complete=RUN)
@click.argument("kind", type=click.Choice(KINDS))
@click.option(
    "-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="File, .svg or .png (default: KIND.svg)."
)
@click.option("--figure", "figures", multiple=True, metavar="NAME", help="sweep: a figure of the table; may repeat.")
@click.option("--baseline", metavar="ALGORITHM", help="speedup, heat: what the others are compared with (the first).")
@click.option("--over", metavar="KEY", help="speedup .. sent: size, ranks, or a swept key, such as rate.")
def command(
    runs: tuple[str, ...],
    kind: str,
    out: Path | None,
    figures: tuple[str, ...],
    baseline: str | None,
    over: str | None,
) -> None:
    """Draw RUN, a run folder: queue, rate and pauses over time (of runs with `measure: {sample: ..}`), slowdowns of
    flows by size (fct), or the figures of a sweep. Of one or several runs and sweeps: algorithms compared by their
    speedup over a baseline, by the same as a heat map, by times, host time and bytes sent.

    \b
    Examples:
      testbed run experiments/congestion/fairness.yaml --out results/runs/fairness
      testbed plot fairness rate -o rate.png
      testbed run experiments/congestion/incast.yaml --out results/runs/incast
      testbed plot incast sweep --figure goodput_Gbps --figure slowdown_p99
      testbed bench all_reduce -b 64K -e 1M -f 4 -g 4 --algorithm ring,in_network --out results/runs/algorithms
      testbed plot algorithms speedup --baseline ring
    """
    from results import StoreError
    from results import plots as drawing
    from testbed.errors import InputError

    out = out or Path(f"{kind}.svg")
    if out.suffix not in _PICTURES:
        raise InputError(f"{out}: pictures are .svg or .png", "command line: --out")
    try:
        picture = _picture(runs, kind, figures, baseline, over)
    except StoreError as error:
        raise InputError(error.what, error.where, error.hint) from None
    except drawing.PlotError as error:
        raise InputError(str(error), " ".join(runs)) from None
    drawing.save(picture, out)
    click.echo(str(out))


def _picture(
    runs: tuple[str, ...], kind: str, figures: tuple[str, ...], baseline: str | None, over: str | None
) -> Figure:
    from results import load
    from results.comparison import COMPARISONS, collect
    from results.plots import PLOTS
    from testbed.errors import InputError

    if kind in COMPARISONS:
        compared: Figure = COMPARISONS[kind].draw(collect([Path(run) for run in runs]), baseline, over)
        return compared
    if len(runs) > 1:
        raise InputError(f"{kind} draws one run", "command line", f"several go with {', '.join(COMPARISONS)}")
    if kind == "sweep":
        return _sweep(Path(runs[0]), figures)
    picture: Figure = PLOTS[kind].draw(load(runs[0]))
    return picture


def _sweep(folder: Path, figures: tuple[str, ...]) -> Figure:
    from results import plots, sweeps
    from testbed.errors import InputError

    swept = sweeps.sweep(folder)
    if swept is None:
        raise InputError("this is no sweep's folder", str(folder), "a sweep is an experiment with `sweep:`")
    names = list(figures) or ["goodput_Gbps"]
    known = sorted(
        {k for p in swept.points for k, v in p.items() if isinstance(v, int | float) and k not in swept.keys}
    )
    if unknown := [n for n in names if n not in known]:
        raise InputError(
            f"no point has a figure called {unknown[0]!r}", "command line", f"there are {', '.join(known)}"
        )
    return plots.sweep(swept.name, swept.keys, swept.points, names)
