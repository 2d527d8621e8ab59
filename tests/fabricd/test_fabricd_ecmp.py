"""Which port a flow takes, by seeds: as Open vSwitch itself says, and for E-ECMP as MurmurHash3 does."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv4Address
from typing import Any

import pytest

from controllers.openflow import vswitchd
from hardware.config import Hardware
from tests.parts.fabricd_fixture import bare_fabric
from tests.parts.murmur import murmur3, swapped
from tests.parts.traffic_fabric import port, send
from topologies.ranks.multipath import Hashing, member

SPINES, MTU = 4, 4096
CLOS = {"leaves": 2, "spines": SPINES, "hosts_per_leaf": 2}
UP = tuple(range(3, 3 + SPINES))  # leaf0's ports to the spines, behind its two hosts


def test_open_vswitch_takes_the_ports_that_are_expected_of_a_thousand_flows_by_many_seeds() -> None:
    """By its own tracer: that is the hash that any frame would get."""
    with bare_fabric("clos", CLOS) as f:
        bridge, control = f.bridge("leaf0"), f.switch.ovs.control
        bases = [Hashing(seed).basis(dpid) for seed, dpid in ((None, 1), (None, 40000), (0, 1), (7, 1), (7, 2))]
        links = (2, 3, 8, 5, 128)
        rules = [
            f"table=9,priority={k},in_port={k},actions=multipath(symmetric_l3l4+udp,{basis},modulo_n,{n},0,NXM_NX_REG0[])"
            for k, (basis, n) in enumerate(zip(bases, links, strict=True), 1)
        ]
        rules.append("priority=60000,ip,actions=resubmit(,9)")
        f.ofctl("add-flows", bridge, "-", flows=rules)
        for flow in range(1000):
            k = flow % len(bases)
            source, target, sport = 0x0A000001 + flow * 7919 % 251, 0x0A010001 + flow * 104729 % 257, 0xC000 + flow * 11
            ips = f"nw_src={IPv4Address(source)},nw_dst={IPv4Address(target)}"
            what = f"in_port={k + 1},udp,{ips},udp_src={sport},udp_dst=4791"
            text = vswitchd.command(control, "ofproto/trace", bridge, what)
            told = int(text.split("NXM_NX_REG0[] is now ")[1].split()[0], 0)
            assert told == member(source, target, sport, bases[k], links[k]), what


def sent_by_queue_pair(
    fixed: bool, sample: int, basis: int = 77, later: int | None = None
) -> tuple[list[int], list[dict[str, Any]], list[Any]]:
    """Frames by each of leaf0's uplinks; the flows' queue pairs; and the fabric's figures."""
    nic = {"fixed_port": fixed}
    hardware = Hardware(timeout_ns=1e9, nic=nic, switch={"adaptive": {"policy": "hash", "basis": basis}})
    with bare_fabric("clos", CLOS, hardware, sample=sample) as f:
        f.fabricd.request("start", ranks=[])
        buckets = ",".join(f"bucket=output:{p}" for p in UP)
        f.ofctl("add-group", f.bridge("leaf0"), f"group_id=2147483648,type=all,{buckets}")
        rules = [f"priority=50000,ip,nw_dst={f.fabric.nics[to].ip},actions=group:2147483648" for to in (2, 3)]
        f.ofctl("add-flows", f.bridge("leaf0"), "-", flows=rules)
        if later is not None:
            chip = {"policy": "hash", "basis": later, "local_repair": False}
            f.fabricd.request("inject", fault="seed", primitive="params", switch="leaf0", values={"adaptive": chip})
        send(f, [(0, 2 + k % 2, (k + 1) * MTU, 100.0 * k) for k in range(40)])
        counted = f.counters()
        ips = {n.rank: int(n.ip) for n in f.fabric.nics}
        own = [{**q, "ips": (ips[q["rank"]], ips[q["peer"]])} for q in counted["qps"] if q["rank"] == 0]
        assert counted["fidelity"]["flagged"] == 0
        figures = [counted[key] for key in ("time_ns", "ports", "groups", "switches", "nics", "qps")]
        return [port(f, "leaf0", p)["tx_frames"] for p in UP], own, figures


@pytest.mark.parametrize("fixed", [False, True])
def test_a_chip_tells_queue_pairs_apart_by_the_number_of_the_other_end(fixed: bool) -> None:
    sent, pairs, figures = sent_by_queue_pair(fixed, sample=1024)
    expected: Counter[int] = Counter()
    for q in pairs:
        source, target = q["ips"]
        words = [swapped(source ^ target, 4), 17, swapped(q["udp_src_port"] ^ 4791, 2), q["peer_qp"]]
        expected[murmur3(words, 77, 77) % SPINES] += q["tx_packets"]
    assert sent == [expected[k] for k in range(SPINES)] and min(sent) > 0
    assert (len({q["udp_src_port"] for q in pairs}) == 1) == fixed
    assert figures == sent_by_queue_pair(fixed, sample=0)[2]


def test_a_chip_that_is_given_another_seed_hashes_as_if_it_had_come_up_with_it() -> None:
    sent = sent_by_queue_pair(False, 1024, basis=77, later=5)[0]
    assert sent == sent_by_queue_pair(False, 1024, basis=5)[0] != sent_by_queue_pair(False, 1024)[0]
