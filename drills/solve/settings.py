"""Settings that differ from those of all others of their kind: ECN, PFC, buffers, classes, watchdogs, NICs."""

from __future__ import annotations

from drills.solve.desk import Desk, Row, odd
from drills.solve.finding import Finding

_MIN, _MAX, _P = "green_min_threshold", "green_max_threshold", "green_drop_probability"


def ecn(desk: Desk) -> list[Finding]:
    rows = desk.rows("show ecn config")
    found = []
    for row, usual in odd(rows, "Queue", (_MIN, _MAX, _P)):
        line = f"ecn {row['Switch']} --kmin {usual[_MIN]}B --kmax {usual[_MAX]}B --pmax {int(usual[_P]) / 100:g}"
        why = f"{row['Switch']} marks from {row[_MIN]} bytes on, others from {usual[_MIN]}"
        found.append(Finding("ecn_thresholds", f"switch:{row['Switch']}", why, (line,)))
    per = {str(row["Switch"]): sum(r["Switch"] == row["Switch"] for r in rows) for row in rows}
    for switch in desk.plan.switches:
        if per and per.get(switch.name, 0) < max(per.values()):
            line = f"ecn {switch.name} on"
            found.append(Finding("ecn_off", f"switch:{switch.name}", "a queue of it has no ECN", (line,)))
    return _one_each(found)


def pfc(desk: Desk) -> list[Finding]:
    found = []
    for row, _ in odd(desk.rows("show pfc config"), "", ("Tx", "Rx", "Lossless priorities")):
        port = str(row["Interface"])
        cable = desk.cable(port)
        if cable is None:
            continue
        lines = []
        for end in (cable.a, cable.b):
            rank = desk.rank(end.node)
            lines.append(f"pfc {end.node}:{end.port} on" if rank is None else f"nic pfc {rank} on")
        why = f"{port} has pauses off (sent {row['Tx']}, heeded {row['Rx']})"
        found.append((cable.name, port, Finding("pfc_off", f"cable:{cable.name}", why, tuple(lines))))
    ends = {name: {port for other, port, _ in found if other == name} for name, _, _ in found}
    chosen: dict[str, Finding] = {}
    for name, port, finding in found:
        rank = desk.rank(port.partition(":")[0])
        only = len(ends[name]) == 1
        place = f"nic:{rank}" if only and rank is not None else f"port:{port}" if only else finding.place
        chosen.setdefault(name, Finding("pfc_off", place, finding.why, finding.mend))
    return list(chosen.values())


def buffers(desk: Desk) -> list[Finding]:
    found = []
    for row, usual in odd(desk.rows("show buffer config", "pools"), "Pool", ("size",)):
        why = f"{row['Switch']} has a pool of {row['size']} bytes, others {usual['size']}"
        line = f"buffer {row['Switch']} {usual['size']}B"
        found.append(Finding("small_buffer", f"switch:{row['Switch']}", why, (line,)))
    profiles = desk.rows("show buffer config", "profiles")
    for row, usual in odd(profiles, "", ("xoff",)):
        why = f"{row['Port']} has {row['xoff']} bytes of headroom, others {usual['xoff']}"
        line = f"headroom {row['Port']} {usual['xoff']}B"
        found.append(Finding("small_headroom", f"port:{row['Port']}", why, (line,)))
    return found


def classes(desk: Desk) -> list[Finding]:
    """A DSCP that has another class at one switch, a queue that has another weight."""
    per: dict[str, dict[int, int]] = {}
    for row in desk.rows("show qos config", "dscp"):
        for dscp in numbers(str(row["DSCP"])):
            per.setdefault(str(row["Switch"]), {})[dscp] = int(row["TC"])
    found = []
    rows: list[Row] = [{"Switch": s, "DSCP": d, "TC": tc} for s, its in per.items() for d, tc in its.items()]
    for row, usual in odd(rows, "DSCP", ("TC",)):
        why = f"{row['Switch']} has DSCP {row['DSCP']} in class {row['TC']}, others in {usual['TC']}"
        line = f"qos dscp {row['Switch']} {row['DSCP']} {usual['TC']}"
        found.append(Finding("wrong_dscp_map", f"switch:{row['Switch']}", why, (line,)))
    for row, usual in odd(desk.rows("show qos config", "scheduler"), "Queue", ("type", "weight")):
        why = f"{row['Switch']} gives {row['Queue']} the weight {row['weight']}, others {usual['weight']}"
        line = f"scheduler weight {row['Switch']} {str(row['Queue'])[2:]} {usual['weight']}"
        found.append(Finding("wrong_weights", f"switch:{row['Switch']}", why, (line,)))
    return _one_each(found)


def watchdogs(desk: Desk) -> list[Finding]:
    found = []
    for row, usual in odd(desk.rows("show pfcwd config"), "", ("ACTION", "DETECTION TIME", "RESTORATION TIME")):
        switch = str(row["PORT"]).partition(":")[0]
        why = f"{switch} takes a pause of {row['DETECTION TIME']} for a storm, others {usual['DETECTION TIME']}"
        line = f"pfcwd {switch} --detect {usual['DETECTION TIME']} --restore {usual['RESTORATION TIME']}"
        found.append(Finding("short_watchdog", f"switch:{switch}", why, (line,)))
    return _one_each(found)


def nics(desk: Desk) -> list[Finding]:
    """Congestion control and PCIe of each NIC."""
    ranks = range(desk.plan.ranks)
    roce: list[Row] = [
        {"rank": rank, **row} for rank in ranks for row in desk.rows(f"show nic {rank}", "roce") if row.get("parameter")
    ]
    found = []
    own: dict[int, list[str]] = {}
    for row, usual in odd(roce, "parameter", ("value",)):
        rank, what, right = row["rank"], str(row["parameter"]), usual["value"]
        if what == "congestion control":
            why = f"NIC {rank} has congestion control {row['value']}, others {right}"
            kind = "cc_off" if row["value"] == "none" else "wrong_cc"
            found.append(Finding(kind, f"nic:{rank}", why, (f"nic cc {rank} {right}",)))
        else:
            own.setdefault(rank, []).append(f"{what.removesuffix('_bps')}={right}")
    control = next((str(row["value"]) for row in roce if row["parameter"] == "congestion control"), "")
    for rank, pairs in own.items():
        if not any(f.place == f"nic:{rank}" for f in found):
            line = f"nic cc {rank} {control} '{' '.join(pairs)}'"
            found.append(Finding("wrong_cc", f"nic:{rank}", f"NIC {rank} has another tuning: {pairs}", (line,)))
    links: list[Row] = [{"rank": r, **row} for r in ranks for row in desk.rows(f"show nic {r}", "pcie")]
    for row, _ in odd(links, "", ("bandwidth",)):
        why = f"NIC {row['rank']} runs at {row['LnkSta']}"
        found.append(Finding("slow_pcie", f"nic:{row['rank']}", why, (f"nic pcie retrain {row['rank']}",)))
    return found


def numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            found += range(int(first), int(last or first) + 1)
    return found


def _one_each(findings: list[Finding]) -> list[Finding]:
    """One of each class and place: a setting may show in several rows."""
    return list({str(finding): finding for finding in findings}.values())


RULES = (ecn, pfc, buffers, classes, watchdogs, nics)
