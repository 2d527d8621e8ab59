"""Jobs: what the controller places in the network for ranks whose collectives are offloaded.

An aggregation job gets a tree of accelerators with slots on each, flows that lead contributions to them, and at every
switch of the tree a group table that copies results to whoever is below.  A multicast job gets the groups alone, which
copy from any member to all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

from controllers.flows import ETH_IPV4, PRIORITY, ROUTE, Flow, Output, Replicate
from controllers.trees import NoTree, Tree, Trees
from topologies.fabric import Fabric

GROUPS = int(IPv4Address("239.0.0.0"))
"""Multicast address of a job: this and its number."""

SLOTS, ELEMENTS = 0, 1  # arguments of an aggregation job


class Refused(ValueError):
    """The job cannot be placed; the text says why."""


@dataclass
class Placement:
    """What a job needs: flows by switch, programs for accelerators, and what fabricd is answered."""

    flows: dict[str, list[Flow]] = field(default_factory=dict)
    programs: list[dict[str, Any]] = field(default_factory=list)
    answer: dict[str, Any] = field(default_factory=dict)

    def lead(self, switch: str, address: int, action: Output | Replicate) -> None:
        match = (("eth_type", ETH_IPV4), ("ipv4_dst", (str(IPv4Address(address)), "255.255.255.255")))
        flow = Flow(ROUTE, PRIORITY + 10, match, (action,))
        flows = self.flows.setdefault(switch, [])
        if flow not in flows:
            flows.append(flow)


def place(fabric: Fabric, trees: Trees, job: Mapping[str, Any]) -> Placement:
    """Where a job goes. Raises Refused."""
    known = KINDS.get(job["kind"])
    if known is None:
        raise Refused(f"unknown kind of job {job['kind']!r}")
    try:
        placement = known(fabric, trees, job)
    except NoTree as error:
        raise Refused(str(error)) from None
    placement.answer["rules"] = {switch: len(flows) for switch, flows in sorted(placement.flows.items())}
    return placement


def _multicast(fabric: Fabric, trees: Trees, job: Mapping[str, Any]) -> Placement:
    group = GROUPS + int(job["job"])
    tree = trees.tree(job["ranks"], int(job["job"]))
    placement = Placement(answer={"group_ip": group, "root": tree.root})
    for switch in tree.switches:
        placement.lead(switch, group, Replicate(tree.ports(switch)))
    return placement


def _aggregate(fabric: Fabric, trees: Trees, job: Mapping[str, Any]) -> Placement:
    ranks: Sequence[int] = job["ranks"]
    pools: Mapping[str, Mapping[str, Any]] = job["accelerators"]
    if not pools:
        raise Refused("no switch has an accelerator")
    tree = trees.tree(ranks, int(job["job"]), frozenset(pools))
    adding = tree.adding
    slots = _slots(job, tree, pools)
    group = GROUPS + int(job["job"])
    placement = Placement(answer={"slots": slots, "group_ip": group, "root": tree.root, "tree": list(adding)})
    children = {switch: _children(tree, switch) for switch in adding}
    parents: dict[int, tuple[int, int]] = {}
    for switch in adding:
        for number, child in enumerate(children[switch]):
            if isinstance(child, int):
                parents[child] = (_address(fabric, switch), number)
    for switch in adding:
        _program(fabric, trees, placement, job, tree, switch, children, slots, group)
    for rank in ranks:
        nic = fabric.nics[rank]
        _steer(fabric, trees, placement, fabric.cable_at[nic.name, 1].other(nic.name).node, parents[rank][0])
    for switch in tree.switches:
        placement.lead(switch, group, Replicate(tree.down_ports(switch)))
    placement.answer["parents"] = [list(parents[rank]) for rank in ranks]
    return placement


KINDS: dict[str, Callable[[Fabric, Trees, Mapping[str, Any]], Placement]] = {
    "aggregate": _aggregate,
    "multicast": _multicast,
}


def _slots(job: Mapping[str, Any], tree: Tree, pools: Mapping[str, Mapping[str, Any]]) -> int:
    """How many slots the job gets: what it wants, or as many as are free all over its tree. Raises Refused."""
    wanted, elements = job["args"][SLOTS], job["args"][ELEMENTS]
    for switch in tree.adding:
        if switch not in pools:
            raise Refused(f"{switch} has no accelerator")
        if elements > pools[switch]["elements"]:
            most = pools[switch]["elements"]
            raise Refused(f"{switch}'s accelerator adds {most} elements of a packet, not {elements}")
        if len(_children(tree, switch)) > pools[switch]["fan_in"]:
            contributors = len(_children(tree, switch))
            raise Refused(
                f"{switch}'s accelerator has a bitmap of {pools[switch]['fan_in']} bits, not of {contributors}"
            )
    scarce = min(tree.adding, key=lambda switch: pools[switch]["slots_free"])
    free = pools[scarce]["slots_free"]
    if not free:
        raise Refused(f"{scarce}'s accelerator has no slot free of {pools[scarce]['slots']}")
    return min(int(wanted), int(free))


def _children(tree: Tree, switch: str) -> list[int | str]:
    """Who contributes there: ranks, and switches that add up, by port. A switch that does not is passed through."""
    found: dict[int, list[int | str]] = {port: [rank] for port, rank in tree.ranks[switch].items()}
    for port, below in tree.below[switch].items():
        found[port] = [below] if below in tree.adding else _children(tree, below)
    return [child for port in sorted(found) for child in found[port]]


def _address(fabric: Fabric, switch: str) -> int:
    return int(fabric.switch_by_name[switch].accelerator_ip)


def _steer(fabric: Fabric, trees: Trees, placement: Placement, switch: str, address: int) -> None:
    """Flows that lead from a switch to an accelerator."""
    target = fabric.switches[address - int(fabric.switches[0].accelerator_ip)]
    for hop, port in trees.way(switch, target.name):
        placement.lead(hop, address, Output(port))
    assert target.accelerator_port is not None
    placement.lead(target.name, address, Output(target.accelerator_port))


def _program(
    fabric: Fabric,
    trees: Trees,
    placement: Placement,
    job: Mapping[str, Any],
    tree: Tree,
    switch: str,
    children: Mapping[str, list[int | str]],
    slots: int,
    group: int,
) -> None:
    program: dict[str, Any] = {"op": "accelerator_program", "switch": switch, "job": job["job"], "slots": slots}
    program |= {"group_ip": group, "children": []}
    for child in children[switch]:
        if isinstance(child, int):
            program["children"].append({"ip": int(fabric.nics[child].ip)})
            continue
        program["children"].append({"ip": _address(fabric, child), "accelerator": True})
        _steer(fabric, trees, placement, switch, _address(fabric, child))  # answers to it alone
    if switch != tree.root:
        above = tree.parent(switch)
        program["parent"] = {"ip": _address(fabric, above), "child": children[above].index(switch)}
        _steer(fabric, trees, placement, switch, _address(fabric, above))
    placement.programs.append(program)
