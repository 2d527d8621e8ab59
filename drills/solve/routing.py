"""Flow tables: missing entries, rules of higher priority, what a hash chooses."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network

from drills.solve.diagnosis import Diagnosis, distinct
from drills.solve.mending import resync
from drills.solve.operator import Operator, Row
from topologies.kinds import DIMENSION_ORDER

USUAL = 110
"""The priority of rules that a controller writes for routes and offload."""
_TO = re.compile(r"> (\d+\.\d+\.\d+\.\d+)")
_DST = re.compile(r"nw_dst=([\d./]+)")
_HASH = re.compile(r"multipath\([^,]+,(\d+),[^,]+,(\d+)")
_MEMBER = re.compile(r"reg1=(\w+)")
_CIRCLE = re.compile(r"wait for each other: ([^:]+):")


@distinct
def above(op: Operator) -> Iterator[Diagnosis]:
    """Rules of higher priority, and what they do with a destination."""
    rows = [row for row in op.rows("show flows") if int(row["priority"]) > USUAL and "nw_dst" in str(row["match"])]
    back = {str(row["switch"]) for row in rows if "IN_PORT" in str(row["actions"])}
    for row in rows:
        switch, actions = str(row["switch"]), str(row["actions"])
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
        yield Diagnosis(kind, f"switch:{switch}", mend)


def metered(op: Operator) -> list[Diagnosis]:
    switches = dict.fromkeys(str(row["Switch"]) for row in op.rows("show meters"))
    return [Diagnosis("meter", f"switch:{switch}", resync(switch)) for switch in switches]


def nowhere(op: Operator) -> Iterator[Diagnosis]:
    """Drops for want of an entry."""
    destinations: dict[str, set[str]] = {}
    for row in op.recent("show drops", of_ns=1_200_000.0):
        if row["reason"] == "forwarding" and row["node"] not in op.plan.nic_by_name:
            match = _TO.search(str(row.get("headers", "")))
            destinations.setdefault(str(row["node"]), set()).update([match[1]] if match else [])
    yield from (found for switch, to in destinations.items() if (found := _cause(op, switch, to)))


def _cause(op: Operator, switch: str, to: set[str]) -> Diagnosis | None:
    flows = [row for row in op.rows("show flows") if row["switch"] == switch]
    if any(ip_address(ip).is_multicast for ip in to):
        return Diagnosis("missing_group", f"switch:{switch}", resync(switch))
    if any(int(row["priority"]) > USUAL for row in flows):
        return None  # above() has it
    without = [nic.rank for nic in op.plan.nics if not _has_entry(flows, str(nic.ip))]
    if not without:
        port = _dead_member(op, switch, flows)
        if not port and not to and _copies_less(op, switch):
            return Diagnosis("missing_group", f"switch:{switch}", resync(switch))
        return Diagnosis("dead_ecmp_member", f"port:{port}", resync(switch)) if port else None
    kind = "missing_entry" if len(without) == 1 else "partial_write"
    return Diagnosis(kind, f"switch:{switch}", resync(switch))


def _has_entry(flows: Sequence[Row], ip: str) -> bool:
    matches = (str(row["match"]) for row in flows)
    networks = (_DST.search(match) for match in matches if "arp" not in match)
    return any(dst and ip_address(ip) in ip_network(dst[1], strict=False) for dst in networks)


def _copies_less(op: Operator, switch: str) -> bool:
    """Than another switch of its kind, which has rules for groups."""
    groups: Counter[str] = Counter()
    for row in op.rows("show flows"):
        dst = _DST.search(str(row["match"]))
        groups[str(row["switch"])] += bool(dst and ip_network(dst[1], strict=False).is_multicast)
    return groups[switch] < max((groups[other] for other in op.like(switch)), default=0)


def _dead_member(op: Operator, switch: str, flows: Sequence[Row]) -> str:
    """The port that its group no longer leads to."""
    groups: dict[str, list[str]] = defaultdict(list)
    for row in flows:
        if member := _MEMBER.search(str(row["match"])):
            groups[member[1]].append(str(row["actions"]))
    for actions in groups.values():
        if any("output" not in action for action in actions):
            alive = {int(a.partition("output:")[2].split(",")[0]) for a in actions if "output:" in a}
            cables = (c for c in op.plan.cables if switch in (c.a.node, c.b.node) and op.between_switches(c))
            dead = sorted({cable.end(switch).port for cable in cables} - alive)
            return f"{switch}:{dead[0]}" if dead else ""
    return ""


def dead(op: Operator) -> Iterator[Diagnosis]:
    """A group with a member that drops, whether or not the job uses it."""
    flows: dict[str, list[Row]] = defaultdict(list)
    for row in op.rows("show flows"):
        flows[str(row["switch"])].append(row)
    for switch, rows in flows.items():
        if port := _dead_member(op, switch, rows):
            yield Diagnosis("dead_ecmp_member", f"port:{port}", resync(switch))


def alike(op: Operator) -> list[Diagnosis]:
    """All switches with ECMP hash with the same seed."""
    seeds: dict[str, set[str]] = defaultdict(set)
    for row in op.rows("show flows"):
        for seed, _ in _HASH.findall(str(row["actions"])):
            seeds[str(row["switch"])].add(seed)
    if len(seeds) < 3 or len(set.union(*seeds.values())) > 1:
        return []
    lines = tuple(f"hash seed {switch} {n}" for n, switch in enumerate(sorted(seeds), 1))
    return [Diagnosis("polarised_hash", "all", lines)]


def one_class(op: Operator) -> list[Diagnosis]:
    """On a ring frames keep their class: without a dateline lossless buffers can deadlock in a cycle.

    A deadlock that is there already ends only when a watchdog drops some frames.
    """
    flows = op.rows("show flows")
    if op.plan.kind not in DIMENSION_ORDER or not flows or any("ip_dscp" in str(row["actions"]) for row in flows):
        return []
    stuck = [m[1] for row in op.rows("show logging") if (m := _CIRCLE.search(str(row["message"])))]
    switch = stuck[-1] if stuck else ""
    free = (f"pfcwd {switch} --detect 20us --restore 50us --action drop", f"pfcwd {switch} off") if stuck else ()
    return [Diagnosis("dateline_off", "all", ("route dateline on", *free))]


LOST = (nowhere,)
RULES = (above, metered, *LOST, dead, alike, one_class)
