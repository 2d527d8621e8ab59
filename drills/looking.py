"""A world as the student's views show it: what they may tell, and old counters that a drill adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from drills.sheet.drill import OldCounter, Views
from drills.stage import Stage
from testbed.live.look.look import Look, Sight
from testbed.live.views.drops import drops
from testbed.world.history import Snapshots
from testbed.world.source import OfWorld
from topologies.graph.fabric import Fabric
from topologies.graph.targets import CableTarget, PortTarget, resolve

_SHOWN = ("crc", "acl", "meter")
"""Counters of operators under which losses of faults are shown (testbed/live/views/ports.py)."""


class Seen(OfWorld):
    """A `Source` of views (testbed/live/look/look.py)."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(cast(Any, stage.world))
        self._stage = stage
        self._old = tuple(_old(stage.drawn.old, stage.world.fabric))

    @property
    def fabric(self) -> Fabric:
        return self._stage.world.fabric

    def counters(self) -> dict[str, Any]:
        return self._with_old(super().counters())

    def history(self) -> Sequence[tuple[int, dict[str, Any]]]:
        kept = super().history()

        def one(index: int) -> tuple[int, dict[str, Any]]:
            time_ns, counters = kept[index]
            return time_ns, self._with_old(counters)

        return Snapshots(len(kept), one)

    def _with_old(self, counters: dict[str, Any]) -> dict[str, Any]:
        if not self._old:
            return counters
        ports = {(port["node"], port["port"]): dict(port) for port in counters["ports"]}
        shown = {(row["node"], row["port"]): dict(row) for row in counters.get("shown", ())}
        for node, number, counter, value in self._old:
            if (port := ports.get((node, number))) is None:
                continue
            if counter in _SHOWN:  # views read it there, beside losses that a fault makes now
                row = shown.setdefault((node, number), {"node": node, "port": number})
                row[counter] = row.get(counter, 0) + value
                _add(port, "fault", value)
            else:
                _add(port, counter, value)
        return {**counters, "ports": list(ports.values()), "shown": list(shown.values())}


def look(seen: Seen, views: Views) -> Look:
    """As much of the world as the drill lets one see, now."""
    now = seen.counters()
    before = next((c for t, c in reversed(seen.history()) if t < float(now["time_ns"])), None)
    return Look(seen, now, before, None, Sight(views.drops, views.config))


class Counted:
    """A world for conditions of `until`: they count only drops that the student's views show."""

    def __init__(self, seen: Seen, views: Views, world: Any) -> None:
        self._seen, self._views, self._world = seen, views, world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def counters(self) -> dict[str, Any]:
        now = self._seen.counters()
        (table,) = drops(Look(self._seen, now, None, None, Sight(self._views.drops, self._views.config)))
        return {**now, "drops": table.rows}


def _old(counters: Sequence[OldCounter], fabric: Fabric) -> Iterator[tuple[str, int, str, int]]:
    for old in counters:
        target = resolve(fabric, old.on)
        if isinstance(target, PortTarget):
            yield target.switch.name, target.port, old.counter, old.value
        elif isinstance(target, CableTarget):
            for end in (target.cable.a, target.cable.b):
                yield end.node, end.port, old.counter, old.value


def _add(port: dict[str, Any], counter: str, value: int) -> None:
    """To a counter of a port, else to its drops for this reason."""
    if isinstance(port.get(counter), int):
        port[counter] += value
    else:
        reasons = port.get("drops", {})
        port["drops"] = {**reasons, counter: reasons.get(counter, 0) + value}
