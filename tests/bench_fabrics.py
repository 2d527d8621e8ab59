"""Benchmarks of fabrics: the time that one takes to come up and go down, against stock Mininet; its memory."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

from testbed.experiment import loads
from testbed.fabric.lab import Lab
from testbed.inject.links import mininet
from tests.bench_ovs import beside
from tests.bench_timed import RUNS, timed
from topologies import build

SERVERS = """
name: bench-up
clock: real
fabric: {topology: {clos: {leaves: 8, spines: 4, hosts_per_leaf: 8}}}
"""


def railbed_up_down() -> tuple[float, float]:
    up, lab = timed(lambda: Lab.up(loads(SERVERS)))
    down, _ = timed(lab.down)
    return up, down


def mininet_up_down() -> tuple[float, float]:
    up, down = beside("tests.bench_fabrics", "_mininet_up_down")
    return up, down


def _mininet_up_down(_switch: Any) -> tuple[float, float]:
    """Stock Mininet, the same switches, hosts and cables, switches in the userspace datapath, without a controller."""
    import mininet.net
    from mininet.net import Mininet
    from mininet.node import OVSSwitch
    from mininet.topo import Topo

    fabric = loads(SERVERS).build_fabric()
    topo = Topo()
    short = {s.name: f"b{s.index}" for s in fabric.switches}
    for switch in fabric.switches:
        topo.addSwitch(short[switch.name], datapath="user", dpid=f"{switch.index + 1:016x}")
    for host in fabric.hosts:
        topo.addHost(host.name)
    for cable in fabric.cables:
        topo.addLink(*(short.get(end.node, end.node) for end in (cable.a, cable.b)))
    mininet.net.fixLimits = lambda: None  # it would change the machine's limits for good
    net = Mininet(topo, switch=OVSSwitch, controller=None, build=False)
    up, _ = timed(lambda: (net.build(), net.start()))
    down, _ = timed(net.stop)
    return up, down


def up_down() -> dict[str, float]:
    pairs = [(railbed_up_down(), mininet_up_down()) for _ in range(RUNS)]
    return {
        "railbed_up_s": statistics.median(ours[0] for ours, _ in pairs),
        "railbed_down_s": statistics.median(ours[1] for ours, _ in pairs),
        "mininet_up_s": statistics.median(stock[0] for _, stock in pairs),
        "mininet_down_s": statistics.median(stock[1] for _, stock in pairs),
        "mininet_over_railbed_up_down": statistics.median(sum(stock) / sum(ours) for ours, stock in pairs),
    }


def memory_mb() -> dict[str, float]:
    """Resident memory of a fabric of 64 servers: its own processes, Open vSwitch among them, and Mininet."""

    def resident(pid: int) -> float:
        status = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("Pss:")).split()[1]) / 1024

    own = resident(os.getpid())
    with Lab.up(loads(SERVERS)) as lab:
        assert mininet(lab).hosts  # Mininet's view of it
        assert lab.fabricd.process is not None
        parts = {
            "fabricd": resident(lab.fabricd.process.pid),
            "controller": resident(lab.controller.pid),
            "ovs": sum(resident(lab.record.processes[name].pid) for name in ("ovs-vswitchd", "ovsdb-server")),
            "hosts": sum(resident(p.pid) for p in lab.hosts.values()),
            "mininet": max(resident(os.getpid()) - own, 0.0),
        }
    return {f"memory_{name}_MB": value for name, value in parts.items()} | {"memory_MB": sum(parts.values())}


def large_over_small() -> float:
    def build_cpu_s(servers: int) -> float:
        began = time.process_time()
        build("rail", {"servers": servers, "gpus": 8, "spines": 4})
        return time.process_time() - began

    return min(build_cpu_s(64) for _ in range(RUNS)) / min(build_cpu_s(16) for _ in range(RUNS))
