"""The solver: an operator as rules. First what tells itself, then what has to be asked, last what has to be tried."""

from __future__ import annotations

from collections.abc import Callable

from testbed.drill.session import Session
from testbed.drill.solve import (
    congestion,
    controller,
    corruption,
    ecn,
    host,
    lost,
    offload,
    pfc,
    real,
    routing,
    settings,
    stragglers,
    wiring,
)
from testbed.drill.solve.desk import Desk
from testbed.drill.solve.finding import Finding, answer

Rule = Callable[[Desk], list[Finding]]
TELLS_ITSELF: tuple[Rule, ...] = (
    *settings.RULES, *host.RULES, *controller.RULES, *stragglers.RULES, *offload.RULES, *routing.RULES, *lost.RULES,
    *congestion.RULES,
)  # fmt: skip
"""Each for itself: several may be right."""
ASKED: tuple[Rule, ...] = (
    *pfc.LATER, *lost.LATER, *ecn.LATER, *corruption.LATER, *pfc.LAST, *stragglers.LAST, *congestion.LAST,
)  # fmt: skip
"""One after the other, until one has found something."""


def findings(desk: Desk) -> list[Finding]:
    """What is wrong. Crossed cables have all sorts of consequences, so nothing else is looked for beside them."""
    crossed = wiring.crossed(desk)
    if crossed:
        return crossed
    found = [finding for rule in TELLS_ITSELF for finding in rule(desk)]
    refused = {f.place for f in found if f.kind == "table_full"}
    found = [f for f in found if not (f.kind == "partial_write" and f.place in refused)]
    if found:
        return found
    return next((found for rule in ASKED if (found := rule(desk))), [])


def solve(session: Session) -> str:
    """The answer, as `submit` takes it. Mends first, if that is asked for."""
    desk = Desk(session)
    going = desk.ticket.get("clock") == "real"
    found = real.findings(desk) if going else findings(desk)
    if desk.asked_to_mend:
        ways = dict.fromkeys((finding.mend, finding.otherwise) for finding in found if finding.mend)
        mended = [desk.carry_out(m) or bool(o) and desk.carry_out(o) for m, o in ways]  # nothing is no mending
        if any(mended) and going:
            real.settle(desk)
        elif any(mended) and _given_up(desk):
            desk.do("config job restart")
    return answer(found)


def _given_up(desk: Desk) -> bool:
    """Whether queue pairs have failed: they do not come back by themselves, whatever has been mended."""
    return any(row.get("state") == "error" for row in desk.rows("show qps"))
