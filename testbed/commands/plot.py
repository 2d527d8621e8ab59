"""`testbed plot`: pictures of a run or a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import click

KINDS = ("queue", "rate", "pauses", "fct", "sweep")


@click.command()
@click.argument("run")
@click.argument("kind", type=click.Choice(KINDS))
@click.option(
    "-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="File, .svg or .png (default: KIND.svg)."
)
@click.option("--figure", "figures", multiple=True, metavar="NAME", help="sweep: a figure of the table; may repeat.")
def command(run: str, kind: str, out: Path | None, figures: tuple[str, ...]) -> None:
    """Draw RUN, a run folder: queue, rate and pauses over time (of runs with `measure: {sample: ..}`), slowdowns of
    flows by size (fct), or the figures of a sweep.

    \b
    Examples:
      testbed plot results/runs/20260101-120000-fairness rate -o rate.png
      testbed plot results/runs/20260101-120000-incast sweep --figure goodput_Gbps --figure slowdown_p99
    """
    from results import StoreError, load
    from results import plots as drawing
    from testbed.errors import InputError
    from testbed.sweep import FILE

    out = out or Path(f"{kind}.svg")
    if out.suffix not in (".svg", ".png"):
        raise InputError(f"{out}: pictures are .svg or .png", "command line: --out")
    try:
        if kind == "sweep":
            path = Path(run) / FILE
            if not path.exists():
                raise InputError("this is no sweep's folder", run, "a sweep is an experiment with `sweep:`")
            told = json.loads(path.read_text())
            names = list(figures) or ["goodput_Gbps"]
            known = sorted({k for p in told["points"] for k, v in p.items() if isinstance(v, int | float)})
            if unknown := [n for n in names if n not in known]:
                raise InputError(
                    f"no point has a figure called {unknown[0]!r}", "command line", f"there are {', '.join(known)}"
                )
            picture = drawing.sweep(told["name"], told["keys"], told["points"], names)
        else:
            picture = drawing.PLOTS[kind].draw(load(run))
    except StoreError as error:
        raise InputError(error.what, error.where, error.hint) from None
    except drawing.PlotError as error:
        raise InputError(str(error), run) from None
    drawing.save(picture, out)
    click.echo(str(out))
