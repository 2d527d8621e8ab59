"""Jobs: what the controller places in the network for offloaded collectives.

An aggregation job gets a tree of accelerators with slots on each, flows that lead contributions to them, and at every
switch of the tree a group table that copies results to whoever is below.  A best-effort job gets no slots, but leave to
use those that its switches share: on the way from its ranks to its parameter server, the host of the first.  A
multicast job gets the groups alone, which copy from any member to all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

from controllers.flows import ETH_IPV4, PRIORITY, ROUTE, Flow, Output, Replicate
from controllers.offload.trees import NOT_USED, NoTree, Tree, Trees, Used
from topologies.graph.fabric import Cable, Fabric

GROUPS = int(IPv4Address("239.0.0.0"))
"""Multicast address of a job: this and its number; of its further trees: of the networks below, 238.0.0.0 and so on."""
BELOW = 1 << 24

SLOTS, ELEMENTS, TIMEOUT_PS = 0, 1, 2  # arguments of an aggregation job
TREES = 1  # argument of a multicast job: how many; 0: one


class JobRefused(ValueError):
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

    def cables(self, fabric: Fabric) -> Iterator[Cable]:
        """Those of its tree, over which sums come down."""
        for switch, flows in self.flows.items():
            for action in (action for flow in flows for action in flow.actions if isinstance(action, Replicate)):
                yield from (fabric.cable_at[switch, p] for p in action.ports if (switch, p) in fabric.cable_at)


def place(fabric: Fabric, trees: Trees, job: Mapping[str, Any], used: Used = NOT_USED) -> Placement:
    """Places a job; its `roots` are those that it has, if it has any.  `used`: by other jobs.  Raises Refused."""
    place_kind = KINDS.get(job["kind"])
    if place_kind is None:
        raise JobRefused(f"unknown kind of job {job['kind']!r}")
    try:
        placement = place_kind(fabric, trees, job, used)
    except NoTree as error:
        raise JobRefused(str(error)) from None
    placement.answer["rules"] = {switch: len(flows) for switch, flows in sorted(placement.flows.items())}
    return placement


def place_anew(
    fabric: Fabric, trees: Trees, job: Mapping[str, Any], has: Placement, used: Used = NOT_USED
) -> Placement:
    """Places a job that runs, by other trees: with the slots that it has. Raises Refused."""
    slots = has.answer.get("slots", 0)
    pools = {switch: {**pool, "slots_free": slots} for switch, pool in job["accelerators"].items()}
    args = [slots, *job["args"][1:]]
    return place(fabric, trees, {**job, "args": args, "accelerators": pools, "roots": _roots(has)}, used)


def _roots(placement: Placement) -> list[str]:
    """Of its trees."""
    answer = placement.answer
    return list(answer.get("roots") or [answer["root"]])


def used_by(others: Iterable[tuple[Mapping[str, Any], Placement]], ranks: Sequence[int]) -> Used:
    """Which roots other jobs have taken, as jobs of these ranks see it."""
    used: dict[str, tuple[int, int]] = {}
    for job, placement in others:
        for root in _roots(placement):
            same, of_all = used.get(root, (0, 0))
            used[root] = same + (job["ranks"] == ranks), of_all + 1
    return used


def free_roots(trees: Trees, job: Mapping[str, Any], used: Used) -> list[str]:
    """Roots that an aggregation job could have where no other tree of its ranks is."""
    alive = frozenset(switch for switch, pool in job["accelerators"].items() if not pool["down"])
    try:
        return [root for root in trees.roots(job["ranks"], alive) if not used.get(root, (0, 0))[0]]
    except NoTree:
        return []


def steer_anew(fabric: Fabric, trees: Trees, has: Placement) -> Placement:
    """The placement that it is, but what leads to its accelerators goes by these trees, as other jobs' does.

    A switch has one flow for an address: it must not lead others over what has died.
    """
    first = int(fabric.switches[0].accelerator_ip)
    anew = Placement(programs=has.programs, answer=has.answer)
    for switch, flows in has.flows.items():
        for flow in flows:
            (action,), address = flow.actions, int(IPv4Address(dict(flow.match)["ipv4_dst"][0]))  # type: ignore[index]
            steers = not isinstance(action, Replicate)
            if steers and switch in trees.hops(fabric.switches[address - first].name):
                _steer(fabric, trees, anew, switch, address)
            else:
                anew.lead(switch, address, action)  # type: ignore[arg-type]
    return anew


def _multicast(fabric: Fabric, trees: Trees, job: Mapping[str, Any], used: Used) -> Placement:
    """Datagrams take its trees in turn."""
    number, group = int(job["job"]), GROUPS + int(job["job"])
    keep, count = job.get("roots", ()), max(1, int(job["args"][TREES]))
    placed = trees.several(job["ranks"], number, count, keep=keep, used=used)
    roots = [tree.root for tree in placed]
    placement = Placement(answer={"group_ip": group, "root": roots[0], **({"roots": roots} if count > 1 else {})})
    for k, tree in enumerate(placed):
        for switch in tree.switches:
            placement.lead(switch, group - k * BELOW, Replicate(tree.ports(switch)))
    return placement


def _aggregate(fabric: Fabric, trees: Trees, job: Mapping[str, Any], used: Used) -> Placement:
    ranks: Sequence[int] = job["ranks"]
    pools: Mapping[str, Mapping[str, Any]] = job["accelerators"]
    if not pools:
        raise JobRefused("no switch has an accelerator")
    dead = frozenset(switch for switch, pool in pools.items() if pool["down"])
    (keep,) = job.get("roots", (None,))
    tree = trees.tree(ranks, int(job["job"]), frozenset(pools), keep=keep, shun=dead, used=used)
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
        _steer(fabric, trees, placement, _switch_of(fabric, rank), parents[rank][0])
    for switch in tree.switches:
        placement.lead(switch, group, Replicate(tree.down_ports(switch)))
    placement.answer["parents"] = [list(parents[rank]) for rank in ranks]
    return placement


def _best_effort(fabric: Fabric, trees: Trees, job: Mapping[str, Any], used: Used) -> Placement:
    """Two levels, as in the paper: the switches with several of the ranks, and the server's."""
    ranks: Sequence[int] = job["ranks"]
    pools: Mapping[str, Mapping[str, Any]] = job["accelerators"]
    sharing = {switch: pool for switch, pool in pools.items() if pool["shared_slots"] and not pool["down"]}
    if not sharing:
        raise JobRefused("no accelerator shares slots" if pools else "no switch has an accelerator")
    home = _switch_of(fabric, ranks[0])
    tree = trees.tree(ranks, 0, frozenset({home}))
    numbers = {rank: number for number, rank in enumerate(ranks) if number}  # the server's contributions never leave it
    below = {s: [numbers[r] for r in sorted(tree.ranks[s].values()) if r in numbers] for s in tree.switches}
    below[home] = list(numbers.values())
    adding = [s for s in tree.switches if s in sharing and len(below[s]) > 1]
    for switch in adding:
        _fits(job, switch, sharing[switch], len(ranks))
    server = int(fabric.nics[ranks[0]].ip)
    last = _address(fabric, home) if home in adding else server
    group = GROUPS + int(job["job"])
    hops: list[Any] = []
    answer = {"slots": job["args"][SLOTS], "group_ip": group, "root": home, "tree": adding, "hops": hops}
    answer["shared_slots"] = min((int(sharing[s]["shared_slots"]) for s in adding), default=1)
    placement = Placement(answer=answer)
    for switch in adding:
        program = {"op": "accelerator_program", "switch": switch, "job": job["job"], "shared": True, "group_ip": group}
        program |= {"ranks": below[switch], "next_ip": server if switch == home else last}
        program |= {"window": job["args"][SLOTS], "age_ns": job["args"][TIMEOUT_PS] / 1000}
        placement.programs.append(program)
        if switch != home and last != server:
            _steer(fabric, trees, placement, switch, last)
    for rank in ranks:
        switch = _switch_of(fabric, rank)
        hops.append(_address(fabric, switch) if switch in adding else last)
        if rank in numbers and hops[-1] != server:
            _steer(fabric, trees, placement, switch, hops[-1])
    for switch in tree.switches:  # sums pass the accelerators too, which free their slots
        port = fabric.switch_by_name[switch].accelerator_port
        own = [port] if switch in adding and port is not None else []
        placement.lead(switch, group, Replicate((*tree.ports(switch), *own)))
    return placement


def _switch_of(fabric: Fabric, rank: int) -> str:
    nic = fabric.nics[rank]
    return fabric.cable_at[nic.name, 1].other(nic.name).node


KINDS: dict[str, Callable[[Fabric, Trees, Mapping[str, Any], Used], Placement]] = {
    "aggregate": _aggregate,
    "best_effort": _best_effort,
    "multicast": _multicast,
}


def _slots(job: Mapping[str, Any], tree: Tree, pools: Mapping[str, Mapping[str, Any]]) -> int:
    """How many slots the job gets: what it wants, or as many as are free all over its tree. Raises Refused."""
    requested = job["args"][SLOTS]
    for switch in tree.adding:
        if switch not in pools:
            raise JobRefused(f"{switch} has no accelerator")
        if pools[switch]["down"]:
            raise JobRefused(f"{switch}'s accelerator is down")
        _fits(job, switch, pools[switch], len(_children(tree, switch)))
    scarce = min(tree.adding, key=lambda switch: pools[switch]["slots_free"])
    free = pools[scarce]["slots_free"]
    if not free:
        raise JobRefused(f"{scarce}'s accelerator has no slot free of {pools[scarce]['slots']}")
    return min(int(requested), int(free))


def _fits(job: Mapping[str, Any], switch: str, pool: Mapping[str, Any], contributors: int) -> None:
    """Raises Refused when an accelerator is too narrow for a job's packets, or for its bitmap."""
    elements, width, bits = job["args"][ELEMENTS], pool["elements"], pool["fan_in"]
    if elements > width:
        raise JobRefused(f"{switch}'s accelerator adds {width} elements of a packet, not {elements}")
    if contributors > bits:
        raise JobRefused(f"{switch}'s accelerator has a bitmap of {bits} bits, not of {contributors}")


def _children(tree: Tree, switch: str) -> list[int | str]:
    """The contributors to a switch by port: ranks, and switches that add up. Other switches are passed through."""
    by_port: dict[int, list[int | str]] = {port: [rank] for port, rank in tree.ranks[switch].items()}
    for port, below in tree.below[switch].items():
        by_port[port] = [below] if below in tree.adding else _children(tree, below)
    return [child for port in sorted(by_port) for child in by_port[port]]


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
        _steer(fabric, trees, placement, switch, _address(fabric, child))  # answers for it alone
    if switch != tree.root:
        above = tree.parent(switch)
        program["parent"] = {"ip": _address(fabric, above), "child": children[above].index(switch)}
        _steer(fabric, trees, placement, switch, _address(fabric, above))
    placement.programs.append(program)
