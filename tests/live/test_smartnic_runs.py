"""Off-path SmartNICs on the real fabric: every topology, faults inside a NIC, captures, and OmNICCL on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from results import load
from testbed.experiment import loads
from testbed.run.outcome import RunResult
from testbed.run.run import run
from workloads.sparse.closed_form import omniccl_ns
from workloads.times.messages import Costs, Link
from workloads.times.messages import Path as Way

MIB = 1 << 20


def ran(
    folder: Path, steps: list[str], topology: str = "star: {hosts: 4}", more: str = "", rate: str = "100Gbps"
) -> RunResult:
    lines = "\n".join(f"  - {step}" for step in steps)
    text = f"""
name: smartnics
fabric:
  topology: {{{topology}}}
  cable: {{rate: {rate}}}
  nic: {{kind: off_path, profile: bluefield2, timeout: 100us}}
workload:
{lines}
{more}
"""
    result = run(loads(text), folder)
    assert {row["wrong"] for row in result.results} == {0}
    assert result.fidelity.verdict == "exact"
    return result


def omniccl(size: str, **keys: object) -> str:
    more = "".join(f", {key}: {value}" for key, value in keys.items())
    return f"{{collective: all_reduce, algorithm: omniccl, sizes: [{size}]{more}}}"


@pytest.mark.parametrize(
    "topology",
    ["rail: {servers: 2, gpus: 2}", "clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}", "torus: {dims: [2, 3]}"],
)
def test_every_topology(tmp_path: Path, topology: str) -> None:
    steps = [omniccl("4B, 1020B, 256KiB", density=0.3), "{collective: all_reduce, algorithm: ring, sizes: [64KiB]}"]
    result = ran(tmp_path / "run", [*steps, "{flows: [{from: 0, to: 3, size: 100KB}]}"], topology)
    assert len(result.results) == 5 and result.counters["drops"] == {}


def test_sizes_numbers_of_ranks_and_densities(tmp_path: Path) -> None:
    steps = [
        omniccl("4B, 4100B, 1MiB", density=[1, 0.5, 0.25, 0.1, 0.01, 0][n - 2], ranks=list(range(n)))
        for n in range(2, 8)
    ]
    steps += [omniccl("1MiB", density=0.25, aggregators=k, op="avg", dtype="float16") for k in (1, 3)]
    assert len(ran(tmp_path / "run", steps, "star: {hosts: 7}").results) == 6 * 3 + 2


def test_dense_omniccl_takes_about_what_the_formula_says(tmp_path: Path) -> None:
    """Within a tenth: where windows wait for sums, the formula is coarse."""
    steps = [omniccl("4MiB", ranks=list(range(n))) for n in (2, 4)]
    way = Way((Link(100e9, 0), Link(100e9, 500), Link(100e9, 500), Link(200e9, 150)), (300, 500, 300))
    for n, row in zip((2, 4), ran(tmp_path / "run", steps).results, strict=True):
        assert row["time_ns"] == pytest.approx(omniccl_ns(n, 4 * MIB, way, Costs(pcie_rate_bps=252e9)), rel=0.1), n


def test_a_cable_faster_than_the_port_carries_what_the_port_does(tmp_path: Path) -> None:
    """Two BlueField-2 on cables of 400 Gb/s: payload at 200 Gb/s, less headers."""
    flow = "{flows: [{from: 0, to: 1, size: 16MiB}]}"
    (row,) = ran(tmp_path / "run", [flow], "star: {hosts: 2}", rate="400Gbps").results
    assert 0.98 < row["algbw_Bps"] * 8 / (200e9 * 4096 / 4178) < 1


def test_a_working_set_beyond_the_cache_is_slower(tmp_path: Path) -> None:
    """Ten spots of 512 KiB stay in 6 MiB, ten of 1 MiB do not: the cores' memory is slower than the cable then."""
    fits, exceeds = ran(tmp_path / "run", [omniccl("4MiB", spot=spot) for spot in (512, 1024)]).results
    assert exceeds["time_ns"] > 1.3 * fits["time_ns"]


def test_loss_on_all_cables_and_inside_a_nic(tmp_path: Path) -> None:
    """`all` are the cables between NICs and switches; what is inside a NIC has a name of its own."""
    faults = [f"{{fault: {fault}, on: all, rate: 0.01}}" for fault in ("loss", "duplication", "reordering")]
    inject = "inject:\n" + "".join(f"  - {fault}\n" for fault in faults)
    steps = [omniccl("4B, 1MiB", density=0.3)]
    outside = [ran(tmp_path / name, steps, more=inject) for name in ("a", "b")]
    assert outside[0].counters["retransmitted"] > 5
    assert outside[0].metrics_sha256 == outside[1].metrics_sha256
    drops = load(outside[0].folder).drops
    assert set(drops["node"]) <= {"sw0", "nic0", "nic1", "nic2", "nic3"}
    inside = ran(tmp_path / "c", steps, more='inject: [{fault: loss, on: "cable:arm2-nic2", rate: 0.05}]')
    assert inside.counters["retransmitted"] > 0
    assert set(load(inside.folder).drops["node"]) <= {"arm2", "nic2"}


def test_captures_inside_a_nic(tmp_path: Path) -> None:
    result = ran(tmp_path / "run", [omniccl("64KiB", spot=8)], more='capture: ["port:nic1:2", "cable:h1-nic1"]')
    files = sorted(p.name for p in (result.folder / "captures").iterdir())
    assert files == ["h1-1.pcapng", "nic1-1.pcapng", "nic1-2.pcapng"]
    assert all(p.stat().st_size > 64 << 10 for p in (result.folder / "captures").iterdir())


def test_other_offloads_work_through_embedded_bridges(tmp_path: Path) -> None:
    """Groups and trees pass an embedded bridge as any switch; it has no accelerator of its own."""
    steps = [
        "{collective: all_reduce, algorithm: in_network, sizes: [64KiB], dtype: int32}",
        "{collective: all_gather, algorithm: multicast, sizes: [64KiB]}",
        "{collective: all_reduce, algorithm: auto, sizes: [64KiB]}",
    ]
    result = ran(tmp_path / "run", steps, "clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}")
    assert not any(row.get("fallback") for row in result.results)
    accelerated = {row["switch"] for row in load(result.folder).accelerators.to_dict("records")}
    assert accelerated == {"leaf0", "leaf1", "spine0"}
