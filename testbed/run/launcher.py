"""The launcher of a training run that goes on after failures: it looks after its ranks, and starts them again.

It does what agents of torchrun do.  Every `monitor` of emulated time it looks whether a rank has ended.  If one has, it
ends all, at that time: the clock stands still meanwhile.  When what they had sent has left the fabric, all get new
containers, and go on from the last checkpoint.  So a run does the same each time, however long that takes here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.fabric.lab import Lab
    from testbed.live.workers import WorkerProcess
    from testbed.plan.steps.planned import Plan

NAME = "launcher"
"""Of its fault: by that fabricd has the clock stand still, and asks the testbed."""
RESTORED, STEPS = 0, 1
"""The plan's steps: how a checkpoint is read back, and what is run."""

Request = dict[str, Any]
Line = dict[str, Any]


@dataclass
class Launcher:
    """Of a run whose step has these keys of `checkpoint`."""

    told: Mapping[str, Any]
    ranks: int  # that take part in a step
    restarts: list[Line] = field(default_factory=list)  # events of that name
    noticed: bool = False  # that a rank has ended: all have been, and are to be started again
    _events: list[Line] = field(default_factory=list)  # since they were started
    _ran: list[int] = field(default_factory=list)  # of each step that was run in all, its number in training
    _first: int = 0  # of training: what is run since they were started

    @classmethod
    def of(cls, plan: Plan) -> Launcher | None:
        """If there is one in the plan."""
        if len(plan.steps) == 2 and (told := plan.steps[STEPS].about_step.get("going_on")):
            return cls(told, len(plan.steps[STEPS].ends(plan.ranks)))
        return None

    @property
    def may(self) -> bool:
        """Whether it would start them once more."""
        return len(self.restarts) < int(self.told["restarts"])

    def looks(self, now_ns: float) -> list[Request]:
        """What has fabricd ask, if it would start them again: the clock stands still at the end of each."""
        if not self.may:
            return []
        every = self.told["monitor"]
        asked = {"fault": NAME, "primitive": "act", "to": "agent", "spec": {"launcher": True}}
        return [asked | {"at_ns": now_ns + every / 2, "for_ns": every / 2, "every_ns": every}]

    def failure(self, now_ns: float) -> list[Request]:
        """The next one that is drawn: another one follows when all have been started again."""
        if not self.told["failures"]:
            return []
        number = len(self.restarts) + 1
        dice = Random(f"{self.told['seed']}/{number}")
        at = now_ns + dice.expovariate(1 / self.told["between"])
        spec = {"worker": "kill", "rank": dice.choice(self.told["training"])}
        about = {"primitive": "act", "to": "agent", "spec": spec, "fault": f"failure{number}"}
        return [{**about, "at_ns": round(at, 3), "for_ns": 0.001}]

    def plan_of(self, plan: Plan) -> Plan:
        """The plan as workers are told it next."""
        again = bool(self.restarts)
        restored = plan.steps[RESTORED].times(int(again))
        return replace(
            plan, steps=[restored, plan.steps[STEPS].times(self.told["steps"], self._first if again else None)]
        )

    def end(self, lab: Lab, workers: Iterable[WorkerProcess]) -> None:
        """Ends all, and takes out all faults: what they do is kept for later."""
        for process in workers:
            process.end()
        for fault in lab.fabricd.request("faults")["faults"]:
            lab.fabricd.request("heal", fault=fault["fault"])
        self.noticed = True

    # -- what is seen

    def event(self, event: Line) -> bool:
        """Takes an event; whether the launcher has to act: a rank has ended."""
        if self.noticed:  # what follows from their being ended
            return False
        self._events.append(event)
        looks = bool(event["event"] == "act" and event["fault"] == NAME and not event["on"])
        return looks and any(e["event"] == "worker_lost" for e in self._events)

    def line(self, line: Line) -> Line:
        """A worker's line: steps are counted on when they are run again."""
        of = len(self.restarts) - 1 if line["step"] == RESTORED else len(self._ran) + line["iteration"] - self._first
        return {**line, "iteration": of}

    def again(self, lines: Iterable[Line], now_ns: float) -> Line:
        """All have been ended, after these lines, and can be started again now: what there is to say of it."""
        done = {line["iteration"] for line in self.whole(lines) if line["step"] == STEPS}
        whole = len(done) - len(self._ran)
        self._ran += range(self._first, self._first + whole)
        reached = self._first + whole
        kept = reached // self.told["every"] * self.told["every"]
        gone = (e for e in self._events if e["event"] == "worker_lost")
        lost = min(gone, key=lambda e: (e["time_ns"], e["rank"]))  # several may have found out at a time
        noticed = next(e for e in reversed(self._events) if e["event"] == "act" and e["fault"] == NAME)
        struck = [e["time_ns"] for e in self._events if _strikes(e) and e["time_ns"] <= lost["time_ns"]]
        said = {
            **{"event": "restart", "time_ns": now_ns, "rank": lost["rank"], "reason": lost["reason"]},
            **{"failed_ns": max(struck, default=lost["time_ns"]), "noticed_ns": noticed["time_ns"]},
            **{"ran": len(self._ran), "first": kept, "lost": reached - kept},
        }
        self.restarts.append(said)
        self._first, self._events, self.noticed = kept, [], False
        return said

    def whole(self, lines: Iterable[Line]) -> list[Line]:
        """The lines without those of steps that not all ranks had done when they were ended."""
        kept = list(lines)
        done = Counter((line["step"], line["iteration"]) for line in kept if line["kind"] == "tasks")
        return [line for line in kept if done[line["step"], line["iteration"]] == self.ranks]


def _strikes(event: Mapping[str, Any]) -> bool:
    return bool(event["event"] == "fault" and event["on"] and event["fault"] != NAME)


def later(requests: Iterable[Request], now_ns: float) -> Iterator[Request]:
    """The faults as they are put in again now: what was to come still comes, what is on goes on.

    A killed process is not killed again by the fault that has killed it.
    """
    for request in requests:
        at, lasts, every = request["at_ns"], request.get("for_ns"), request.get("every_ns")
        if every is not None and now_ns > at:
            past = (now_ns - at) // every
            begun = at + past * every
            yield {**request, "at_ns": begun + every}
            at, request = begun, {k: v for k, v in request.items() if k != "every_ns"}
            request["fault"] += ".on"
        if at > now_ns:
            yield request
        elif request.get("spec", {}).get("worker") != "kill" and (lasts is None or at + lasts > now_ns):
            yield {**request, "at_ns": now_ns, **({} if lasts is None else {"for_ns": at + lasts - now_ns})}


def without(counters: Mapping[str, Any]) -> dict[str, Any]:
    """The hardware's counters without the launcher, and with one row for a fault that was put in several times."""
    rows: dict[str, dict[str, Any]] = {}
    for row in counters.get("faults", ()):
        name = row["fault"].removesuffix(".on")
        if name != NAME:
            hits = rows[name]["hits"] if name in rows else 0
            rows[name] = {**row, "fault": name, "hits": hits + row["hits"]}
    return {**counters, "faults": list(rows.values())}
