"""The solver: an operator as rules. First faults that a view names, then those that he infers, last those that he finds
by trying."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from drills.session import Session
from drills.solve import (
    adaptive,
    congestion,
    controller,
    corruption,
    ecn,
    host,
    lost,
    offload,
    paths,
    pfc,
    real,
    routing,
    settings,
    stragglers,
    verbs,
    wiring,
)
from drills.solve.diagnosis import Diagnosis, Rule, answer
from drills.solve.operator import SLOW, Operator
from drills.solve.trials import PATIENCE, carries

DIRECT: tuple[Rule, ...] = (
    *settings.RULES, *host.RULES, *controller.RULES, *stragglers.RULES, *offload.RULES, *routing.RULES, *adaptive.RULES,
    *paths.RULES, *lost.RULES, *congestion.RULES, *pfc.RULES, *verbs.RULES,
)  # fmt: skip
"""By what a view names; all apply, for several may be right."""
OWN: tuple[Rule, ...] = (*ecn.OWN, *corruption.OWN)
"""By symptoms that no other fault has; all apply."""
IN_ORDER: tuple[Rule, ...] = (
    *pfc.LATER, *lost.LATER, *ecn.LATER, *corruption.LATER, *pfc.LAST, *stragglers.LAST, *congestion.LAST,
    *verbs.LAST,
)  # fmt: skip
"""One after the other, until one has a diagnosis."""
BEHIND: tuple[Rule, ...] = (*offload.RULES, *routing.LOST, *lost.RULES, *pfc.BEHIND)
"""For faults that one which is mended may have hidden; logs and settings show nothing new then."""
TAKE_NO_TIME = ("silent_corruption", "duplication", "dscp_remarked")
"""If the job is slow, there is another fault."""
STOPS: tuple[Rule, ...] = (pfc.storm, stragglers.still)
MOST = 3
_SWITCH_OUT = re.compile(r"route drain [^:]+$")
SETTLES_STEPS, SETTLES_NS, LOOKS = 3, 100_000.0, 3
WATCHED_STEPS, WATCHED_NS = 5, 400_000.0


def diagnoses(op: Operator) -> list[Diagnosis]:
    """What is wrong. Crossed cables have all sorts of consequences, so beside them nothing else is looked for."""
    if crossed := wiring.crossed(op):
        return crossed
    found = _all(op, DIRECT)
    full = {one.place for one in found if one.kind == "table_full"}
    found = [one for one in found if not (one.kind == "partial_write" and one.place in full)]
    found += [own for own in _all(op, OWN) if str(own) not in map(str, found)]
    mapped = {one.place.partition(":")[2] for one in found if one.kind == "wrong_dscp_map"}
    found = [one for one in found if not (one.kind == "dscp_remarked" and mapped & _ends(op, one.place))]
    if any(one.kind not in TAKE_NO_TIME for one in found):
        return found
    remarked = any(one.kind == "dscp_remarked" for one in found)  # frames of another class overtake
    return found + _first(op, [rule for rule in IN_ORDER if not (remarked and rule in corruption.LATER)])


def _ends(op: Operator, place: str) -> set[str]:
    """The nodes at both ends of a cable."""
    cable = op.plan.cable_by_name[place.partition(":")[2]]
    return {cable.a.node, cable.b.node}


def _all(op: Operator, rules: Iterable[Rule]) -> list[Diagnosis]:
    return [diagnosis for rule in rules for diagnosis in rule(op)]


def _first(op: Operator, rules: Iterable[Rule]) -> list[Diagnosis]:
    """Those of the first rule that has any."""
    return next((found for rule in rules if (found := list(rule(op)))), [])


def solve(session: Session) -> str:
    """The answer, as `submit` takes it. If mending is asked for, he mends first, and looks for what is still wrong."""
    op = Operator(session)
    if op.ticket.get("clock") == "real":
        found = real.diagnoses(op)
        if op.asked_to_mend and mend(op, found):
            op.pass_(real.SETTLE_NS)
        return answer(found)
    found = diagnoses(op) or _later(op)
    mended = op.asked_to_mend and mend(op, found)
    while mended and len(found) < MOST and not (_recovers(op) or _restarted(op) and _recovers(op)):
        places = {one.place for one in found}  # what is odd there comes from what has been mended
        new = [one for one in behind(op) if one.place not in places]
        found += new
        mended = mend(op, new)
    return answer(found)


def _later(op: Operator) -> list[Diagnosis]:
    """Faults that show only after a while: before he answers `healthy` he lets the job go on, and looks again."""
    return diagnoses(op) if op.pass_(max(WATCHED_NS, WATCHED_STEPS * 1000 * op.best_us)) else []


def mend(op: Operator, found: Sequence[Diagnosis]) -> bool:
    """Whether anything was done. Cables come first: once a switch is drained, nothing can be led around them."""
    repairs = dict.fromkeys((one.mend, one.otherwise) for one in found if one.mend)
    ordered = sorted(repairs, key=lambda repair: any(_SWITCH_OUT.match(line) for line in repair[0]))
    done = [op.carry_out(lines) or bool(other) and op.carry_out(other) for lines, other in ordered]
    if any(done) and op.ticket.get("clock") != "real" and _failed_qps(op):
        op.do("config job restart")
    return any(done)


def _restarted(op: Operator) -> bool:
    """Ranks that fell back to adding up by themselves do so until the job restarts."""
    fallback = any(row.get("fallback") for row in op.rows("show job --ranks --last 1"))
    return fallback and op.do("config job restart")


def behind(op: Operator) -> list[Diagnosis]:
    """What is wrong besides what has been mended. A job that still stands then waits for its timers."""
    return _all(op, (*BEHIND, *OWN)) or _first(op, [rule for rule in IN_ORDER if rule not in STOPS])


def _recovers(op: Operator) -> bool:
    """Whether the job is as fast as before, or gets faster: rates and flows come back gradually."""
    op.from_ns, times = op.time_ns, list[float]()
    window = max(SETTLES_NS, SETTLES_STEPS * 1000 * op.best_us)
    while len(times) < LOOKS or len(times) < PATIENCE and not _flows_are_back(op, window):
        op.pass_(window)
        times.append(math.inf if op.stands else float(op.rows("show job --last 1")[-1]["time_us"]))
        if times[-1] <= SLOW * op.best_us:
            return True
    return times[-1] * SLOW < times[-2]


def _flows_are_back(op: Operator, ns: float) -> bool:
    """Whether all undrained cables carry flows again."""
    return all(carries(op, cable, ns) for port in op.undrained if (cable := op.cable(port)) is not None)


def _failed_qps(op: Operator) -> bool:
    """Failed queue pairs do not come back by themselves."""
    return any(row.get("state") == "error" for row in op.rows("show qps"))
