"""The fast path's flows are Open vSwitch's megaflows: what nothing has looked at makes none."""

from __future__ import annotations

from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.utils import PcapNgReader

from controllers.openflow import vswitchd
from tests.parts.fabricd_fixture import BareFabric, Pair, bare_fabric, post_send
from tests.parts.fast_path import learn, rule, star
from workloads.verbs import wire

TTL = 64
SPINES = 4


def connections(pair: Pair, count: int) -> dict[int, int]:
    """More queue pairs between the workers of a pair, each with a UDP source port of its own: a's, and b's."""
    ends = [(pair.a, pair.b), (pair.b, pair.a)]
    for one, other in ends:
        made = [wire.command(wire.CONNECT, other.rank, 100 + k, k, 0, 0, 0, 0) for k in range(count)]
        one.begin_wait(count, wire.FOREVER, *made)
    numbers: list[dict[int, int]] = []
    for one, _ in ends:
        records = one.end_wait()
        while len(records) < count:
            records += one.wait()
        numbers.append({r.wr_id: r.qp for r in records})
    return {numbers[0][k]: numbers[1][k] for k in range(count)}


def write_on(pair: Pair, qp: int) -> None:
    pair.park()
    (record,) = pair.a.wait(1, wire.FOREVER, post_send(qp, pair.key_a, pair.key_b, 64))
    assert record.status == 0


def source_ports(f: BareFabric, rank: int) -> dict[int, int]:
    return {q["qp"]: q["udp_src_port"] for q in f.counters()["qps"] if q["rank"] == rank}


def through_open_vswitch(f: BareFabric) -> int:
    counted = f.counters()["fidelity"]
    assert counted["fast_stale"] == 0
    return int(counted["frame_hops"] - counted["fast_hops"] - counted["fast_checked"])


def test_source_ports_make_no_flows_of_their_own_and_frames_keep_them_when_headers_change(tmp_path: Path) -> None:
    count, path = 20, tmp_path / "h1.pcapng"
    with star() as f:
        rule(f, f"ip,dl_dst={f.fabric.nics[1].mac},actions=set_field:3->ip_ecn,dec_ttl,output:{{h1}}")
        pair = f.pair(0, 1)
        more = connections(pair, count)
        learn(f, pair)
        before = through_open_vswitch(f)
        f.fabricd.request("capture", port=f"sw0:{f.port_to('sw0', 'h1')}", path=str(path))
        for qp in more:
            write_on(pair, qp)
        f.fabricd.request("capture_stop", path=str(path))
        assert through_open_vswitch(f) == before
        ports = source_ports(f, 0)
        pair.done()
    frames = [IP(bytes(frame)[14:]) for frame in PcapNgReader(str(path))]
    came = [frame for frame in frames if frame.dst == str(f.fabric.nics[1].ip)]
    assert [frame[UDP].sport for frame in came] == [ports[qp] for qp in more]
    assert len({frame[UDP].sport for frame in came}) == count
    assert {(frame.tos & 3, frame.ttl) for frame in came} == {(3, TTL - 2)}  # the rule's, and the switch's own


def test_of_frames_that_start_at_once_one_goes_through_open_vswitch_whatever_their_source_ports() -> None:
    count = 20
    with star(10**6) as f:
        pair = f.pair(0, 1)
        more = connections(pair, count)
        assert len(set(source_ports(f, 0).values())) > count
        pair.park()
        posts = [post_send(qp, pair.key_a, pair.key_b, 64) for qp in more]
        assert {r.status for r in pair.a.wait(count, wire.FOREVER, *posts)} == {0}
        assert through_open_vswitch(f) == 2  # to h1, and an answer from there
        pair.done()


def hashed(f: BareFabric, kind: str) -> None:
    """Leaf 0 hashes over its spines what goes to rank 1."""
    bridge = f.bridge("leaf0")
    spines = [f.port_to("leaf0", f"spine{k}") for k in range(SPINES)]
    to = f"multipath({kind},7,modulo_n,{SPINES},0,NXM_NX_REG0[]),load:9->NXM_NX_REG1[],resubmit(,1)"
    flows = [f"priority=50000,ip,nw_dst={f.fabric.nics[1].ip},actions={to}"]
    flows += [f"table=1,reg0={k},reg1=9,actions=output:{port}" for k, port in enumerate(spines)]
    f.ofctl("add-flows", bridge, "-", flows=flows)


def told(f: BareFabric, sport: int) -> int:
    """The port that a frame to rank 1 leaves leaf 0 by."""
    h0, h1 = f.fabric.nics[:2]
    what = (
        f"in_port={f.port_to('leaf0', h0.name)},dl_src={h0.mac},dl_dst={h1.mac},udp,nw_src={h0.ip},nw_dst={h1.ip},"
        f"nw_ecn=2,nw_ttl=64,udp_src={sport},udp_dst=4791"
    )
    text = str(vswitchd.command(f.switch.ovs.control, "ofproto/trace", f.bridge("leaf0"), what))
    *_, output = (line.strip() for line in text.splitlines() if line.strip().startswith("output:"))
    return int(output.removeprefix("output:"))


@pytest.mark.parametrize(
    ("kind", "special", "most"),
    [
        ("symmetric_l3l4+udp", False, 50),  # till it is known how Open vSwitch hashes, and one for each spine
        ("symmetric_l3l4+udp", True, 130),  # a rule looks at source ports: one for each of them
        ("nw_src", False, 20),  # a hash that looks at no port
    ],
)
def test_many_source_ports_take_the_ways_that_open_vswitch_tells(
    kind: str, special: bool, most: int, tmp_path: Path
) -> None:
    count = 100
    with bare_fabric("clos", {"leaves": 2, "spines": SPINES, "hosts_per_leaf": 1}, sample=10**6) as f:
        hashed(f, kind)
        pair = f.pair(0, 1)
        more = connections(pair, count)
        ports = source_ports(f, 0)
        if special:
            odd = ports[next(reversed(more))]
            other = next(p for k in range(SPINES) if (p := f.port_to("leaf0", f"spine{k}")) != told(f, odd))
            f.ofctl("add-flow", f.bridge("leaf0"), f"priority=60000,udp,udp_src={odd},actions=output:{other}")
        path = {f.port_to("leaf0", f"spine{k}"): tmp_path / f"{k}.pcapng" for k in range(SPINES)}
        for port, file in path.items():
            f.fabricd.request("capture", port=f"leaf0:{port}", path=str(file))
        for qp in [*more, *more]:
            write_on(pair, qp)
        for file in path.values():
            f.fabricd.request("capture_stop", path=str(file))
        assert through_open_vswitch(f) <= most
        went = {
            (frame[UDP].sport, port)
            for port, file in path.items()
            for frame in (IP(bytes(each)[14:]) for each in PcapNgReader(str(file)))
            if frame.dst == str(f.fabric.nics[1].ip)
        }
        assert went == {(ports[qp], told(f, ports[qp])) for qp in more}
        pair.done()
