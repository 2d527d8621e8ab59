"""NICs: their congestion control, pauses, PCIe; another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_core import PydanticCustomError

from testbed.base import controls
from testbed.base.errors import InputError
from testbed.faults.base import Place, overlay
from testbed.operate.steps import durations as take
from testbed.operate.steps.action import Action
from testbed.operate.steps.site import Site
from testbed.operate.steps.steps import ForGood, Mend, Note, Put, Step
from testbed.words.entry import Parameter
from testbed.words.kinds import ON_OFF, RANK, TEXT
from topologies.graph.targets import NicTarget

_RANK = Parameter("rank", RANK, "its rank", required=True)


def cc(site: Site, rank: int, name: str, values: str | None) -> Iterator[Step]:
    """Parameters that are not given are those that the fabric came up with, or the control's defaults."""
    from hardware.cc import CONTROLS

    given = dict(_pair(word, name) for word in (values or "").split())
    try:
        control_read = controls.read({name: given})
    except PydanticCustomError as error:
        path, what, hint = (error.context or {})["mistakes"][0]
        raise InputError(what, f"nic cc: {path[-1] if path else 'NAME'}", hint) from None
    before: dict[str, Any] = site.nic(rank).get("cc") or {}
    control, given_values = CONTROLS[name], control_read["values"]
    if before.get("algorithm") == name and "set" not in given:
        params = {**before["params"], **{control.by_name[k].key: v for k, v in given_values.items()}}
    else:
        whole = control.values(site.cc_setting, given_values, control_read["set"])
        params = {control.by_name[k].key: v for k, v in whole.items()}
    yield Put(overlay("nic", rank, {"cc": {"algorithm": name, "params": params}}))


def _pair(word: str, name: str) -> tuple[str, Any]:
    import yaml

    key, equals, text = word.partition("=")
    if not equals or not text:
        raise InputError(f"{word!r} is no parameter", "nic cc", f"nic cc RANK {name} PARAMETER=VALUE ..")
    try:
        return key, yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return key, text


def retrain(site: Site, rank: int) -> Iterator[Step]:
    yield Mend("nic pcie retrain", f"nic:{rank}")
    yield ForGood("PCIe has trained anew")


def pfc(site: Site, rank: int, state: str) -> Iterator[Step]:
    on = state == "on"
    for port in _place(site, rank).directions("forward"):
        yield Put(overlay("port", port, {"pfc_tx": on, "pfc_rx": on}))


def replace(site: Site, rank: int) -> Iterator[Step]:
    """Its cables are out, and its rank's worker waits."""
    yield Note(f"rank {rank} is away for 2 ms")
    for cable in _place(site, rank).cables():
        yield Put(overlay("cable", cable.name, {"up": False}), take.NIC_NS)
    yield Put(overlay("nic", rank, {"frozen": True}), take.NIC_NS)
    yield Mend("nic replace", f"nic:{rank}")
    yield ForGood("the old NIC is gone")


def _place(site: Site, rank: int) -> Place:
    return Place(site.fabric, NicTarget(site.fabric.nics[rank]))


ACTIONS = (
    Action(
        words="nic cc", about="Sets the congestion control of a NIC, and parameters of it.",
        parameters=(_RANK, Parameter("name", TEXT, "such as dcqcn", required=True),
                    Parameter("values", TEXT, "PARAMETER=VALUE .., such as g=0.01 rate_timer=60us", rest=True)),
        steps=cc, cost_ns=take.SETTING_NS, cost_from=take.SETTING, blast="all queue pairs of the NIC",
        traffic="each queue pair begins with the control's state anew if it is another control, and goes on with its "
        "rate if only parameters are others",
        configures=("cc_off", "wrong_cc"), example="0 dcqcn",
    ),
    Action(
        words="nic pfc", about="Switches a NIC's pauses on or off: sent and heeded.",
        parameters=(_RANK, Parameter("state", ON_OFF, "on or off", required=True)),
        steps=pfc, cost_ns=take.SETTING_NS, cost_from=take.SETTING, blast="the NIC; its switch port sends otherwise",
        traffic="as with `pfc` of a port; a NIC that may not pause drops what its receive buffer has no room for",
        example="0 off",
    ),
    Action(
        words="nic pcie retrain", about="Has a NIC's PCIe link train anew.", parameters=(_RANK,),
        steps=retrain, cost_ns=take.RETRAIN_NS, cost_from=take.RETRAIN, blast="nothing that is modelled",
        traffic="PCIe sends again what training interrupts, so nothing is lost; the interruption is not modelled",
        example="0",
    ),
    Action(
        words="nic replace", about="Replaces a NIC, with its cable; its rank is away meanwhile.", parameters=(_RANK,),
        steps=replace, cost_ns=take.NIC_NS, cost_from=take.NIC,
        blast="its rank, and everybody who waits for it, for 2 ms",
        traffic="frames on its cable are lost (drops `cable`). Its queue pairs are as they were and send again; those "
        "of its peers fail if `nic.retry` timeouts pass within 2 ms",
        example="0",
    ),
)  # fmt: skip
