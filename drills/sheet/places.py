"""Drawing: a seed chooses places that meet a drill's conditions.

The same drill, seed and places that carry the job give the same places. Names are drawn in the order of the file; when
a later one finds no place, an earlier one moves on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from drills.sheet.draw import Draw
from drills.sheet.truth import kind_of
from topologies.graph.fabric import EMBEDDED, Fabric
from topologies.graph.targets import CableTarget, FlowTarget, NicTarget, PortTarget, SwitchTarget, Target, resolve

NIC = "nic"
_HOST = (NIC, "host")


class CannotDraw(ValueError):
    """No place meets the conditions of a name: the name, the key, why, and what there is."""

    def __init__(self, name: str, key: str, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.name, self.key, self.what, self.hint = name, key, what, hint


@dataclass(frozen=True)
class Ground:
    """What places are drawn from: the fabric, and those of its places that data of the job pass."""

    fabric: Fabric
    carries: Collection[str]

    def role(self, node: str) -> str:
        switch = self.fabric.switch_by_name.get(node)
        return NIC if switch is None or switch.role in EMBEDDED else switch.role

    def target(self, place: str) -> Target:
        return resolve(self.fabric, place)

    def nodes(self, place: str) -> frozenset[str]:
        """The nodes that a place is, or is between."""
        match self.target(place):
            case CableTarget(cable):
                return frozenset((cable.a.node, cable.b.node))
            case PortTarget(switch) | SwitchTarget(switch):
                return frozenset((switch.name,))
            case NicTarget(nic):
                cables = (c for c in self.fabric.cables if nic.name in (c.a.node, c.b.node))
                return frozenset((nic.name, *(cable.other(nic.name).node for cable in cables)))
            case FlowTarget(source, destination):
                return frozenset((source.name, destination.name))
        return frozenset()

    def cable(self, place: str) -> str | None:
        """The cable that a place is, or is an end of."""
        match self.target(place):
            case CableTarget(cable) | PortTarget(cable=cable):
                return cable.name
        return None

    def all_of(self, kind: str) -> list[str]:
        """Every place of a kind."""
        fabric = self.fabric
        outside = [c for c in fabric.cables if c.name not in fabric.inside]
        switches = [s.name for s in fabric.switches if s.role not in EMBEDDED]
        ranks = [n.rank for n in fabric.nics[: fabric.ranks]]
        match kind:
            case "cable":
                return [f"cable:{c.name}" for c in outside]
            case "switch":
                return [f"switch:{name}" for name in switches]
            case "nic":
                return [f"nic:{rank}" for rank in ranks]
            case "flow":
                return [f"flow:{a}->{b}" for a in ranks for b in ranks if a != b]
        ends = [(end.node, end.port) for c in outside for end in (c.a, c.b)]
        return [f"port:{node}:{port}" for node, port in sorted(ends) if node in switches]


Test = Callable[[str], bool]


def _conditions(draw: Draw, ground: Ground, drawn: Mapping[str, Any]) -> Iterator[tuple[str, str, str, Test]]:
    """(key, the error if no place is left, hint, test) of each condition."""
    what = draw.any
    if draw.between:
        roles = [NIC if role in _HOST else role for role in draw.between]
        there = sorted({"-".join(sorted(map(ground.role, ground.nodes(p)))) for p in ground.all_of("cable")})
        yield (
            "between", f"no cable is between {draw.between[0]} and {draw.between[1]}",
            f"cables of this fabric are between {', '.join(there)}",
            lambda p: sorted(map(ground.role, ground.nodes(p))) == sorted(roles),
        )  # fmt: skip
    if draw.role:
        there = sorted({ground.role(s.name) for s in ground.fabric.switches} - {NIC})
        yield (
            "role", f"no switch is a {draw.role}", f"roles of this fabric: {', '.join(there)}",
            lambda p: ground.role(next(iter(ground.nodes(p)))) == draw.role,
        )  # fmt: skip
    if draw.facing:
        facing = NIC if draw.facing in _HOST else draw.facing
        yield (
            "facing", f"no such port faces a {draw.facing}", "a role of switches, or nic",
            lambda p: ground.role(_across(ground, p)) == facing,
        )  # fmt: skip
    if draw.at:
        place = drawn[draw.at.removeprefix("$")]
        yield "at", f"no {what} is at {draw.at}", f"{draw.at} is a {kind_of(place)}", _near(ground, place)
    if draw.away:
        place = drawn[draw.away.removeprefix("$")]
        near = _near(ground, place)
        yield "away", f"every {what} is at {draw.away}", f"{draw.away} is a {kind_of(place)}", lambda p: not near(p)
    for other in draw.others:
        yield "not", f"there is no {what} beside ${other}", "a larger fabric has more", _another(ground, drawn[other])
    if draw.carries:
        hint = "other roles, or a job of more ranks"
        yield "carries", f"data of the job pass no such {what}", hint, lambda p: p in ground.carries


def _near(ground: Ground, place: str) -> Test:
    """Whether a place is next to another: shares a node with it (a flow: has it as its receiver)."""
    nodes = ground.nodes(place)
    nic = place.startswith("nic:")

    def test(p: str) -> bool:
        if p.startswith("flow:"):
            return p.endswith(f">{place.removeprefix('nic:')}") if nic else bool(nodes & ground.nodes(p))
        return p != place and bool(nodes & ground.nodes(p))

    return test


def _another(ground: Ground, place: str) -> Test:
    cable = ground.cable(place)
    return lambda p: p != place and (cable is None or ground.cable(p) != cable)


def _across(ground: Ground, port: str) -> str:
    target = ground.target(port)
    assert isinstance(target, PortTarget)
    return target.cable.other(target.switch.name).node


def candidates(name: str, draw: Draw, ground: Ground, drawn: Mapping[str, Any]) -> list[Any]:
    """All places for a name, given those drawn before it. Raises CannotDraw."""
    if draw.of is not None:
        return list(draw.of)
    left = ground.all_of(draw.any)
    if not left:
        raise CannotDraw(name, "any", f"this fabric has no {draw.any}")
    for key, what, hint, test in _conditions(draw, ground, drawn):
        left = [place for place in left if test(place)]
        if not left:
            raise CannotDraw(name, key, what, hint)
    return left


def draw_all(draws: Mapping[str, Draw], ground: Ground, seed: str) -> dict[str, Any]:
    """A place (or value) for each name.  Raises CannotDraw."""
    names = list(draws)
    drawn: dict[str, Any] = {}

    def next_one(k: int) -> CannotDraw | None:
        if k == len(names):
            return None
        name = names[k]
        try:
            left = candidates(name, draws[name], ground, drawn)
        except CannotDraw as error:
            return error
        random.Random(f"{seed} {name}").shuffle(left)  # a generator of its own: another name changes no others
        error_after = None
        for place in left:
            drawn[name] = place
            error_after = next_one(k + 1)
            if error_after is None:
                return None
        drawn.pop(name)
        return error_after

    if error := next_one(0):
        raise error
    return {name: drawn[name] for name in names}
