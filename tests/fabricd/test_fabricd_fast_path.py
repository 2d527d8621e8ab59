"""The fast path: what Open vSwitch has decided is not asked again, and no figure depends on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scapy.utils import PcapNgReader

from hardware.config import Hardware
from tests.parts.fabricd_fixture import FAST, BareFabric, wait_until
from tests.parts.fast_path import MTU, fast, learn, rule, star
from tests.parts.timing_model import Model, one, timed_write
from tests.parts.traffic_fabric import nic, port, send, switch
from workloads.verbs import wire

FRAMES = 400
SIZE = FRAMES * MTU
MULTICAST = "03:00:0a:00:00:02"
FCS = 4


def test_most_frames_go_by_the_fast_path_and_take_the_same_time() -> None:
    with star() as f:
        pair = f.pair(0, 1, SIZE)
        learn(f, pair)
        before, fidelity = fast(f), f.counters()["fidelity"]
        took, record = timed_write(pair, SIZE)
        assert (took, record.status) == (Model(f.hardware, 1).long_sent(SIZE), 0)
        sent = f.counters()["fidelity"]["frame_hops"] - fidelity["frame_hops"]
        assert sent > FRAMES and f.counters()["fidelity"]["forwarding_wall_ns"] > fidelity["forwarding_wall_ns"]
        assert fast(f)["hops"] - before["hops"] >= sent - 2  # one of each direction may be checked
        assert fast(f)["stale"] == 0
        pair.done()


def by_open_vswitch(f: BareFabric) -> dict[int, tuple[int, int, int]]:
    """By rank: frames that its port got, and of these how many, and bytes, Open vSwitch has counted itself.

    A rule's frames are those, and those that the fast path carried.
    """
    counted = {}
    for met in f.fabricd.request("flows")["flows"]:
        mac = met["rule"].partition("dl_dst=")[2].partition(",")[0]
        rank = next(n.rank for n in f.fabric.nics if n.mac == mac)
        out = port(f, "sw0", f.port_to("sw0", f"h{rank}"))
        slow_bytes = out["tx_bytes"] - FCS * out["tx_frames"] - met["bytes"]
        counted[rank] = out["tx_frames"], out["tx_frames"] - met["packets"], slow_bytes
    return counted


def test_one_frame_in_so_many_of_a_flow_still_goes_through_open_vswitch() -> None:
    with star(sample=10) as f:
        pair = f.pair(0, 1, SIZE)
        learn(f, pair)
        before, hops, learned = fast(f), f.counters()["fidelity"]["frame_hops"], by_open_vswitch(f)
        timed_write(pair, SIZE)
        sent = f.counters()["fidelity"]["frame_hops"] - hops
        assert fast(f)["checked"] - before["checked"] == pytest.approx(sent / 10, abs=2)
        assert fast(f)["hops"] - before["hops"] == sent - (fast(f)["checked"] - before["checked"])
        for rank, (frames, slow, slow_bytes) in by_open_vswitch(f).items():
            counted = slow - learned[rank][1]
            assert counted == pytest.approx((frames - learned[rank][0]) / 10, abs=2)
            assert counted * 62 <= slow_bytes - learned[rank][2] <= counted * (MTU + 74)
        pair.done()


def test_frames_behind_the_first_one_of_a_flow_wait_for_the_decision_and_take_the_same_time() -> None:
    with star() as f:
        pair = f.pair(0, 1, SIZE)
        took, _ = timed_write(pair, SIZE)
        assert took == Model(f.hardware, 1).long_sent(SIZE)
        sent = f.counters()["fidelity"]["frame_hops"]
        assert sent > FRAMES
        assert (fast(f)["hops"], fast(f)["checked"]) == (sent - 2, 0)  # data, and what is acknowledged
        pair.done()


def test_the_same_frames_are_marked_whichever_way_they_came() -> None:
    """It is drawn by a frame's number, which a switch leaves as it is."""
    marking = switch(headroom=0, lossless=[], alpha=64, ecn={"3": {"kmin_bytes": 0, "kmax_bytes": 10**6, "pmax": 1.0}})
    hardware, seen = Hardware(switch_buffer_bytes=10**7, switch=marking, nic=nic(), timeout_ns=1e9), []
    for sample in (0, FAST):
        with star(sample, hardware=hardware) as f:
            f.fabricd.request("start", ranks=[])
            took = send(f, [(rank, 0, 100 * MTU, 0) for rank in (1, 2)])
            seen.append((took, f.nic(0), port(f, "sw0", 1)["priorities"]))
            assert (f.counters()["fidelity"].get("fast_hops", 0) > 100) == (sample == FAST)
    assert seen[0] == seen[1] and 0 < seen[0][1]["np_ecn_marked_roce_packets"] < 200


def test_frames_that_waited_and_leave_with_other_headers_are_checked_as_they_came() -> None:
    def written(sample: int) -> int:
        with star(sample) as f:
            rule(f, f"ip,dl_dst={f.fabric.nics[1].mac},actions=set_field:3->ip_ecn,output:{{h1}}")
            pair = f.pair(0, 1, SIZE)
            took, record = timed_write(pair, SIZE)
            assert record.status == 0

            def all_through_open_vswitch() -> bool:
                return f" n_packets={FRAMES}," in f.ofctl("dump-flows", f.bridge("sw0"))

            if sample:
                assert fast(f)["checked"] > FRAMES
                wait_until(lambda: fast(f)["stale"] > 0 or all_through_open_vswitch(), "all twins to be there")
                assert fast(f)["stale"] == 0
            pair.done()
        return took

    assert written(1) == written(0)


def test_frames_are_checked_with_the_real_clock_too() -> None:
    with star(sample=4, hardware=Hardware(timeout_ns=1e11), clock={"mode": "real", "dilation": 1000}) as f:
        pair = f.connect(f.worker(0), f.worker(1), SIZE)
        pair.park()

        def writes() -> bool:
            return pair.a.wait(1, wire.FOREVER, pair.write(SIZE))[0].status == 0 and fast(f)["checked"] >= FRAMES // 4

        wait_until(writes, "a quarter of some hundred frames to be checked")
        assert fast(f)["stale"] == 0
        pair.a.bye()
        pair.b.socket.close()


def test_off_sends_every_frame_through_open_vswitch() -> None:
    with star(sample=0) as f:
        pair = f.pair(0, 1, SIZE)
        assert timed_write(pair, SIZE)[0] == Model(f.hardware, 1).long_sent(SIZE)
        assert "fast_hops" not in f.counters()["fidelity"]
        pair.done()


@pytest.mark.parametrize(
    "rules",
    [
        [],
        ["ip,dl_dst={mac},actions=set_field:3->ip_ecn,output:{h1}"],
        ["ip,dl_dst={mac},actions=set_field:46->ip_dscp,dec_ttl,dec_ttl,output:{h1}"],
        ["ip,dl_dst={mac},actions=set_field:02:11:22:33:44:55->eth_src,set_field:{mac}->eth_dst,output:{h1}"],
        ["ip,dl_dst={mac},actions=push_vlan:0x8100,set_field:4103->vlan_vid,pop_vlan,output:{h1}"],
        ["table=0,ip,dl_dst={mac},actions=write_metadata:7,goto_table:3", "table=3,metadata=7,actions=output:{h1}"],
    ],
)
def test_frames_come_out_byte_for_byte_as_open_vswitch_has_them(rules: list[str], tmp_path: Path) -> None:
    def captured(sample: int, writes: int) -> tuple[list[bytes], int]:
        path = tmp_path / f"{sample}.pcapng"
        with star(sample) as f:
            for each in rules:
                rule(f, each.replace("{mac}", str(f.fabric.nics[1].mac)))
            pair = f.pair(0, 1, 40 * MTU)
            for _ in range(writes):
                timed_write(pair, 8)
            if sample:
                writes = learn(f, pair)
            f.fabricd.request("capture", port=f"sw0:{f.port_to('sw0', 'h1')}", path=str(path))
            hops = fast(f)["hops"] if sample else 0
            timed_write(pair, 40 * MTU)
            assert not sample or fast(f)["hops"] >= hops + 40
            f.fabricd.request("capture_stop", path=str(path))
            pair.done()
        return [bytes(p) for p in PcapNgReader(str(path))], writes

    quick, writes = captured(1024, 0)
    plain, _ = captured(0, writes)
    assert len(plain) >= 40
    assert plain == quick


@pytest.mark.parametrize("how", ["outputs", "group"])
def test_copies_need_no_fence_once_they_are_known(how: str) -> None:
    def set_mac(config: dict[str, Any]) -> None:
        config["nics"][1]["mac"] = MULTICAST

    with star(hosts=4, change=set_mac) as f:
        out = [f.port_to("sw0", f"h{i}") for i in (1, 2)]
        actions = ",".join(f"output:{p}" for p in out)
        if how == "group":
            f.ofctl("add-group", f.bridge("sw0"), f"group_id=1,type=all,{','.join(f'bucket=output:{p}' for p in out)}")
            actions = "group:1"
        f.ofctl("add-flow", f.bridge("sw0"), f"dl_dst={MULTICAST},actions={actions}")
        pair = f.pair(0, 1, SIZE)
        learn(f, pair)
        fences = f.counters()["fidelity"]["fences"]
        took, _ = timed_write(pair, SIZE)
        assert took == Model(f.hardware, 1).long_sent(SIZE)
        assert f.counters()["fidelity"]["fences"] <= fences + 2
        ports = {p["peer"]: p for p in f.counters()["ports"] if p["node"] == "sw0"}
        assert ports["h1:1"]["tx_frames"] == ports["h2:1"]["tx_frames"]
        pair.done()


def test_that_nothing_comes_out_is_known_too() -> None:
    with star(hardware=Hardware(timeout_ns=5000, retry=7)) as f:
        pair = f.pair(0, 1)
        learn(f, pair)
        f.ofctl("del-flows", f.bridge("sw0"), f"dl_dst={f.fabric.nics[1].mac}")
        pair.park()
        pair.a.begin_wait(1, wire.FOREVER, pair.write(8))
        assert one(pair.a.end_wait()).status == 12
        assert f.counters()["fidelity"]["forwarding_drops"] == 8
        pair.done()


def changes() -> dict[str, Any]:
    mac = "{mac}"
    return {
        "flow added": (["add-flow", f"priority=60000,dl_dst={mac},actions=drop"], None),
        "flow deleted": (["del-flows", f"dl_dst={mac}"], None),
        "flow modified": (["mod-flows", f"dl_dst={mac},actions=drop"], None),
        "port down": (["mod-port", "{h1}", "down"], None),
        "group modified": (["mod-group", "group_id=1,type=all,bucket=output:{h2}"], "group"),
        "group deleted": (["del-groups", "group_id=1"], "group"),
    }


@pytest.mark.parametrize("change", changes())
def test_a_change_by_anybody_bites_at_once_and_is_told(change: str) -> None:
    (command, *arguments), group = changes()[change]
    with star(hardware=Hardware(timeout_ns=5000, retry=0)) as f:
        names = {"mac": str(f.fabric.nics[1].mac)} | {n.name: f.port_to("sw0", n.name) for n in f.fabric.nics}
        if group:
            f.ofctl("add-group", f.bridge("sw0"), f"group_id=1,type=all,bucket=output:{names['h1']}")
            f.ofctl("del-flows", f.bridge("sw0"), f"dl_dst={names['mac']}")
            rule(f, f"dl_dst={names['mac']},actions=group:1")
        pair = f.pair(0, 1)
        learn(f, pair)
        told = fast(f)["changed"]
        f.switch.run("ovs-ofctl", "-OOpenFlow13", command, f.bridge("sw0"), *(a.format(**names) for a in arguments))
        wait_until(lambda: fast(f)["changed"] > told, "the change to be heard of")
        assert timed_write(pair, 8)[1].status == 12  # nothing comes out where it should
        pair.done()


@pytest.mark.parametrize(
    "actions",
    [
        "learn(table=9,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),output:{h1}",
        "NORMAL",
        "output:{h1},controller",
        "meter:1,output:{h1}",
        "sample(probability=65535,collector_set_id=1),output:{h1}",
        "group:9",
        "ct(commit),output:{h1}",
    ],
)
def test_what_depends_on_more_than_headers_is_not_cached(actions: str) -> None:
    with star() as f:
        f.ofctl("add-meter", f.bridge("sw0"), "meter=1,pktps,bands=type=drop,rate=100000000")
        port = f.port_to("sw0", "h1")
        f.ofctl("add-group", f.bridge("sw0"), f"group_id=9,type=select,bucket=output:{port},bucket=output:{port}")
        rule(f, f"ip,dl_dst={f.fabric.nics[1].mac},actions={actions}")
        pair = f.pair(0, 1, SIZE)
        learn(f, pair)  # what comes back
        for _ in range(20):
            timed_write(pair, 8)
        carried = f.fabricd.request("flows")["flows"]
        assert [r["rule"].split(", ")[:2] for r in carried] == [[f"0. dl_dst={f.fabric.nics[0].mac}", "priority 32768"]]
        pair.done()
