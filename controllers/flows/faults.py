"""Forwarding faults: wrong flows in the switches.

Each is a function from the right flows to the wrong ones.  The controller always starts from the right ones and applies
all injected faults in order, so healing a fault leaves exactly the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from controllers.flows import (
    ETH_IPV4,
    MEMBER,
    PRIORITY,
    ROUTE,
    Action,
    Choose,
    Flow,
    Hash,
    MatchValue,
    Output,
    Return,
    SetDscp,
    as_often,
    hashed,
    members,
    replications,
)
from topologies.graph.fabric import Fabric

Tables = dict[str, list[Flow]]
ABOVE = PRIORITY + 50


class FaultError(ValueError):
    """The fault cannot be put in; the text says why."""


@dataclass(frozen=True)
class ForwardingFault:
    """A kind of wrong flows: `apply(fabric, tables, spec)` gives the tables with it."""

    name: str
    summary: str
    apply: Callable[[Fabric, Tables, Mapping[str, Any]], Tables]


def _changed(tables: Tables, switch: str, flows: list[Flow]) -> Tables:
    return {**tables, switch: flows}


def _address(fabric: Fabric, spec: Mapping[str, Any]) -> IPv4Address:
    return fabric.nics[int(spec["to"])].ip


def _leads_to(flow: Flow, address: IPv4Address) -> bool:
    match = dict(flow.match)
    destination = match.get("ipv4_dst")
    if flow.table != ROUTE or not isinstance(destination, tuple):
        return False
    return address in IPv4Network("/".join(destination))


def _only(address: IPv4Address, *actions: Any) -> Flow:
    match: tuple[tuple[str, MatchValue], ...] = (
        ("eth_type", ETH_IPV4),
        ("ipv4_dst", (str(address), "255.255.255.255")),
    )
    return Flow(ROUTE, ABOVE, match, actions)


def _missing(fabric: Fabric, tables: Tables, spec: Mapping[str, Any]) -> Tables:
    address = _address(fabric, spec)
    kept = [f for f in tables[spec["switch"]] if not _leads_to(f, address)]
    return _changed(tables, spec["switch"], kept)


def _shadow(fabric: Fabric, tables: Tables, spec: Mapping[str, Any]) -> Tables:
    return _changed(tables, spec["switch"], [*tables[spec["switch"]], _only(_address(fabric, spec))])


def _wrong_port(fabric: Fabric, tables: Tables, spec: Mapping[str, Any]) -> Tables:
    flow = _only(_address(fabric, spec), Output(spec["port"]))
    return _changed(tables, spec["switch"], [*tables[spec["switch"]], flow])


def _loop(fabric: Fabric, tables: Tables, spec: Mapping[str, Any]) -> Tables:
    """Two neighbours send a destination's frames to each other."""
    one, other, address = spec["switch"], spec["with"], _address(fabric, spec)
    cable = next((c for c in fabric.cables if {c.a.node, c.b.node} == {one, other}), None)
    if cable is None:
        raise FaultError(f"{one} and {other} are no neighbours")
    for switch in (one, other):
        port = cable.end(switch).port
        forth, back = _only(address, Output(port)), _only(address, Return())
        back = replace(back, priority=ABOVE + 1, match=(*back.match, ("in_port", port)))
        tables = _changed(tables, switch, [*tables[switch], forth, back])
    return tables


def _dead_member(fabric: Fabric, tables: Tables, spec: Mapping[str, Any]) -> Tables:
    """Frames that are hashed onto a port are dropped; the hash still chooses it."""
    dead = (Output(spec["port"]),)
    flows = [replace(f, actions=()) if f.table == MEMBER and f.actions == dead else f for f in tables[spec["switch"]]]
    if flows == tables[spec["switch"]]:
        raise FaultError(f"{spec['switch']} hashes nothing onto port {spec['port']}")
    return _changed(tables, spec["switch"], flows)


def _polarised(fabric: Fabric, tables: Tables, spec: Mapping[str, Any]) -> Tables:
    """All switches hash alike: frames that took one link of the first switch all take one link of the second."""

    def alike(flow: Flow) -> Flow:
        return replace(flow, actions=tuple(replace(a, basis=0) if isinstance(a, Hash) else a for a in flow.actions))

    return {switch: [alike(f) for f in flows] for switch, flows in tables.items()}


def _table_full(fabric: Fabric, tables: Tables, spec: Mapping[str, Any]) -> Tables:
    """The switch takes so many flows and refuses the rest."""
    return _changed(tables, spec["switch"], tables[spec["switch"]][: spec["flows"]])


def _partial(fabric: Fabric, tables: Tables, spec: Mapping[str, Any]) -> Tables:
    """Only so large a share of the flows was written before the connection broke."""
    flows = tables[spec["switch"]]
    return _changed(tables, spec["switch"], flows[: int(len(flows) * spec["share"])])


def _hashed(fabric: Fabric, tables: Tables, spec: Mapping[str, Any]) -> Tables:
    """A switch that hashes over the ports of which the others take one."""
    basis, flows, used = fabric.switch_by_name[spec["switch"]].dpid, list[Flow](), set[tuple[int, ...]]()
    for flow in tables[spec["switch"]]:
        sets = [action for action in flow.actions if isinstance(action, Choose)]
        equal = tuple(sorted(set(sets[0].ports))) if sets else ()
        used |= {equal} - {()}
        flows.append(replace(flow, actions=hashed(equal, basis)) if sets else flow)
    return _changed(tables, spec["switch"], [*flows, *(member for ports in sorted(used) for member in members(ports))])


def _group_weights(fabric: Fabric, tables: Tables, spec: Mapping[str, Any]) -> Tables:
    """One port weighs several times what the others of its sets do."""

    def heavier(action: Action) -> Action:
        if not isinstance(action, Choose) or spec["port"] not in action.ports:
            return action
        return Choose(as_often(sorted(set(action.ports)), lambda port: spec["weight"] if port == spec["port"] else 1))

    flows = [replace(f, actions=tuple(heavier(a) for a in f.actions)) for f in tables[spec["switch"]]]
    if flows == tables[spec["switch"]]:
        raise FaultError(f"{spec['switch']} has no set of ports with port {spec['port']}")
    return _changed(tables, spec["switch"], flows)


def _missing_group(fabric: Fabric, tables: Tables, spec: Mapping[str, Any]) -> Tables:
    """As when its group tables are deleted: the flows that use them go, too."""
    return _changed(tables, spec["switch"], [f for f in tables[spec["switch"]] if not replications([f])])


def _dateline_off(fabric: Fabric, tables: Tables, spec: Mapping[str, Any]) -> Tables:
    """Data stays in the class that it has come in: what wraps around is not told from the rest."""
    return {
        switch: [f for f in flows if not any(isinstance(a, SetDscp) for a in f.actions)]
        for switch, flows in tables.items()
    }


KINDS: dict[str, ForwardingFault] = {
    f.name: f
    for f in (
        ForwardingFault("missing", "the entry for a destination is missing", _missing),
        ForwardingFault("shadow", "a rule of higher priority drops a destination's frames", _shadow),
        ForwardingFault("wrong_port", "a destination's frames leave by a wrong port", _wrong_port),
        ForwardingFault("loop", "two switches send a destination's frames to each other", _loop),
        ForwardingFault("dead_member", "one member of an ECMP group drops what it gets", _dead_member),
        ForwardingFault("polarised", "all switches hash alike", _polarised),
        ForwardingFault("hashed", "a switch hashes over the ports of which the others take one", _hashed),
        ForwardingFault("group_weights", "one port of a set weighs more than the others", _group_weights),
        ForwardingFault("table_full", "a switch refuses flows beyond a number", _table_full),
        ForwardingFault("missing_group", "the group tables that copy are missing", _missing_group),
        ForwardingFault("dateline_off", "what wraps around stays in the class of all others", _dateline_off),
        ForwardingFault("partial", "only a part of a switch's flows was written", _partial),
    )
}


def apply(fabric: Fabric, tables: Tables, faults: Iterable[tuple[Mapping[str, Any], Set[str]]]) -> Tables:
    """The tables with all these faults in them, each but in the switches that it spares. Raises FaultError."""
    for spec, spared in faults:
        kind = KINDS.get(spec.get("forwarding", ""))
        if kind is None:
            raise FaultError(f"unknown forwarding fault {spec.get('forwarding')!r}")
        if "switch" in spec and spec["switch"] not in tables:
            raise FaultError(f"there is no switch {spec['switch']!r}")
        right = {switch: tables[switch] for switch in spared}
        tables = {**kind.apply(fabric, tables, spec), **right}
    return {switch: _one_of_each_match(flows) for switch, flows in tables.items()}


def refusals(fabric: Fabric, tables: Tables, spec: Mapping[str, Any]) -> str:
    """What a controller reads of it in error messages; empty: the switch sends none."""
    if spec.get("forwarding") != "table_full" or spec.get("switch") not in tables:
        return ""
    refused = len(tables[spec["switch"]]) - len(_table_full(fabric, tables, spec)[spec["switch"]])
    message = f"{spec['switch']} refused {refused} flow mods: OFPET_FLOW_MOD_FAILED(5), OFPFMFC_TABLE_FULL(1)"
    return message if refused else ""


def _one_of_each_match(flows: list[Flow]) -> list[Flow]:
    """A switch has one flow for each match: of two the last one is kept."""
    return list({(flow.table, flow.priority, flow.match): flow for flow in flows}.values())
