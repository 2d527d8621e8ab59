"""What switches do with queues: marks, buffers, pauses, the watchdog, classes, shares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from testbed.base.errors import InputError
from testbed.base.units import format_size
from testbed.faults.base import overlay
from testbed.operate.steps import durations as take
from testbed.operate.steps.action import Action
from testbed.operate.steps.site import Site
from testbed.operate.steps.steps import Put, Step
from testbed.words.entry import Parameter
from testbed.words.kinds import ON_OFF, PORT, SIZE, SWITCH, TIME, Choice, Number
from topologies.graph.fabric import End

_SWITCH = Parameter("switch", SWITCH, "its name", required=True)
_PORT = Parameter("port", PORT, "a switch's port, SWITCH:N", required=True)
_CLASS = Number("class", "CLASS", 0, 7)
_DSCP = Number("dscp", "DSCP", 0, 63)


def ecn(
    site: Site, switch: str, state: str | None, priority: int | None, kmin: float | None, kmax: float | None,
    pmax: float | None,
) -> Iterator[Step]:  # fmt: skip
    key = str(3 if priority is None else priority)
    given = {"kmin_bytes": kmin, "kmax_bytes": kmax, "pmax": pmax}
    before = site.switch(switch).get("ecn", {}).get(key)
    whole = _merged("ecn", state, given, before, "thresholds", f"class {key} has no thresholds yet")
    if whole is None:
        yield Put(overlay("switch", switch, {"ecn": {key: None}}))
        return
    if whole["kmin_bytes"] > whole["kmax_bytes"]:
        low, high = (format_size(int(whole[name])) for name in ("kmin_bytes", "kmax_bytes"))
        raise InputError(f"kmin ({low}) is larger than kmax ({high})", "ecn", "marking grows from kmin to kmax")
    yield Put(overlay("switch", switch, {"ecn": {key: whole}}))


def buffer(site: Site, switch: str, size: float) -> Iterator[Step]:
    most = int(site.switch(switch)["buffer_bytes"])
    if not 0 < size <= most:
        raise InputError(f"{switch} has no buffer of {format_size(int(size))}", "buffer: SIZE",
                         f"up to {format_size(most)}, which is built in")  # fmt: skip
    yield Put(overlay("switch", switch, {"buffer_bytes": size}))


def headroom(site: Site, port: End, size: float) -> Iterator[Step]:
    switch = _switch_of(site, "headroom", port)
    most = int(site.switch(switch)["buffer_bytes"])
    if size > most:
        raise InputError(f"{switch} has only {format_size(most)} of buffer", "headroom: SIZE", "for all of its ports")
    yield Put(overlay("port", f"{port.node}:{port.port}", {"headroom_bytes": size}))


def pfc(site: Site, port: End, state: str) -> Iterator[Step]:
    _switch_of(site, "pfc", port)
    on = state == "on"
    yield Put(overlay("port", f"{port.node}:{port.port}", {"pfc_tx": on, "pfc_rx": on}))


def pfcwd(
    site: Site, switch: str, state: str | None, detect: float | None, restore: float | None, action: str | None
) -> Iterator[Step]:
    given = {"detect_ns": detect, "restore_ns": restore, "action": action}
    before = site.switch(switch).get("watchdog")
    off = f"the watchdog of {switch} is off, and has no times"
    whole = _merged("pfcwd", state, given, before, "times and action", off)
    if whole is None:
        yield Put(overlay("switch", switch, {"watchdog": None}))
        return
    if not whole["detect_ns"] or not whole["restore_ns"]:
        raise InputError("a storm takes some time", "pfcwd", "--detect and --restore of more than 0ns")
    yield Put(overlay("switch", switch, {"watchdog": whole}))


def trimming(site: Site, switch: str, state: str | None) -> Iterator[Step]:
    if state == "off":
        yield Put(overlay("switch", switch, {"trimming": None}))
        return
    before = site.switch(switch).get("trimming")
    if before is None:
        raise InputError(
            f"{switch} came up without trimming", "switch-trimming", "fabric.switch.trimming of the experiment"
        )
    yield Put(overlay("switch", switch, {"trimming": before}))


def dscp(site: Site, switch: str, dscp: int, to: int) -> Iterator[Step]:
    yield Put(overlay("switch", switch, {"dscp": {str(dscp): to}}))


def weight(site: Site, switch: str, priority: int, weight: int) -> Iterator[Step]:
    yield Put(overlay("switch", switch, {"weights": {str(priority): weight}}))


def _merged(
    words: str, state: str | None, given: dict[str, Any], before: dict[str, Any] | None, what: str, none_yet: str
) -> dict[str, Any] | None:
    """What is to be set: what was given, and the rest as it was before. None: it is switched off."""
    values = {name: value for name, value in given.items() if value is not None}
    if state == "off":
        if values:
            raise InputError(f"{what} do not go with off", words, "leave them out, or off")
        return None
    whole = {**dict.fromkeys(given), **(before or {}), **values}
    missing = [f"--{name.removesuffix('_bytes').removesuffix('_ns')}" for name in given if whole[name] is None]
    if missing:
        raise InputError(none_yet, words, f"give {', '.join(missing)}")
    return {name: whole[name] for name in given}


def _switch_of(site: Site, words: str, port: End) -> str:
    if port.node in site.fabric.nic_by_name:
        rank = site.fabric.nic_by_name[port.node].rank
        hint = f"config nic pfc {rank} is for the NIC" if words == "pfc" else "SWITCH:N"
        raise InputError(f"{port.node} is a NIC, not a switch's port", words, hint)
    return port.node


def _action(words: str, about: str, parameters: tuple[Parameter, ...], **more: Any) -> Action:
    return Action(
        words=words, about=about, parameters=parameters, cost_ns=take.SETTING_NS, cost_from=take.SETTING, **more
    )


ACTIONS = (
    _action(
        "ecn", "Sets from which queue on a switch marks a class, or that it does not.",
        (_SWITCH, Parameter("state", ON_OFF, "on (default), or off"),
         Parameter("priority", _CLASS, "the class (default 3)", option=True),
         Parameter("kmin", SIZE, "queue up to which nothing is marked (default: as the fabric came up)", option=True),
         Parameter("kmax", SIZE, "queue above which everything is", option=True),
         Parameter("pmax", Number("pmax", "SHARE", 0, 1, False), "share that is marked at kmax", option=True)),
        steps=ecn, blast="all ports of the switch",
        traffic="the next frame that leaves a queue is marked by the new thresholds; what is marked already stays so, "
        "and senders recover as their congestion control does",
        configures=("ecn_off", "ecn_thresholds"), example="leaf0 --kmin 100KB --kmax 400KB --pmax 0.2",
    ),
    _action(
        "buffer", "Sets how much of its packet buffer a switch uses.",
        (_SWITCH, Parameter("size", SIZE, "up to what is built in", required=True)),
        steps=buffer, blast="all ports of the switch",
        traffic="what is in the buffer stays; groups that are over their share now are paused at once (lossless) or "
        "lose what comes in (lossy), and what is paused without need may go on",
        configures=("small_buffer",), example="leaf0 16MB",
    ),
    _action(
        "headroom", "Sets a port's headroom, of each lossless class.",
        (_PORT, Parameter("size", SIZE, "what may still come in after XOFF", required=True)),
        steps=headroom, blast="the port; the shared buffer of the switch is so much smaller or larger",
        traffic="as with `buffer`", configures=("small_headroom",), example="leaf0:1 200KB",
    ),
    _action(
        "pfc", "Switches a port's pauses on or off: sent and heeded.",
        (_PORT, Parameter("state", ON_OFF, "on or off", required=True)),
        steps=pfc, blast="the port; its peer sends or pauses otherwise",
        traffic="switched off, the port lets its peer go on (XON), sends what was paused, and drops what its buffer "
        "cannot hold; switched on, it pauses at once what is over its share",
        configures=("pfc_off",), example="leaf0:1 off",
    ),
    _action(
        "pfcwd", "Sets a switch's PFC watchdog, or switches it off.",
        (_SWITCH, Parameter("state", ON_OFF, "on (default), or off"),
         Parameter("detect", TIME, "a pause of this length is a storm", option=True),
         Parameter("restore", TIME, "the storm is over after this long without a pause", option=True),
         Parameter("action", Choice("action", "drop|forward", ("drop", "forward")), "what it then does", option=True)),
        steps=pfcwd, blast="all ports of the switch",
        traffic="storms that it sees now are over, and pauses are watched anew from here on",
        configures=("short_watchdog",), example="leaf0 --detect 200us --restore 400us --action drop",
    ),
    _action(
        "switch-trimming", "Switches packet trimming of a switch on, as the fabric came up, or off.",
        (_SWITCH, Parameter("state", ON_OFF, "on (default), or off")),
        steps=trimming, blast="all ports of the switch",
        traffic="the next frame that finds no place is trimmed, or dropped",
        configures=("trim_off",), example="leaf0 off",
    ),
    _action(
        "qos dscp", "Sets into which class a switch puts a DSCP.",
        (_SWITCH, Parameter("dscp", _DSCP, "0 to 63", required=True), Parameter("to", _CLASS, "0 to 7", required=True)),
        steps=dscp, blast="all ports of the switch",
        traffic="frames that come in from now on; those in queues stay in theirs, so that some may overtake others",
        configures=("wrong_dscp_map",), example="leaf0 26 3",
    ),
    _action(
        "scheduler weight", "Sets a class's share among the classes that share a port.",
        (_SWITCH, Parameter("priority", _CLASS, "the class, 0 to 7", required=True),
         Parameter("weight", Number("weight", "WEIGHT", 1, 100), "1 to 100", required=True)),
        steps=weight, blast="all ports of the switch", traffic="from the next frame on",
        configures=("wrong_weights",), example="leaf0 3 1",
    ),
)  # fmt: skip
