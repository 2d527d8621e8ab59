"""The solver: an operator as rules. First what tells itself, then what has to be asked, last what has to be tried."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from drills.session import Session
from drills.solve import (
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
from drills.solve.desk import SLOW, Desk
from drills.solve.finding import Finding, answer
from drills.solve.trials import PATIENCE, carries

Rule = Callable[[Desk], list[Finding]]
TELLS_ITSELF: tuple[Rule, ...] = (
    *settings.RULES, *host.RULES, *controller.RULES, *stragglers.RULES, *offload.RULES, *routing.RULES, *lost.RULES,
    *congestion.RULES,
)  # fmt: skip
"""Each for itself: several may be right."""
OWN: tuple[Rule, ...] = (*ecn.OWN, *corruption.OWN)
"""Asked, and each for itself: what they go by nothing else makes."""
ASKED: tuple[Rule, ...] = (
    *pfc.LATER, *lost.LATER, *ecn.LATER, *corruption.LATER, *pfc.LAST, *stragglers.LAST, *congestion.LAST,
)  # fmt: skip
"""One after the other, until one has found something."""
BEHIND: tuple[Rule, ...] = (*offload.RULES, *routing.LOST, *lost.RULES, *pfc.BEHIND)
"""What may have been hidden by what is mended; logs and settings have told all they have to tell."""
TAKE_NO_TIME = ("silent_corruption", "duplication", "dscp_remarked")
"""If the job is slow, there is something else."""
STOPS: tuple[Rule, ...] = (pfc.storm, stragglers.still)
MOST = 3
_SWITCH_OUT = re.compile(r"route drain [^:]+$")
SETTLES_STEPS, SETTLES_NS, LOOKS = 3, 100_000.0, 3
WATCHED_STEPS, WATCHED_NS = 5, 400_000.0


def findings(desk: Desk) -> list[Finding]:
    """What is wrong. Crossed cables have all sorts of consequences, so nothing else is looked for beside them."""
    crossed = wiring.crossed(desk)
    if crossed:
        return crossed
    found = [finding for rule in TELLS_ITSELF for finding in rule(desk)]
    refused = {f.place for f in found if f.kind == "table_full"}
    found = [f for f in found if not (f.kind == "partial_write" and f.place in refused)]
    found += [own for rule in OWN for own in rule(desk) if str(own) not in map(str, found)]
    mapped = {f.place.partition(":")[2] for f in found if f.kind == "wrong_dscp_map"}
    found = [f for f in found if not (f.kind == "dscp_remarked" and mapped & set(_ends(desk, f.place)))]
    if any(one.kind not in TAKE_NO_TIME for one in found):
        return found
    overtaken = any(one.kind == "dscp_remarked" for one in found)  # what is of another class, overtakes
    return found + _asked(desk, corruption.LATER if overtaken else ())


def _ends(desk: Desk, place: str) -> tuple[str, ...]:
    """The nodes at both ends of a cable."""
    cable = desk.plan.cable_by_name[place.partition(":")[2]]
    return cable.a.node, cable.b.node


def _asked(desk: Desk, but: Sequence[Rule] = ()) -> list[Finding]:
    return next((found for rule in ASKED if rule not in but and (found := rule(desk))), [])


def solve(session: Session) -> str:
    """The answer, as `submit` takes it. Mends first, if that is asked for; what is still wrong then is looked for."""
    desk = Desk(session)
    going = desk.ticket.get("clock") == "real"
    found = real.findings(desk) if going else findings(desk) or _watched(desk)
    if not desk.asked_to_mend:
        return answer(found)
    mended = mend(desk, found)
    if going and mended:
        real.settle(desk)
    while mended and not going and len(found) < MOST and not (_well(desk) or _begun_anew(desk) and _well(desk)):
        places = {one.place for one in found}  # what is odd there still comes from what has been mended
        new = [one for one in behind(desk) if one.place not in places]
        found += new
        mended = mend(desk, new)
    return answer(found)


def _watched(desk: Desk) -> list[Finding]:
    """What shows only after a while: before he says that nothing is wrong he lets the job go on, and looks again."""
    return findings(desk) if desk.pass_(max(WATCHED_NS, WATCHED_STEPS * 1000 * desk.best_us)) else []


def mend(desk: Desk, found: Sequence[Finding]) -> bool:
    """Cables first: without a switch there is no way around them. Whether anything was done."""
    ways = dict.fromkeys((one.mend, one.otherwise) for one in found if one.mend)  # nothing is no mending
    ordered = sorted(ways, key=lambda way: any(_SWITCH_OUT.match(line) for line in way[0]))
    done = [desk.carry_out(lines) or bool(other) and desk.carry_out(other) for lines, other in ordered]
    if any(done) and desk.ticket.get("clock") != "real" and _given_up(desk):
        desk.do("config job restart")
    return any(done)


def _begun_anew(desk: Desk) -> bool:
    """Ranks that add up by themselves, for want of a switch that does, go on so until the job begins anew."""
    alone = any(row.get("fallback") for row in desk.rows("show job --ranks --last 1"))
    return alone and desk.do("config job restart")


def behind(desk: Desk) -> list[Finding]:
    """What is wrong besides what has been mended. A job that still stands then waits for its timers."""
    found = [finding for rule in (*BEHIND, *OWN) for finding in rule(desk)]
    return found or _asked(desk, STOPS)


def _well(desk: Desk) -> bool:
    """Whether the job goes as it did, or is on its way there: rates and flows come back by and by."""
    desk.from_ns, times = desk.time_ns, list[float]()
    window = max(SETTLES_NS, SETTLES_STEPS * 1000 * desk.best_us)
    while len(times) < LOOKS or len(times) < PATIENCE and not _led_back(desk, window):
        desk.pass_(window)
        times.append(math.inf if desk.stands else float(desk.rows("show job --last 1")[-1]["time_us"]))
        if times[-1] <= SLOW * desk.best_us:
            return True
    return times[-1] * SLOW < times[-2]


def _led_back(desk: Desk, ns: float) -> bool:
    """Whether all cables that flows were led around, and may be used again, are used again."""
    cables = [cable for port in desk.back if (cable := desk.cable(port)) is not None]
    return all(carries(desk, cable, ns) for cable in cables)


def _given_up(desk: Desk) -> bool:
    """Whether queue pairs have failed: they do not come back by themselves, whatever has been mended."""
    return any(row.get("state") == "error" for row in desk.rows("show qps"))
