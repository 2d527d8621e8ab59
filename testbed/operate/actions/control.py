"""Routes, flow tables, the controller, accelerators: what decides where frames go, and what is done on their way."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from testbed.base.errors import InputError, UserError
from testbed.faults.base import act, overlay
from testbed.operate.steps import durations as take
from testbed.operate.steps.action import Action, ranks
from testbed.operate.steps.site import Site
from testbed.operate.steps.steps import Flows, ForGood, Mend, Note, Put, Restart, Resync, Step, Take
from testbed.words.entry import Parameter
from testbed.words.kinds import ON_OFF, PORT, SWITCH, TEXT, Kind, Number, Offer, Wrong, near
from topologies.graph.fabric import Cable, Fabric
from topologies.kinds import DIMENSION_ORDER

_SWITCH = Parameter("switch", SWITCH, "its name", required=True)


@dataclass(frozen=True)
class Drained:
    """What is drained: the cables of a switch, or of a port."""

    name: str
    cables: tuple[Cable, ...]


class _Part(Kind):
    def read(self, text: str, fabric: Fabric) -> Drained:
        name = text.removeprefix("switch:")
        if name in fabric.switch_by_name:
            outer = (c for c in fabric.cables if c.name not in fabric.inside)
            return Drained(name, tuple(c for c in outer if name in (c.a.node, c.b.node)))
        if ":" not in name:
            raise Wrong(f"there is no switch {name}", near(name, fabric.switch_by_name, "switches"))
        port = PORT.read(text, fabric)
        if port.node in fabric.nic_by_name:
            raise Wrong(f"{port.node} is a NIC", "SWITCH or SWITCH:N")
        return Drained(f"{port.node}:{port.port}", (fabric.cable_at[port.node, port.port],))

    def known(self, fabric: Fabric) -> Iterable[Offer]:
        yield from SWITCH.known(fabric)
        yield from PORT.known(fabric)


_PART = Parameter("part", _Part("part", "SWITCH|PORT"), "a switch, or a port SWITCH:N", required=True)


def _drains(site: Site, part: Drained) -> list[dict[str, Any]]:
    return [s for s in site.settings() if s["request"].get("drain", {}).get("part") == part.name]


def drain(site: Site, part: Drained) -> Iterator[Step]:
    if _drains(site, part):
        yield Note(f"{part.name} was drained already")
        return
    if alone := site.newly_alone({cable.name for cable in part.cables}):
        hint = "a drain leads traffic elsewhere; config interface shutdown cuts it off"
        what = f"{part.name} cannot be drained: {ranks(alone)} would have no way to the rest"
        raise InputError(what, "route drain", hint)
    ports = [[end.node, end.port] for cable in part.cables for end in (cable.a, cable.b)]
    ports = [port for port in ports if port[0] in site.fabric.switch_by_name]
    spec = {"operate": "drain", "place": part.name, "ports": ports}
    yield _ask(site, spec, drain={"part": part.name, "cables": [cable.name for cable in part.cables]})


def undrain(site: Site, part: Drained) -> Iterator[Step]:
    if not (drains := _drains(site, part)):
        yield Note(f"{part.name} was not drained")
    yield Take(drains)


def seed(site: Site, switch: str, seed: int) -> Iterator[Step]:
    """By its rules, or with `dest_qp` by its chip."""
    chip = site.switch(switch).get("adaptive")
    if chip is None:
        yield _ask(site, {"operate": "hash", "switch": switch, "seed": seed})
    elif chip["policy"] == "hash":
        yield Put(overlay("switch", switch, {"adaptive": {**chip, "basis": seed}}))
    else:
        what = f"{switch} takes one of its equal ports by {chip['policy']}, not by a hash of the flow"
        raise InputError(what, "hash seed", "it is for fabrics with `control: {routing: ecmp}`")


def dateline(site: Site, state: str) -> Iterator[Step]:
    if site.fabric.kind not in DIMENSION_ORDER:
        kinds = ", ".join(sorted(DIMENSION_ORDER))
        raise InputError(f"a {site.fabric.kind} has no dateline", "route dateline", f"fabrics that have one: {kinds}")
    yield _ask(site, {"operate": "dateline", "place": "dateline", "state": state == "on"})


def _ask(site: Site, spec: dict[str, Any], **more: Any) -> Step:
    """Raises UserError if there is no controller."""
    if not site.fabricd.request("status")["controllers"]:
        raise UserError("no controller is connected", hint="testbed config controller restart")
    return Put({**act("controller", spec), **more})


def restart(site: Site) -> Iterator[Step]:
    usual = float(site.configured["control"]["reaction_ns"])
    yield Put(overlay("control", True, {"reaction_ns": usual + take.PROCESS_NS}), take.PROCESS_NS)
    yield Mend("controller restart", "controller")
    yield Restart()
    yield ForGood("the controller has started anew")


def resync(site: Site, switch: str) -> Iterator[Step]:
    _ask(site, {})
    yield Resync(switch)
    yield ForGood("the table was written anew")


def add(site: Site, switch: str, flow: str) -> Iterator[Step]:
    site.check_flow(flow)
    yield Flows(switch, ("add-flow", _marked(flow)), "the flow was there already")


def _marked(flow: str) -> str:
    """The flow with a cookie of its own, unless it has one: fabricd knows by it what goes by the fast path."""
    if "cookie=" in flow:
        return flow
    cookie = hashlib.blake2b(flow.encode(), digest_size=4).hexdigest()
    return f"cookie=0x{cookie},{flow}"


def delete(site: Site, switch: str, match: str) -> Iterator[Step]:
    site.check_flow(f"{match} actions=drop")
    strict = ("--strict",) if "priority=" in match else ()
    yield Flows(switch, (*strict, "del-flows", match), "no flow matches")


def again(site: Site, switch: str) -> Iterator[Step]:
    if not site.switch(switch).get("adaptive"):
        hint = "control.routing: adaptive has switches choose"
        raise InputError(f"{switch} does not choose among equal ports", "adaptive", hint)
    yield Mend("adaptive restart", f"switch:{switch}")
    yield ForGood("its chip has begun to choose anew")


def accelerator(site: Site, state: str, switch: str) -> Iterator[Step]:
    _has_accelerator(site, switch)
    yield Put(overlay("switch", switch, {"accelerator_down": state == "off"}))


def reclaim(site: Site, switch: str) -> Iterator[Step]:
    _has_accelerator(site, switch)
    yield Mend("accelerator reclaim", f"switch:{switch}")
    yield ForGood("the slots are free")


def _has_accelerator(site: Site, switch: str) -> None:
    if not site.fabric.switch_by_name[switch].accelerator:
        hint = "fabric.switch.accelerator gives every switch one"
        raise InputError(f"{switch} has no accelerator", "accelerator", hint)


ACTIONS = (
    Action(
        words="route drain", about="Leads traffic around a switch or a port, without losing any.", parameters=(_PART,),
        steps=drain, cost_ns=take.ROUTES_NS, cost_from=take.ROUTES, blast="other paths carry its flows",
        traffic="the switches before it send elsewhere from now on; the drained one keeps its flows, so that what is "
        "on its way there still comes through. No link goes down and nothing is lost (where switches with NICs pass on "
        "others' frames, as in a torus, what is just before the drained port may be). Some frames may overtake others. "
        "The controller leads over it again if a cut leaves no other way",
        example="spine0",
    ),
    Action(
        words="route undrain", about="Lets traffic pass where it was drained.", parameters=(_PART,),
        steps=undrain, cost_ns=take.ROUTES_NS, cost_from=take.ROUTES, blast="flows come back from other paths",
        traffic="some frames may overtake others", example="spine0",
    ),
    Action(
        words="route dateline",
        about="Switches the dateline of a torus or ring on or off: a second class for what wraps around.",
        parameters=(Parameter("state", ON_OFF, "on or off", required=True),),
        steps=dateline, cost_ns=take.ROUTES_NS, cost_from=take.ROUTES,
        blast="data that wraps around changes its class at every switch",
        traffic="frames that come in from now on; those that wait for each other already go on waiting, until a "
        "watchdog or a cut takes some of them away. Without it lossless buffers can wait for each other in a circle",
        configures=("dateline_off",), example="on",
    ),
    Action(
        words="hash seed", about="Sets the seed by which a switch hashes flows onto equal ports.",
        parameters=(_SWITCH, Parameter("seed", Number("seed", "N", 0, 65535), "0 to 65535; every switch its own",
                                       required=True)),
        steps=seed, cost_ns=take.SETTING_NS, cost_from=take.SETTING, blast="about every flow through the switch moves",
        traffic="some frames may overtake others", configures=("polarised_hash",), example="leaf0 7",
    ),
    Action(
        words="controller restart", about="Ends the controller and starts it anew.",
        steps=restart, cost_ns=take.PROCESS_NS, cost_from=take.PROCESS,
        blast="nothing is routed around while it starts",
        traffic="switches forward by the flows that they have; it finds them as they are, and sends what differs",
        example="",
    ),
    Action(
        words="flow resync", about="Has the controller write a switch's flow table anew.", parameters=(_SWITCH,),
        steps=resync, cost_ns=take.TABLE_NS, cost_from=take.TABLE,
        blast="flows that others have put in are deleted, those by `flow add` too",
        traffic="a flow is written over what is there, so frames go on meanwhile", example="leaf0",
    ),
    Action(
        words="flow add", about="Puts a flow into a switch, in ovs-ofctl's words.",
        parameters=(_SWITCH, Parameter("flow", TEXT, "as for ovs-ofctl add-flow", required=True, rest=True)),
        steps=add, cost_ns=take.SETTING_NS, cost_from=take.SETTING, blast="what it matches",
        traffic="frames that come in from now on", example="leaf0 priority=200,ip,nw_dst=10.0.0.9 actions=drop",
    ),
    Action(
        words="flow del", about="Deletes a switch's flows that match, in ovs-ofctl's words.",
        parameters=(_SWITCH, Parameter("match", TEXT, "as for ovs-ofctl del-flows; with priority= exactly this one",
                                       required=True, rest=True)),
        steps=delete, cost_ns=take.SETTING_NS, cost_from=take.SETTING,
        blast="what matched them. The controller does not notice: it believes that they are there",
        traffic="frames that come in from now on", example="leaf0 ip,nw_dst=10.0.0.9",
    ),
    Action(
        words="adaptive restart", about="Has a switch's chip begin anew to choose among equal ports.",
        parameters=(_SWITCH,), steps=again, cost_ns=take.SETTING_NS, cost_from=take.SETTING,
        blast="none: frames that come meanwhile take one port or another",
        traffic="frames that come in from now on; sets and weights are the controller's", example="leaf0",
    ),
    Action(
        words="accelerator", about="Switches a switch's accelerator off or on.",
        parameters=(Parameter("state", ON_OFF, "on or off", required=True), _SWITCH),
        steps=accelerator, cost_ns=take.SETTING_NS, cost_from=take.SETTING, blast="collectives that are added up there",
        traffic="an accelerator that is off answers nothing: contributions are sent again, until ranks give up and do "
        "it by themselves", configures=("accelerator_down",), example="off leaf0",
    ),
    Action(
        words="accelerator reclaim", about="Frees the slots of a switch's accelerator that no job owns.",
        parameters=(_SWITCH,), steps=reclaim, cost_ns=take.SETTING_NS, cost_from=take.SETTING,
        blast="none: slots of jobs that are there stay theirs",
        traffic="a job that was refused, or has given up, goes on by itself until it begins anew", example="leaf0",
    ),
)  # fmt: skip
