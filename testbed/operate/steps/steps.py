"""The steps that actions are made of. Each is carried out at once, and says how it is taken back, as plain data.

`Put` lays a setting over everything else, `Take` removes settings, `Mend` removes faults for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hardware.client import FabricdError
from testbed.operate.steps.site import Site

Undo = list[dict[str, Any]]
"""Requests to fabricd (`op`), or a change of flows (`flows`), in the order in which they are to be made."""


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
class ForGood(Step):
    """It cannot be taken back: why."""

    why: str

    def do(self, doing: Doing) -> None:
        doing.for_good.append(self.why)


@dataclass(frozen=True)
class Note(Step):
    """Something that the operator is told."""

    text: str

    def do(self, doing: Doing) -> None:
        doing.notes.append(self.text)


def mended(site: Site, words: str, resource: str) -> list[str]:
    """The ids of the faults that an action of these words removes at a resource."""
    return [
        name
        for name, (injection, place) in site.faults().items()
        if words in injection.fault.mended_by and _there(resource, injection.fault.resources(place))
    ]


def _there(resource: str, at_fault: Iterable[str]) -> bool:
    """What is done to a whole switch is done to its ports."""
    return any(one == resource or one.startswith(f"{resource.replace('switch:', 'port:', 1)}:") for one in at_fault)


def take_back(site: Site, undo: Undo) -> list[str]:
    """Carries out what takes an action back; returns what had been taken back already."""
    gone = []
    for one in undo:
        request = dict(one)
        try:
            site.fabricd.request(request.pop("op"), **request)
        except FabricdError as error:
            if "no fault of that id" not in str(error) and "one of that id" not in str(error):
                raise
            gone.append(str(request["fault"]))
    return gone


def undone(site: Site, doing: Doing) -> None:
    """As if nothing of an action had been done, as far as it can be taken back."""
    with suppress(FabricdError):
        take_back(site, doing.undo)
