"""A run's report as plain Markdown: readable in a terminal, and anywhere that renders Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from results.figures.in_force import commands
from results.figures.scaled import all_scaled
from results.figures.timeline import steps
from results.figures.values import full

MOST_ROWS = 200  # of a table; the frames have all

_INVALID = "**These figures are invalid: do not use them.** "


def report(
    *,
    name: str,
    error: Mapping[str, Any] | None,
    clock: str,
    fidelity: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    events: Sequence[Mapping[str, Any]],
    hops: Mapping[str, Any],
    environment: Mapping[str, Any],
    metrics_sha256: str,
    live: Mapping[str, Any] | None = None,
    about: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The whole report. `results` and `tables` (ports, nics, qps, switches, drops, timeline) are rows of the frames.

    `hops` has how many times a frame passed a switch (frame_hops), and how many of those by the fast path (fast_hops).
    `live` has what was in force on a fabric that was up before (in_force.py).  `about` describes the steps.
    """
    parts = [f"# {name}", ""]
    if error:
        parts += [f"**The run failed**: {error['what']}", ""]
        parts += [f"- {key}: {error[key]}" for key in ("where", "hint") if error.get(key)] + [""]
        parts += ["What follows was measured until then.", ""]
    parts += _live(live or {})
    parts += _fidelity(clock, fidelity)
    parts += ["## Results", ""]
    if fidelity["verdict"] == "invalid":
        parts += [_INVALID + "; ".join(fidelity["reasons"]), ""]
    parts += _results(results)
    parts += _steps(tables.get("timeline", ()), about)
    parts += _drops(tables["drops"])
    parts += _busiest(tables["ports"])
    parts += _hops(hops)
    parts += _events(events)
    parts += _environment(environment, metrics_sha256)
    return "\n".join(parts)


def _live(live: Mapping[str, Any]) -> list[str]:
    lines = [f"- `{command}`: {when}" for command, when in commands(live)]
    return [f"## On live fabric {live['fabric']}, with", "", *lines, ""] if lines else []


def _fidelity(clock: str, fidelity: Mapping[str, Any]) -> list[str]:
    lines = [f"## Fidelity: {fidelity['verdict']} ({clock} clock)", ""]
    lines += [f"- {reason}" for reason in fidelity["reasons"]]
    lines += [f"- to change it: {advice}" for advice in fidelity["advice"]]
    return [*lines, ""] if fidelity["reasons"] else lines


def _operation(r: Mapping[str, Any]) -> str:
    if program := r.get("program"):
        return f"program {program}"
    return r["collective"] or (f"flow {r['flow']}" if r["flow"] else "tasks")


def _results(results: Sequence[Mapping[str, Any]]) -> list[str]:
    if not results:
        return ["Nothing was measured.", ""]
    head = (
        "operation",
        "algorithm",
        "ranks",
        "size (B)",
        "iteration",
        "time (us)",
        "algbw (GB/s)",
        "busbw (GB/s)",
        "#wrong",
    )
    rows = (
        (
            _operation(r),
            f"{r['algorithm']}, by the ranks: {r['fallback']}" if r.get("fallback") else r["algorithm"],
            r["ranks"],
            r["size_bytes"],
            r["iteration"],
            f"{r['time_ns'] / 1e3:.3f}",
            gigabytes(r["algbw_Bps"]),
            gigabytes(r["busbw_Bps"]),
            r["wrong"],
        )
        for r in results
    )
    return _table(head, rows, len(results))


def _steps(timeline: Sequence[Mapping[str, Any]], about: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where the time of each step of tasks went, means over the ranks; and what follows for a larger model."""
    step_times = steps(timeline)
    if not step_times:
        return []
    large = [text for _, whole in all_scaled(about, step_times) for text in (f"{whole}", "")]
    times = ("time_ns", "compute_ns", "exposed_ns", "bubble_ns")
    head = ("step", "iteration", "time (us)", "compute (us)", "exposed (us)", "bubble (us)", "overlap (%)", "straggler")
    rows = (
        (
            row["step"],
            row["iteration"],
            *(f"{row[key] / 1e3:.3f}" for key in times),
            "-" if row["overlap"] is None else f"{100 * row['overlap']:.1f}",
            "-" if row["straggler"] is None else f"rank {row['straggler']}",
        )
        for row in (one.row() for one in step_times)
    )
    return ["## Steps", "", *_table(head, rows, len(step_times)), *large]


def gigabytes(rate: float | None) -> str:
    """A bandwidth in GB/s with two decimals."""
    return "-" if rate is None else f"{rate / 1e9:.2f}"


def _drops(drops: Sequence[Mapping[str, Any]]) -> list[str]:
    if not drops:
        return ["No frame was dropped.", ""]
    head = ("node", "port", "reason", "frames", "headers of the last one")
    rows = sorted(drops, key=lambda d: -d["count"])
    return ["## Dropped frames", "", *_table(head, ([d[k] for k in _DROP] for d in rows), len(drops))]


_DROP = ("node", "port", "reason", "count", "headers")


def _busiest(ports: Sequence[Mapping[str, Any]], most: int = 10) -> list[str]:
    sending = sorted((p for p in ports if p["tx_bytes"]), key=lambda p: -p["tx_bytes"])[:most]
    if not sending:
        return []
    head = ("port", "peer", "frames sent", "bytes sent", "longest queue (B)")
    rows = (
        (f"{p['node']}:{p['port']}", p.get("peer", ""), p["tx_frames"], p["tx_bytes"], p.get("queue_max_bytes", 0))
        for p in sending
    )
    return ["## Busiest ports", "", *_table(head, rows, len(sending))]


def _hops(hops: Mapping[str, Any]) -> list[str]:
    if not (passed := hops.get("frame_hops")):
        return []
    fast = hops.get("fast_hops")
    how = "all" if fast is None else f"{fast} times by the fast path, the rest"
    return [f"Frames passed switches {passed} times: {how} through Open vSwitch.", ""]


def _events(events: Sequence[Mapping[str, Any]]) -> list[str]:
    shown = [e for e in events if e["event"] != "worker_done"]
    if not shown:
        return []
    rows = ((e.get("time_ns") if e.get("time_ns") is not None else "", e["event"], _detail(e)) for e in shown)
    return ["## Events", "", *_table(("time (ns)", "event", "detail"), rows, len(shown))]


def _detail(event: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {full(v)}" for k, v in event.items() if k not in ("event", "time_ns", "wall_s", "id"))


def _environment(environment: Mapping[str, Any], metrics_sha256: str) -> list[str]:
    tools = [v for v in environment.get("tools", {}).values() if v]
    about = {
        "date": environment.get("date"),
        "seed": environment.get("seed"),
        "commit": environment.get("commit"),
        "system": f"{environment.get('system')}, kernel {environment.get('kernel')}, {environment.get('cpus')} CPUs",
        "tools": "; ".join([f"Python {environment.get('python')}", *tools]),
        "metrics_sha256": metrics_sha256,
    }
    return ["## Environment", "", *(f"- {key}: {value}" for key, value in about.items() if value is not None), ""]


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]], count: int) -> list[str]:
    """A Markdown table with its columns padded, so that it can be read as text too."""
    cells = [[_cell(c) for c in row] for _, row in zip(range(MOST_ROWS), rows, strict=False)]
    number = [all(_is_number(row[i]) for row in cells) for i in range(len(head))]
    widths = [max(len(head[i]), *(len(row[i]) for row in cells), 3) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        padded = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, number, strict=True))
        return f"| {' | '.join(padded)} |"

    rule = "|".join("-" * (w + 1) + ":" if n else "-" * (w + 2) for w, n in zip(widths, number, strict=True))
    lines = [line(head), f"|{rule}|", *(line(row) for row in cells)]
    if count > len(cells):
        lines += ["", f"{count - len(cells)} more rows are in the frames."]
    return [*lines, ""]


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "", 1).isdecimal()
