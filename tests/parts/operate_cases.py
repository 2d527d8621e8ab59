"""Actions of operators at the place of a fault, and at another: one case for each fault that an action undoes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """On a clos of 2 leaves, a spine and 3 hosts a leaf. Both lines are by the same action."""

    fault: str
    target: dict[str, Any]
    right: str
    wrong: str
    cc: str = "none"
    bites: bool = True  # the flows feel the fault
    before: dict[str, Any] | None = None  # another fault that it needs to be felt

    @property
    def written(self) -> dict[str, Any]:
        return {"fault": self.fault, **self.target}


def _wire(fault: str, bites: bool = True, **more: Any) -> list[Case]:
    """What goes with a cable goes with a NIC, too."""
    cable = {"on": "cable:leaf0-spine0", **more}
    return [
        Case(fault, cable, "cable replace leaf0-spine0", "cable replace leaf1-spine0", bites=bites),
        Case(fault, {"on": "nic:0", **more}, "nic replace 0", "nic replace 5", bites=bites),
    ]


def _flows(fault: str, bites: bool = True, **more: Any) -> Case:
    return Case(fault, {"on": "switch:leaf0", **more}, "flow resync leaf0", "flow resync leaf1", bites=bites)


CASES: list[Case] = [
    _flows("missing_entry", to=0),
    _flows("shadow_rule", to=0),
    _flows("wrong_port", to=0, port=2),
    _flows("partial_write", share=0.3),
    _flows("meter", to=0, rate="20Gbps", burst="10KB"),
    _flows("missing_group", bites=False),
    *_wire("loss", rate=0.2),
    *_wire("burst_loss", to_bad=0.2, to_good=0.2),
    *_wire("drop_every", n=7),
    *_wire("drop_first", n=100_000),
    *_wire("drop_hash", share=1.0),
    *_wire("corruption", rate=0.2),
    *_wire("silent_corruption", False, rate=0.2),
    *_wire("duplication", rate=0.2),
    *_wire("reordering", rate=0.2),
    *_wire("delay", delay="3us"),
    *_wire("jitter", jitter="3us"),
    *_wire("one_way"),
    *_wire("dscp_remarked", dscp=0),
    *_wire("ecn_bleached"),
    *_wire("cable_down"),
    *_wire("reduced_rate", rate="100Gbps"),
    *_wire("long_cable", delay="3us"),
    Case(
        "reduced_rate",
        {"on": "cable:leaf0-spine0", "rate": "100Gbps"},
        "interface speed leaf0:4 400Gbps",
        "interface speed leaf0:3 400Gbps",
    ),
    Case(
        "small_mtu", {"on": "cable:h0-leaf0", "mtu": 1500}, "interface mtu leaf0:1 9100", "interface mtu leaf0:2 9100"
    ),
    Case("miswired", {"on": "nic:0", "other": 1}, "cable move h0-leaf0 h1-leaf0", "cable move h0-leaf0 h2-leaf0"),
    Case("ecn_off", {"on": "switch:leaf0"}, "ecn leaf0", "ecn leaf1"),
    Case("ecn_thresholds", {"on": "switch:leaf0", "kmin": "5KB", "kmax": "5KB"}, "ecn leaf0", "ecn leaf1"),
    Case("small_buffer", {"on": "switch:leaf0", "size": "400KB"}, "buffer leaf0 1200KB", "buffer leaf1 1200KB"),
    Case(
        "small_headroom", {"on": "port:leaf0:4", "size": "0B"}, "headroom leaf0:4 HEADROOM", "headroom leaf0:1 HEADROOM"
    ),
    Case("pfc_off", {"on": "port:leaf0:1"}, "pfc leaf0:1 on", "pfc leaf0:2 on"),
    Case(
        "short_watchdog",
        {"on": "switch:leaf0", "detect": "1us", "restore": "5us"},
        "pfcwd leaf0 off",
        "pfcwd leaf1 off",
        before={"fault": "slow_pcie", "on": "nic:0", "rate": "50Gbps"},
    ),
    Case("wrong_dscp_map", {"on": "switch:leaf0"}, "qos dscp leaf0 26 3", "qos dscp leaf1 26 3"),
    Case(
        "wrong_weights",
        {"on": "switch:leaf0", "weight": 10},
        "scheduler weight leaf0 3 1",
        "scheduler weight leaf1 3 1",
        bites=False,
    ),
    Case("cc_off", {"on": "nic:4"}, "nic cc 4 dcqcn", "nic cc 5 dcqcn", cc="dcqcn"),
    Case(
        "wrong_cc",
        {"on": "nic:4", "parameters": {"g": 1.0, "alpha_timer": "1ms", "decrease_gap": "100ns"}},
        "nic cc 4 dcqcn",
        "nic cc 5 dcqcn",
        cc="dcqcn",
    ),
    Case("slow_pcie", {"on": "nic:0", "rate": "50Gbps"}, "nic pcie retrain 0", "nic pcie retrain 5"),
    Case("slow_pcie", {"on": "nic:0", "rate": "50Gbps"}, "nic replace 0", "nic replace 5"),
    Case("pause_storm", {"on": "nic:0"}, "nic replace 0", "nic replace 5"),
]
