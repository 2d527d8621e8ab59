"""Flows of a switch's tables as plain data, independent of the OpenFlow library.

Two tables.  ROUTE looks at the destination address, by prefixes that stand for places, and either outputs or hashes the
frame onto one of several equal ports; MEMBER turns the hash's result into the port.  No two flows match the same frame,
so that traffic stops when its flow is removed.  A flow's cookie is the hash of its contents, so that a controller that
finds a flow in a switch knows from the cookie alone whether the flow is one that it wants.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import IPv4Network
from typing import ClassVar

ROUTE, MEMBER = 0, 1

# Flows never overlap; the one priority leaves room below and above for others.
PRIORITY = 100

# The registers that carry the hash's result and the group of ports it counts in.
LINK_REGISTER, GROUP_REGISTER = 0, 1

COOKIE_MAGIC = 0x7262 << 48
COOKIE_MAGIC_MASK = 0xFFFF << 48

ETH_IPV4, ETH_ARP, ARP_REQUEST = 0x0800, 0x0806, 1


@dataclass(frozen=True)
class Output:
    """Send the frame out of a port."""

    port: int


@dataclass(frozen=True)
class Hash:
    """Put hash(addresses, protocol, TCP/UDP ports; basis) mod `links` into the link register."""

    links: int
    basis: int


@dataclass(frozen=True)
class Load:
    """Set a register."""

    register: int
    value: int


@dataclass(frozen=True)
class Resubmit:
    """Look the frame up in another table."""

    table: int


@dataclass(frozen=True)
class Return:
    """Send the frame out of the port that it came in at, which no Output does."""


@dataclass(frozen=True)
class SetDscp:
    """Change the packet's DSCP, and so its class from here on."""

    value: int


@dataclass(frozen=True)
class AnswerArp:
    """Turn the ARP request into its reply (the MAC is 02:00 and the address asked for) and send it back."""


@dataclass(frozen=True)
class Group:
    """Copies for all these ports but the one that the frame came in at: a group table of type ALL."""

    ports: tuple[int, ...]
    numbers: ClassVar[range]  # of its kind

    @property
    def group(self) -> int:
        """The group's number, from its kind and its ports alone."""
        return self.numbers.start + group_id(self.ports) % len(self.numbers)


class Replicate(Group):
    """Send all of the copies."""

    numbers = range(1 << 31)


class Choose(Group):
    """A set of ports, each as often as it weighs, of which the switch's chip takes one for each frame.

    Open vSwitch names the set by copying, the chip has one copy leave (hardware/fabricd/switch/adaptive.c).
    """

    numbers = range(1 << 31, 3 << 30)


Action = Group | Output | Return | Hash | Load | Resubmit | SetDscp | AnswerArp
MatchValue = int | str | tuple[str, str]


@dataclass(frozen=True)
class Flow:
    """One entry of a flow table.  `match` holds OpenFlow field names; an address comes as (address, mask)."""

    table: int
    priority: int
    match: tuple[tuple[str, MatchValue], ...]
    actions: tuple[Action, ...]

    @cached_property
    def cookie(self) -> int:
        """64 bits: COOKIE_MAGIC above a hash of the flow's contents."""
        text = repr((self.table, self.priority, self.match, self.actions))
        return COOKIE_MAGIC | int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big")


def groups(flows: Iterable[Flow]) -> frozenset[Group]:
    """The group tables that flows need."""
    return frozenset(action for flow in flows for action in flow.actions if isinstance(action, Group))


def replications(flows: Iterable[Flow]) -> frozenset[Group]:
    """Those that copy."""
    return frozenset(group for group in groups(flows) if isinstance(group, Replicate))


def to_network(network: IPv4Network, ports: tuple[int, ...], basis: int = 0, *, choose: bool = False) -> Flow:
    """The flow for a destination prefix: to the port, or, of several, by hash to one of them (needs `members`).

    `choose`: to the one that the switch takes.
    """
    match: tuple[tuple[str, MatchValue], ...] = (("eth_type", ETH_IPV4), ("ipv4_dst", _masked(network)))
    if len(ports) == 1:
        return Flow(ROUTE, PRIORITY, match, (Output(ports[0]),))
    if choose:
        return Flow(ROUTE, PRIORITY, match, (Choose(ports),))
    return Flow(ROUTE, PRIORITY, match, hashed(ports, basis))


def hashed(ports: tuple[int, ...], basis: int) -> tuple[Action, ...]:
    """To one of several ports, by hash (needs `members`)."""
    return Hash(len(ports), basis), Load(GROUP_REGISTER, group_id(ports)), Resubmit(MEMBER)


def members(ports: tuple[int, ...]) -> list[Flow]:
    """The MEMBER flows of a group of equal ports: link k of the group is ports[k]."""
    group = (f"reg{GROUP_REGISTER}", group_id(ports))
    return [
        Flow(MEMBER, PRIORITY, ((f"reg{LINK_REGISTER}", k), group), (Output(port),)) for k, port in enumerate(ports)
    ]


def reweighted(flows: Iterable[Flow], weight: Callable[[int], int]) -> list[Flow]:
    """One switch's flows with each group of equal ports used in proportion to `weight`(port); 0 leaves a port out.

    A group all of whose ports weigh 0 stays as it is.
    """
    flows = list(flows)
    links: dict[int, dict[int, int]] = {}  # group -> link -> port
    for flow in flows:
        if flow.table == MEMBER and isinstance(output := flow.actions[0], Output):
            fields = {name: value for name, value in flow.match if isinstance(value, int)}
            links.setdefault(fields[f"reg{GROUP_REGISTER}"], {})[fields[f"reg{LINK_REGISTER}"]] = output.port
    result: list[Flow] = []
    used: set[tuple[int, ...]] = set()
    for flow in (f for f in flows if f.table != MEMBER):
        group = next((a.value for a in flow.actions if isinstance(a, Load) and a.register == GROUP_REGISTER), None)
        if group is not None:
            equal = [port for _, port in sorted(links[group].items())]
            ports = as_often(equal, weight) or tuple(equal)
            flow = replace(flow, actions=tuple(a for action in flow.actions for a in _over(action, ports)))
            used.add(ports)
        result.append(replace(flow, actions=tuple(_weighed(action, weight) for action in flow.actions)))
    return result + [flow for ports in sorted(used) if len(set(ports)) > 1 for flow in members(ports)]


def as_often(ports: Iterable[int], weight: Callable[[int], int]) -> tuple[int, ...]:
    """Each port as often as it weighs."""
    return tuple(port for port in ports for _ in range(weight(port)))


def _weighed(action: Action, weight: Callable[[int], int]) -> Action:
    """A set of which one is taken, with each port as often as it weighs now."""
    if not isinstance(action, Choose):
        return action
    ports = as_often(sorted(set(action.ports)), weight) or action.ports
    return Choose(ports) if len(set(ports)) > 1 else Output(ports[0])


def _over(action: Action, ports: tuple[int, ...]) -> tuple[Action, ...]:
    """An action of a flow that hashes, when it is to hash over other ports."""
    one = len(set(ports)) == 1
    match action:
        case Hash(_, basis):
            return () if one else (Hash(len(ports), basis),)
        case Load(register, _) if register == GROUP_REGISTER:
            return () if one else (Load(GROUP_REGISTER, group_id(ports)),)
        case Resubmit(table) if table == MEMBER:
            return (Output(ports[0]),) if one else (action,)
    return (action,)


def group_id(ports: tuple[int, ...]) -> int:
    """A group's number, from its ports alone: an old and a new group never share one while flows are exchanged."""
    return zlib.crc32(repr(ports).encode())


def arp_responder(network: IPv4Network) -> Flow:
    """Answers every ARP request for an address in `network` on the switch, so that none is ever flooded."""
    match = (("eth_type", ETH_ARP), ("arp_op", ARP_REQUEST), ("arp_tpa", _masked(network)))
    return Flow(ROUTE, PRIORITY, match, (AnswerArp(),))


def _masked(network: IPv4Network) -> tuple[str, str]:
    return str(network.network_address), str(network.netmask)
