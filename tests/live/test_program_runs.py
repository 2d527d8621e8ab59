"""Programs of SmartNICs on the real fabric: their times are those of arithmetic, and the data is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from results import load
from testbed.experiment import loads
from testbed.experiment.steps.programs import Message, Storage
from testbed.run.outcome import RunResult
from testbed.run.run import run
from workloads.programs.closed_form import block_write_by_nics_ns, rpc_by_hosts_ns, rpc_by_nics_ns
from workloads.times.messages import Costs, Link, MemoryPath
from workloads.times.messages import Path as Way

FABRIC = """
name: programs
fabric:
  topology: {star: {hosts: 3}}
  cable: {rate: 100Gbps}
  nic: {kind: off_path, profile: bluefield2}
workload:
"""
BRIDGES = (300.0, 500.0, 300.0)
HOSTS = Way((Link(100e9, 0), Link(100e9, 500), Link(100e9, 500), Link(100e9, 0)), BRIDGES)
INSIDE = MemoryPath(200e9, 300)
COMPLEXES = Way(
    (Link(200e9, 150), Link(100e9, 500), Link(100e9, 500), Link(200e9, 150)), BRIDGES, memories=(INSIDE, INSIDE)
)
PCIE = MemoryPath(252e9, 500)
INTO = Way((Link(100e9, 0), Link(200e9, 150)), (300.0,), memories=(PCIE, INSIDE))
OUT = Way((Link(200e9, 150), Link(100e9, 0)), (300.0,), memories=(INSIDE, PCIE))


def ran(folder: Path, *steps: str, fabric: str = FABRIC) -> RunResult:
    result = run(loads(fabric + "".join(f"- {step}\n" for step in steps)), folder)
    assert {row["wrong"] for row in result.results} == {0} and result.fidelity.verdict == "exact"
    return result


def test_a_call_takes_what_its_crossings_and_cores_take(tmp_path: Path) -> None:
    sizes, message = (256, 4096, 100_000), {"nesting": 3, "fields": 7}
    keys = "ranks: [1, 0], sizes: [256B, 4KiB, 100000B], message: {nesting: 3, fields: 7}"
    waking = FABRIC.replace("bluefield2}", "bluefield2, complex: {wake: 70ns}}")
    steps = (f"{{collective: rpc, algorithm: {a}, {keys}}}" for a in ("host", "nic"))
    rows = ran(tmp_path / "run", *steps, fabric=waking).results
    told, costs = Message(**message).model_dump(by_alias=True), Costs(pcie_rate_bps=252e9)
    for k, size in enumerate(sizes):
        assert rows[k]["time_ns"] == pytest.approx(rpc_by_hosts_ns(2, size, HOSTS, costs, told), rel=1e-4), size
        nics = rpc_by_nics_ns(2, size, COMPLEXES, costs, told, (INTO, OUT), 200, 70)
        assert rows[3 + k]["time_ns"] == pytest.approx(nics, rel=1e-4), size
    # A host's time: of a call it posts, and its core does both; with NICs it posts, and copies.
    host, nic = rows[1]["host_ns"], rows[4]["host_ns"]
    assert host == pytest.approx(100 + 2 * (21 * 20 + 3 * 50 + 4096 * 8 / 109.6) + 500, abs=0.01)  # 1 us of one serves
    object_bytes = 16 + 21 * 16 + 4096 - 9 * 8  # header, slots, and strings: 9 of the fields are integers
    assert nic == pytest.approx(100 + object_bytes * 8 / 109.6 + 500, abs=0.01)


def test_many_calls_are_bound_by_the_server_and_by_what_its_nic_writes(tmp_path: Path) -> None:
    """Of calls one after the other at the server: its core's time for each, or its complex's.  Without batches a
    deserializer writes slots and strings one by one: that many posts and frames, and it is the bottleneck."""
    message = "nesting: 4, fields: 16, requests: 30, outstanding: 8, handler: 200ns"
    steps = [
        f"{{collective: rpc, algorithm: {a}, sizes: [1KiB], message: {{{message}{more}}}}}"
        for a, more in (("host", ""), ("nic", ""), ("nic", ", batch: false"))
    ]
    host, nic, single = (row["time_ns"] / 60 for row in ran(tmp_path / "run", *steps).results)
    core = 2 * (64 * 20 + 4 * 50 + 1024 * 8 / 109.6) + 200 + 100
    engine = 2 * (64 * 5.26 + 4 * 13.2 + 1024 * 8 / 200 + 200)
    assert core < host < 1.1 * core and engine < nic < 1.35 * engine
    assert single > 2 * nic and single > 96 * 200


def test_a_middle_tier_is_bound_by_its_cores_its_nic_by_the_cable(tmp_path: Path) -> None:
    """By hand: 512 KiB on one core of 6.24 Gb/s is 672 us; with the NIC the cable is full of what goes out."""
    text = FABRIC.replace("hosts: 3", "hosts: 7").replace("bluefield2}", "bluefield2, complex: {post: 10ns}}")
    keys = "sizes: [512KiB], storage: {servers: 3, replicas: 3, host: {cores: 1}}"
    steps = "".join(f"- {{collective: block_write, algorithm: {a}, {keys}}}\n" for a in ("host", "nic"))
    result = run(loads(text + steps), tmp_path / "run")
    assert {row["wrong"] for row in result.results} == {0} and result.fidelity.verdict == "exact"
    host, nic = result.results
    told = Storage(servers=3, replicas=3).model_dump(by_alias=True)
    least = block_write_by_nics_ns(7, 1 << 19, COMPLEXES, Costs(), told, 10)
    assert 672e3 < host["time_ns"] < 1.03 * 672.2e3
    assert least < nic["time_ns"] < 1.4 * least
    # Host time, the mean of seven: posts, headers, and the cores that compress; with the NIC it does not compress.
    assert host["host_ns"] * 7 > 672e3 and nic["host_ns"] * 7 < 150e3


def test_feeding_accelerators_is_bound_by_cores_that_also_move(tmp_path: Path) -> None:
    """Two servers, eight batches each: the core's time for them, and what the last one takes to arrive and be used."""
    feed = "feed: {compute: [20us, 90us], schedule: SCHEDULE, batch: 16KiB, preprocess: 60us}"
    steps = [
        f"- {{collective: feed, algorithm: {a}, sizes: [256KiB], {feed.replace('SCHEDULE', s)}}}\n"
        for a, s in (("host", "aware"), ("nic", "aware"), ("nic", "naive"))
    ]
    result = run(loads(FABRIC.replace("hosts: 3", "hosts: 4") + "".join(steps)), tmp_path / "run")
    assert {row["wrong"] for row in result.results} == {0} and result.fidelity.verdict == "exact"
    host, nic, naive = (row["time_ns"] for row in result.results)
    copy = (16 << 10) * 8 / 109.6
    core = {"host": 8 * (60_000 + copy + 2000 + 100), "nic": 8 * (60_000 + 100)}
    assert core["host"] < host < core["host"] + 70_000
    assert core["nic"] < nic < core["nic"] + 70_000 and nic < host
    # In turn, the slow one gets half of the batches, and all wait for it.
    assert 8 * 90_000 < naive < 8 * 90_000 + 110_000
    ranks = [row for row in load(result.folder).rows("ranks") if row["step"] == 2 and row["rank"] >= 2]
    assert [row["rx_bytes"] for row in ranks] == [1 << 17, 1 << 17]


def test_all_of_them_are_right_and_the_same_again_where_frames_are_lost(tmp_path: Path) -> None:
    steps = [
        "{collective: rpc, algorithm: nic, sizes: [1KiB], message: {nesting: 3, requests: 5, outstanding: 3}}",
        "{collective: block_write, algorithm: nic, sizes: [32KiB], storage: {replicas: 1}}",
        "{collective: feed, algorithm: nic, sizes: [128KiB], feed: {compute: [20us], batch: 16KiB}}",
    ]
    lossy = FABRIC.replace("bluefield2}", "bluefield2, timeout: 100us}") + "".join(f"- {step}\n" for step in steps)
    lossy += "inject:\n- {fault: loss, on: all, rate: 0.01}\n"
    first, again = (run(loads(lossy), tmp_path / name) for name in ("a", "b"))
    assert first.counters["retransmitted"] > 0 and {row["wrong"] for row in first.results} == {0}
    assert first.metrics_sha256 == again.metrics_sha256
