"""What is in force on a live fabric besides a run's own experiment: faults that are in it, operators' actions.

A run stores it (live.json, results.figures.in_force): its figures are not those of its experiment alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hardware.client import FabricdError
from testbed.faults import Injection, Mistakes
from testbed.faults.base import fault_id
from testbed.inject.faults import injected
from testbed.operate.record import log

if TYPE_CHECKING:
    from testbed.fabric.lab import Lab

Entry = dict[str, Any]


class InForce:
    """Looks when the run begins, at `began_ns`, and whenever it is asked what there was since. `before`: the fabric's
    counters then. Raises FabricdError."""

    def __init__(self, lab: Lab, began_ns: float, before: Mapping[str, Any]) -> None:
        self._lab = lab
        self._began_ns = began_ns
        self._counted = {row["fault"] for row in before.get("faults", ())}
        self._faults = {name: one for name, one in faults(lab).items() if not one["over"]}
        here = log(lab.dir)
        self._actions = {done.number for done in here}
        self._acted = {done.number for done in here if done.in_force}
        self._passing = _passing(lab) & self._actions - self._acted

    def told(self, ours: Collection[str]) -> dict[str, Any]:
        """What live.json holds. `ours` are the ids of the run's own faults. Of a fabric that is gone: what was there
        when the run began."""
        there: dict[str, Entry] | None = None
        counted: list[dict[str, Any]] = []
        with suppress(FabricdError):
            there = faults(self._lab)
            counted = self._lab.fabricd.request("counters")["faults"]
        found = [self._fault(name, one, there) for name, one in self._faults.items()]
        new = {name: one for name, one in (there or {}).items() if name not in self._faults and name not in ours}
        found += [self._fault(name, one, there) for name, one in new.items() if one["came_ns"] >= self._began_ns]
        found += self._went(counted, {*self._faults, *(there or ()), *ours})
        return {"fabric": self._lab.id, "in_force": [*found, *self._done()]}

    def _fault(self, name: str, fault: Entry, there: Mapping[str, Entry] | None) -> Entry:
        here = name in self._faults
        gone = there is not None and (name not in there or there[name]["over"])
        since = {"from_us": None, "off": fault["off"]} if here else {"from_us": self._us(fault["came_ns"])}
        return {"what": "fault", "id": name, "line": fault["line"], **since, "gone": gone}

    def _went(self, counted: list[dict[str, Any]], known: Collection[str]) -> list[Entry]:
        """Faults that came and were healed since then: fabricd still counts them, and says no more of them."""
        went: dict[str, Entry] = {}
        for row in counted:
            name = fault_id(row["fault"])
            operators = name.startswith("config")
            if row["fault"] not in self._counted and name not in known and not operators:
                went.setdefault(name, {"what": "fault", "id": name, "line": None, "primitive": row["primitive"]})
        return list(went.values())

    def _done(self) -> list[Entry]:
        """Operators' actions: those in force then, and all that came since."""
        found = []
        for done in log(self._lab.dir):
            if done.number in self._passing:
                passing: Entry = {"what": "action", "id": str(done.number), "line": done.line, "from_us": None}
                found.append({**passing, "gone": True, "passing": True})
            if done.number in self._actions and done.number not in self._acted:
                continue
            came_us = None if done.number in self._actions else self._us(done.time_ns)
            entry: Entry = {"what": "action", "id": str(done.number), "line": done.line, "from_us": came_us}
            gone = done.rolled_back_ns is not None
            until = {"until_us": self._us(done.rolled_back_ns)} if done.rolled_back_ns is not None else {}
            found.append({**entry, "gone": gone, **until})
        return found

    def _us(self, time_ns: float) -> float:
        return round(max(time_ns - self._began_ns, 0) / 1000, 3)


def faults(lab: Lab) -> dict[str, Entry]:
    """The injected faults that are not healed, by id: `line` behind `testbed inject`, `off`, `came_ns`, and `over`, of
    one that cannot strike any more."""
    now_ns = lab.fabricd.request("status")["time_ns"]
    entries: dict[str, Entry] = {}
    for fault in injected(lab.fabricd):
        request = fault["request"]
        with suppress(Mistakes):  # not one of the catalogue's: no command has put it in
            line = Injection.of(request.get("about")).line()
            first = {"line": line, "off": True, "over": True, "came_ns": request.get("at_ns", now_ns)}
            entry = entries.setdefault(fault_id(fault["fault"]), first)
            entry["off"] &= not fault["on"]
            entry["over"] &= _over(fault, now_ns)
    return entries


def _passing(lab: Lab) -> set[int]:
    """Numbers of the actions of which something lies in fabricd: in force, or for a while after it, as a link that a
    replaced cable or a rollback takes down."""
    settings = (f["fault"] for f in lab.fabricd.request("faults")["faults"] if f["request"].get("operator"))
    return {int(match[1]) for name in settings if (match := re.match(r"config(\d+)\.", name))}


def _over(fault: Mapping[str, Any], now_ns: float) -> bool:
    request = fault["request"]
    once = "for_ns" in request and "every_ns" not in request
    return once and not fault["on"] and bool(now_ns >= request.get("at_ns", 0) + request["for_ns"])
