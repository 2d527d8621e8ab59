"""Targets: how an experiment names a part of its fabric, `cable:h0-leaf0`, `nic:3`, `all`.

cable:A-B      the cable between two nodes, in either order port:SWITCH:N  one port of a switch nic:RANK       the NIC
of a rank; nic:RANK.complex the compute complex of an off-path SmartNIC switch:NAME    a whole switch flow:R->R
what one rank sends to another controller     the OpenFlow controller all            every cable (not those inside NICs)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from topologies.graph import endpoint
from topologies.graph.fabric import Cable, Fabric, Nic, Switch, TopologyError

FORMS = "cable:A-B, port:SWITCH:N, nic:RANK, switch:NAME, flow:RANK->RANK, controller, all"


@dataclass(frozen=True)
class CableTarget:
    cable: Cable

    def __str__(self) -> str:
        return f"cable:{self.cable.name}"


@dataclass(frozen=True)
class PortTarget:
    switch: Switch
    port: int
    cable: Cable  # plugged in there

    def __str__(self) -> str:
        return f"port:{self.switch.name}:{self.port}"


@dataclass(frozen=True)
class NicTarget:
    nic: Nic

    def __str__(self) -> str:
        return f"nic:{self.nic.rank}"


@dataclass(frozen=True)
class SwitchTarget:
    switch: Switch

    def __str__(self) -> str:
        return f"switch:{self.switch.name}"


@dataclass(frozen=True)
class FlowTarget:
    source: Nic
    destination: Nic

    def __str__(self) -> str:
        return f"flow:{self.source.rank}->{self.destination.rank}"


@dataclass(frozen=True)
class ControllerTarget:
    def __str__(self) -> str:
        return "controller"


@dataclass(frozen=True)
class AllTarget:
    cables: tuple[Cable, ...]

    def __str__(self) -> str:
        return "all"


Target = CableTarget | PortTarget | NicTarget | SwitchTarget | FlowTarget | ControllerTarget | AllTarget


def resolve(fabric: Fabric, text: str) -> Target:
    """The part of the fabric that `text` names; its `str` is the canonical text.

    Raises TopologyError with the text as its key; the hint lists what there is.
    """
    if text == "controller":
        return ControllerTarget()
    if text == "all":
        return AllTarget(tuple(c for c in fabric.cables if c.name not in fabric.inside))
    kind, colon, name = text.partition(":")
    if not colon or kind not in _RESOLVERS:
        if kind in _RESOLVERS:
            form = next(form for form in FORMS.split(", ") if form.startswith(kind))
            raise TopologyError(text, f"which {kind}?", f"write {form}")
        meant = named(fabric, text)
        hint = f"did you mean {meant}?" if meant else _near(kind, [*_RESOLVERS, "controller", "all"], FORMS)
        raise TopologyError(text, "there is no such target", hint)
    return _RESOLVERS[kind](fabric, text, name.strip())


def named(fabric: Fabric, name: str) -> str | None:
    """The target that a part's name alone stands for, as tables have it: `h6`, `leaf0`, `leaf0:3`, `h6-leaf0`."""
    if name.partition(":")[0] in fabric.switch_by_name and ":" in name:
        return f"port:{name}"
    if name in fabric.switch_by_name:
        return f"switch:{name}"
    if name in fabric.cable_by_name:
        return f"cable:{name}"
    return f"nic:{fabric.nic_by_name[name].rank}" if name in fabric.nic_by_name else None


def _cable(fabric: Fabric, text: str, name: str) -> Target:
    if name in fabric.cable_by_name:
        return CableTarget(fabric.cable_by_name[name])
    # Of a node that exists the error says what it is cabled to.
    nodes = [*fabric.nic_by_name, *fabric.switch_by_name]
    first = max((n for n in nodes if name.startswith(f"{n}-")), key=len, default=None)
    second = max((n for n in nodes if name.endswith(f"-{n}")), key=len, default=None)
    listings = [_cables_of(fabric, node) for node in dict.fromkeys((first, second)) if node is not None]
    listing = "; ".join(listings) or f"for example {fabric.cables[0].name}"
    raise TopologyError(text, "there is no such cable", _near(name, list(fabric.cable_by_name), listing))


def _cables_of(fabric: Fabric, node: str) -> str:
    """A node's cables by their names from it, those inside a NIC only if there are no others."""
    ends = {c.name: k for k, c in fabric.cable_by_name.items() if k.startswith(f"{node}-")}
    names = [k for cable, k in ends.items() if cable not in fabric.inside] or list(ends.values())
    return f"{node} has {_some(names)}"


def _port(fabric: Fabric, text: str, name: str) -> Target:
    node, _, number = name.rpartition(":")
    if not node:
        raise TopologyError(text, "this names no port", f"port:SWITCH:N, for example port:{fabric.switches[0].name}:1")
    switch = _find_switch(fabric, text, node)
    if not _is_number(number) or not 1 <= int(number) <= switch.ports:
        raise TopologyError(text, f"{node} has no port {number}", f"ports 1 to {switch.ports}")
    return PortTarget(switch, int(number), fabric.cable_at[node, int(number)])


def _nic(fabric: Fabric, text: str, name: str) -> Target:
    if (end := endpoint.parse(text)) is not None:
        if problem := endpoint.missing(end, fabric):
            raise TopologyError(text, *problem)
        return NicTarget(fabric.nics[endpoint.number(end, fabric)])
    return NicTarget(_rank(fabric, text, name))


def _switch(fabric: Fabric, text: str, name: str) -> Target:
    return SwitchTarget(_find_switch(fabric, text, name))


def _flow(fabric: Fabric, text: str, name: str) -> Target:
    source, arrow, destination = name.partition("->")
    if not arrow:
        raise TopologyError(text, "this names no flow", "flow:RANK->RANK, for example flow:0->1")
    flow = FlowTarget(_rank(fabric, text, source.strip()), _rank(fabric, text, destination.strip()))
    if flow.source == flow.destination:
        raise TopologyError(text, "a rank sends nothing to itself")
    return flow


_RESOLVERS: dict[str, Callable[[Fabric, str, str], Target]] = {
    "cable": _cable,
    "port": _port,
    "nic": _nic,
    "switch": _switch,
    "flow": _flow,
}


def _find_switch(fabric: Fabric, text: str, name: str) -> Switch:
    if name not in fabric.switch_by_name:
        names = list(fabric.switch_by_name)
        raise TopologyError(text, f"there is no switch {name}", _near(name, names, _list(names)))
    return fabric.switch_by_name[name]


def _rank(fabric: Fabric, text: str, name: str) -> Nic:
    if _is_number(name) and int(name) < len(fabric.nics):
        return fabric.nics[int(name)]
    if name in fabric.nic_by_name:
        raise TopologyError(text, "NICs are named by rank here", f"{name} is rank {fabric.nic_by_name[name].rank}")
    raise TopologyError(text, f"there is no rank {name}", f"ranks 0 to {len(fabric.nics) - 1}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _near(name: str, known: list[str], otherwise: str) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.7)
    if not close:
        return otherwise
    return f"did you mean {close[0]}?" + ("" if otherwise.endswith(f"are {close[0]}") else f" {otherwise}")


def _list(names: Iterable[str]) -> str:
    return f"there are {_some(list(names))}"


def _some(names: list[str], shown: int = 8) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
