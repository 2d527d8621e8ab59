"""The few figures by which runs are compared: of each run one row, for sweeps and plots."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from results.figures.checkpoints import accounts
from results.figures.going_on import going_on
from results.figures.scaled import all_scaled, small_steps
from results.figures.serving import figures as serving_figures
from results.figures.serving import served
from results.figures.sharing import shares
from results.figures.timeline import steps
from results.figures.values import jain, percentile, size_label

RARE = ("timeouts", "trimmed")
"""Totals that a run has only if there were any."""
_MEASURED = ("collective", "algorithm", "sizes", "dtype", "op", "iterations", "warmup", "ranks")


def labels(workload: Sequence[Mapping[str, Any]], written: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """What to call each step of a resolved workload: its algorithm, and what tells it from others with that algorithm.

    `ring` and `ring[chunk=64KiB]`: keys that are null are left out. A step of flows is called `write`, one of tasks
    by its kind. `written`: steps whose keys are told, too, though no other step has that algorithm.
    """
    made = []
    for number, step in enumerate(workload):
        said = written[number] if number < len(written) else {}
        if "program" in step:
            made.append(str(step["program"][0]).rpartition("/")[2])
            continue
        if "collective" not in step:
            graph = next((kind for kind in step if kind not in ("flows", "load")), "write")
            made.append(graph)
            continue
        alike = [s for s in workload if all(s.get(k) == step.get(k) for k in ("collective", "algorithm"))]
        differing = [k for k in step if k not in _MEASURED and (k in said or any(s.get(k) != step[k] for s in alike))]
        parameters = ",".join(f"{k}={_typed(step[k])}" for k in differing if step[k] is not None)
        algorithm = str(step["algorithm"]).partition("#sha256:")[0].rpartition("/")[2]  # a file's name alone
        made.append(algorithm + (f"[{parameters}]" if parameters else ""))
    return made


def _typed(value: Any) -> str:
    """As in a file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_run(
    names: Sequence[str], workload: Sequence[Mapping[str, Any]], about: Sequence[Mapping[str, Any]]
) -> list[str]:
    """The names of the steps that were run, which `about` describes: one of tasks in the file may be several there."""
    if not about:  # a folder without steps.json
        return list(names)
    collectives = iter([name for name, step in zip(names, workload, strict=True) if "collective" in step])
    return [next(collectives, one["kind"]) if one["kind"] == "collective" else one["kind"] for one in about]


def mean_busbw(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """The mean bus bandwidth of collectives, as nccl-tests has it, in bytes/s; None if none of them moves data.

    Of each line of the table (a step's size and group) it is that of the mean time over the iterations; then the mean
    of the lines is taken.
    """
    lines: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for r in rows:
        if r["busbw_Bps"]:
            lines[r.get("step"), r["size_bytes"], r.get("group")].append(r)
    means = [line[0]["busbw_Bps"] * line[0]["time_ns"] / fmean(r["time_ns"] for r in line) for line in lines.values()]
    return fmean(means) if means else None


def _times(rows: Sequence[Mapping[str, Any]], suffix: str) -> dict[str, float]:
    by_size: dict[int, list[float]] = defaultdict(list)
    for r in rows:
        by_size[r["size_bytes"]].append(r["time_ns"])
    busbw = mean_busbw(rows)
    times = {f"time_us_{size}{suffix}": sum(of) / len(of) / 1000 for size, of in sorted(by_size.items())}
    return {**times, f"busbw_GBps{suffix}": math.nan if busbw is None else busbw / 1e9}


def _of_programs(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """By the size of a message: what one takes, mean over the programs, and their rates together; else their time."""
    figures: dict[str, float] = {}
    names = list(dict.fromkeys(r["algorithm"] for r in rows))
    for name in names:
        suffix = f"_{name}" if len(names) > 1 else ""
        by_size: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
        for r in rows:
            if r["algorithm"] == name:
                by_size[r["size_bytes"]].append(r)
        for size, of in sorted(by_size.items()):
            figures[f"time_us_{size}{suffix}" if size else f"program_us{suffix}"] = (
                fmean(r["time_ns"] for r in of) / 1e3
            )
            if rates := [r["algbw_Bps"] for r in of if r.get("algbw_Bps")]:
                figures[f"rate_GBps_{size}{suffix}"] = sum(rates) / 1e9
    if rows:
        figures["programs_failed"] = sum(bool(r.get("code")) for r in rows)
    return figures


_WAITS = {"first_token": "time to first token", "between_tokens": "time between tokens", "latency": "latency"}

FIGURES = {
    "programs_failed": "programs that failed", "program_us": "time of a program (us)",
    "flows": "flows", "last_us": "last flow done (us)", "time_p50_us": "time of a flow, median (us)",
    "time_p99_us": "time of a flow, 99th percentile (us)", "slowdown_p50": "slowdown, median",
    "slowdown_p99": "slowdown, 99th percentile", "jain": "Jain's index", "goodput_Gbps": "goodput (Gb/s)",
    "drops": "frames dropped", "ecn_marked": "frames marked CE", "pause_rx": "PFC frames received",
    "retransmitted": "packets sent again", "timeouts": "timeouts", "trimmed": "packets trimmed",
    "fallbacks": "operations not offloaded", "step_us": "step (us)",
    "compute_us": "compute of a rank (us)", "exposed_us": "exposed communication (us)", "bubble_us": "bubble (us)",
    "overlap": "hidden share of communication", "mfu": "MFU", "tokens_per_s": "tokens per second",
    "bound": "share of the step by which it may be wrong", "memory_GB": "memory of the fullest rank (GB)",
    "between_tokens_us": "time between tokens (us)", "batch_us": "a token for everybody (us)",
    "tokens_per_s_gpu": "tokens per second and GPU",
    "tokens_per_cost": "tokens per unit of cost", "checkpoint_us": "pause of a checkpoint (us)",
    "goodput": "share of the time that is work", "best_steps": "best steps between checkpoints",
    **{f"{what}_p{p}_us": f"{words}, {p}th percentile (us)" for p in (50, 90, 99) for what, words in _WAITS.items()},
}  # fmt: skip


def figure_label(name: str) -> str:
    """What a figure of `summarize` is, with its unit."""
    for start, what in (("time_us_", "time (us)"), ("rate_GBps_", "rate of all together (GB/s)")):
        if name.startswith(start):
            size, _, algorithm = name.removeprefix(start).partition("_")
            return f"{what}, {size_label(int(size)) if size.isdecimal() else size}" + (
                f", {algorithm}" * bool(algorithm)
            )
    if name.startswith("program_us_"):
        return f"{FIGURES['program_us']}, {name.removeprefix('program_us_')}"
    if name.startswith("busbw_GBps"):
        return f"bus bandwidth (GB/s), {name.removeprefix('busbw_GBps').removeprefix('_')}".removesuffix(", ")
    if name in FIGURES:
        return FIGURES[name]
    plain, _, number = name.rpartition("_")
    if number.isdecimal() and plain.startswith(_SMALL):
        return f"small step {number}: {figure_label(plain.removeprefix(_SMALL))}"
    if name.startswith("share_"):
        return f"share of what all get, {name.removeprefix('share_').replace('_', ' ')}"
    return f"{FIGURES[plain]}, step {number}" if number.isdecimal() and plain in FIGURES else name


_STEP = ("time_ns", "compute_ns", "exposed_ns", "bubble_ns", "overlap", "mfu", "tokens_per_s")
_OF_THE_MODEL = ("mfu", "tokens_per_s")
_SMALL = "small_"
"""Before the figures of steps that were run in place of a larger one, so that nobody takes them for the model's."""


def of_steps(timeline: Iterable[Mapping[str, Any]], about: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Where the time of steps of tasks goes, means over iterations and ranks; with its number, if there are several.

    `timeline` are rows of that frame, `about` describes the steps, as in the run.  Of a step that was scaled down the
    figures are the whole model's; those of the small steps come behind them, and are called so.
    """
    step_times = steps(timeline)
    large = dict(all_scaled(about, step_times))
    small = {k for number, step in enumerate(about) if step.get("scale") for k in small_steps(about, number)}
    numbers = sorted({one.step for one in step_times})
    several = len([number for number in numbers if number not in small or number in large]) > 1
    figures: dict[str, float] = {}
    later: dict[str, float] = {}
    for number in numbers:
        step, suffix = about[number], f"_{number}" if several else ""
        measured = [one for one in step_times if one.step == number]
        rows = [one.row(step.get("tokens"), step.get("ideal_ns")) | served(one, step) for one in measured]
        if number in small:
            keys = [key for key in _STEP if key not in _OF_THE_MODEL]
            later |= {f"{_SMALL}{name}_{number}": value for name, value in _means(rows, keys)}
            rows = [large[number].row()] if number in large else []
        elif held := step.get("memory"):
            rows[0]["memory_bytes"] = held["peak"]
        keys = [*_STEP, "bound", "memory_bytes", *serving_figures(rows)]
        figures |= {name + suffix: value for name, value in _means(rows, keys)}
    figures |= later
    if whole := going_on(about, step_times, ()):
        figures["goodput"] = whole.goodput
    for _, costs in accounts(about, step_times):
        figures |= {"checkpoint_us": costs.pause_ns / 1000, "goodput": costs.goodput, "best_steps": costs.best_steps}
    return figures


def _means(rows: Sequence[Mapping[str, Any]], keys: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Of each of these figures, in the unit in which it is shown."""
    for key in keys:
        if values := [row[key] for row in rows if row.get(key) is not None]:
            name, unit = _SHOWN.get(key) or ((key[:-2] + "us", 1e3) if key.endswith("_ns") else (key, 1))
            yield name, sum(values) / len(values) / unit


_SHOWN = {"time_ns": ("step_us", 1e3), "memory_bytes": ("memory_GB", 1e9)}


def summarize(
    results: Iterable[Mapping[str, Any]], counters: Mapping[str, Any], names: Sequence[str] | None = None
) -> dict[str, Any]:
    """Of a run's results (as `testbed run --json` gives them) and counters: one row; `names` are those of its steps.

    Programs: what a message takes by its size, and the rates of all together.
    Collectives: mean time by size over the iterations, and mean bus bandwidth, of each algorithm if there are several;
    how many were to be offloaded and were not. Flows: when the last was done, goodput of all together, percentiles of
    their times and slowdowns, fairness of their rates.
    """
    rows = list(results)
    collectives = [r for r in rows if r.get("collective")]
    flows = [r for r in rows if r.get("flow")]
    row: dict[str, Any] = _of_programs([r for r in rows if r.get("program")])
    if collectives:
        by_name: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for r in collectives:
            by_name[names[r["step"]] if names else str(r.get("algorithm"))].append(r)
        for name, timed in by_name.items():
            row |= _times(timed, f"_{name}" if len(by_name) > 1 else "")
        row["fallbacks"] = sum(bool(r.get("fallback")) for r in collectives)
    if flows:
        times = [r["time_ns"] for r in flows]
        slowdowns = [r["slowdown"] for r in flows if r.get("slowdown")]
        row |= {
            "flows": len(flows),
            "last_us": max(r["start_ns"] + r["time_ns"] for r in flows) / 1000
            - min(r["start_ns"] for r in flows) / 1000,
            "time_p50_us": percentile(times, 0.5) / 1000,
            "time_p99_us": percentile(times, 0.99) / 1000,
            "slowdown_p50": percentile(slowdowns, 0.5),
            "slowdown_p99": percentile(slowdowns, 0.99),
            "jain": jain([r["algbw_Bps"] for r in flows if r["algbw_Bps"]]),
        }
        row |= {f"share_{one.sends_by.replace(' ', '_')}": one.share for one in shares(flows)}
        row["goodput_Gbps"] = sum(r["size_bytes"] for r in flows) * 8 / (row["last_us"] * 1000)
    drops = counters.get("drops", {})
    return row | {
        "drops": sum(drops.values()),
        "ecn_marked": counters.get("ecn_marked", 0),
        "pause_rx": counters.get("pause_rx", 0),
        "retransmitted": counters.get("retransmitted", 0),
        **{name: counters[name] for name in RARE if name in counters},
    }
