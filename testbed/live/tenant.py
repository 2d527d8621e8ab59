"""A workload as a tenant of a fabric that is up: it measures as if the fabric were its own, and leaves it as it was.

Times and counters start from zero when the workload begins. So its figures are those of a fabric that was brought up
for it alone. At the end its faults are healed and its containers removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from hardware.client import FabricdError
from results.frames.metrics import nanoseconds, picoseconds
from testbed.base.errors import UserError
from testbed.fabric.waits import in_words
from testbed.faults.base import fault_id
from testbed.inject.agent import NAME as AGENT
from testbed.inject.faults import heal, named
from testbed.live.in_force import InForce
from testbed.live.look.since import since

if TYPE_CHECKING:
    from testbed.fabric.lab import Lab
    from testbed.faults import Injection
    from testbed.inject.agent import Agent

_TIMES = ("start_ns", "end_ns")
_FIDELITY_STATES = ("dilation", "lateness_ns", "clock")
Note = Callable[..., None]


@dataclass
class Tenant:
    """A job's stay on a `lab`. `note` records what is about to be put in, for whoever has to clean up after us."""

    lab: Lab
    note: Note = lambda **_: None
    began_ns: float = 0.0
    before: Mapping[str, Any] = field(default_factory=dict)
    _standing: dict[str, int] = field(default_factory=dict)  # faults that were there before us, with their hits
    _ours: list[str] = field(default_factory=list)
    _aside: list[tuple[str, Injection]] = field(default_factory=list)
    _messages_before: int = 0
    captures: list[str] = field(default_factory=list)
    _in_force: InForce | None = None
    keeps: ClassVar[bool] = False
    """Whether containers whose workers have done all they should stay for who comes next."""

    def begin(self, injections: Sequence[Injection], ranks: Sequence[int]) -> None:
        """Makes the fabric ready for our workers and starts times and counters from zero. Raises UserError."""
        fabricd = self.lab.fabricd
        self.note(ranks=list(ranks))
        try:
            fabricd.subscribe(acts=AGENT)
            self._lay_aside(injections)
            self.began_ns = fabricd.next_job()
            self.before = self.lab.counters()
            self._in_force = InForce(self.lab, self.began_ns, self.before)
        except BaseException as error:
            self.leave([], None)
            if isinstance(error, FabricdError):
                who = in_words(fabricd.waits)
                what = f"{error}; it waits for {who}" if who else str(error)
                raise UserError(what, f"fabric {self.lab.id}", f"testbed status {self.lab.id}") from None
            raise
        here = {fault["fault"] for fault in fabricd.request("faults")["faults"]}
        counted = {row["fault"]: row["hits"] for row in reversed(self.before.get("faults", []))}
        self._standing = {name: counted.get(name, 0) for name in here}
        self._messages_before = len(self.lab.controller_messages())

    def _lay_aside(self, injections: Sequence[Injection]) -> None:
        """Heals, until we leave, those of our faults that `up` has put in already: they must not be there twice."""
        from testbed.faults import Injection, Mistakes

        ours = [injection.written() for injection in injections]
        there = self.lab.fabricd.request("faults")["faults"]
        about = {fault_id(f["fault"]): f["request"].get("about") for f in there if f["fault"].startswith("u")}
        for name, written in about.items():
            if written in ours:
                with suppress(Mistakes):
                    self._aside.append((name, Injection.of(written)))
        self.note(aside=[[name, injection.written()] for name, injection in self._aside])
        self._heal(dict(self._aside))

    def fault_names(self, count: int) -> list[str]:
        """Ids for our faults: f1, f2 .. as on a fabric of our own, without those that are taken."""
        taken = {fault_id(name) for name in self._standing}
        free = (name for k in range(1, count + len(taken) + 1) if (name := f"f{k}") not in taken)
        self._ours = [name for name, _ in zip(free, range(count), strict=False)]
        self.note(faults=self._ours)
        return self._ours

    def in_force(self) -> dict[str, Any]:
        """What is not ours, and was in force on the fabric since we began: what live.json holds."""
        aside = [name for name, _ in self._aside]
        return self._in_force.told([*self._ours, *aside]) if self._in_force else {}

    # -- as if the fabric were ours alone

    def line(self, line: dict[str, Any]) -> dict[str, Any]:
        """A worker's line, with times since we began."""
        if line["kind"] == "timeline":
            return line | {"began_ps": picoseconds(self.began_ns)}
        return line | {key: self._shifted(line[key]) for key in _TIMES if key in line}

    def event(self, event: dict[str, Any]) -> dict[str, Any]:
        """An event of fabricd, with its time since we began."""
        return event | ({"time_ns": self._shifted(event["time_ns"])} if "time_ns" in event else {})

    def _shifted(self, ns: float) -> int | float:
        return nanoseconds(picoseconds(ns) - picoseconds(self.began_ns))

    def controller_messages(self) -> list[dict[str, Any]]:
        """What the controller has said of its applications since we began."""
        return self.lab.controller_messages()[self._messages_before :]

    def counters(self, now: Mapping[str, Any]) -> dict[str, Any]:
        """What was counted since we began, in the form that a fabric of our own would give: zeros are left out."""
        counted = dict(since(now, self.before))
        counted["ports"] = [
            port | {key: _not_zero(port[key]) for key in ("drops", "priorities") if key in port}
            for port in counted["ports"]
        ]
        counted["drops"] = [drop for drop in counted["drops"] if drop["count"]]
        counted["faults"] = self._faults(now.get("faults", []))
        counted["time_ns"] = self._shifted(now["time_ns"])
        counted["deadlocks"] = now.get("deadlocks", 0) - self.before.get("deadlocks", 0)
        counted["fidelity"] = fidelity_since(now["fidelity"], self.before["fidelity"])
        return counted

    def _faults(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Of several faults with one id the first is the present one; the others were healed before."""
        first: dict[str, dict[str, Any]] = {}
        for row in rows:
            if row["fault"] in self._standing or fault_id(row["fault"]) in self._ours:
                first.setdefault(row["fault"], {**row, "hits": row["hits"] - self._standing.get(row["fault"], 0)})
        return list(first.values())

    # -- the end

    def resume(self, faults: Sequence[str], aside: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Takes over from a job that was killed: these are its notes."""
        from testbed.faults import Injection

        self._ours = list(faults)
        self._aside = [(name, Injection.of(written)) for name, written in aside]

    def leave(self, ranks: Sequence[int], agent: Agent | None) -> None:
        """Heals our faults, puts those that we had set aside in again, and removes our containers."""
        for rank in ranks:
            self.lab.containers.discard(rank)
        try:
            self._leave_hardware(agent)
        except FabricdError:  # it is gone: nothing of ours is left in it
            return

    def _leave_hardware(self, agent: Agent | None) -> None:
        from testbed.inject.live import put_in

        fabricd = self.lab.fabricd
        fabricd.request("sample_stop")
        for path in self.captures:
            with suppress(FabricdError):  # ended already
                fabricd.request("capture_stop", path=path)
        self._heal(self._ours, agent)
        for name, injection in self._aside:
            if injection.lasts is None:
                put_in(self.lab, injection, name)
        self._answer(agent)
        self.note(faults=[], aside=[])

    def _heal(self, names: Collection[str], agent: Agent | None = None) -> None:
        heal(self.lab.fabricd, named(self.lab.fabricd, names))
        self._answer(agent)

    def _answer(self, agent: Agent | None) -> None:
        """Carries out what fabricd asks of the testbed after healing, so that time can go on."""
        from testbed.inject.agent import Agent

        (agent or Agent(self.lab, lambda rank: None)).heed()


def fidelity_since(now: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the counters' `fidelity` that has been added since `then`."""
    counted: dict[str, Any] = {}
    for key, value in now.items():
        old = then.get(key)
        if key in _FIDELITY_STATES or old is None:
            counted[key] = value
        elif isinstance(value, list):
            counted[key] = value[len(old) :]
        else:
            counted[key] = value - old
    return counted


def _not_zero(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}
