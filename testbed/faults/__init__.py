"""Injections: the registry of faults, and a fault with its target and times.

`CATALOGUE` has every fault by its name. `Injection` is one entry of an experiment's `inject:`, or what `testbed inject`
was told: a fault, its target, its times.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any, Self

from pydantic import ValidationError

from testbed.base import controls
from testbed.base.explain import explain
from testbed.base.types import unknown
from testbed.base.units import UnitError, format_time, parse_time
from testbed.faults import (
    adaptive,
    cable,
    congestion,
    credits,
    forwarding,
    host,
    loss,
    offload,
    paths,
    queue,
    trimming,
    verbs,
)
from testbed.faults.base import Fault, Place, Primitive
from testbed.faults.built import Built, CannotInject
from topologies.graph.fabric import Fabric, TopologyError
from topologies.graph.targets import CableTarget, resolve

GROUPS: dict[str, tuple[type[Fault], ...]] = {
    "Frames": loss.FAULTS,
    "Cables": cable.FAULTS,
    "Credits": credits.FAULTS,
    "Queues": queue.FAULTS,
    "Trimming": trimming.FAULTS,
    "Forwarding": forwarding.FAULTS,
    "Adaptive switches": adaptive.FAULTS,
    "Several paths": paths.FAULTS,
    "Offloads": offload.FAULTS,
    "Hosts": host.FAULTS,
    "Verbs": verbs.FAULTS,
    "Congestion": congestion.FAULTS,
}
CATALOGUE: dict[str, type[Fault]] = {cls.name: cls for faults in GROUPS.values() for cls in faults}
Found = tuple[tuple[str | int, ...], str, str]  # path, what, hint


class Mistakes(ValueError):
    """All that is wrong with an injection as it was written."""

    def __init__(self, found: list[Found]) -> None:
        super().__init__(found[0][1])
        self.found = found


_OWN = ("fault", "on", "at", "for", "every")


@dataclass(frozen=True)
class Injection:
    """`{fault: NAME, on: TARGET, at: TIME, for: TIME, every: TIME, PARAMETER: ..}`.

    Times are in ns; `lasts` (`for`) None: until it is healed.
    """

    fault: Fault
    on: str
    at: float = 0.0
    lasts: float | None = None
    every: float | None = None

    @classmethod
    def of(cls, value: Any) -> Self:
        """From what was written. Raises Mistakes."""
        if not isinstance(value, dict) or "fault" not in value:
            raise Mistakes([((), "an injection names its fault", "write {fault: NAME, on: TARGET, ...}")])
        name = value["fault"]
        if name not in CATALOGUE:
            raise Mistakes([(("fault",), *unknown("fault", name, list(CATALOGUE)))])
        kind = CATALOGUE[name]
        mistakes: list[Found] = []
        if not isinstance(value.get("on"), str):
            hint = f"on: TARGET, of these kinds: {', '.join(kind.on)}"
            mistakes.append((("on",), f"where does {name} strike?", hint))
        times: dict[str, float | None] = {}
        for key in ("at", "for", "every"):
            try:
                times[key] = None if value.get(key) is None else parse_time(value[key])
            except UnitError as error:
                mistakes.append(((key,), error.what, error.hint))
        lasts, every = times.get("for"), times.get("every")
        if every is not None and (lasts is None or not 0 < lasts < every):
            mistakes.append((("every",), "`every` needs `for`, shorter than it", "such as 1ms of every 10ms"))
        given = {k: v for k, v in value.items() if k not in _OWN}
        try:
            fault = kind.model_validate(given)
        except ValidationError as error:
            mistakes += explain(error, kind, lambda path: given.get(path[0]) if path else given)
        if mistakes:
            raise Mistakes(mistakes)
        return cls(fault, value["on"], times.get("at") or 0.0, lasts, every)

    def written(self) -> dict[str, Any]:
        """As it stands in the file, every parameter written out."""
        times = {"at": self.at, "for": self.lasts, "every": self.every}
        given = {key: format_time(t) for key, t in times.items() if t is not None}
        return {"fault": self.fault.name, "on": self.on, **given, **self.fault.model_dump(mode="json", by_alias=True)}

    def line(self) -> str:
        """As it stands behind `testbed inject`, without what is default anyway."""
        times = {"at": self.at or None, "for": self.lasts, "every": self.every}
        words = [self.fault.name, "--on", self.on]
        for key, time in times.items():
            words += [f"--{key}", format_time(time)] if time is not None else []
        for key, value in self.fault.model_dump(mode="json", by_alias=True, exclude_defaults=True).items():
            option, no = key.replace("_", "-"), "" if value else "no-"
            words += [f"--{no}{option}"] if isinstance(value, bool) else [f"--{option}", _word(value)]
        return shlex.join(words)

    def place(
        self, fabric: Fabric, line_rate_bps: float = 400e9, seed: int = 1, cc: str | None = None,
        built: Built | None = None,
    ) -> Place:  # fmt: skip
        """Where it strikes. Raises CannotInject."""
        try:
            target = resolve(fabric, self.on)
        except TopologyError as error:
            raise CannotInject(f"{error.key}: {error.what}", error.hint) from None
        backwards = isinstance(target, CableTarget) and fabric.named_backwards(self.on.partition(":")[2].strip())
        place = Place(fabric, target, line_rate_bps, seed, cc, backwards, built=built)
        if self.fault.only_on and fabric.kind not in self.fault.only_on:
            kinds = ", ".join(sorted(self.fault.only_on))
            raise CannotInject(f"{self.fault.name} is not for a {fabric.kind}", f"it is for: {kinds}")
        if built is not None and self.fault.adaptive not in (None, built.adaptive):
            what = "is for switches " + ("whose chips choose" if self.fault.adaptive else "that hash by their rules")
            hint = f"control: {{routing: {'adaptive' if self.fault.adaptive else 'ecmp'}}}"
            raise CannotInject(f"{self.fault.name} {what}", hint)
        if built is not None and self.fault.trims and built.trimmed_dscp is None:
            raise CannotInject(f"{self.fault.name} is for switches that trim", "fabric: {switch: {trimming: {}}}")
        if built is not None and self.fault.sprays and not built.sprays:
            what = "is for NICs whose packets choose their path"
            raise CannotInject(f"{self.fault.name} {what}", "transport: {multipath: {policy: reps}}")
        if self.fault.grants and cc is not None and not controls.gives_credit(cc):
            hint = f"transport.cc: one of {', '.join(controls.of_credit())}"
            raise CannotInject(f"{self.fault.name} is for controls with credit, and the NICs run {cc}", hint)
        if place.kind not in self.fault.on:
            hint = f"it strikes: {', '.join(self.fault.on)}"
            raise CannotInject(f"{self.fault.name} does not strike a {place.kind}", hint)
        of_credits = self.fault.cable_credits
        if built is not None and of_credits is not None and of_credits not in built.under_credits(place.cables()):
            kept, other = ("pauses", "credits") if of_credits else ("credits", "pauses")
            hint = f"fabric: {{cable: {{flow_control: {'credits' if of_credits else 'pfc'}}}}}"
            raise CannotInject(f"{place.target} has {kept}, and {self.fault.name} is for {other}", hint)
        return place

    def requests(self, place: Place, name: str, *, now_ns: float = 0.0) -> list[dict[str, Any]]:
        """fabricd's `inject` requests, with ids NAME, NAME.1 ..; `at` counts from `now_ns`. Raises CannotInject."""
        times: dict[str, Any] = {"at_ns": now_ns + self.at}
        if self.lasts is not None:
            times["for_ns"] = self.lasts
        if self.every is not None:
            times["every_ns"] = self.every
        parts = self.fault.primitives(place)
        if place.built is not None:
            self.fault.makes_worse(place, place.built)
        about = self.written()
        return [{**p, **times, "fault": name if k == 0 else f"{name}.{k}", "about": about} for k, p in enumerate(parts)]


def _word(value: Any) -> str:
    """A parameter's value as one word: lists with commas, what has no simpler form as JSON, which is YAML."""
    if isinstance(value, list) and not any(isinstance(one, dict | list) for one in value):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)


def check(injection: Injection, fabric: Fabric, cc: str, built: Built) -> None:
    """Whether it fits the fabric, what that is built of, and its NICs' congestion control. Raises CannotInject."""
    injection.requests(injection.place(fabric, cc=cc, built=built), "f")


__all__ = ["CATALOGUE", "GROUPS", "CannotInject", "Fault", "Injection", "Mistakes", "Place", "Primitive", "check"]
