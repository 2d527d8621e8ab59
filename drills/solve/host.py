"""Interfaces that tell it themselves: speed, MTU; receivers without buffers."""

from __future__ import annotations

import re

from drills.solve.desk import Desk, number, odd
from drills.solve.finding import Finding
from drills.solve.mending import around


def speeds(desk: Desk) -> list[Finding]:
    found: dict[str, Finding] = {}
    rows = [row for row in desk.rows("show interfaces status") if row["Oper"] == "up"]
    kinds = [{**row, "of": _ends(str(row["Interface"]), str(row["Peer"]))} for row in rows]
    for row, usual in odd(kinds, "of", ("Speed",)):
        cable = desk.cable(str(row["Interface"]))
        if cable is not None and rate(str(row["Speed"])) < rate(str(usual["Speed"])):
            set_ = (f"interface speed {desk.switch_end(cable)} {usual['Speed']}bps",)
            back = f"route undrain {desk.switch_end(cable)}"
            led = (*around(desk, cable), *set_, back)  # its link goes down for it
            why = f"{row['Interface']} came up with {row['Speed']}, its like with {usual['Speed']}"
            mend, otherwise = (led, (*set_, back)) if desk.between_switches(cable) else (set_, ())
            found[cable.name] = Finding("reduced_rate", f"cable:{cable.name}", why, mend, otherwise)
    return list(found.values())


def mtus(desk: Desk) -> list[Finding]:
    found: dict[str, Finding] = {}
    rows = [r for r in desk.rows("show interfaces status") if desk.rank(str(r["Interface"]).partition(":")[0]) is None]
    for row, _ in odd(rows, "", ("MTU",)):
        cable = desk.cable(str(row["Interface"]))
        if cable is not None:
            line = f"interface mtu {desk.switch_end(cable)} 9216"
            why = f"{row['Interface']} has the MTU {row['MTU']}"
            found[cable.name] = Finding("small_mtu", f"cable:{cable.name}", why, (line,))
    return list(found.values())


def late_buffers(desk: Desk) -> list[Finding]:
    """Who is it to whom all that were told "not ready" send most often again?"""
    told = {int(row["rank"]) for row in desk.recent("show nics") if number(row, "rnr_nak_retry_err") > 0}
    again: dict[int, float] = {}
    for row in desk.rows("show qps"):
        if int(row["rank"]) in told:
            again[int(row["peer"])] = again.get(int(row["peer"]), 0) + number(row, "retransmitted")
    if not again or not max(again.values()):
        return []
    worst = max(again, key=lambda rank: again[rank])
    return [Finding("slow_receiver", f"nic:{worst}", f"ranks {sorted(told)} were told: not ready, by {worst}")]


def _ends(one: str, other: str) -> str:
    roles = sorted(re.sub(r"\d.*", "", end.partition(":")[0]) for end in (one, other))
    return "-".join(roles)


def rate(speed: str) -> float:
    found = re.match(r"([\d.]+)([GMT])", speed)
    return float(found[1]) * {"M": 1e6, "G": 1e9, "T": 1e12}[found[2]] if found else 0.0


RULES = (speeds, mtus, late_buffers)
