"""Evaluates switches' flow tables in Python, and finds all paths that a packet can take through a fabric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network

from controllers.flows import Choose, Flow, Hash, Load, Output, Resubmit
from topologies import Fabric

Tables = Mapping[str, Sequence[Flow]]


def outputs(flows: Sequence[Flow], destination: IPv4Address) -> set[int]:
    """The ports that a switch may send an IPv4 packet out of, whatever the hash; empty: it drops it."""
    packet: dict[str, int | IPv4Address] = {"eth_type": 0x0800, "ipv4_dst": destination}
    return _lookup(flows, 0, packet)


def _lookup(flows: Sequence[Flow], table: int, packet: dict[str, int | IPv4Address]) -> set[int]:
    hits = [f for f in flows if f.table == table and _matches(f, packet)]
    assert len(hits) <= 1, f"flows overlap: {hits}"
    return {port for flow in hits for port in _run(flows, flow, packet)}


def _matches(flow: Flow, packet: Mapping[str, int | IPv4Address]) -> bool:
    for field, value in flow.match:
        if isinstance(value, tuple):
            if field not in packet or packet[field] not in IPv4Network("/".join(value)):
                return False
        elif packet.get(field) != value:
            return False
    return True


def _run(flows: Sequence[Flow], flow: Flow, packet: dict[str, int | IPv4Address]) -> set[int]:
    states, ports = [dict(packet)], set()
    for action in flow.actions:
        match action:
            case Output(port):
                ports.add(port)
            case Choose(ports=any_of):
                ports.update(any_of)
            case Hash(links, _):
                states = [{**state, "reg0": k} for state in states for k in range(links)]
            case Load(register, value):
                states = [{**state, f"reg{register}": value} for state in states]
            case Resubmit(table):
                reached = [_lookup(flows, table, state) for state in states]
                assert all(len(r) == 1 for r in reached), f"a link of {flow} leads nowhere"
                ports |= set().union(*reached)
            case _:
                raise AssertionError(f"{action} for an IPv4 packet")
    return ports


def walk(fabric: Fabric, tables: Tables, source: str, destination: IPv4Address) -> dict[str, set[int]]:
    """Every path of a packet from the NIC `source`: end -> the numbers of switches on the paths to it.

    An end is a NIC's name, or "drop SWITCH".  Fails on a loop.
    """
    first = fabric.cable_at[source, 1].other(source).node
    ends: dict[str, set[int]] = {}
    _step(fabric, tables, first, destination, (), ends)
    return ends


def _step(
    fabric: Fabric,
    tables: Tables,
    switch: str,
    destination: IPv4Address,
    path: tuple[str, ...],
    ends: dict[str, set[int]],
) -> None:
    assert switch not in path, f"loop to {destination}: {path} {switch}"
    path = (*path, switch)
    ports = outputs(tables[switch], destination)
    if not ports:
        ends.setdefault(f"drop {switch}", set()).add(len(path))
    for port in ports:
        node = fabric.cable_at[switch, port].other(switch).node
        if node in fabric.nic_by_name:
            ends.setdefault(node, set()).add(len(path))
        else:
            _step(fabric, tables, node, destination, path, ends)
