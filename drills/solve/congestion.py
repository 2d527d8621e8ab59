"""Traffic of others, and cables that take their time."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from statistics import fmean

from drills.solve.desk import RECENT_NS, Desk, number
from drills.solve.finding import Finding
from drills.solve.trials import change_cables, used
from topologies.graph.search import hops

OLD = 0.02
"""Traffic of which so much came before the trouble is none of its causes."""
SLOWER = 1.05
PROBES = 20
PAIRS = 4
"""So many of those that are late are asked again, if the slowest of the mesh are only far apart."""
LATER_US = 1.0
ALWAYS = 0.85
"""So much of what most probes of a pair are late, its quickest is late, too. Where each waits for a random time it has
been 0.4 to 0.6 of 20 probes, behind a long cable 1."""


def others(desk: Desk) -> list[Finding]:
    """Traffic that is not the job's, and has begun of late: to one NIC, or all about."""
    total: dict[tuple[int, int], float] = {}
    late: dict[tuple[int, int], float] = {}
    for rows, into in ((desk.rows("show traffic"), total), (desk.recent("show traffic"), late)):
        for row in rows:
            if row["tenant"] != "job":
                pair = (int(row["rank"]), int(row["peer"]))
                into[pair] = into.get(pair, 0.0) + number(row, "tx_bytes")
    sent = sum(total.values())
    if not sent or sent - sum(late.values()) > OLD * sent:
        return []
    to = {peer for (_, peer), n in total.items() if n}
    why = f"{sent:g} bytes that are not the job's, from {sorted({rank for (rank, _), n in total.items() if n})}"
    if len(to) == 1:
        victim = to.pop()
        return [Finding("incast", f"nic:{victim}", why)]
    return [Finding("noisy_neighbour", "all", why)]


def delays(desk: Desk) -> list[Finding]:
    """Longer steps, and no counter moves: a cable, by a new one in its place."""
    if not _late(desk, 0) or _moved(desk):
        return []
    times = [float(row["time_us"]) for row in desk.rows("show job --last 4")]
    steady = _steady(desk, times)
    window = max(300_000.0, 4000.0 * desk.best_us)
    cable = change_cables(desk, used(desk), _late, window)
    if cable is None:
        return []
    why = f"without it steps take {desk.best_us:g} us again, of {fmean(times):.1f}; no counter had moved"
    return [Finding("long_cable" if steady else "jitter", f"cable:{cable.name}", why)]


def _steady(desk: Desk, times: Sequence[float]) -> bool:
    """Whether it always takes as much longer. A flow's way may change from one probe to the next, so of the pairs that
    take longer one is enough whose quickest probe is as late as most; if no probe is late, steps have to tell.

    How late is said by the quickest of the pairs that are as far apart: what is farther always takes longer.
    """
    told = desk.ask(f"probe mesh --count {PROBES}")
    medians = {(row["from"], int(to)): us for row in told.get("mesh", ()) for to, us in row.items() if to != "from"}
    far = {rank: hops(desk.plan, desk.plan.nics[rank].name) for rank in {a for a, _ in medians}}
    quickest: dict[int, float] = {}
    for (a, b), us in medians.items():
        if us and desk.apart(a, b):
            cables = far[a][desk.plan.nics[b].name]
            quickest[cables] = min(us, quickest.get(cables, us))

    def usual(a: int, b: int) -> float:
        return quickest.get(far[a][desk.plan.nics[b].name], inf) if a in far and desk.apart(a, b) else inf

    late = {pair: us - usual(*pair) for pair, us in medians.items() if us and us > usual(*pair) + LATER_US}
    rows = [row for row in told.get("slowest", ()) if (row["from"], row["to"]) in late]
    if not rows:  # the slowest are those that are far apart
        latest = sorted(late, key=lambda pair: -late[pair])[:PAIRS]
        rows = [row for a, b in latest for row in desk.ask(f"probe lat {a} {b} --count {PROBES}").get("lat", ())]
    shares = [
        (float(row["min_us"]) - quick) / (float(row["median_us"]) - quick)
        for row in rows
        if row["median_us"] and row["median_us"] > (quick := usual(row["from"], row["to"])) + LATER_US
    ]
    return any(share > ALWAYS for share in shares) if shares else max(times) < 1.02 * min(times)


def _late(desk: Desk, _: float) -> bool:
    rows = desk.rows("show job --last 2")
    return bool(rows) and float(rows[-1]["time_us"]) > SLOWER * desk.best_us


def _moved(desk: Desk) -> bool:
    nics = desk.recent("show nics", of_ns=RECENT_NS)
    errors = ("np_cnp_sent", "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rx_prio3_pause")
    return desk.stands or any(number(row, key) > 0 for row in nics for key in errors)


RULES = (others,)
LAST = (delays,)
