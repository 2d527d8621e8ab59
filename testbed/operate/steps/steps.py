"""The steps that actions are made of. Each is carried out at once, and says how it is taken back, as plain data.

`Put` lays a setting over everything else, `Take` removes settings, `Mend` removes faults for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from controllers.flows import COOKIE_MAGIC, COOKIE_MAGIC_MASK
from hardware.client import FabricdError, FabricdSoAlready
from testbed.operate.steps.durations import JOB_NS
from testbed.operate.steps.site import Site

Undo = list[dict[str, Any]]
"""Requests to fabricd (`op`), changes of flows (`flows`), a workload (`job`), in the order in which they are due."""


@dataclass
class Doing:
    """An action that is being carried out: its number, and what its steps have to say."""

    site: Site
    number: int
    line: str
    undo: Undo = field(default_factory=list)
    for_good: list[str] = field(default_factory=list)  # what cannot be taken back
    notes: list[str] = field(default_factory=list)
    mended: list[str] = field(default_factory=list)  # faults, by id: not for the operator's eyes
    _parts: int = 0

    def name(self) -> str:
        self._parts += 1
        return f"config{self.number}.{self._parts}"


class Step:
    def do(self, doing: Doing) -> None:
        """Raises UserError."""
        raise NotImplementedError


@dataclass(frozen=True)
class Put(Step):
    """A primitive of fabricd's, over all faults: until it is taken back, or for `for_ns`, and then it is gone."""

    primitive: Mapping[str, Any]
    for_ns: float | None = None
    after: Sequence[Mapping[str, Any]] = ()
    """Primitives with `for_ns` that follow when it is taken back."""

    def do(self, doing: Doing) -> None:
        name = doing.name()
        request = {**self.primitive, "operator": True, "about": {"config": doing.line}}
        if self.for_ns is not None:
            request["for_ns"] = self.for_ns
        doing.site.fabricd.request("inject", fault=name, **request)
        if self.for_ns is None:
            again = [
                {**one, "op": "inject", "fault": f"{name}u{k}", "operator": True, "about": request["about"]}
                for k, one in enumerate(self.after)
            ]
            doing.undo[:0] = [{"op": "heal", "fault": name}, *again]


@dataclass(frozen=True)
class Take(Step):
    """Settings that are there, as fabricd lists them."""

    settings: Sequence[Mapping[str, Any]]

    def do(self, doing: Doing) -> None:
        for setting in self.settings:
            doing.site.fabricd.request("heal", fault=setting["fault"])
            request = {key: value for key, value in setting["request"].items() if key not in ("id", "at_ns")}
            doing.undo[:0] = [{**request, "op": "inject"}]


@dataclass(frozen=True)
class Mend(Step):
    """The faults that an action of these words removes there (Fault.mended_by, Fault.resources)."""

    words: str
    resource: str

    def do(self, doing: Doing) -> None:
        for name in mended(doing.site, self.words, self.resource):
            doing.site.heal(name)
            doing.mended.append(name)


@dataclass(frozen=True)
class Resync(Step):
    """A switch's table is written anew: flows that are not the controller's go, and so do wrong ones of faults."""

    switch: str

    def do(self, doing: Doing) -> None:
        site = doing.site
        site.flows_changed()  # what was counted before is the flows' as they are now
        for line in flows_of(site, self.switch):
            if _cookie(line) & COOKIE_MAGIC_MASK != COOKIE_MAGIC:
                site.ofctl(self.switch, "--strict", "del-flows", _match(line))
        left = self._mend(doing)
        spec = {"operate": "resync", "switch": self.switch, "of": left}
        Put({"primitive": "act", "to": "controller", "spec": spec}, None if left else 0.0).do(doing)

    def _mend(self, doing: Doing) -> list[str]:
        """Heals faults that are in no other switch; returns the ids of the others."""
        site, left = doing.site, []
        before = [s["request"].get("spec", {}) for s in site.settings()]
        for name in mended(site, "flow resync", f"switch:{self.switch}"):
            injection, place = site.faults()[name]
            switches = {r.removeprefix("switch:") for r in injection.fault.resources(place) if r.startswith("switch:")}
            anew = {s["switch"] for s in before if s.get("operate") == "resync" and name in s["of"]}
            if switches - anew - {self.switch}:
                left.append(name)
            else:
                site.heal(name)
                doing.mended.append(name)
        return left


@dataclass(frozen=True)
class Restart(Step):
    """The controller's process is another one, unless it has just come back."""

    def do(self, doing: Doing) -> None:
        if not doing.mended:
            doing.site.flows_changed()  # it sends all of them again: what was counted by now is theirs
            doing.site.restart_controller()


@dataclass(frozen=True)
class Restarted(Step):
    """The job that is repeated begins anew, with this workload, when the action's time has passed."""

    workload: list[dict[str, Any]]

    def do(self, doing: Doing) -> None:
        job = doing.site.job
        assert job is not None
        before = job.workload()
        job.restart(self.workload, JOB_NS)
        if before != self.workload:
            doing.undo[:0] = [{"job": before}]


@dataclass(frozen=True)
class Flows(Step):
    """A change of a switch's flows by ovs-ofctl."""

    switch: str
    words: Sequence[str]
    nothing: str = ""
    """What to say if it changes nothing."""

    def do(self, doing: Doing) -> None:
        site = doing.site
        site.flows_changed()  # as above
        before = flows_of(site, self.switch)
        site.ofctl(self.switch, *self.words)
        after = flows_of(site, self.switch)
        site.flows_changed()
        new, gone = [f for f in after if f not in before], [f for f in before if f not in after]
        if new or gone:
            doing.undo[:0] = [{"flows": self.switch, "delete": [_match(f) for f in new], "add": gone}]
        elif self.nothing:
            doing.notes.append(self.nothing)


def flows_of(site: Site, switch: str) -> list[str]:
    """A switch's flows as add-flow takes them."""
    return [line.strip() for line in site.ofctl(switch, "--no-stats", "dump-flows").splitlines() if "actions=" in line]


def _cookie(flow: str) -> int:
    return int(flow.partition("cookie=")[2].partition(",")[0] or "0", 0)


def _match(flow: str) -> str:
    """What --strict needs to find the flow: all before its actions, without the cookie."""
    fields = flow.partition("actions=")[0].strip().rstrip(",").replace(", ", ",").split(",")
    return ",".join(field for field in fields if not field.startswith("cookie="))


@dataclass(frozen=True)
class ForGood(Step):
    """It cannot be taken back: why."""

    why: str

    def do(self, doing: Doing) -> None:
        doing.for_good.append(self.why)


@dataclass(frozen=True)
class Note(Step):
    text: str

    def do(self, doing: Doing) -> None:
        doing.notes.append(self.text)


def mended(site: Site, words: str, resource: str) -> list[str]:
    """The ids of the faults that an action of these words removes at a resource."""
    return [
        name
        for name, (injection, place) in site.faults().items()
        if words in injection.fault.mended_by and _covers(resource, injection.fault.resources(place))
    ]


def _covers(resource: str, at_fault: Iterable[str]) -> bool:
    """What is done to a whole switch is done to its ports."""
    return any(one == resource or one.startswith(f"{resource.replace('switch:', 'port:', 1)}:") for one in at_fault)


def take_back(site: Site, undo: Undo) -> list[str]:
    """Carries out what takes an action back; returns what had been taken back already."""
    missing = []
    for step in undo:
        request = dict(step)
        if "flows" in request:
            _put_flows_back(site, request)
            continue
        if "job" in request:
            assert site.job is not None
            site.job.restart(request["job"], JOB_NS)
            continue
        try:
            site.fabricd.request(request.pop("op"), **request)
        except FabricdSoAlready:
            missing.append(str(request["fault"]))
    return missing


def _put_flows_back(site: Site, change: Mapping[str, Any]) -> None:
    switch = change["flows"]
    site.flows_changed()
    for match in change["delete"]:
        site.ofctl(switch, "--strict", "del-flows", match)
    for flow in change["add"]:
        site.ofctl(switch, "add-flow", flow)
    site.flows_changed()


def undone(site: Site, doing: Doing) -> None:
    """As if nothing of an action had been done, as far as it can be taken back."""
    with suppress(FabricdError):
        take_back(site, doing.undo)
