"""An operator with RDMA's own programs: what ibv_devinfo says of each NIC, what ibv_rc_pingpong brings between two.

Programs take some 10 ms of emulated time, so they are for drills that have plenty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from drills.solve.diagnosis import Diagnosis
from drills.solve.operator import Operator, number

ENOUGH_NS = 1e9
"""Of a budget: below that no program is run."""
SLOW = 0.85
"""Of the fastest pair's rate."""
_MBIT = re.compile(r"= ([\d.]+) Mbit/sec")
_MTU = re.compile(r"active_mtu:\s+(\d+)")
_GID = re.compile(r"GID\[\s*0\]:\s+\S+ RoCE (v\d)")


def has_time(op: Operator) -> bool:
    real = op.ticket.get("clock") == "real"  # where what programs compute takes a moment of the emulated time
    return real or float((op.ticket.get("budget") or {}).get("emulated_ns", 0)) >= ENOUGH_NS


def refused(op: Operator) -> Iterator[Diagnosis]:
    """Who refuses what its peers write has other keys than they know."""
    for row in op.rows("show nics"):
        if number(row, "resp_remote_access_errors") > 0:
            yield Diagnosis("wrong_rkey", f"nic:{row['rank']}", ("job restart",))


def ports(op: Operator) -> Iterator[Diagnosis]:
    """What each NIC says of its port and of its GIDs."""
    if not has_time(op):
        return
    said = {nic.rank: _said(op, f"exec {nic.rank} -- ibv_devinfo -v") for nic in op.plan.nics}
    mtus = {rank: int(found[1]) for rank, text in said.items() if (found := _MTU.search(text))}
    for rank, text in said.items():
        gid = _GID.search(text)
        if gid is not None and gid[1] != "v2":
            yield Diagnosis("wrong_gid_index", f"nic:{rank}")
        if mtus.get(rank, 0) < max(mtus.values(), default=0):
            yield Diagnosis("small_mtu", f"nic:{rank}")


def rates(op: Operator) -> list[Diagnosis]:
    """The NIC, or the rail, that all slow pairs share: NICs of one rail are measured in a ring."""
    if not has_time(op):
        return []
    rails: dict[str, list[int]] = {}
    for nic in op.plan.nics:
        rails.setdefault(op.switch_of(nic.rank), []).append(nic.rank)
    pairs = {switch: _ring(ranks) for switch, ranks in rails.items()}
    found = {pair: _rate(op, *pair) for ring in pairs.values() for pair in ring}
    if any(number(row, "retransmitted") > 0 for row in op.rows("show nics")):
        return []  # where frames are lost, rates say little
    slow = [pair for pair, rate in found.items() if 0 < rate < SLOW * max(found.values())]
    for switch, ring in pairs.items():
        if len(rails) > 1 and len(ring) > 1 and all(pair in slow for pair in ring):
            return [Diagnosis("reduced_rate", f"switch:{switch}")]
    ends = [nic.rank for nic in op.plan.nics if slow and all(nic.rank in pair for pair in slow)]
    return [Diagnosis("slow_pcie", f"nic:{rank}") for rank in ends[:1]]


def _ring(ranks: list[int]) -> list[tuple[int, int]]:
    return list(dict.fromkeys((min(pair), max(pair)) for pair in zip(ranks, [*ranks[1:], ranks[0]], strict=True)))


def _said(op: Operator, line: str) -> str:
    says = op.ask(line).get("says") or ()
    return "\n".join(str(row["says"]) for row in says)


def _rate(op: Operator, a: int, b: int) -> float:
    """Of large messages there and back: quicker to measure than a stream of them."""
    said = _MBIT.search(_said(op, f"exec {a} {b} -- ibv_rc_pingpong -g 0 -s {1 << 20} -n 10"))
    return float(said[1]) if said else 0.0


RULES = (refused,)
LAST = (ports, rates)
