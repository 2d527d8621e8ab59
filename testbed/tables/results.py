"""A run on the terminal: nccl-tests' table, flows, and the verdict in one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from results import Run
from results.figures.in_force import commands
from results.figures.report import gigabytes
from results.figures.scaled import all_scaled
from results.figures.summary import figure_label, mean_busbw
from results.figures.timeline import steps
from results.figures.values import full
from results.store.folder import StoreError
from results.store.sweeps import Sweep, key_names
from testbed.base.text import fit
from testbed.run.profile import wall_s
from testbed.tables import checkpoints, programs, serving, sharing
from testbed.tables.cells import grid, microseconds
from topologies import in_words
from workloads.base.vocabulary import DTYPES
from workloads.registry import COLLECTIVES, unequal

MOST_FLOWS = 32
MOST_ITERATIONS = 32
_STYLE = {"exact": "green", "good": "green", "doubtful": "yellow", "invalid": "bold red"}

Rows = Sequence[Mapping[str, Any]]


def of_run(run: Run, *, host: bool = False, folder: bool = True) -> RenderableType:
    """What `testbed run` shows of a run; `host`: with the host time and sent bytes of collectives."""
    drops: dict[str, int] = {}
    for row in run.rows("drops"):
        drops[row["reason"]] = drops.get(row["reason"], 0) + row["count"]
    fidelity = run.fidelity or {"verdict": "invalid", "reasons": ["the run did not end"], "advice": []}
    parts: list[RenderableType] = [Text(f"# {title(run)}", style="dim")]
    parts += [_item("# On a live fabric : ", f"{command}: {when}", "yellow") for command, when in commands(run.live)]
    if run.state["state"] != "complete":
        error = run.state["error"] or {"what": "it was killed, or still goes on"}
        parts.append(_item("# FAILED: ", error["what"], "bold red"))
    elif fidelity["verdict"] == "invalid":
        parts.append(Text("# INVALID: the figures below are not to be used", style="bold red"))
    results = run.rows("results")
    for index, group in groupby(results, key=lambda r: r["step"]):
        if index >= len(run.steps):
            raise StoreError("this file is missing or damaged", str(run.path / "steps.json"))
        step, rows = run.steps[index], list(group)
        parts.append(Text("#"))
        if step["kind"] == "tasks":
            parts += _tasks(step, rows, host)
        elif "processes" in step:
            parts += programs.of_step(step, rows)
        else:
            parts += _flows(rows) if step["kind"] == "flows" else _collective(step, rows, host)
            parts += sharing.of_rows(rows)
    parts += _what_is_known(run)
    return Group(*parts, Text("#"), *_footer(results, fidelity, drops, run.path if folder else None))


def _right(header: str) -> Column:
    return Column(header, justify="right")


def of_profile(profile: Mapping[str, Any]) -> RenderableType:
    """Where a run's wall time went (testbed.run.profile)."""
    wall = wall_s(profile)
    stages = Table("stage", _right("wall (s)"), box=None, header_style="", pad_edge=False)
    for name, seconds in profile["stages"].items():
        stages.add_row(name, f"{seconds:.2f}")
    if not wall or not profile["busy"]:
        return Group(Text("#"), stages)
    columns = ("busy meanwhile", _right("CPU (s)"), _right("of the wall time"))
    busy = Table(*columns, box=None, header_style="", pad_edge=False)
    for part, seconds in sorted(profile["busy"].items(), key=lambda item: -item[1]):
        busy.add_row(part, f"{seconds:.2f}", f"{seconds / wall:.0%}")
        for room, share in profile["fabricd"].items() if part == "fabricd" else ():
            busy.add_row(f"  {room}", f"{share:.2f}", f"{share / wall:.0%}")
    return Group(Text("#"), stages, Text(f"# from the workers' start to their end, {wall:.2f} s:"), busy)


def title(run: Run) -> str:
    """Name, topology, clock and seed."""
    experiment = run.experiment
    if not experiment.keys() >= {"name", "fabric", "clock", "seed"}:
        return f"{run.name}: its experiment.yaml is missing, or not whole"
    ((kind, params),) = experiment["fabric"]["topology"].items()
    clock = experiment["clock"] if isinstance(experiment["clock"], str) else "real"
    of = ", ".join(key if value is True else f"{key} {value}" for key, value in in_words(kind, params).items())
    return f"{experiment['name']}: {kind} ({of}), {clock} clock, seed {experiment['seed']}"


_LAST = {"fidelity": 1, "error": 2}  # columns, whatever figures there are


def of_sweep(sweep: Sweep, *, labelled: bool = False) -> RenderableType:
    """What `testbed run` shows of a sweep: one line for each point. `labelled`: columns by what they are, not by the
    names that options take."""
    keys = {k: _LAST.get(k, 0) for row in sweep.points for k in row if k not in ("metrics_sha256", "run")}
    heads = {k: k for k in keys}
    if labelled:
        heads = {k: figure_label(k) for k in keys} | key_names(sweep.keys)
    shown = [{heads[k]: _short(row.get(k)) for k in sorted(keys, key=keys.__getitem__)} for row in sweep.points]
    failed = sum("error" in row for row in sweep.points)
    parts: list[RenderableType] = [Text(f"# {sweep.name}: {len(sweep.points)} of {sweep.total} points")]
    if error := sweep.state.get("error"):
        parts.append(_item("# ENDED EARLY: ", error["what"], "bold red"))
    elif len(sweep.points) < sweep.total:
        parts.append(_item("# NOT COMPLETE: ", "it was killed, or still goes on", "bold red"))
    parts.append(counters("sweep", shown) if shown else Text("# no point was done"))
    if failed:
        parts.append(Text(f"# Failed            : {failed} of {len(sweep.points)} points", style="bold red"))
    return Group(*parts, Text(f"# Run folder        : {sweep.path}"))


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.4g}"
    plain = isinstance(value, int | str | None) and not isinstance(value, bool)
    return value if plain else full(value)


def counters(frame: str, rows: Rows, whole: bool = False) -> RenderableType:
    """A table of counters, as wide as it needs to be; empty columns are left out, unless `whole`."""
    columns = [c for c in dict.fromkeys(k for row in rows for k in row) if whole or any(row.get(c) for row in rows)]
    if not columns:
        return Text(f"nothing in {frame}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        numbers = all(isinstance(row.get(column), int | float | None) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*("" if (value := row.get(c)) is None else escape(str(value)) for c in columns))
    return table


def _item(head: str, text: str, style: str = "") -> RenderableType:
    """A line of text; if it wraps, its continuation is aligned with the text."""
    grid = Table.grid()
    grid.add_row(Text(head, style=style), Text(text, style=style))
    return grid


def show(renderable: RenderableType, console: Console | None = None, *, wide: bool = False) -> None:
    """Prints it on stdout; `wide`: without regard to the width of the terminal. A pipe or file gets no line wrapped."""
    if console is None:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.file.writelines(f"{line}\n" for line in lines(renderable))
            return
        if wide:
            console.width = 10_000
    console.print(_Fit(renderable), crop=False)


class _Fit:
    """The same, without what could move a terminal's cursor: names in it may be others'."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else Segment(fit(segment.text), segment.style)


def lines(renderable: RenderableType) -> list[str]:
    """What `show` would print, as wide as it is, line by line."""
    console = Console(highlight=False, width=10_000, color_system=None, file=StringIO())
    with console.capture() as captured:
        console.print(_Fit(renderable), crop=False)
    return [line.rstrip() for line in captured.get().splitlines()]


def _collective(step: Mapping[str, Any], rows: Rows, host: bool) -> Iterator[RenderableType]:
    """One line per size; its time is the mean over the iterations, as in nccl-tests."""
    groups = step.get("groups", [step])
    same_size = [list(same) for _, same in groupby(rows, key=lambda r: r["size_bytes"])]
    sizes = [[r for r in same if (r.get("group") or 0) == g] for same in same_size for g in range(len(groups))]
    sizes = [same for same in sizes if same]
    iterations = max(len(same) for same in sizes)
    mean = f", mean of {iterations} iterations" if iterations > 1 else ""
    ranks = " + ".join(str(group["ranks"]) for group in groups)
    yield Text(f"# {step['collective']} ({step['algorithm']}), {ranks} ranks{mean}", style="bold")
    table = grid(
        *((("grp", "", 4),) if "groups" in step else ()),
        ("size", "(B)", 12), ("count", "(elements)", 10), ("type", "", 7), ("redop", "", 5), ("time", "(us)", 9),
        ("algbw", "(GB/s)", 7), ("busbw", "(GB/s)", 7), ("#wrong", "", 6),
        *((("host", "(us)", 9), ("sent", "(B)", 10)) if host else ()),
    )  # fmt: skip
    for same in sizes:
        size, time_ns, wrong = same[0]["size_bytes"], fmean(r["time_ns"] for r in same), sum(r["wrong"] for r in same)
        algbw = size / time_ns * 1e9 if time_ns else None
        of = {**step, **groups[same[0].get("group") or 0]}
        table.add_row(
            *((str(same[0]["group"]),) if "groups" in step else ()),
            str(size),
            str(elements(of, size)),
            step["dtype"],
            step["op"] or "none",
            microseconds(time_ns),
            gigabytes(algbw),
            gigabytes(None if algbw is None else algbw * of["busbw_factor"]),
            _wrong(wrong),
            *((_mean(same, "host_ns", 1e3, 2), _mean(same, "sent_bytes", 1, 0)) if host else ()),
        )
    yield table
    for why in dict.fromkeys(row["fallback"] for row in rows if row.get("fallback")):
        times = sum(row.get("fallback") == why for row in rows)
        yield Text(f"# {times} of {len(rows)} by the ranks themselves: {why}", style="yellow")
    for line in (*of_busbw(step["collective"]), *of_auto(step.get("chosen", {}))):
        yield Text(line, style="dim")


def _mean(rows: Rows, key: str, unit: float, decimals: int) -> str:
    """Of what a rank took, the mean over the iterations; nothing where it was not measured."""
    values = [row[key] for row in rows if row.get(key) is not None]
    return f"{fmean(values) / unit:.{decimals}f}" if values else ""


def elements(step: Mapping[str, Any], size_bytes: int) -> int:
    """Elements as nccl-tests counts them: of one rank's part, where each rank has its own."""
    collective = COLLECTIVES.get(step["collective"])  # a run of another version may have others
    return size_bytes // DTYPES[step["dtype"]] // (step["ranks"] if collective and collective.in_parts else 1)


def of_busbw(collective: str) -> Iterator[str]:
    """What it counts, where that is not what a cable carries."""
    if unequal(collective):
        factor = COLLECTIVES[collective].busbw.text
        yield f"# busbw: algbw x {factor}, as if parts were equal; where they are not it may be above a cable's rate"


def counted(n: int) -> str:
    return f"{n} size{'s' if n != 1 else ''}"


def of_auto(chosen: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What `auto` took for each size, what it expected of that and of the others, and why some were none of them."""
    without: dict[tuple[str, str], list[str]] = {}
    for size_bytes, one in chosen.items():
        by_time = sorted(one["expected_ns"].items(), key=lambda item: item[1])  # the first one is taken
        (taken, ns), *others = ((name, f"{ns / 1e3:.2f}") for name, ns in by_time)
        slower = sorted(one.get("at_least_ns", {}).items(), key=lambda item: item[1])
        others += [(name, f"over {at_least / 1e3:.2f}") for name, at_least in slower]
        rest = ", ".join(f"{name} {other_ns}" for name, other_ns in others)
        who = "library" if "/" in taken else "auto"
        expected = f", {ns} us expected" if float(ns) else ""
        yield f"#   {who}, {size_bytes} B: {taken}{expected}{f' ({rest})' if rest else ''}"
        for left_out in one.get("left_out", {}).items():
            without.setdefault(left_out, []).append(size_bytes)
    for (name, why), sizes in without.items():
        yield f"#   auto, without {name}{'' if len(sizes) == len(chosen) else f' at {counted(len(sizes))}'}: {why}"


def _flows(rows: Rows) -> Iterator[RenderableType]:
    yield Text(f"# flows (RDMA write), {len(rows)} in this step", style="bold")
    table = grid(
        ("flow", "(from->to)", 12), ("size", "(B)", 10), ("start", "(us)", 9), ("time", "(us)", 9),
        ("algbw", "(GB/s)", 7), ("slowdown", "", 8), ("#wrong", "", 6),
    )  # fmt: skip
    for row in rows[:MOST_FLOWS]:
        cells = (row["flow"], str(row["size_bytes"]), microseconds(row["start_ns"]), microseconds(row["time_ns"]))
        slowdown = row.get("slowdown")
        slow = "" if slowdown is None else f"{slowdown:.2f}"
        table.add_row(*cells, gigabytes(row["algbw_Bps"]), slow, _wrong(row["wrong"]))
    yield table
    if len(rows) > MOST_FLOWS:
        yield Text(f"# and {len(rows) - MOST_FLOWS} more: `testbed show run` with --json lists them all", style="dim")


def _tasks(step: Mapping[str, Any], rows: Rows, host: bool) -> Iterator[RenderableType]:
    """One line for each iteration, and by which algorithms the groups did their collectives."""
    yield Text(f"# {step['name']}: {step['tasks']} tasks of {step['ranks']} ranks", style="bold")
    table = grid(
        ("iter", "", 5), ("time", "(us)", 9), ("#wrong", "", 6),
        *((("host", "(us)", 9), ("sent", "(B)", 10)) if host else ()),
    )  # fmt: skip
    for row in rows[:MOST_ITERATIONS]:
        costs = (_mean([row], "host_ns", 1e3, 2), _mean([row], "sent_bytes", 1, 0)) if host else ()
        table.add_row(str(row["iteration"]), microseconds(row["time_ns"]), _wrong(row["wrong"]), *costs)
    yield table
    if len(rows) > MOST_ITERATIONS:
        mean = microseconds(fmean(row["time_ns"] for row in rows))
        yield Text(f"# and {len(rows) - MOST_ITERATIONS} more, all in the frame `results`; mean {mean} us", style="dim")
    for use in step["ways"]:
        times = f"{use['count']} x " if use["count"] > 1 else ""
        yield Text(f"#   {use['group']}: {times}{use['collective']} by {use['algorithm']}", style="dim")
    for why in dict.fromkeys(row["fallback"] for row in rows if row.get("fallback")):
        yield Text(f"# by the ranks themselves: {why}", style="yellow")


def _what_is_known(run: Run) -> Iterator[RenderableType]:
    """Tables of steps; of a run that an older version has stored those for which all is there."""
    try:
        yield from _steps(run)
    except KeyError as missing:
        what = f"# steps.json has no {missing}: another version of the testbed has made this run. Its frames are whole;"
        yield Text(f"{what} run its experiment.yaml again for the rest", style="yellow")


def _steps(run: Run) -> Iterator[RenderableType]:
    """One line for each iteration of each step that has tasks; its times are means over the ranks."""
    times = steps(run.rows("timeline"))
    if not times:
        return
    yield Text("#")
    yield Text("# steps of tasks, times of a rank (mean over ranks)", style="bold")
    table = grid(
        ("step", "", 5), ("iter", "", 4), ("ranks", "", 5), ("time", "(us)", 9), ("compute", "(us)", 9),
        ("exposed", "(us)", 9), ("bubble", "(us)", 9), ("overlap", "(%)", 7), ("util", "(%)", 6),
        ("straggler", "(rank)", 9), ("MFU", "(%)", 6), ("tokens", "(1/s)", 9),
    )  # fmt: skip
    for time in times:
        step = run.steps[time.step] if time.step < len(run.steps) else {}
        row = time.row(step.get("tokens"), step.get("ideal_ns"))
        table.add_row(
            str(row["step"]), str(row["iteration"]), str(row["ranks"]),
            *(microseconds(row[f"{key}_ns"]) for key in ("time", "compute", "exposed", "bubble")),
            "-" if row["overlap"] is None else f"{100 * row['overlap']:.1f}", f"{100 * row['utilisation']:.1f}",
            "-" if row["straggler"] is None else f"{row['straggler']} x{row['straggles']:.2f}",
            "-" if row["mfu"] is None else f"{100 * row['mfu']:.1f}",
            "-" if row["tokens_per_s"] is None else f"{row['tokens_per_s']:.4g}",
        )  # fmt: skip
    yield table
    yield from _held(run.steps)
    for _, whole in all_scaled(run.steps, times):
        yield Text("#")
        yield Text(f"# {whole}", style="bold", overflow="ignore", no_wrap=True)
    yield from checkpoints.of_steps(run.steps, times)
    if any("going_on" in step for step in run.steps):
        yield from checkpoints.of_run(run.steps, times, run.rows("events"))
    yield from serving.of_steps(run.steps, times)


def _held(steps: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """What is in the memory of each rank's GPU."""
    for number, about in enumerate(steps):
        memory = about.get("memory") or about.get("scale", {}).get("whole", {}).get("memory")
        if not memory:
            continue
        of, each = memory.get("of", f"step {number}"), memory.get("each") or [{**memory, "ranks": [memory["rank"]]}]
        for held in each[:MOST_HELD]:
            peak, *parts = (f"{key} {held[key] / 1e6:.6g} MB".removeprefix("peak ") for key in _HELD if key in held)
            ranks = held["ranks"]
            who = f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {in_rows(ranks)} have"
            yield Text(f"# {of}: {who} {peak} at most at a time" + (f" ({', '.join(parts)})" if parts else ""))
        if len(each) > MOST_HELD:
            yield Text(f"# and {len(each) - MOST_HELD} more: --json has what each rank holds", style="dim")


def in_rows(numbers: Sequence[int]) -> str:
    """`0-3, 8`: numbers that follow each other by the first and the last."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and number == rows[-1][-1] + 1:
            rows[-1][1:] = [number]
        else:
            rows.append([number])
    return ", ".join("-".join(map(str, row)) for row in rows)


MOST_HELD = 16
_HELD = ("peak", "parameters", "gradients", "optimizer", "activations")


def _footer(
    results: Rows, fidelity: Mapping[str, Any], drops: Mapping[str, int], folder: Path | None
) -> Iterator[RenderableType]:
    if (busbw := mean_busbw(r for r in results if r["kind"] == "collective")) is not None:
        yield Text(f"# Avg bus bandwidth : {busbw / 1e9:.4f} GB/s")
    if results:
        wrong = sum(r["wrong"] for r in results)
        yield Text(f"# Wrong elements    : {wrong} {'FAILED' if wrong else 'OK'}", style="bold red" if wrong else "")
    verdict = fidelity["verdict"]
    dropped = ", ".join(f"{count} {reason}" for reason, count in drops.items() if count) or "none"
    yield Text.from_markup(f"# Fidelity          : [{_STYLE[verdict]}]{verdict}[/]; frames dropped: {escape(dropped)}")
    for text in (*fidelity["reasons"], *(f"to change it: {a}" for a in fidelity.get("advice", ()))):
        yield _item("#   - ", text)
    if folder is not None:
        yield Text(f"# Run folder        : {folder}", overflow="ignore", no_wrap=True)


def _wrong(count: int) -> Text:
    return Text(str(count), style="bold red" if count else "")
