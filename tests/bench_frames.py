"""Benchmarks of frames: how many go through a switch in a wall second. Part of tests/bench.py."""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from testbed.base.progress import Progress
from testbed.experiment import loads
from testbed.run.run import run
from tests.bench_ovs import cost_us
from tests.bench_timed import RUNS, timed

STAR = "fabric: {topology: {star: {hosts: 8}}}"
FLOWS = f"""
name: bench-flows
{STAR}
workload:
  - flows: [{", ".join(f"{{from: {i}, to: {(i + 1) % 8}, size: 64MiB}}" for i in range(8))}]
"""
RING = f"""
name: bench-ring
{STAR}
workers: {{memory: 2GiB}}
workload:
  - {{collective: all_reduce, algorithm: ring, sizes: [64MiB]}}
"""
IN_NETWORK = """
name: bench-in-network
fabric: {topology: {star: {hosts: 8}}, switch: {accelerator: {elements: 1024}}}
workers: {memory: 2GiB}
workload:
  - {collective: all_reduce, algorithm: in_network, sizes: [64MiB]}
"""
MANY = """
name: bench-many
fabric: {topology: {clos: {leaves: 8, spines: 4, hosts_per_leaf: 8}}}
workload:
  - {collective: all_reduce, algorithm: double_binary_tree, sizes: [1MiB]}
"""

SIMULATOR = {"simulator_data_frame_hops_per_s": 258e3, "simulator_frame_hops_per_s": 515e3}
"""Stated for machines of this class (one core of 2.5 GHz), not measured here. There each data frame has its
acknowledgement; here one in 16 has."""

profiles: dict[str, Any] = {}
"""Where the time of runs went (`testbed run --profile`), by a name: stored beside the figures."""


def hops(text: str, name: str = "") -> dict[str, float]:
    """One run: how many frames went through a switch, and in how much wall time, from the first to the last.

    With a name its profile is kept.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = run(loads(text), Path(folder) / "run", Progress(), profile=True)
        counters = json.loads((Path(result.folder) / "counters.json").read_text())
        profile = json.loads((Path(result.folder) / "profile.json").read_text())
    if name:
        profiles[name] = profile
    fidelity = counters["fidelity"]
    assert fidelity["flagged"] == 0 and fidelity["forwarding_drops"] == 0
    return {
        "frame_hops": fidelity["frame_hops"],
        "data_hops": sum(qp["tx_packets"] for qp in counters["qps"]),  # one switch
        "wall_s": fidelity["forwarding_wall_ns"] / 1e9,
        "fabricd_s": profile["busy"]["fabricd"] - profile["fabricd"].get("worker", 0.0),  # which makes memory
    }


def offload() -> dict[str, float]:
    """Wall times of an all-reduce by the ring and in the network, and of a whole run of 64 ranks, fabric and all."""
    pairs = [(hops(RING)["wall_s"], hops(IN_NETWORK)["wall_s"]) for _ in range(RUNS)]
    return {
        "ring_over_in_network_wall": statistics.median(ring / switches for ring, switches in pairs),
        "all_reduce_64_ranks_wall_s": statistics.median(timed(lambda: hops(MANY))[0] for _ in range(RUNS)),
    }


PLAIN = """
name: bench-plain
fabric:
  topology: {star: {hosts: 8}}
  switch: SWITCH
workload:
  - flows: [FLOWS]
""".replace("FLOWS", ", ".join(f"{{from: {i}, to: {(i + 1) % 8}, size: 64MiB}}" for i in range(8)))
FULL = PLAIN.replace("SWITCH", "{}").replace("workload:", "transport: {cc: dcqcn}\nworkload:")
PLAIN = PLAIN.replace("SWITCH", "{pfc: false, ecn: null, watchdog: null, alpha: 64, lossless: [], headroom: 0B}")
OFF = "control: {fast_path: off}\n"
SAMPLED = FULL + "measure: {sample: 10us}\n"


def costs_of_features(rounds: int = 5) -> dict[str, float]:
    """Frame-hop rate with everything on over that of a plain fabric, and sampled over not: medians."""

    def rate(text: str) -> float:
        seen = hops(text)
        return seen["frame_hops"] / seen["wall_s"]

    rates = [(rate(PLAIN + OFF), rate(FULL + OFF), rate(SAMPLED + OFF)) for _ in range(rounds + 1)]
    between = [(statistics.fmean(x) for x in zip(a, b, strict=True)) for a, b in zip(rates, rates[1:], strict=False)]
    plain, full, _ = zip(*between, strict=True)  # each before and after what it is compared with
    return {
        "full_over_plain": statistics.median(r[1] / p for r, p in zip(rates, plain, strict=False)),
        "sampled_over_full": statistics.median(r[2] / f for r, f in zip(rates, full, strict=False)),
    }


def fast_path(rounds: int = 5) -> dict[str, float]:
    """Frame-hops per wall second with the fast path and without, by what Open vSwitch alone carries."""

    def one_round() -> dict[str, float]:
        alone = 1e6 / cost_us()[0]
        off, ring_off = hops(PLAIN + OFF, "plain, off"), hops(RING + OFF, "ring, off")
        plain, full, ring = hops(PLAIN, "plain"), hops(FULL, "full"), hops(RING, "ring")
        rate = plain["frame_hops"] / plain["wall_s"]
        return {
            "fast_frame_hops_per_s": rate,
            "fast_data_frame_hops_per_s": plain["data_hops"] / plain["wall_s"],
            "fast_fabricd_us_per_frame": plain["fabricd_s"] / plain["frame_hops"] * 1e6,
            "fast_over_ovs": rate / alone,
            "fast_full_over_plain": full["frame_hops"] / full["wall_s"] / rate,
            "off_over_ovs": off["frame_hops"] / off["wall_s"] / alone,
            "fast_ring_frame_hops_per_s": ring["frame_hops"] / ring["wall_s"],
            "fast_ring_over_ovs": ring["frame_hops"] / ring["wall_s"] / alone,
            "fast_ring_8x64MiB_wall_s": ring["wall_s"],
            "fast_ring_over_floor": ring["wall_s"] / (ring["frame_hops"] / alone),
            "off_ring_over_floor": ring_off["wall_s"] / (ring_off["frame_hops"] / alone),
        }

    seen = [one_round() for _ in range(rounds)]
    return {name: statistics.median(one[name] for one in seen) for name in seen[0]}


def frame_hops() -> dict[str, float]:
    costs = [cost_us() for _ in range(RUNS)]
    wall_us = statistics.median(wall for wall, _ in costs)
    flows = [hops(FLOWS + OFF) for _ in range(RUNS)]
    ring = [hops(RING + OFF) for _ in range(RUNS)]
    floors = [r["frame_hops"] * wall_us / 1e6 for r in ring]
    return {
        "ovs_us_per_frame": wall_us,
        "ovs_cpu_us_per_frame": statistics.median(cpu for _, cpu in costs),
        "frame_hops_per_s": statistics.median(r["frame_hops"] / r["wall_s"] for r in flows),
        "ring_8x64MiB_wall_s": statistics.median(r["wall_s"] for r in ring),
        "ring_8x64MiB_floor_s": statistics.median(floors),
        "ring_over_floor": statistics.median(r["wall_s"] / f for r, f in zip(ring, floors, strict=True)),
    }
