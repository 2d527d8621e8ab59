"""Each way to choose among paths, of switches and of NICs: the same figures with the fast path and without.

Two leaves of four hosts, four spines. Leaf0 takes a port for each packet toward leaf1; leaf1's ports follow from Open
vSwitch's hash, so there the NICs' entropies choose. Queues mark, one spine's cable is slow, some packets are lost, some
come late.
"""

from __future__ import annotations

from typing import Any

import pytest

from hardware.cc import Setting
from hardware.config import Hardware
from hardware.multipath import POLICIES
from tests.parts.fabricd_fixture import FAST, bare_fabric
from tests.parts.traffic_fabric import nic, send, switch

MTU, PACKETS, HOSTS, SPINES, GROUP = 4096, 120, 4, 4, 1 << 31
ECN = {"3": {"kmin_bytes": 20_000, "kmax_bytes": 80_000, "pmax": 1.0}}
ADAPTIVE: dict[str, dict[str, Any]] = {
    "two_choices": {}, "shortest": {}, "round_robin": {}, "random": {}, "flowlets": {"flowlet_gap_ns": 2000},
}  # fmt: skip


def figures(adaptive: str, multipath: str, sample: int) -> dict[str, Any]:
    policy = "two_choices" if adaptive == "flowlets" else adaptive
    entry = POLICIES[multipath]
    its_nic = {
        **nic("nscc"), "recovery": "selective_repeat", "lossless": [], "reorder_packets": 4096, "sack_bits": 64,
        "sack_every": 16, "loss_after_ns": 8000,
        "multipath": entry.in_fabricd(32, entry.values(Setting(400e9, 4000, MTU), {})),
    }  # fmt: skip
    chooses = {"policy": policy, "flowlet_entries": 64, **ADAPTIVE[adaptive]}
    its_switch = switch(headroom=0, lossless=[], alpha=64, ecn=ECN, adaptive=chooses)
    params = {"leaves": 2, "spines": SPINES, "hosts_per_leaf": HOSTS}
    with bare_fabric("clos", params, Hardware(switch=its_switch, nic=its_nic), sample=sample) as f:
        f.fabricd.request("start", ranks=[])
        buckets = ",".join(f"bucket=output:{HOSTS + 1 + spine}" for spine in range(SPINES))
        f.ofctl("add-group", f.bridge("leaf0"), f"group_id={GROUP},type=all,{buckets}")
        there = [f.fabric.nics[to].ip for to in range(HOSTS, 2 * HOSTS)]
        rules = [f"priority=50000,ip,nw_dst={ip},actions=group:{GROUP}" for ip in there]
        f.ofctl("add-flows", f.bridge("leaf0"), "-", flows=rules)
        hashes = f"multipath(symmetric_l3l4+udp,7,modulo_n,{SPINES},0,NXM_NX_REG0[])"
        back = [f"priority=50000,ip,nw_dst={f.fabric.nics[to].ip},actions={hashes},resubmit(,1)" for to in range(HOSTS)]
        ports = [f"table=1,reg0={spine},actions=output:{HOSTS + 1 + spine}" for spine in range(SPINES)]
        f.ofctl("add-flows", f.bridge("leaf1"), "-", flows=back + ports)
        f.fabricd.request("cable", cable="leaf0-spine1", rate_bps=100e9)
        about: dict[str, Any] = {"primitive": "frames", "ports": ["spine2:1", "spine2:2"]}
        f.fabricd.request("inject", fault="loss", effect="drop", **about, select={"share": 0.01})
        late = {"delay_ns": 0, "jitter_ns": 2000, "reorder": True, "select": {"share": 0.3}}
        f.fabricd.request("inject", fault="late", effect="delay", **about, **late)
        pairs = [(a, HOSTS + (a + 1) % HOSTS) for a in range(HOSTS)]
        times = send(f, [(*ends, PACKETS * MTU, 0.0) for a, b in pairs for ends in ((a, b), (b, a))])
        counted = f.counters()
        rows = ("ports", "nics", "qps", "drops", "groups", "priorities")
        seen = {name: counted[name] for name in rows if name in counted}
        seen["paths"] = [f.fabricd.request("paths", rank=rank)["paths"] for rank in (0, HOSTS)]
        assert all(port["tx_frames"] for port in counted["ports"] if port["node"] == "leaf1")
        assert sum(row["picks"] for row in counted["groups"]) > HOSTS * PACKETS
        went = counted["fidelity"]
        assert went["fast_hops"] > went["frame_hops"] / 2 if sample else not went.get("fast_hops")
        return {"times": times, **seen}


@pytest.mark.parametrize(
    ("adaptive", "multipath"),
    [*((adaptive, "round") for adaptive in ADAPTIVE), *(("two_choices", name) for name in POLICIES if name != "round")],
)
def test_what_is_chosen_does_not_depend_on_the_fast_path(adaptive: str, multipath: str) -> None:
    assert figures(adaptive, multipath, FAST) == figures(adaptive, multipath, 0)
