"""Flow tables: entries that are not there, rules above them, what a hash chooses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address, ip_network

from drills.solve.desk import Desk, Row
from drills.solve.finding import Finding
from drills.solve.mending import resync
from topologies.kinds import DIMENSION_ORDER

USUAL = 110
"""The priority of rules that a controller writes for routes and offload."""
_TO = re.compile(r"> (\d+\.\d+\.\d+\.\d+)")
_DST = re.compile(r"nw_dst=([\d./]+)")
_HASH = re.compile(r"multipath\([^,]+,(\d+),[^,]+,(\d+)")
_MEMBER = re.compile(r"reg1=(\w+)")
_CIRCLE = re.compile(r"wait for each other: ([^:]+):")


def above(desk: Desk) -> list[Finding]:
    """Rules of higher priority, and what they do with a destination."""
    found: dict[str, Finding] = {}
    rows = [row for row in desk.rows("show flows") if int(row["priority"]) > USUAL and "nw_dst" in str(row["match"])]
    back = {str(row["switch"]) for row in rows if "IN_PORT" in str(row["actions"])}
    for row in rows:
        switch, actions = str(row["switch"]), str(row["actions"])
        why = f"{switch}: {row['match']} -> {actions}, of priority {row['priority']}"
        if switch in back:
            kind = "loop"
        elif "output" in actions:
            kind = "wrong_port"
        elif "meter" in actions:
            kind = "meter"
        else:
            kind = "shadow_rule"
        mend = resync(switch)
        if kind == "loop":  # each of the two sends it back to the other
            switch, mend = sorted(back)[0], tuple(line for one in sorted(back) for line in resync(one))
        found[kind + switch] = Finding(kind, f"switch:{switch}", why, mend)
    return list(found.values())


def metered(desk: Desk) -> list[Finding]:
    switches = {str(row.get("switch", row.get("Switch", ""))): row for row in desk.rows("show meters")}
    return [
        Finding("meter", f"switch:{switch}", f"{switch} has a meter: {dict(row)}", resync(switch))
        for switch, row in switches.items()
        if switch
    ]


def nowhere(desk: Desk) -> list[Finding]:
    """Drops because no entry said where to."""
    lost: dict[str, set[str]] = {}
    for row in desk.recent("show drops", of_ns=1_200_000.0):
        if row["reason"] == "forwarding" and row["node"] not in desk.plan.nic_by_name:
            told = _TO.search(str(row.get("headers", "")))
            lost.setdefault(str(row["node"]), set()).update([told[1]] if told else [])
    found = []
    for switch, to in lost.items():
        finding = _why(desk, switch, to)
        if finding:
            found.append(finding)
    return found


def _why(desk: Desk, switch: str, to: set[str]) -> Finding | None:
    flows = [row for row in desk.rows("show flows") if row["switch"] == switch]
    if any(ip_address(ip).is_multicast for ip in to):
        return Finding("missing_group", f"switch:{switch}", "no rule copies its multicast", resync(switch))
    if any(int(row["priority"]) > USUAL for row in flows):
        return None  # above() says what it is
    open_ = [nic.rank for nic in desk.plan.nics if not _entry(flows, str(nic.ip))]
    if not open_:
        port = _dead_member(desk, switch, flows)
        if not port and not to and _copies_less(desk, switch):
            return Finding("missing_group", f"switch:{switch}", "others copy multicast, it does not", resync(switch))
        why = f"{switch} has entries for {sorted(to)}, and one member of its group drops"
        return Finding("dead_ecmp_member", f"port:{port}", why, resync(switch)) if port else None
    kind = "missing_entry" if len(open_) == 1 else "partial_write"
    return Finding(kind, f"switch:{switch}", f"{switch} has no entry for ranks {open_}", resync(switch))


def _entry(flows: Sequence[Row], ip: str) -> bool:
    for row in flows:
        told = _DST.search(str(row["match"]))
        if told and "arp" not in str(row["match"]) and ip_address(ip) in ip_network(told[1], strict=False):
            return True
    return False


def _copies_less(desk: Desk, switch: str) -> bool:
    """Than another switch of its kind, which has rules for groups."""
    groups: dict[str, int] = {}
    for row in desk.rows("show flows"):
        told = _DST.search(str(row["match"]))
        groups[str(row["switch"])] = groups.get(str(row["switch"]), 0) + bool(
            told and ip_network(told[1], strict=False).is_multicast
        )
    like = [n for other, n in groups.items() if other != switch and other[:2] == switch[:2]]
    return groups.get(switch, 0) < max(like, default=0)


def _dead_member(desk: Desk, switch: str, flows: Sequence[Row]) -> str:
    """The port that its group no longer leads to."""
    groups: dict[str, list[str]] = {}
    for row in flows:
        told = _MEMBER.search(str(row["match"]))
        if told:
            groups.setdefault(told[1], []).append(str(row["actions"]))
    for actions in groups.values():
        if any("output" not in action for action in actions):
            alive = {int(a.partition("output:")[2].split(",")[0]) for a in actions if "output:" in a}
            up = [
                c.end(switch).port
                for c in desk.plan.cables
                if switch in (c.a.node, c.b.node) and desk.between_switches(c)
            ]
            dead = sorted(set(up) - alive)
            return f"{switch}:{dead[0]}" if dead else ""
    return ""


def dead(desk: Desk) -> list[Finding]:
    """A group that leads nowhere for some, whether or not the job has sent any that way."""
    flows: dict[str, list[Row]] = {}
    for row in desk.rows("show flows"):
        flows.setdefault(str(row["switch"]), []).append(row)
    found = []
    for switch, its in flows.items():
        if port := _dead_member(desk, switch, its):
            why = f"one member of the group of {switch} does not lead to {port}"
            found.append(Finding("dead_ecmp_member", f"port:{port}", why, resync(switch)))
    return found


def alike(desk: Desk) -> list[Finding]:
    """All switches that choose, choose by the same hash."""
    basis: dict[str, set[str]] = {}
    for row in desk.rows("show flows"):
        for seed, _ in _HASH.findall(str(row["actions"])):
            basis.setdefault(str(row["switch"]), set()).add(seed)
    if len(basis) < 3 or len(set.union(*basis.values())) > 1:
        return []
    lines = tuple(f"hash seed {switch} {n}" for n, switch in enumerate(sorted(basis), 1))
    return [Finding("polarised_hash", "all", "all switches hash with the same seed", lines)]


def one_class(desk: Desk) -> list[Finding]:
    """On a ring nothing changes its class: without a dateline lossless buffers can wait for each other in a circle.

    With it, what waits already goes on waiting until a watchdog takes some of it away.
    """
    flows = desk.rows("show flows")
    if desk.plan.kind not in DIMENSION_ORDER or not flows or any("ip_dscp" in str(row["actions"]) for row in flows):
        return []
    stuck = [m[1] for row in desk.rows("show logging") if (m := _CIRCLE.search(str(row["message"])))]
    switch = stuck[-1] if stuck else ""
    free = (f"pfcwd {switch} --detect 20us --restore 50us --action drop", f"pfcwd {switch} off") if stuck else ()
    why = "no rule gives what wraps around a class of its own"
    return [Finding("dateline_off", "all", why, ("route dateline on", *free))]


LOST = (nowhere,)
RULES = (above, metered, *LOST, dead, alike, one_class)
