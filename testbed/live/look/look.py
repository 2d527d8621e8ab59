"""A look at a fabric that is up: counters now, a moment ago and since when; whatever else a view reads, on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

from testbed.base.errors import InputError
from testbed.base.units import format_time
from testbed.live.look.events import in_order
from testbed.live.look.since import since
from testbed.live.look.steps import Step
from testbed.live.look.table import Counters
from testbed.operate.record import Done
from testbed.words.kinds import Since, Wrong
from topologies.graph.fabric import Fabric


@dataclass(frozen=True)
class Sight:
    """How much one may see: what a drop tells, and whether the configuration shown is the one in force."""

    drops: Literal["all", "wjh", "counters", "asic"] = "all"
    """`all`: also that a fault did it; `wjh` (what just happened): port, reason, last header; `counters`: port and
    reason; `asic`: no drop shows, only that less came in at one end of a cable than went out at the other."""
    config: Literal["true", "golden"] = "true"
    """`golden`: as it was meant to be, by file and operator, not as it is."""


class Source(Protocol):
    """A fabric that can be looked at: a live one, or a world at a hold."""

    @property
    def fabric(self) -> Fabric: ...
    @property
    def experiment(self) -> Mapping[str, Any]:
        """As `testbed show experiment --json`."""
        ...

    def counters(self) -> Counters: ...
    def history(self) -> Sequence[tuple[float, Counters]]:
        """Counters that were kept, by emulated time, the oldest first."""
        ...

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        """A request to fabricd that changes nothing."""
        ...

    def flows(self) -> list[dict[str, Any]]:
        """The rules in the switches' flow tables, with what each has counted."""
        ...

    def steps(self) -> Sequence[Step] | None:
        """The steps that have ended of a job that is repeated; None if there is no such job."""
        ...

    def cpus(self) -> list[dict[str, Any]] | None:
        """What each rank's programs have had of the CPUs; None with the virtual clock, which knows none."""
        ...

    def actions(self) -> Sequence[Done]: ...


@dataclass(frozen=True)
class Look:
    """Counters `now`, a moment `before` (for rates), and those that are not to count, because they are from `then`."""

    source: Source
    now: Counters
    before: Counters | None = None
    then: Counters | None = None
    sight: Sight = Sight()

    @cached_property
    def counts(self) -> Counters:
        """The counters since `then`; watermarks and states as they are."""
        return since(self.now, self.then)

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """Of switches, ports, NICs, cables, as `sight` has them: in force, or as they were meant to be."""
        return self.source.request("parameters", meant=self.sight.config == "golden")

    @cached_property
    def faults(self) -> list[dict[str, Any]]:
        """fabricd's list of what lies over the hardware: faults, and what an operator has set (`operator`)."""
        found: list[dict[str, Any]] = self.source.request("faults")["faults"]
        return found

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """fabricd's log: its last events, with emulated times."""
        return in_order(self.source.request("log")["events"])

    @cached_property
    def shown(self) -> dict[tuple[str, int], Mapping[str, Any]]:
        """What an operator's counters call injected losses, by port."""
        return {(row["node"], row["port"]): row for row in self.counts.get("shown", ())}

    @property
    def fabric(self) -> Fabric:
        return self.source.fabric

    @property
    def time_ns(self) -> float:
        return float(self.now["time_ns"])

    @property
    def passed_ns(self) -> float:
        """Emulated time since `then`, or since the fabric came up."""
        return self.time_ns - (float(self.then["time_ns"]) if self.then else 0.0)

    def changed(self, moment: Since) -> Look:
        """The same, counting from that moment on. Raises InputError for one that no counters were kept of."""
        try:
            ns = moment.at(self.time_ns)
        except Wrong as wrong:
            raise InputError(wrong.what, "SINCE", wrong.hint) from None
        if ns <= 0:
            return replace(self, then=None)
        kept = self.source.history()
        older = [counters for time_ns, counters in kept if time_ns <= ns]
        if older:
            return replace(self, then=older[-1], before=older[-1])
        what = f"no counters were kept at {format_time(ns)}"
        if kept:
            first = format_time(kept[0][0])
            raise InputError(what, "SINCE", f"the oldest are of @{first}; @0ns counts from when the fabric came up")
        hint = "this fabric keeps no history: -c counts from now on; @0ns is when it came up"
        raise InputError(what, "SINCE", hint)
