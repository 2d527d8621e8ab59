"""An operator on the real clock: programs on the hosts first, then the ports' errors. The world goes on meanwhile."""

from __future__ import annotations

from drills.solve.desk import Desk, number
from drills.solve.finding import Finding
from drills.solve.mending import around

WAIT_STEPS = 20
"""Times the best step: by then frames are lost, and sent again."""
SETTLE_NS = 200_000.0
"""Until what was lost before a repair is sent again."""


def findings(desk: Desk) -> list[Finding]:
    return _silent(desk) or _throttled(desk) or _damaged(desk)


def _silent(desk: Desk) -> list[Finding]:
    """Its kernel answers ping, and no program of it does anything."""
    ranks = [nic.rank for nic in desk.plan.nics]
    found = []
    for rank in ranks:
        other = ranks[rank - 1]
        answer = desk.session.command(f"probe ping {rank} {other} --count 1")
        if not answer.ok and "does not answer" in answer.text:
            reached = desk.session.command(f"probe ping {other} {rank} --count 1")
            if reached.ok and not reached.data["ping"][0]["lost"]:
                why = f"rank {rank} answers ping, and starts no program"
                found.append(Finding("worker_frozen", f"nic:{rank}", why))
    return found


def _throttled(desk: Desk) -> list[Finding]:
    """Each has just run a program: its control group says whether it was kept from the CPUs."""
    return [
        Finding("cpu_quota", f"nic:{row['rank']}", f"{row['nr_throttled']} of {row['nr_periods']} periods throttled")
        for row in desk.rows("show cpu")
        if number(row, "nr_throttled") > 0
    ]


def _damaged(desk: Desk) -> list[Finding]:
    """Errors that have come of late: old counters stand still."""
    desk.pass_(WAIT_STEPS * 1000 * max(desk.best_us, 1.0))
    found: dict[str, Finding] = {}
    for row in desk.recent("show interfaces errors"):
        cable = desk.cable(str(row["IFACE"]))
        if cable is not None and number(row, "RX_CRC") > 0:
            why = f"{row['IFACE']} has {row['RX_CRC']} CRC errors, and ping loses nothing"
            found[cable.name] = Finding("loss", f"cable:{cable.name}", why, around(desk, cable))
    return list(found.values())


def settle(desk: Desk) -> None:
    """What was lost before the repair is sent again when its sender's timer runs out."""
    desk.pass_(SETTLE_NS)
