"""What a seed makes drills of: settings, each a fabric with a job, and what can go wrong there.

A setting's first variant is the one in which the signatures of all faults were measured (signatures.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Told = Mapping[str, Any]
CLOS = {"leaves": 2, "spines": 2, "hosts_per_leaf": 4}
ONE_SPINE = {"leaves": 2, "spines": 1, "hosts_per_leaf": 4}
MARKS = {"kmin": "20KB", "kmax": "80KB", "pmax": 0.5}


@dataclass(frozen=True)
class Scenario:
    """A fabric and its job. `sizes`, `computes`: what the job may be."""

    name: str
    topologies: Sequence[Told]
    job: Told
    sizes: Sequence[str]
    computes: Sequence[str | None] = (None,)
    fabric: Told = field(default_factory=dict)
    control: Told = field(default_factory=dict)
    cc: str = "dcqcn"
    warmup: str = "300us"
    rivals: Sequence[str] = ()  # settings whose recipes strike here, too, when signatures are measured


@dataclass(frozen=True)
class Recipe:
    """A fault as it can be drawn. `amounts`: values of its parameters, the first one the plainest."""

    family: str
    fault: str
    draw: Told
    settings: Sequence[str]  # where it may be drawn
    amounts: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    more: Told = field(default_factory=dict)  # parameters that are always the same
    name: str = ""  # if there are several of one class
    configured: bool = False  # a golden configuration hides it, and something else still tells it
    pulses: bool = False  # it may come and go
    mends: bool = False  # it can be mended for less than it costs
    stops: bool = False  # no step ends any more, so nothing else shows beside it
    needs: Told = field(default_factory=dict)  # of the fabric's NICs, or the transport

    @property
    def key(self) -> str:
        return self.name or self.fault


SETTINGS = {
    s.name: s
    for s in (
        Scenario("ring", [{"clos": CLOS}, {"clos": {**CLOS, "hosts_per_leaf": 3}}],
                {"collective": "all_reduce", "algorithm": "ring"}, ("256KiB", "128KiB"), ("20us", None),
                {"nic": {"timeout": "100us"}}, {"reaction": "50us"}),
        Scenario("lossless", [{"clos": ONE_SPINE}], {"collective": "all_to_all"}, ("256KiB", "512KiB"), (None,),
                {"switch": {"buffer": "1MB"}, "nic": {"timeout": "100us"}}, cc="none", rivals=("marking",)),
        Scenario("marking", [{"clos": ONE_SPINE}], {"collective": "all_to_all"}, ("512KiB", "256KiB"), (None,),
                {"switch": {"buffer": "4MB", "ecn": MARKS}, "nic": {"timeout": "500us"}}, rivals=("lossless",)),
        Scenario("star", [{"star": {"hosts": 8}}, {"star": {"hosts": 6}}],
                {"collective": "all_reduce", "algorithm": "ring"}, ("256KiB", "128KiB"), (None, "20us"),
                {"nic": {"timeout": "100us"}}, {"reaction": "50us"}, rivals=("lossless", "rail")),
        Scenario("rail", [{"rail": {"servers": 4, "gpus": 2, "spines": 1}}],
                {"collective": "all_reduce", "algorithm": "ring"}, ("256KiB", "128KiB"), ("20us",),
                {"nic": {"timeout": "100us"}}, {"reaction": "50us"}, rivals=("star", "ring")),
        Scenario("offloaded", [{"clos": ONE_SPINE}], {"collective": "all_reduce", "algorithm": "in_network"},
                ("256KiB", "128KiB"), (None,), {"nic": {"timeout": "100us"}}, cc="none", warmup="1500us",
                rivals=("lossless",)),
    )
}  # fmt: skip


def _cable(one: str, other: str) -> dict[str, Any]:
    return {"bad": {"any": "cable", "between": [one, other], "carries": "job"}}


UPLINK, HOST_CABLE, TO_RAIL = _cable("leaf", "spine"), _cable("nic", "leaf"), _cable("nic", "rail")
NIC = {"bad": {"any": "nic", "carries": "job"}}
LEAF = {"bad": {"any": "switch", "role": "leaf", "carries": "job"}}
SPINE = {"bad": {"any": "switch", "role": "spine", "carries": "job"}}
TO_VICTIM = {"victim": {"any": "nic", "carries": "job"}, "bad": {"any": "switch", "role": "leaf", "at": "$victim"}}
FAR_VICTIM = {"bad": {"any": "switch", "role": "leaf"}, "victim": {"any": "nic", "away": "$bad", "carries": "job"},
              "spine": {"any": "switch", "role": "spine"}}  # fmt: skip

RECIPES = {
    r.key: r
    for r in (
        Recipe("lost", "loss", UPLINK, ("ring",), {"rate": [0.02, 0.05, 0.03]}, mends=True),
        Recipe("lost", "loss", UPLINK, ("ring",), {"rate": [0.2, 0.3]}, {"for": "50us", "every": "300us"},
               name="loss_in_bursts", pulses=True, mends=True),
        Recipe("lost", "drop_every", HOST_CABLE, ("star",), {"n": [50, 30, 70]}),
        Recipe("lost", "burst_loss", TO_RAIL, ("rail",), {"to_bad": [0.01, 0.02]}, {"to_good": 0.1}),
        Recipe("lost", "drop_hash", SPINE, ("ring",), {"share": [0.3, 0.5]}, mends=True),
        Recipe("corruption", "corruption", HOST_CABLE, ("star",), {"rate": [0.02, 0.05]}, {"direction": "backward"}),
        Recipe("corruption", "corruption", UPLINK, ("ring",), {"rate": [0.05, 0.03]}, name="corrupt_uplink",
               mends=True),
        Recipe("corruption", "silent_corruption", SPINE, ("ring",), {"rate": [0.05, 0.1]}, mends=True),
        Recipe("corruption", "duplication", UPLINK, ("ring",), {"rate": [0.2, 0.1, 0.3]}),
        Recipe("corruption", "reordering", UPLINK, ("ring",), {"rate": [0.05, 0.1]}, {"delay": "2us"}, mends=True,
               needs={"recovery": "go_back_n"}),
        Recipe("congestion", "reduced_rate", UPLINK, ("ring",), {"rate": ["50Gbps", "100Gbps", "25Gbps"]},
               mends=True),
        Recipe("congestion", "long_cable", UPLINK, ("ring",), {"delay": ["4us", "6us", "3us"]}, mends=True),
        Recipe("congestion", "jitter", UPLINK, ("ring",), {"jitter": ["6us", "4us"]}, mends=True),
        Recipe("congestion", "small_buffer", LEAF, ("lossless",), {"size": ["600KB", "500KB"]}, configured=True,
               mends=True),
        Recipe("congestion", "incast",
               {"bad": {"any": "nic"}, "a": {"any": "nic", "not": "$bad"}, "b": {"any": "nic", "not": ["$bad", "$a"]}},
               ("marking",), {}, {"senders": ["$a", "$b"], "size": "500MB"}),
        Recipe("pfc", "pause_storm", NIC, ("ring",), stops=True),
        Recipe("pfc", "pfc_off", HOST_CABLE, ("lossless",), configured=True, mends=True),
        Recipe("pfc", "short_watchdog", LEAF, ("lossless",), {"detect": ["2us", "1us"]}, {"restore": "10us"},
               mends=True),
        Recipe("ecn", "ecn_thresholds", LEAF, ("marking",), {"kmin": ["1KB", "2KB"], "kmax": ["4KB", "6KB"]},
               mends=True),
        Recipe("ecn", "ecn_bleached", HOST_CABLE, ("marking",)),
        Recipe("ecn", "wrong_dscp_map", LEAF, ("lossless", "marking"), {}, {"dscp": 26, "to": 0},
               configured=True, mends=True),
        Recipe("ecn", "wrong_dscp_map", LEAF, ("ring",), {}, {"dscp": 26, "to": 0}, name="wrong_map_on_ring",
               mends=True),
        Recipe("ecn", "dscp_remarked", UPLINK, ("ring",), {}, {"dscp": 0}, mends=True),
        Recipe("routing", "missing_entry", TO_VICTIM, ("ring",), {}, {"to": "$victim"}, mends=True,
               stops=True),
        Recipe("routing", "shadow_rule", TO_VICTIM, ("ring",), {}, {"to": "$victim"}, mends=True,
               stops=True),
        Recipe("routing", "wrong_port",
               {**TO_VICTIM, "door": {"any": "port", "at": "$bad", "facing": "nic"},
                "other": {"any": "nic", "at": "$bad", "not": "$victim"}},
               ("ring",), {}, {"to": "$victim", "port": "$door"}, mends=True, stops=True),
        Recipe("routing", "loop", FAR_VICTIM, ("ring",), {}, {"to": "$victim", "neighbour": "$spine"}, mends=True,
               stops=True),
        Recipe("routing", "meter", TO_VICTIM, ("ring",), {"rate": ["20Gbps", "30Gbps"]}, {"to": "$victim"},
               mends=True),
        Recipe("routing", "dead_ecmp_member", {"bad": {"any": "port", "role": "leaf", "facing": "spine",
                                                       "carries": "job"}}, ("ring",), mends=True,
               stops=True),
        Recipe("controller", "cable_down", UPLINK, ("ring",), {"for": ["30us", "40us"]}, {"every": "500us"},
               pulses=True, mends=True),
        Recipe("host", "small_mtu", UPLINK, ("ring",), {"mtu": [1500, 2000]}, mends=True, stops=True),
        Recipe("host", "slow_pcie", NIC, ("lossless",), {"rate": ["128Gbps", "64Gbps"]}, mends=True),
        Recipe("host", "slow_receiver", NIC, ("star",), {"delay": ["20us", "30us"]}),
        Recipe("stragglers", "straggler", NIC, ("rail",), {"factor": [3, 4, 5]}, mends=True),
        Recipe("stragglers", "straggler", NIC, ("rail",), {"factor": [4, 5]}, {"for": "150us", "every": "600us"},
               name="straggles_at_times", pulses=True, mends=True),
        Recipe("stragglers", "worker_frozen", NIC, ("ring", "star"), stops=True),
        Recipe("stragglers", "worker_killed", NIC, ("ring",), stops=True),
        Recipe("wiring", "miswired", {"bad": {"any": "nic"}, "rail": {"any": "switch", "role": "rail", "at": "$bad"},
                                      "other": {"any": "nic", "away": "$rail"}}, ("rail",), {}, {"other": "$other"},
               mends=True, stops=True),
        Recipe("offload", "accelerator_down", {"bad": {"any": "switch", "role": "spine"}}, ("offloaded",), mends=True),
        Recipe("offload", "missing_group", {"bad": {"any": "switch", "role": "leaf"}}, ("offloaded",), mends=True),
    )
}  # fmt: skip
FAMILIES = tuple(dict.fromkeys(r.family for r in RECIPES.values()))
HINTS = {
    "lost": ("Which NICs send again, and what do they count?", "Which hops do their flows share?",
             "What is sent by one end of a cable, and what is received by the other?"),
    "corruption": ("Is anything lost, or damaged, or more than it was?", "What do NICs count that switches do not?",
                   "Take hops out one after the other, and look whether it goes on."),
    "congestion": ("Where do frames wait, and for what?", "What do interfaces say of themselves?",
                   "If no counter moves, measure: probe mesh."),
    "pfc": ("Who pauses whom?", "Follow the pauses against the data, to the end that nobody pauses.",
            "Compare ports that do the same work."),
    "ecn": ("Who should mark, and who marks?", "In which class are the frames, at each hop?",
            "Compare switches of one kind: depth, marks, classes."),
    "routing": ("Where do frames end, and for what reason?", "Whose frames are they?",
                "What does that switch's table say of their address?"),
    "controller": ("When did a port or a flow change last?", "What does the log say?",
                   "Compare the tables of switches of one kind."),
    "host": ("Who makes others wait?", "What do that host's NIC, slot or cable have that others have not?",
             "Look at how it is set up."),
    "stragglers": ("Is it the network at all?", "In a step everybody waits for the slowest. Who does not wait?",
                   "Compare the ranks' own time in show job."),
    "wiring": ("Who is plugged in where? Not on the plan.", "Neighbours tell each other their names."),
    "offload": ("Who has added up, switches or hosts?", "Where do contributions or results end?",
                "Ask each accelerator, and each table."),
}  # fmt: skip
