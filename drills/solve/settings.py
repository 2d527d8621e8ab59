"""Settings that differ from those of all others of their kind: ECN, PFC, buffers, classes, trimming, timers, NICs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from drills.solve.diagnosis import Diagnosis, distinct
from drills.solve.operator import Operator, Row, node_of, odd
from drills.solve.paths import sprays
from topologies.graph.fabric import Cable

_MIN, _MAX, _P = "green_min_threshold", "green_max_threshold", "green_drop_probability"


@distinct
def ecn(op: Operator) -> Iterator[Diagnosis]:
    rows = op.rows("show ecn config")
    for row, usual in odd(rows, "Queue", (_MIN, _MAX, _P)):
        line = f"ecn {row['Switch']} --kmin {usual[_MIN]}B --kmax {usual[_MAX]}B --pmax {int(usual[_P]) / 100:g}"
        later = int(row[_MIN]) > int(usual[_MIN])
        kind = "reps_late_marks" if later and sprays(op) else "ecn_thresholds"
        yield Diagnosis(kind, f"switch:{row['Switch']}", (line,))
    queues = Counter(str(row["Switch"]) for row in rows)
    for switch in op.plan.switches:
        if queues[switch.name] < max(queues.values(), default=0):
            line = f"ecn {switch.name} on"
            yield Diagnosis("ecn_off", f"switch:{switch.name}", (line,))


def pfc(op: Operator) -> Iterator[Diagnosis]:
    """The cable if both its ends have pauses off, else the end."""
    ends: dict[Cable, list[Row]] = defaultdict(list)
    for row, _ in odd(op.rows("show pfc config"), "", ("Tx", "Rx", "Lossless priorities")):
        if cable := op.cable(str(row["Interface"])):
            ends[cable].append(row)
    for cable, rows in ends.items():
        lines = []
        for end in (cable.a, cable.b):
            rank = op.rank(end.node)
            lines.append(f"pfc {end.node}:{end.port} on" if rank is None else f"nic pfc {rank} on")
        port, rank = str(rows[0]["Interface"]), op.rank(str(rows[0]["Interface"]))
        one_end = len({str(row["Interface"]) for row in rows}) == 1
        place = f"cable:{cable.name}" if not one_end else f"port:{port}" if rank is None else f"nic:{rank}"
        yield Diagnosis("pfc_off", place, tuple(lines))


def buffers(op: Operator) -> Iterator[Diagnosis]:
    for row, usual in odd(op.rows("show buffer config", "pools"), "Pool", ("size",)):
        line = f"buffer {row['Switch']} {usual['size']}B"
        yield Diagnosis("small_buffer", f"switch:{row['Switch']}", (line,))
    profiles = op.rows("show buffer config", "profiles")
    for row, usual in odd(profiles, "", ("xoff",)):
        line = f"headroom {row['Port']} {usual['xoff']}B"
        yield Diagnosis("small_headroom", f"port:{row['Port']}", (line,))


@distinct
def classes(op: Operator) -> Iterator[Diagnosis]:
    """A DSCP that has another class at one switch, a queue that has another weight."""
    rows: list[Row] = [
        {"Switch": row["Switch"], "DSCP": dscp, "TC": int(row["TC"])}
        for row in op.rows("show qos config", "dscp")
        for dscp in numbers(str(row["DSCP"]))
    ]
    for row, usual in odd(rows, "DSCP", ("TC",)):
        line = f"qos dscp {row['Switch']} {row['DSCP']} {usual['TC']}"
        yield Diagnosis("wrong_dscp_map", f"switch:{row['Switch']}", (line,))
    for row, usual in odd(op.rows("show qos config", "scheduler"), "Queue", ("type", "weight")):
        line = f"scheduler weight {row['Switch']} {str(row['Queue'])[2:]} {usual['weight']}"
        yield Diagnosis("wrong_weights", f"switch:{row['Switch']}", (line,))


def trimming(op: Operator) -> Iterator[Diagnosis]:
    for row, usual in odd(op.rows("show switch-trimming global"), "", ("packet_discard_action",)):
        if usual["packet_discard_action"] == "trim":
            yield Diagnosis("trim_off", f"switch:{row['Switch']}", (f"switch-trimming {row['Switch']} on",))


@distinct
def watchdogs(op: Operator) -> Iterator[Diagnosis]:
    for row, usual in odd(op.rows("show pfcwd config"), "", ("ACTION", "DETECTION TIME", "RESTORATION TIME")):
        switch = node_of(str(row["PORT"]))
        line = f"pfcwd {switch} --detect {usual['DETECTION TIME']} --restore {usual['RESTORATION TIME']}"
        yield Diagnosis("short_watchdog", f"switch:{switch}", (line,))


def nics(op: Operator) -> Iterator[Diagnosis]:
    """Congestion control and PCIe of each NIC."""
    ranks = range(op.plan.ranks)
    roce: list[Row] = [
        {"rank": rank, **row} for rank in ranks for row in op.rows(f"show nic {rank}", "roce") if row.get("parameter")
    ]
    other_control: set[int] = set()
    tuning: dict[int, list[str]] = defaultdict(list)
    for row, usual in odd(roce, "parameter", ("value",)):
        rank, parameter, right = row["rank"], str(row["parameter"]), usual["value"]
        if parameter == "retry":
            yield Diagnosis("few_retries", f"nic:{rank}")
        elif parameter == "congestion control":
            other_control.add(rank)
            kind = "cc_off" if row["value"] == "none" else "wrong_cc"
            yield Diagnosis(kind, f"nic:{rank}", (f"nic cc {rank} {right}",))
        else:
            tuning[rank].append(f"{parameter.removesuffix('_bps')}={right}")
    control = next((str(row["value"]) for row in roce if row["parameter"] == "congestion control"), "")
    for rank, pairs in tuning.items():
        if rank not in other_control:
            line = f"nic cc {rank} {control} '{' '.join(pairs)}'"
            yield Diagnosis("wrong_cc", f"nic:{rank}", (line,))
    links: list[Row] = [{"rank": r, **row} for r in ranks for row in op.rows(f"show nic {r}", "pcie")]
    for row, _ in odd(links, "", ("bandwidth",)):
        yield Diagnosis("slow_pcie", f"nic:{row['rank']}", (f"nic pcie retrain {row['rank']}",))


def numbers(text: str) -> Iterator[int]:
    """Of `0-7,26`."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            yield from range(int(first), int(last or first) + 1)


RULES = (ecn, pfc, buffers, classes, trimming, watchdogs, nics)
