"""`testbed plot`: pictures of a run or a sweep."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.base.ranges import Whole
from testbed.commands._complete import RUN
from testbed.commands._page import PAGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from results import Run

    Choice = click.Choice[str]
else:
    Choice = click.Choice  # older ones are not generic

KINDS = (
    *("queue", "rate", "pauses", "fct", "timeline", "trace", "sweep"),
    *("speedup", "heat", "times", "busbw", "host", "sent"),
)
_PICTURES = (".svg", ".png", ".pdf", ".pgf")
_WITHOUT_VALUES = ("timeline", "trace")
STYLES = ("screen", "paper", "slides")
MOST_NAMES = 3
"""Runs that a picture is named after."""


class Plots(click.Command):
    """A single word is a run without a kind of picture; click would take it for the kind, and miss the run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if len(args) == 1 and not args[0].startswith("-") and not ctx.resilient_parsing:
            lacks = "a run" if args[0] in KINDS else "what to draw"
            raise click.UsageError(f"{lacks} is missing: testbed plot RUN.. KIND, of {', '.join(KINDS)}", ctx)
        return super().parse_args(ctx, args)


class PlotKind(Choice):
    """A kind of picture, which stands behind the runs."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        runs = ctx.params.get("runs", ()) if ctx else ()
        if value not in self.choices and runs and runs[0] in self.choices:
            words = " ".join([*runs[1:], value, runs[0]])
            self.fail(f"{runs[0]} is what to draw, and comes last: testbed plot {words}", param, ctx)
        return super().convert(value, param, ctx)


@click.command(cls=Plots, epilog=f"KIND: {', '.join(KINDS)}.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN..", shell_complete=RUN)
@click.argument("kind", type=PlotKind(KINDS), metavar="KIND")
@click.option("-o", "--out", type=PAGE, help="File, .svg, .png, .pdf or .pgf (default: RUN-KIND.svg); trace: .json.")
@click.option("--style", type=Choice(STYLES), default="screen",
              help="paper: a column wide, without a title; slides: large letters.")  # fmt: skip
@click.option("--figure", "figures", multiple=True, metavar="NAME",
              help="sweep: a figure of the table; may repeat (goodput_Gbps, or busbw_GBps).")  # fmt: skip
@click.option("--baseline", metavar="ALGORITHM", help="speedup, heat: what the others are compared with (the first).")
@click.option("--over", metavar="KEY", help="speedup .. sent: size, ranks, or a swept key, such as rate.")
@click.option("--iteration", type=Whole(0), metavar="N", help="timeline: which iteration of a step (the last).")
@click.option("--data", is_flag=True, help="Also write what is drawn as CSV, beside the picture.")
def command(
    runs: tuple[str, ...],
    kind: str,
    out: Path | None,
    style: str,
    figures: tuple[str, ...],
    baseline: str | None,
    over: str | None,
    iteration: int | None,
    data: bool,
) -> None:
    """Draw runs and sweeps as pictures.

    Queue, rate and pauses over time (of runs with `measure: {sample: ..}`), slowdowns of
    flows by size (fct), the timeline of tasks by rank and stream, or the figures of a sweep. Of one or several runs and
    sweeps: bus bandwidth by size; algorithms compared by their speedup over a baseline, by the same as a heat map, by
    times, host time and bytes sent. `trace` writes the timeline as a file that ui.perfetto.dev opens.

    \b
    Examples:
      testbed run experiments/quickstart.yaml --out results/runs/first
      testbed plot first busbw
      testbed run experiments/congestion/fairness.yaml --out results/runs/fairness
      testbed plot fairness rate -o rate.pdf --style paper --data
      testbed run experiments/congestion/incast.yaml --out results/runs/incast
      testbed plot incast sweep --figure goodput_Gbps --figure slowdown_p99
      testbed bench all_reduce -b 64K -e 1M -f 4 -g 4 --algorithm ring,in_network --out results/runs/algorithms
      testbed plot algorithms speedup --baseline ring
    """
    from results.pictures.drawing import PlotError, save
    from results.pictures.styles import styled
    from testbed.base.errors import InputError

    endings = (".json",) if kind == "trace" else _PICTURES
    out = _checked(out, endings) if out else None
    _refuse_unused(kind, {"--figure": figures, "--baseline": baseline, "--over": over, "--iteration": iteration})
    if data and kind in _WITHOUT_VALUES:
        raise InputError(f"{kind} shows no values", "command line: --data", "the frame `timeline` has them")
    try:
        out = out or Path(f"{_called(runs)}-{kind}{endings[0]}")
        if kind == "trace":
            _write_trace(runs, out)
            return
        of_steps = kind == "timeline"
        with styled(style):
            pictures = _timeline(runs, iteration) if of_steps else _pictures(runs, kind, figures, baseline, over)
            paths = save(pictures, out)
        if data:
            from results.pictures.drawn import write

            paths = [*paths, *write(pictures, paths)]
    except PlotError as error:
        raise InputError(str(error), " ".join(runs)) from None
    for path in paths:
        click.echo(str(path))


def _called(runs: tuple[str, ...]) -> str:
    """The name of a picture: that of its runs, so that no picture overwrites another; of a point, with its sweep's."""
    from results.store.load import find

    names = []
    for folder in (find(run).resolve() for run in runs):
        point = (folder.parent / "sweep.json").exists()
        names.append(f"{folder.parent.name}-{folder.name}" if point else folder.name)
    return "-".join(names[:MOST_NAMES]) + (f"-and-{len(names) - MOST_NAMES}-more" if len(names) > MOST_NAMES else "")


def _checked(out: Path, endings: tuple[str, ...]) -> Path:
    """Where the picture goes, before anything is drawn."""
    from results.pictures.styles import LATEX
    from testbed.base.errors import InputError

    if out == Path():
        raise InputError("the name of the picture is empty", "command line: --out", "such as --out rate.png")
    if out.suffix.lower() not in endings:
        what = "a trace is .json" if endings == (".json",) else "pictures are .svg, .png, .pdf or .pgf"
        raise InputError(f"{out}: {what}", "command line: --out")
    if out.suffix.lower() == ".pgf" and not any(map(shutil.which, LATEX)):
        raise InputError(
            f"{out}: none of {', '.join(LATEX)} is there to measure its text", "command line: --out",
            "install texlive-xetex, or write .pdf",
        )  # fmt: skip
    if not out.parent.is_dir():
        raise InputError(f"there is no folder {str(out.parent)!r}", "command line: --out")
    return out


def _refuse_unused(kind: str, given: dict[str, object]) -> None:
    """Raises InputError for an option that this kind of picture does not use."""
    from results.pictures.comparison_plots import COMPARISONS
    from testbed.base.errors import InputError

    takers = {
        "--figure": ["sweep"],
        "--baseline": [c.name for c in COMPARISONS.values() if c.baseline],
        "--over": list(COMPARISONS),
        "--iteration": ["timeline"],
    }
    for option, kinds in takers.items():
        if given[option] not in (None, ()) and kind not in kinds:
            raise InputError(f"{kind} takes no {option}", "command line", f"it goes with {', '.join(kinds)}")


def _pictures(
    runs: tuple[str, ...], kind: str, figures: tuple[str, ...], baseline: str | None, over: str | None
) -> list[Figure]:
    from results.pictures.comparison import collect
    from results.pictures.comparison_plots import COMPARISONS
    from results.pictures.plots import PLOTS

    if kind in COMPARISONS:
        data = collect(runs)
        for why in data.left_out:
            click.echo(f"left out: {why}", err=True)
        return COMPARISONS[kind].draw(data, baseline, over)
    if kind == "sweep":
        return _sweep(_one(kind, runs), figures)
    picture: Figure = PLOTS[kind].draw(_run(kind, runs))
    return [picture]


def _one(kind: str, runs: tuple[str, ...]) -> str:
    from results.pictures.comparison_plots import COMPARISONS
    from testbed.base.errors import InputError

    if len(runs) > 1:
        raise InputError(f"{kind} draws one run", "command line", f"several go with {', '.join(COMPARISONS)}")
    return runs[0]


def _run(kind: str, runs: tuple[str, ...]) -> Run:
    """The one run to draw, which is no sweep."""
    from results import load
    from results.store.sweeps import sweep
    from testbed.base.errors import InputError

    run = _one(kind, runs)
    if (swept := sweep(run)) is not None:
        points = [p["run"] for p in swept.points if "run" in p]
        hint = f"draw one of its points, such as {swept.path / points[0]}" if points else ""
        raise InputError(f"{kind} draws one run, and this is a sweep", run, hint)
    return load(run)


def _timeline(runs: tuple[str, ...], iteration: int | None) -> list[Figure]:
    """A picture for each step of the workload that has tasks."""
    from results.figures.timeline import steps
    from results.pictures.timeline_plot import chosen, timeline

    run = _run("timeline", runs)
    return [timeline(step, run.name) for step in chosen(steps(run.rows("timeline")), iteration)]


def _write_trace(runs: tuple[str, ...], out: Path) -> None:
    import json

    from results.figures.trace_events import trace
    from results.pictures.drawing import PlotError

    run = _run("trace", runs)
    rows = run.rows("timeline")
    if not rows:
        raise PlotError("this run has no timeline: its workload has no tasks")
    clock = run.experiment.get("clock", "virtual")
    document = trace(rows, run.name, clock if isinstance(clock, str) else "real")
    out.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    click.echo(str(out))


def _sweep(folder: str, figures: tuple[str, ...]) -> list[Figure]:
    from results.pictures.drawing import PlotError
    from results.pictures.sweep_plot import figures_of, sweep, usual
    from results.store import sweeps
    from testbed.base.errors import InputError

    swept = sweeps.sweep(folder)
    if swept is None:
        raise InputError("this is no sweep's folder", folder, "a sweep is an experiment with `sweep:`")
    if not swept.points:
        raise PlotError("no point of this sweep is done")
    known = figures_of(swept)
    if unknown := [n for n in figures if n not in known]:
        hint = f"there are {', '.join(known)}" if known else "all of its points have failed"
        raise InputError(f"no point has a figure called {unknown[0]!r}", "command line", hint)
    return sweep(swept.name, swept.keys, swept.points, list(figures) or usual(swept))
