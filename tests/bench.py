"""Benchmarks: `./setup.sh bench [--out FILE] [PART ...]`.  Ratios measured in one run, printed and stored as JSON as
they come.

- frame-hops: frames through a switch (Open vSwitch's userspace datapath) per wall second, at an MTU of 4096; a ring
  all-reduce of 8 ranks x 64 MiB, wall time against its floor: frames x what one costs Open vSwitch alone
- fast-path: frame-hops per wall second with it, of that ring and of plain writes (all frames, and data alone),
  over what Open vSwitch carries alone, and without it likewise; with shared buffers, PFC, ECN and DCQCN over without;
  fabricd's processor time for a frame; the ring over its floor. Medians of five rounds, each of which has all of it.
  Beside it what a RoCE packet simulator does on a machine of this class, without payload and without switches to ask,
  counted the same way: frames through a switch per wall second, data alone, and with acknowledgements (SIMULATOR)
- up-down: a fabric of 64 servers, against stock Mininet with the same topology
- features: the frame-hop rate with shared buffers, PFC, ECN and DCQCN over that of one buffer without any of it,
  and with samples each 10 us over that without; neighbours in time
- offload: wall time of an all-reduce of 8 ranks x 64 MiB by the ring over the same in the network, and that of a
  whole run of 64 ranks x 1 MiB on a clos, by two trees
- crowd: fabricd's CPU time for 3,900 SYNCs with 60,000 records of the same worker for later over that without, and for
  an all-reduce by the NICs with 4,000 groups that wait for members over that without: 1 if what piles up costs nothing
- size: `testbed run experiments/quickstart.yaml` as a command; runs of 256 ranks x 16 MiB and 1,024 ranks x 64 KiB on a
  clos, fabric and all, and the memory of the latter; processor time of a frame-hop at 1,024 ranks over that at 8
- start (tests/bench_start.py, also by itself): processor time of 8 workers that are forked over that of workers that
  are started
- steps (tests/bench_steps.py, also by itself): CPU time of a run with 1,000 tasks a rank over that of as many
  iterations of one all-reduce; wall time of a training step of 64 ranks and ten million frame-hops
- large: CPU time to build a rail of 64 servers over that of 16, which has a quarter of the nodes
- help: `testbed --help` against a Python that imports click alone
- plan (tests/bench_plan.py): CPU time and memory of planning an all-reduce by `auto` among 1,024 ranks, over 64 ranks
- predict (tests/bench_predict.py): CPU time and memory of `testbed predict` of a torus of 262,144 nodes
- paths (tests/bench_paths.py, also by itself): fabricd's processor time for a frame-hop where switches or NICs spread
  packets over paths, over ECMP
- sweep (tests/bench_sweeps.py): wall time of 12 small points one after the other over that of two at a time; of 60 tiny
  points with a fabric each over that of 60 that share one
- drills (tests/bench_drills.py): wall time to a drill's first prompt, and of `advance 300us` there
- memory: fabricd, Open vSwitch, the controller and Mininet of a fabric of 64 servers
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from results.store.environment import environment
from testbed.base.progress import Progress
from testbed.experiment import loads
from testbed.fabric.lab import Lab
from testbed.inject.links import mininet
from testbed.run.run import run
from tests import (
    bench_drills,
    bench_paths,
    bench_plan,
    bench_predict,
    bench_ranks,
    bench_start,
    bench_steps,
    bench_sweeps,
)
from tests.parts.fabricd_fixture import BareFabric, RawWorker, bare_fabric
from tests.parts.ring_fabric import Ring, ranks
from topologies import build
from workloads.verbs import wire

ROOT = Path(__file__).parent.parent
RUNS = 3
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
SERVERS = """
name: bench-up
clock: real
fabric: {topology: {clos: {leaves: 8, spines: 4, hosts_per_leaf: 8}}}
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
        "all_reduce_64_ranks_wall_s": statistics.median(_timed(lambda: hops(MANY))[0] for _ in range(RUNS)),
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
        alone = 1e6 / ovs_cost_us()[0]
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


# --- what one frame costs Open vSwitch alone


def _cpu_s(pid: int) -> float:
    """CPU time of a process's threads so far (the userspace datapath runs in ovs-vswitchd's main one)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def ovs_cost_us() -> tuple[float, float]:
    """Wall time per frame through an Open vSwitch of its own, and its CPU time, in microseconds."""
    wall, cpu = _beside_an_open_vswitch("_ovs_cost_us")
    return wall, cpu


def _beside_an_open_vswitch(function: str) -> list[float]:
    """Calls one of this module's functions in a process of its own, which enters the network namespace of a switch."""
    program = f"from tests import bench; print(*bench.{function}(bench._enter_a_switch()))"
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, stdout=subprocess.PIPE, check=True)
    return [float(figure) for figure in done.stdout.split()]


def _enter_a_switch() -> Any:
    import ctypes

    from tests.parts.own_switch import OwnSwitch

    switch = OwnSwitch()
    with open(f"/proc/{switch.holder.pid}/ns/net") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0x40000000):  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), "setns")
    os.environ.update(switch.env)
    return switch


def _ovs_cost_us(
    switch: Any, frames: int = 120_000, frame_bytes: int = 4170, ports: int = 8, batch: int = 16
) -> tuple[float, float]:
    """Full frames go in by one TAP and come out by the next, in batches, and nothing else is done with them."""
    vswitchd, tag = switch.processes[-1].pid, "bench"
    with ExitStack() as stack:
        taps = [stack.enter_context(_Tap(f"{tag}-{i}")) for i in range(ports)]
        command = ["ovs-vsctl", "add-br", tag, "--", "set", "bridge", tag, "datapath_type=netdev", "fail_mode=secure"]
        for i, tap in enumerate(taps):
            command += ["--", "add-port", tag, tap.name, "--", "set", "interface", tap.name, f"ofport_request={i + 1}"]
        switch.run(*command)
        flows = "\n".join(f"in_port={i + 1},actions=output:{(i + 1) % ports + 1}" for i in range(ports))
        switch.run("ovs-ofctl", "add-flows", tag, "-", input=flows)
        frame = bytes.fromhex("020000000002020000000001" + "88b5") + bytes(frame_bytes - 14)
        _through(taps, frame, batch)  # the first sets up the datapath's flows
        cpu, wall = _cpu_s(vswitchd), time.monotonic()
        sent = 0
        while sent < frames:
            sent += _through(taps, frame, batch)
        return (time.monotonic() - wall) / sent * 1e6, (_cpu_s(vswitchd) - cpu) / sent * 1e6


def _through(taps: list[_Tap], frame: bytes, batch: int) -> int:
    """A batch of frames into every TAP, then all of them out again.  Returns how many."""
    for tap in taps:
        for _ in range(batch):
            os.write(tap.fd, frame)
    for tap in taps:
        for _ in range(batch):
            os.read(tap.fd, 65536)
    return len(taps) * batch


class _Tap:
    """A TAP device that goes with its descriptor."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> _Tap:
        import fcntl
        import struct

        self.fd = os.open("/dev/net/tun", os.O_RDWR)
        request = struct.pack("16sH22x", self.name.encode(), 0x1002)  # IFF_TAP | IFF_NO_PI
        fcntl.ioctl(self.fd, 0x400454CA, request)  # TUNSETIFF
        subprocess.run(["ip", "link", "set", self.name, "mtu", "9300", "up"], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


# --- up and down


def _timed(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.monotonic()
    value = action()
    return time.monotonic() - start, value


def railbed_up_down() -> tuple[float, float]:
    up, lab = _timed(lambda: Lab.up(loads(SERVERS)))
    down, _ = _timed(lab.down)
    return up, down


def mininet_up_down() -> tuple[float, float]:
    up, down = _beside_an_open_vswitch("_mininet_up_down")
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
    up, _ = _timed(lambda: (net.build(), net.start()))
    down, _ = _timed(net.stop)
    return up, down


# --- what piles up


def _fabricd_cpu_s(f: BareFabric) -> float:
    tasks = Path(f"/proc/{f.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _syncs_cpu_s(f: BareFabric, worker: RawWorker, count: int = 3900) -> float:
    """fabricd's CPU time for so many SYNCs in one packet, all answered at once."""
    before = _fabricd_cpu_s(f)
    left = len(worker.wait(1, wire.FOREVER, *(wire.command(wire.SYNC, tag, 1) for tag in range(count))))
    while left < count:
        left += len(worker.wait(1))
    return _fabricd_cpu_s(f) - before


def records_for_later() -> float:
    """SYNCs with 60,000 records for a time that does not come, over SYNCs without."""
    with bare_fabric("star", {"hosts": 2}) as f:
        f.start(0)
        worker = f.worker(0)
        _syncs_cpu_s(f, worker)
        alone = min(_syncs_cpu_s(f, worker) for _ in range(RUNS))
        worker.send(wire.command(wire.COMPUTE, 1, 10**12, 0, 0))
        for _ in range(30):
            worker.send(*(wire.command(wire.COMPUTE, n, 1000, 0, 0) for n in range(2000)))
        return min(_syncs_cpu_s(f, worker) for _ in range(RUNS)) / alone


def waiting_groups() -> float:
    """An all-reduce by the NICs with 4,000 groups beside it that never come together, over one without them."""
    with ranks(4) as (f, members):

        def work() -> float:
            group = Ring(members, "float32", 1 << 20)  # behind all others
            times = []
            for _ in range(RUNS + 1):
                before = _fabricd_cpu_s(f)
                group.run(1 << 18)
                times.append(_fabricd_cpu_s(f) - before)
            return min(times[1:])

        alone = work()
        everybody = array("I", [m.rank for m in members]).tobytes()
        args = (1 << 20, wire.ELEMENTS["float32"], 0, 0, 0, 0, 0, 0)
        for first in range(0, 4000, 500):
            tags = range(10_000 + first, 10_000 + first + 500)
            members[0].send(*(wire.command(wire.GROUP, b"ring", t, 3, 4, 0, *args, data=everybody) for t in tags))
        return work() / alone


def large_over_small() -> float:
    def build_cpu_s(servers: int) -> float:
        began = time.process_time()
        build("rail", {"servers": servers, "gpus": 8, "spines": 4})
        return time.process_time() - began

    return min(build_cpu_s(64) for _ in range(RUNS)) / min(build_cpu_s(16) for _ in range(RUNS))


# --- the command line


def help_s() -> dict[str, float]:
    """`testbed --help`, and over a Python that imports click and ends."""

    def quickest(*arguments: str) -> float:
        command = [sys.executable, *arguments]
        return min(_timed(lambda: subprocess.run(command, check=True, capture_output=True))[0] for _ in range(5))

    ours, bare = quickest("-m", "testbed", "--help"), quickest("-c", "import click")
    return {"help_s": ours, "help_over_click": ours / bare}


# --- all


def frame_hops() -> dict[str, float]:
    costs = [ovs_cost_us() for _ in range(RUNS)]
    cost_us = statistics.median(wall for wall, _ in costs)
    flows = [hops(FLOWS + OFF) for _ in range(RUNS)]
    ring = [hops(RING + OFF) for _ in range(RUNS)]
    floors = [r["frame_hops"] * cost_us / 1e6 for r in ring]
    return {
        "ovs_us_per_frame": cost_us,
        "ovs_cpu_us_per_frame": statistics.median(cpu for _, cpu in costs),
        "frame_hops_per_s": statistics.median(r["frame_hops"] / r["wall_s"] for r in flows),
        "ring_8x64MiB_wall_s": statistics.median(r["wall_s"] for r in ring),
        "ring_8x64MiB_floor_s": statistics.median(floors),
        "ring_over_floor": statistics.median(r["wall_s"] / f for r, f in zip(ring, floors, strict=True)),
    }


def up_down() -> dict[str, float]:
    pairs = [(railbed_up_down(), mininet_up_down()) for _ in range(RUNS)]
    return {
        "railbed_up_s": statistics.median(ours[0] for ours, _ in pairs),
        "railbed_down_s": statistics.median(ours[1] for ours, _ in pairs),
        "mininet_up_s": statistics.median(stock[0] for _, stock in pairs),
        "mininet_down_s": statistics.median(stock[1] for _, stock in pairs),
        "mininet_over_railbed_up_down": statistics.median(sum(stock) / sum(ours) for ours, stock in pairs),
    }


def crowd() -> dict[str, float]:
    return {"records_for_later_cpu": records_for_later(), "waiting_groups_cpu": waiting_groups()}


def named(name: str, figures: dict[str, float]) -> dict[str, float]:
    return {f"{name}_{key}": value for key, value in figures.items()}


PARTS: dict[str, Callable[[], dict[str, float]]] = {
    "frame-hops": frame_hops,
    "up-down": up_down,
    "offload": offload,
    "features": costs_of_features,
    "fast-path": lambda: {**fast_path(), **SIMULATOR},
    "size": bench_ranks.size,
    "crowd": crowd,
    "start": lambda: named("start", bench_start.measure()),
    "steps": bench_steps.measure,
    "large": lambda: {"rail_64_over_16_servers": large_over_small()},
    "help": help_s,
    "plan": lambda: named("plan", bench_plan.plan_1024()),
    "predict": lambda: named("predict_64x64x64", bench_predict.predict_torus()),
    "drills": bench_drills.drills,
    "paths": lambda: named("paths", bench_paths.paths()),
    "sweep": lambda: {
        **named("sweep_local_2", bench_sweeps.two_at_a_time()),
        **named("sweep_shared", bench_sweeps.shared()),
    },
    "memory": memory_mb,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh bench", description=__doc__)
    default = ROOT / "results" / "bench" / "bench.json"
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--out", type=Path, default=default, help="where the JSON goes")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    out: Path = options.out
    out.parent.mkdir(parents=True, exist_ok=True)
    figures: dict[str, float] = {}
    for part in options.parts or PARTS:
        its = PARTS[part]()
        for name, value in its.items():
            print(f"{name:40} {value:12.2f}", flush=True)
        figures |= its
        stored = {"environment": environment(1), "figures": figures, "profiles": profiles}
        out.write_text(json.dumps(stored, indent=1, default=str) + "\n")
    print(f"stored in {out}")


if __name__ == "__main__":
    main()
