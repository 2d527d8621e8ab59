"""What an operator asks of the controller: to lead around ports, to hash otherwise, to have a dateline, to write a
switch's table anew.

Such requests come as faults do (fabricd's `act`), with `operate` in their spec, and count while they are on.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from controllers.flows import Flow, Hash
from topologies.graph.fabric import Cable, Fabric

PortName = tuple[str, int]
Tables = dict[str, list[Flow]]
DRAIN, HASH, RESYNC, DATELINE = "drain", "hash", "resync", "dateline"
OPERATE = "operate"


class Operator:
    """The requests that are on, by id, in their order."""

    def __init__(self, fabric: Fabric) -> None:
        self.requests: dict[str, Mapping[str, Any]] = {}
        self._fabric = fabric

    def set(self, name: str, spec: Mapping[str, Any], on: bool) -> None:
        self.requests.pop(name, None)
        if on:
            self.requests[name] = spec

    def around(self, avoid: Set[PortName]) -> Set[PortName]:
        """What routes go around, with all that is drained. A drain that would cut a NIC off does not count."""
        for spec in self._of(DRAIN):
            wider = avoid | {(str(node), int(port)) for node, port in spec["ports"]}
            if _pairs(self._fabric, self._cables(wider)) == _pairs(self._fabric, self._cables(avoid)):
                avoid = wider
        return avoid

    def hashed(self, tables: Tables) -> Tables:
        """The tables with the seeds that were set."""
        for spec in self._of(HASH):
            tables = {**tables, spec["switch"]: [_with_seed(f, int(spec["seed"])) for f in tables[spec["switch"]]]}
        return tables

    def dateline(self) -> bool | None:
        """Whether there is to be one; None: as the fabric was made."""
        return next((bool(spec["state"]) for spec in reversed(self._of(DATELINE))), None)

    def spared(self, fault: str, spec: Mapping[str, Any]) -> frozenset[str]:
        """The switches that a fault does not change: their tables were written anew after it had come, or it is
        configured away."""
        if spec.get("forwarding") == "dateline_off" and self.dateline():
            return frozenset(self._fabric.switch_by_name)
        return frozenset(str(spec["switch"]) for spec in self._of(RESYNC) if fault in spec["of"])

    def _of(self, kind: str) -> list[Mapping[str, Any]]:
        return [spec for spec in self.requests.values() if spec[OPERATE] == kind]

    def _cables(self, ports: Set[PortName]) -> frozenset[Cable]:
        return frozenset(self._fabric.cable_at[port] for port in ports if port in self._fabric.cable_at)


def about(spec: Mapping[str, Any]) -> str:
    """A request in words, for the log."""
    place = spec.get("place") or spec.get("switch", "")
    state = "on" if spec.get("state") else "off"
    words = {DRAIN: "drained", HASH: f"hashes by {spec.get('seed')}", RESYNC: "written anew", DATELINE: state}
    return f"{place} {words[spec[OPERATE]]}"


def _with_seed(flow: Flow, seed: int) -> Flow:
    return replace(flow, actions=tuple(replace(a, basis=seed) if isinstance(a, Hash) else a for a in flow.actions))


def _pairs(fabric: Fabric, without: frozenset[Cable]) -> int:
    """How many pairs of NICs reach each other without these cables."""
    neighbours: dict[str, list[str]] = {}
    for cable in fabric.cables:
        if cable not in without:
            neighbours.setdefault(cable.a.node, []).append(cable.b.node)
            neighbours.setdefault(cable.b.node, []).append(cable.a.node)
    left, pairs = {nic.name for nic in fabric.nics}, 0
    while left:
        queue = [left.pop()]
        seen = set(queue)
        for node in queue:
            unseen = [far for far in neighbours.get(node, ()) if far not in seen]
            seen.update(unseen)
            queue += unseen
        part = len(left & seen) + 1
        left -= seen
        pairs += part * (part - 1)
    return pairs
