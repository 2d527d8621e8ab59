"""An operator on the real clock: programs on the hosts first, then the ports' errors. The world goes on meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from drills.solve import verbs
from drills.solve.diagnosis import Diagnosis, distinct
from drills.solve.mending import around
from drills.solve.operator import Operator, number

WAIT_STEPS = 20
"""Times the best step, to let frames be lost and retransmitted."""
SETTLE_NS = 200_000.0
"""Until what was lost before a repair is retransmitted: then its sender's timer has run out."""


def diagnoses(op: Operator) -> list[Diagnosis]:
    rules = (_frozen, _throttled, _damaged, verbs.refused, verbs.ports)  # rates are the machine's, too
    return next((found for rule in rules if (found := list(rule(op)))), [])


def _frozen(op: Operator) -> Iterator[Diagnosis]:
    """Its kernel answers ping, and its programs do nothing."""
    ranks = [nic.rank for nic in op.plan.nics]
    for rank in ranks:
        other = ranks[rank - 1]
        answer = op.session.command(f"probe ping {rank} {other} --count 1")
        if not answer.ok and "does not answer" in answer.text:
            reached = op.session.command(f"probe ping {other} {rank} --count 1")
            if reached.ok and not reached.data["ping"][0]["lost"]:
                yield Diagnosis("worker_frozen", f"nic:{rank}")


def _throttled(op: Operator) -> list[Diagnosis]:
    """Each rank has just run a program; its control group shows whether that was throttled."""
    return [
        Diagnosis("cpu_quota", f"nic:{row['rank']}") for row in op.rows("show cpu") if number(row, "nr_throttled") > 0
    ]


@distinct
def _damaged(op: Operator) -> Iterator[Diagnosis]:
    """Recent errors: old counters do not move."""
    op.pass_(WAIT_STEPS * 1000 * max(op.best_us, 1.0))
    for row in op.recent("show interfaces errors"):
        cable = op.cable(str(row["IFACE"]))
        if cable is not None and number(row, "RX_CRC") > 0:
            yield Diagnosis("loss", f"cable:{cable.name}", around(op, cable))
