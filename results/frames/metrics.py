"""From what ranks and hardware report to the figures of a run, and to the hash that says whether two runs agree.

Times are counted in whole picoseconds inside, because a sum or difference of float nanoseconds need not be
exact; what comes out is picoseconds / 1000, which prints with at most three decimals.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from topologies.graph.frames import GAP_BYTES

Row = dict[str, Any]

_PRIORITY = re.compile(r"(.+)_prio(\d)(_.+)?")

# The tables of `counters` that are metrics of emulated time (`fidelity` is not: fences depend on the machine).
COUNTER_TABLES = ("ports", "nics", "qps", "switches", "accelerators", "drops", "faults")
FLOWS = "flows"
"""Beside them: what flow tables have counted, which is no part of what two runs must agree in."""


def picoseconds(ns: float) -> int:
    """Whole picoseconds of a time in ns (exact up to 2000 s of emulated time)."""
    return round(ns * 1000)


def nanoseconds(ps: int) -> int | float:
    """Picoseconds as ns: an int where it is whole, else a float that prints with at most three decimals."""
    return ps // 1000 if ps % 1000 == 0 else ps / 1000


def bandwidth(size_bytes: int, time_ps: int) -> float | None:
    """Bytes per second, correctly rounded; None for a time of 0 (one rank, or nothing to send)."""
    return float(Fraction(size_bytes * 10**12, time_ps)) if time_ps > 0 else None


def rank_rows(lines: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Rows of the frame `ranks` from the workers' output lines, ordered by step, start of the operation and rank.

    Lines of other kinds than `collective`, `flow`, `program` and `tasks` are passed over.
    """
    rows = [
        {
            "step": line["step"],
            "kind": line["kind"],
            "operation": _operation(line),
            "flow_index": line.get("flow"),
            "group": line.get("group"),
            "size_bytes": line.get("size_bytes", 0),
            "iteration": line.get("iteration", 0),
            "rank": line["rank"],
            "start_ns": nanoseconds(picoseconds(line["start_ns"])),
            "end_ns": nanoseconds(picoseconds(line["end_ns"])),
            "wrong": line.get("wrong", 0),
            "fallback": line.get("fallback"),
            "host_ns": None if line.get("host_ns") is None else nanoseconds(picoseconds(line["host_ns"])),
            "sent_bytes": line.get("sent_bytes"),
            "tx_bytes": line.get("tx_bytes"),
            "rx_bytes": line.get("rx_bytes"),
        }
        for line in lines
        if line.get("kind") in ("collective", "flow", "program")
        or (line.get("kind") == "tasks" and line["iteration"] >= 0)
    ]
    began: dict[tuple[Any, ...], float] = {}
    for row in rows:
        began[_key(row)] = min(row["start_ns"], began.get(_key(row), row["start_ns"]))
    rows.sort(key=lambda r: (r["step"], began[_key(r)], _key(r), r["rank"]))
    return rows


def with_slowdowns(
    rows: Sequence[Row], steps: Sequence[Mapping[str, Any]], ideal_ns: Callable[[int, int, int], float | None]
) -> list[Row]:
    """Rows of `results` with `ideal_ns` and `slowdown` of every flow; `ideal_ns` takes its source, target and bytes."""
    done = []
    for row in rows:
        ideal = None
        if row["kind"] == "flow":
            of = {name: int(number) for number, name in steps[row["step"]].get("names", {}).items()}
            source, target = (of[end] if end in of else int(end) for end in row["flow"].split("->"))
            ideal = ideal_ns(source, target, row["size_bytes"])
        done.append({**row, "ideal_ns": ideal, "slowdown": row["time_ns"] / ideal if ideal else None})
    return done


def result_rows(rank_rows: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rows of the frame `results`: one per operation that every rank taking part has finished.

    `rank_rows` are those of the function of that name. `steps` says what each step of the workload is: `{"kind":
    "flows"}` (with "names", {number: name}, of ends that are no ranks), `{"kind": "tasks", "name", "ranks"}`, or
    `{"kind": "collective", "collective", "algorithm", "dtype", "op": str or None, "ranks": how many take
    part, "busbw_factor"}`, with "chosen", {size: {"algorithm", ..}}, where the algorithm depends on the size, and
    with "groups", their ranks and factors, where several do it at the same time. That factor is what nccl-tests calls
    it: it makes bandwidths comparable with a link's rate.
    """
    operations: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    seen: dict[tuple[Any, ...], int] = defaultdict(int)  # a step may name one size twice
    for row in rank_rows:
        if row["kind"] == "program":  # what it has printed makes its rows (program_row)
            continue
        operations[*_key(row), seen[*_key(row), row["rank"]]].append(row)
        seen[*_key(row), row["rank"]] += 1
    make = {"collective": _collective, "flow": _flow, "tasks": _tasks}
    made = (make[rows[0]["kind"]](rows, steps[rows[0]["step"]]) for rows in operations.values())
    return [row for row in made if row is not None]


def _operation(line: Mapping[str, Any]) -> str:
    if line["kind"] == "tasks":
        return "tasks"
    if line["kind"] == "program":
        return f"program {line['program']}"
    return str(line["collective"]) if line["kind"] == "collective" else f"{line['from']}->{line['to']}"


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells one operation from another."""
    flow, group = row.get("flow_index"), row.get("group")
    return (
        row["step"],
        -1 if flow is None else flow,
        row["size_bytes"],
        row["iteration"],
        -1 if group is None else group,
    )


def _collective(rows: list[Mapping[str, Any]], step: Mapping[str, Any]) -> Row | None:
    if (group := rows[0].get("group")) is not None:
        step = {**step, **step["groups"][group]}
    if len(rows) < step["ranks"]:
        return None
    start = min(picoseconds(r["start_ns"]) for r in rows)
    end = max(picoseconds(r["end_ns"]) for r in rows)
    what = {key: step[key] for key in ("collective", "algorithm", "dtype", "op", "ranks")}
    if "sender" in step:
        what["sends_by"] = step["sender"]
    if chosen := step.get("chosen"):
        what["algorithm"] = chosen[str(rows[0]["size_bytes"])]["algorithm"]
    return _result(rows, start, end, step["busbw_factor"], {**what, "flow": None})


def _flow(rows: list[Mapping[str, Any]], step: Mapping[str, Any]) -> Row | None:
    """A flow's time is its sender's; what is wrong with it is what its receiver says."""
    name = rows[0]["operation"]
    sender = [r for r in rows if r["rank"] == int(name.split("->")[0])]
    if len(rows) < 2 or not sender:
        return None
    names = step.get("names", {})
    shown = "->".join(names.get(end, end) for end in name.split("->"))
    what: Row = {"collective": None, "flow": shown, "algorithm": "write", "dtype": None, "op": None, "ranks": 2}
    if senders := step.get("senders"):
        number = rows[0]["flow_index"]
        what |= {"sends_by": senders[number], "together_Bps": step.get("together", {}).get(number)}
    return _result(rows, picoseconds(sender[0]["start_ns"]), picoseconds(sender[0]["end_ns"]), 1.0, what)


def _tasks(rows: list[Mapping[str, Any]], step: Mapping[str, Any]) -> Row | None:
    """An iteration of a graph of tasks: from the common start to the last rank's end."""
    if len(rows) < step["ranks"]:
        return None
    start = min(picoseconds(r["start_ns"]) for r in rows)
    end = max(picoseconds(r["end_ns"]) for r in rows)
    what = {"collective": None, "flow": None, "algorithm": step["name"], "dtype": None, "op": None}
    row = _result(rows, start, end, 1.0, {**what, "ranks": step["ranks"]})
    return row | {"algbw_Bps": None, "busbw_Bps": None}


def program_row(
    step: Mapping[str, Any], program: Mapping[str, Any], line: Mapping[str, Any], figure: Mapping[str, Any]
) -> Row:
    """A row of the frame `results`: a line of the table that a program has printed (`figure`), or what it took.

    `step` and `program` are as steps.json describes them, `line` is what its worker says of its end.
    """
    start, end = (picoseconds(line[key]) for key in ("start_ns", "end_ns"))
    server = program.get("server")
    return {
        "step": line["step"],
        "kind": "program",
        "group": None,
        "collective": None,
        "flow": None,
        "program": str(program["rank"]) if server is None else f"{program['rank']}->{server}",
        "algorithm": step["name"],
        "dtype": None,
        "op": None,
        "ranks": 1 if server is None else 2,
        "size_bytes": figure.get("size_bytes", 0),
        "iteration": 0,
        "start_ns": nanoseconds(start),
        "end_ns": nanoseconds(end),
        "time_ns": nanoseconds(picoseconds(figure["time_ns"]) if figure else end - start),
        "algbw_Bps": figure.get("rate_Bps"),
        "busbw_Bps": figure.get("busbw_Bps"),
        "messages_per_s": figure.get("messages_per_s"),
        "code": line["code"],
        "wrong": 0,
    }


def timeline_rows(
    lines: Iterable[Mapping[str, Any]], about: Sequence[Mapping[str, Sequence[Mapping[str, Any]]]]
) -> list[Row]:
    """Rows of the frame `timeline`; `about` says for each step and rank what each of its tasks is.

    In order of step, iteration, rank and the rank's list: by that, messages of one tag match.
    """
    recorded = [line for line in lines if line.get("kind") == "timeline" and line["iteration"] >= 0]
    recorded.sort(key=lambda line: (line["step"], line["iteration"], line["rank"], line["first"]))
    return [
        {
            "step": line["step"],
            "iteration": line["iteration"],
            "rank": line["rank"],
            **about[line["step"]][str(line["rank"])][line["first"] + k],
            "start_ns": nanoseconds(start - line.get("began_ps", 0)),
            "end_ns": nanoseconds(end - line.get("began_ps", 0)),
        }
        for line in recorded
        for k, (start, end) in ((k, one[:2]) for k, one in enumerate(line["times"]) if one)
    ]


def _result(rows: list[Mapping[str, Any]], start: int, end: int, busbw_factor: float, what: Row) -> Row:
    size = rows[0]["size_bytes"]
    algbw = bandwidth(size, end - start)
    return {
        "step": rows[0]["step"],
        "kind": rows[0]["kind"],
        "group": rows[0].get("group"),
        **what,
        "size_bytes": size,
        "iteration": rows[0]["iteration"],
        "start_ns": nanoseconds(start),
        "end_ns": nanoseconds(end),
        "time_ns": nanoseconds(end - start),
        "algbw_Bps": algbw,
        "busbw_Bps": None if algbw is None else algbw * busbw_factor,
        "wrong": sum(r["wrong"] for r in rows),
        "fallback": next((r["fallback"] for r in rows if r.get("fallback")), None),
        "host_ns": _mean([r.get("host_ns") for r in rows]),
        "sent_bytes": _mean([r.get("sent_bytes") for r in rows]),
        "tx_bytes": _mean_known([r["tx_bytes"] for r in rows]),
        "rx_bytes": _mean_known([r["rx_bytes"] for r in rows]),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """Correctly rounded, in whatever order the values come; None unless all of them are there."""
    known = [Fraction(round(v * 1000), 1000) for v in values if v is not None]
    return float(sum(known) / len(known)) if known and len(known) == len(values) else None


def _mean_known(values: list[int | None]) -> float | None:
    """Of those that there are."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def counter_rows(counters: Mapping[str, Any]) -> dict[str, list[Row]]:
    """fabricd's counters as rows of frames: COUNTER_TABLES, FLOWS, and `priorities`, which are ports' by class."""
    tables = {name: [dict(row) for row in counters.get(name, [])] for name in (*COUNTER_TABLES, FLOWS)}
    tables["priorities"] = [row for port in tables["ports"] for row in _priority_rows(port)]
    cables = {(link["node"], link["port"]): link["rate_bps"] for link in counters.get("links", ())}
    for port in tables["ports"]:
        port["drops"] = sum(port.get("drops", {}).values())
        port.pop("priorities", None)
        port |= _rates(port, cables.get((port["node"], port["port"])), counters.get("time_ns", 0))
    return tables


def _rates(port: Mapping[str, Any], cable_bps: float | None, time_ns: float) -> Row:
    """What a port carried on average while it was counted."""
    rates: Row = {"rate_bps": cable_bps}
    for way in ("tx", "rx") if time_ns > 0 else ():
        carried, frames = port.get(f"{way}_bytes", 0), port.get(f"{way}_frames", 0)
        rates[f"{way}_Bps"] = carried * 1e9 / time_ns
        if cable_bps:
            rates[f"{way}_util"] = (carried + GAP_BYTES * frames) * 8e9 / (time_ns * cable_bps)
    return rates


def _priority_rows(port: Mapping[str, Any]) -> list[Row]:
    """A port's counters by priority, `tx_prio3_pause` and so on, as one row for each priority that counted."""
    rows: dict[int, Row] = {}
    for name, value in port.get("priorities", {}).items():
        match = _PRIORITY.fullmatch(name)
        if match is None:
            continue
        row = rows.setdefault(int(match[2]), {"node": port["node"], "port": port["port"], "priority": int(match[2])})
        row[match[1] + (match[3] or "")] = value
    return [rows[priority] for priority in sorted(rows)]


def counter_totals(counters: Mapping[str, Any]) -> dict[str, Any]:
    """The few totals that a run prints: drops by reason, ECN marks, pauses received, packets sent again; timeouts and
    trimmed packets, if there were any."""
    drops: dict[str, int] = defaultdict(int)
    for drop in counters.get("drops", []):
        drops[drop["reason"]] += drop["count"]
    ports, nics = counters.get("ports", []), counters.get("nics", [])
    priorities = [row for port in ports for row in _priority_rows(port)]
    rare = {"timeouts": "local_ack_timeout_err", "trimmed": "rx_trimmed"}
    found = {name: sum(n.get(counter, 0) for n in nics) for name, counter in rare.items()}
    return {
        "drops": dict(sorted(drops.items())),
        "ecn_marked": sum(p.get("ecn_marked", 0) for p in ports),
        "pause_rx": sum(row.get("rx_pause", 0) for row in priorities),
        "retransmitted": sum(n.get("retransmitted", 0) for n in nics),
        **{name: count for name, count in found.items() if count},
    }


def metrics_sha256(
    results: Sequence[Mapping[str, Any]],
    ranks: Sequence[Mapping[str, Any]],
    counters: Mapping[str, Any],
    timeline: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Hash over everything measured in emulated time; two runs of one experiment and seed must agree in it.

    Wall time, host and paths do not go into it, nor does the order in which rows arrived.
    """
    document = {
        "version": 2,
        "results": _sorted(results),
        "ranks": _sorted(ranks),
        "counters": {name: _sorted(counters.get(name, [])) for name in COUNTER_TABLES},
    }
    if timeline:
        document["timeline"] = _sorted(timeline)
    return hashlib.sha256(_canonical(document).encode()).hexdigest()


def _sorted(rows: Iterable[Mapping[str, Any]]) -> list[Any]:
    return sorted((_plain(row) for row in rows), key=_canonical)


def _plain(value: Any) -> Any:
    """The value with whole floats as ints, so that 5.0 and 5 are the same."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
