"""Ports and cables: switched off and on, set, replaced, plugged elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from testbed.base.errors import InputError
from testbed.base.units import format_rate, format_time
from testbed.faults.base import overlay
from testbed.operate.steps import durations as take
from testbed.operate.steps.action import Action, ranks
from testbed.operate.steps.site import Site
from testbed.operate.steps.steps import ForGood, Mend, Note, Put, Step, Take
from testbed.words.entry import Parameter
from testbed.words.kinds import CABLE, PORT, RATE, Number
from topologies.graph.fabric import Cable, End

SPEEDS = tuple(10**9 * gbps for gbps in (1, 10, 25, 40, 50, 100, 200, 400, 800, 1600))
_PORT = Parameter("port", PORT, "a switch's port, SWITCH:N", required=True)
_CABLE = Parameter("cable", CABLE, "A-B", required=True)
_DOWN = {"up": False}


def _of_switch(site: Site, words: str, port: End) -> Cable:
    """The cable in a switch's port. Raises InputError for a NIC's."""
    if port.node in site.fabric.nic_by_name:
        peer = site.fabric.cable_at[port.node, port.port].other(port.node)
        hint = f"its switch's end is {peer.node}:{peer.port}; what can be done with a NIC: config nic .."
        raise InputError(f"{port.node} is a NIC, not a switch's port", words, hint)
    return site.fabric.cable_at[port.node, port.port]


def _cut_off(site: Site, *cables: Cable, down_ns: float = inf) -> Iterator[Step]:
    """What is said of cables that go down for so long."""
    names = {cable.name for cable in cables}
    if alone := site.newly_alone(names):
        yield Note(f"{ranks(alone)} had no other way to the rest")
    lost_ns = down_ns if alone else min(down_ns, site.reaction_ns)
    if lost_ns >= site.gives_up_ns and not names <= site.drained():
        when = "it is up again" if lost_ns == down_ns else "the controller leads around it"
        after = "" if lost_ns == inf else f", in {format_time(lost_ns)}"
        yield Note(
            f"until {when}{after}, what goes there is lost; queue pairs that hear nothing for "
            f"{format_time(site.gives_up_ns)} fail, and their job with them: rollback before, or restart the job. "
            "A drain first (route drain) loses nothing"
        )


def _shut(site: Site, port: End) -> list[dict[str, object]]:
    """What keeps a port shut down, besides what is done to the other end."""
    name = f"{port.node}:{port.port}"
    return [s for s in site.settings() if s["request"].get("shut") == name]


def shutdown(site: Site, port: End) -> Iterator[Step]:
    cable = _of_switch(site, "interface shutdown", port)
    if _shut(site, port):
        yield Note(f"{port.node}:{port.port} was shut down already")
        return
    yield from _cut_off(site, cable)
    yield Put({**overlay("cable", cable.name, _DOWN), "shut": f"{port.node}:{port.port}"})


def startup(site: Site, port: End) -> Iterator[Step]:
    _of_switch(site, "interface startup", port)
    if not (shut := _shut(site, port)):
        yield Note(f"{port.node}:{port.port} was not shut down")
    yield Take(shut)


def speed(site: Site, port: End, rate: float) -> Iterator[Step]:
    cable = _of_switch(site, "interface speed", port)
    most = int(site.cable(cable)["rate_bps"])
    allowed = sorted({*(s for s in SPEEDS if s < most), most})
    if rate not in allowed:
        shown = ", ".join(map(format_rate, allowed))
        raise InputError(f"{port.node}:{port.port} does not run at {format_rate(int(rate))}", "interface speed: RATE",
                         f"its speeds: {shown}")  # fmt: skip
    yield from _cut_off(site, cable, down_ns=take.LINK_NS)
    again = {**overlay("cable", cable.name, _DOWN), "for_ns": take.LINK_NS}
    yield Put(overlay("cable", cable.name, {"rate_bps": rate}), after=[again])
    yield Put(overlay("cable", cable.name, _DOWN), take.LINK_NS)


def mtu(site: Site, port: End, mtu: int) -> Iterator[Step]:
    cable = _of_switch(site, "interface mtu", port)
    yield Put(overlay("cable", cable.name, {"mtu": mtu}))


def replace(site: Site, cable: Cable) -> Iterator[Step]:
    _outside(site, "cable replace", cable)
    yield from _cut_off(site, cable, down_ns=take.CABLE_NS)
    yield Put(overlay("cable", cable.name, _DOWN), take.CABLE_NS)
    yield Mend("cable replace", f"cable:{cable.name}")
    yield ForGood("the old cable is gone")


def move(site: Site, cable: Cable, other: Cable) -> Iterator[Step]:
    for one in (cable, other):
        _outside(site, "cable move", one)
    if cable == other:
        raise InputError("a cable cannot change places with itself", "cable move", "name two cables")
    down = [overlay("cable", one.name, _DOWN) for one in (cable, other)]
    yield from _cut_off(site, cable, other, down_ns=take.CABLE_NS)
    swap = {"primitive": "swap", "cables": [cable.name, other.name]}
    yield Put(swap, after=[{**out, "for_ns": take.CABLE_NS} for out in down])
    for out in down:
        yield Put(out, take.CABLE_NS)


def _outside(site: Site, words: str, cable: Cable) -> None:
    if cable.name in site.fabric.inside:
        raise InputError(f"{cable.name} is inside a NIC", words, "config nic replace changes the NIC")


_LOST = "frames on the cable, in its ports' queues, and those that come to them meanwhile are lost (drops `cable`)"
_ROUND = (
    "; `control.reaction` later the controller leads around it. If that is longer than `nic.timeout` x "
    "(`nic.retry` + 1), queue pairs that send there fail before it does, and the job with them"
)

ACTIONS = (
    Action(
        words="interface shutdown", about="Switches a port off; the link is down at both ends.", parameters=(_PORT,),
        steps=shutdown, cost_ns=take.SETTING_NS, cost_from=take.SETTING,
        blast="the port and its peer", traffic=_LOST + _ROUND + ". To lose nothing, drain it first (`route drain`)",
        example="leaf0:3",
    ),
    Action(
        words="interface startup", about="Switches a port on that was shut down.", parameters=(_PORT,),
        steps=startup, cost_ns=take.SETTING_NS, cost_from=take.SETTING,
        blast="the port and its peer",
        traffic="the link is up at once, and is used from the time on that the controller leads over it; what a port "
        "still wants paused it says again. A link that something else keeps down stays down",
        example="leaf0:3",
    ),
    Action(
        words="interface speed", about="Sets a port's speed, at both ends; the link comes up anew.",
        parameters=(_PORT, Parameter("rate", RATE, "up to what its cable is for", required=True)),
        steps=speed, cost_ns=take.SETTING_NS + take.LINK_NS, cost_from=f"{take.SETTING}, and {take.LINK}",
        blast="the port and its peer: the link is down for 100 us", traffic=_LOST + _ROUND
        + " if it is down for longer than that", configures=("reduced_rate",), example="leaf0:3 100Gbps",
    ),
    Action(
        words="interface mtu", about="Sets the longest IP packet that a port sends and takes.",
        parameters=(_PORT, Parameter("mtu", Number("mtu", "MTU", 68, 9216), "in bytes, 68 to 9216", required=True)),
        steps=mtu, cost_ns=take.SETTING_NS, cost_from=take.SETTING, blast="the port and its peer",
        traffic="frames that are longer are dropped from now on (drops `mtu`); the link stays up",
        configures=("small_mtu",), example="leaf0:3 9100",
    ),
    Action(
        words="cable replace", about="Replaces a cable, with what is plugged at its ends.", parameters=(_CABLE,),
        steps=replace, cost_ns=take.CABLE_NS, cost_from=take.CABLE, blast="the cable is out for 1 ms",
        traffic=_LOST + "; meanwhile the controller leads around it, if it reacts within that time",
        example="leaf0-spine0",
    ),
    Action(
        words="cable move", about="Exchanges the far ends of two cables.",
        parameters=(_CABLE, Parameter("other", CABLE, "A-B, the other one", required=True)),
        steps=move, cost_ns=take.CABLE_NS, cost_from=take.CABLE, blast="both cables are out for 1 ms",
        traffic=_LOST + ". The far ends are those whose node stands last in the cables' names",
        configures=("miswired",), example="h0-leaf0 h1-leaf0",
    ),
)  # fmt: skip
