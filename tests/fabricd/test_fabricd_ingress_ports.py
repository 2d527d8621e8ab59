"""Where nothing looks at the port that a frame came in at, a decision holds for each; where anything does, it does not.

Held against Open vSwitch itself: the same traffic with every frame through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardware.config import Hardware
from tests.parts.fabricd_fixture import FAST, BareFabric, wait_until
from tests.parts.fast_path import fast, star

HOSTS = 4
SIZE = 8
SPACING_NS = 20_000
SHARED = "03:00:0a:00:00:01"
"""Rank 0's MAC address: a group one, so that several copies may come out."""
TO_IT = f"priority=50000,dl_dst={SHARED}"
LATER = "table=1,priority=1,actions=output:{h0}"

RULES: dict[str, list[str]] = {
    "nothing looks": [f"{TO_IT},actions=output:{{h0}}"],
    "a rule looks": [f"{TO_IT},actions=output:{{h0}}", f"priority=60000,in_port={{h2}},dl_dst={SHARED},actions=drop"],
    "a rule of a later table looks": [
        f"{TO_IT},actions=resubmit(,1)",
        LATER,
        "table=1,priority=2,in_port={h2},actions=drop",
    ],
    "a register has it": [
        f"{TO_IT},actions=move:NXM_OF_IN_PORT[]->NXM_NX_REG1[0..15],resubmit(,1)",
        LATER,
        "table=1,priority=2,reg1={h2},actions=drop",
    ],
    "an action puts another in its place": [f"{TO_IT},actions=resubmit({{h2}},1)", LATER],
    "an action takes it away": [f"{TO_IT},actions=load:0->NXM_OF_IN_PORT[],output:{{h1}}"],
    "back where it came from": [f"{TO_IT},actions=in_port"],
    "out where some come in": [f"{TO_IT},actions=output:{{h1}}"],
    "nowhere": [f"{TO_IT},actions=drop"],
    "copies": [f"{TO_IT},actions=output:{{h0}},output:{{h1}},output:{{h2}}"],
    "a group of all": [f"{TO_IT},actions=group:1"],
    "buckets that watch ports": [f"{TO_IT},actions=group:2"],
    "other headers": [f"{TO_IT},ip,actions=set_field:3->ip_ecn,dec_ttl,output:{{h0}}"],
    "some go to the controller": [f"{TO_IT},actions=output:{{h0}},controller"],
}


def names(f: BareFabric) -> dict[str, int]:
    return {nic.name: f.port_to("sw0", nic.name) for nic in f.fabric.nics}


def put_in(f: BareFabric, rules: Sequence[str]) -> None:
    """In place of those before."""
    added = [f"add {rule.format(**names(f))}" for rule in rules]
    f.ofctl("add-flows", f.bridge("sw0"), "-", flows=[f"delete dl_dst={SHARED}", "delete table=1", *added])


def rank_0_is_a_group(config: dict[str, Any]) -> None:
    config["nics"][0]["mac"] = SHARED


HARDWARE = Hardware(timeout_ns=5000, retry=0)


def went(f: BareFabric, senders: Sequence[int]) -> dict[str, Any]:
    """What becomes of a frame of each, to rank 0, two times in turn: all counters, as they grow."""
    was = f.counters()
    flows = [(a, 0, SIZE, n * SPACING_NS) for n, a in enumerate([*senders, *senders])]
    f.fabricd.request("inject", fault="t", primitive="traffic", flows=flows)
    f.fabricd.request("quiesce", 120.0)
    times = [end and end - start for *_, start, end in f.fabricd.request("traffic_results", fault="t")["flows"]]
    f.fabricd.request("heal", fault="t")
    now = f.counters()
    grown = {
        (row["node"], row["port"], name): row[name] - before[name]
        for row, before in zip(now["ports"], was["ports"], strict=True)
        for name in ("tx_frames", "rx_frames")
    }
    dropped = now["fidelity"]["forwarding_drops"] - was["fidelity"]["forwarding_drops"]
    return {"times": times, "ports": grown, "dropped": dropped}


def all_of_them(sample: int) -> dict[str, Any]:
    with star(sample, hosts=HOSTS, hardware=HARDWARE, change=rank_0_is_a_group) as f:
        f.start()
        ports = names(f)
        three = ",".join(f"bucket=output:{ports[name]}" for name in ("h0", "h1", "h2"))
        f.ofctl("add-group", f.bridge("sw0"), f"group_id=1,type=all,{three}")
        two = ",".join(f"bucket=watch_port:{ports[name]},output:{ports[name]}" for name in ("h0", "h1"))
        f.ofctl("add-group", f.bridge("sw0"), f"group_id=2,type=ff,{two}")
        seen = {}
        for name, rules in RULES.items():
            for senders in ((1, 2, 3), (3, 2, 1)):
                put_in(f, rules)
                seen[name, senders] = went(f, senders)
        assert f.counters()["fidelity"].get("fast_stale", 0) == 0
        return seen


def test_whatever_looks_at_ingress_ports_frames_go_where_open_vswitch_has_them() -> None:
    quick, plain = all_of_them(FAST), all_of_them(0)
    assert [key for key in plain if quick[key] != plain[key]] == []


def slow(f: BareFabric) -> int:
    counted = f.counters()["fidelity"]
    return int(counted["frame_hops"] - counted["fast_hops"])


def test_of_frames_from_many_ports_to_one_a_single_one_goes_through_open_vswitch() -> None:
    """Each rule counts all of them, though; and a rule that looks at the port is in force once it is there."""
    with star(10**6, hosts=HOSTS, hardware=HARDWARE) as f:
        f.start()
        mac, senders = f.fabric.nics[0].mac, (1, 2, 3)
        assert all(went(f, senders)["times"])
        assert slow(f) == 1 + len(senders)  # and the first answer to each
        (rule,) = [r for r in f.fabricd.request("flows")["flows"] if f"dl_dst={mac}" in r["rule"]]
        assert rule["packets"] == 2 * len(senders) - 1

        looks = f"in_port={f.port_to('sw0', 'h2')},dl_dst={mac}"
        f.ofctl("add-flow", f.bridge("sw0"), f"priority=60000,{looks},actions=drop")
        was = slow(f)
        assert [bool(time) for time in went(f, senders)["times"]] == [True, False, True, True, False, True]
        assert slow(f) == was + len(senders) + 2  # each port by itself; and answers to two

        f.ofctl("del-flows", f.bridge("sw0"), looks)
        was = slow(f)
        assert all(went(f, senders)["times"])
        assert slow(f) == was + 1 + len(senders)


def test_a_port_that_takes_nothing_in_is_told_from_others() -> None:
    """OFPPC_NO_RECV, which is in no table. Set before any frame came, and while some come."""
    with star(10**6, hosts=HOSTS, hardware=HARDWARE) as f:
        f.start()
        port = str(f.port_to("sw0", "h2"))
        f.switch.run("ovs-ofctl", "-OOpenFlow13", "mod-port", f.bridge("sw0"), port, "no-receive")
        for _ in range(2):
            assert [bool(time) for time in went(f, (1, 2, 3))["times"]] == [True, False, True, True, False, True]
        told = fast(f)["changed"]
        f.switch.run("ovs-ofctl", "-OOpenFlow13", "mod-port", f.bridge("sw0"), port, "receive")
        wait_until(lambda: fast(f)["changed"] > told, "the change to be heard of")
        assert all(went(f, (1, 2, 3))["times"])
        f.switch.run("ovs-ofctl", "-OOpenFlow13", "mod-port", f.bridge("sw0"), port, "no-receive")
        wait_until(lambda: fast(f)["changed"] > told + 1, "the change to be heard of")
        assert [bool(time) for time in went(f, (1, 3, 2))["times"]] == [True, True, False, True, True, False]
