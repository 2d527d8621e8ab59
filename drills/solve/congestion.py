"""Traffic of others, and cables that take their time."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from drills.solve.diagnosis import Diagnosis
from drills.solve.operator import RECENT_NS, Operator, by_peer, by_rank, number, sums
from drills.solve.trials import change_cables, used
from topologies.graph.search import hops

OLD = 0.02
"""Traffic of others of which so much is older is not the cause."""
SLOWER = 1.05
PROBES = 20
PAIRS = 4
"""So many late pairs are probed again, if the slowest of the mesh are only far apart."""
LATER_US = 1.0
ALWAYS = 0.85
"""The delay of a pair's quickest probe, of its median one, from which on it is constant. Behind a cable with jitter it
was 0.4 to 0.6 of 20 probes, behind a long cable 1."""


def others(op: Operator) -> list[Diagnosis]:
    """Traffic that is not the job's, and has begun of late: to one NIC, or to many."""
    total, late = (
        sums((row for row in rows if row["tenant"] != "job"), lambda row: (by_rank(row), by_peer(row)), "tx_bytes")
        for rows in (op.rows("show traffic"), op.recent("show traffic"))
    )
    sent = sum(total.values())
    if not sent or sent - sum(late.values()) > OLD * sent:
        return []
    receivers = {peer for (_, peer), n in total.items() if n}
    if len(receivers) == 1:
        return [Diagnosis("incast", f"nic:{receivers.pop()}")]
    return [Diagnosis("noisy_neighbour", "all")]


def delays(op: Operator) -> list[Diagnosis]:
    """Longer steps, and no counter moves: the cable without which they are gone."""
    if not _late(op, 0) or _moved(op):
        return []
    times = [float(row["time_us"]) for row in op.rows("show job --last 4")]
    steady = _steady(op, times)
    window = max(300_000.0, 4000.0 * op.best_us)
    cable = change_cables(op, used(op), _late, window)
    if cable is None:
        return []
    return [Diagnosis("long_cable" if steady else "jitter", f"cable:{cable.name}")]


def _steady(op: Operator, times: Sequence[float]) -> bool:
    """Whether the delay is constant. A flow's path may change from probe to probe, so one late pair is enough whose
    quickest probe is as late as its median; if no probe is late, steps decide.

    A pair is late against the quickest of those that are as many cables apart.
    """
    tables = op.ask(f"probe mesh --count {PROBES}")
    medians = {(row["from"], int(to)): us for row in tables.get("mesh", ()) for to, us in row.items() if to != "from"}
    distance = {rank: hops(op.plan, op.plan.nics[rank].name) for rank in {a for a, _ in medians}}

    def apart(a: int, b: int) -> bool:
        return op.switch_of(a) != op.switch_of(b)

    quickest: dict[int, float] = {}
    for (a, b), us in medians.items():
        if us and apart(a, b):
            cables = distance[a][op.plan.nics[b].name]
            quickest[cables] = min(us, quickest.get(cables, us))

    def usual(a: int, b: int) -> float:
        return quickest.get(distance[a][op.plan.nics[b].name], inf) if a in distance and apart(a, b) else inf

    late = {pair: us - usual(*pair) for pair, us in medians.items() if us and us > usual(*pair) + LATER_US}
    rows = [row for row in tables.get("slowest", ()) if (row["from"], row["to"]) in late]
    if not rows:  # the slowest are those that are far apart
        latest = sorted(late, key=lambda pair: -late[pair])[:PAIRS]
        rows = [row for a, b in latest for row in op.ask(f"probe lat {a} {b} --count {PROBES}").get("lat", ())]
    shares = [
        (float(row["min_us"]) - quick) / (float(row["median_us"]) - quick)
        for row in rows
        if row["median_us"] and row["median_us"] > (quick := usual(row["from"], row["to"])) + LATER_US
    ]
    return any(share > ALWAYS for share in shares) if shares else max(times) < 1.02 * min(times)


def _late(op: Operator, _: float) -> bool:
    rows = op.rows("show job --last 2")
    return bool(rows) and float(rows[-1]["time_us"]) > SLOWER * op.best_us


def _moved(op: Operator) -> bool:
    nics = op.recent("show nics", of_ns=RECENT_NS)
    errors = ("np_cnp_sent", "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rx_prio3_pause")
    return op.stands or any(number(row, key) > 0 for row in nics for key in errors)


RULES = (others,)
LAST = (delays,)
