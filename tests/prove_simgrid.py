"""Proof: SimGrid, as a second opinion, says the same of large fabrics as the models that work with arrays.

`./setup.sh prove simgrid [--most RANKS]`.  Cases of 64 to RANKS ranks (default 4,096): the same links, the same flows
over them, the same waits of hosts and NICs.  SimGrid shares links by max-min among flows without packets, and each rank
is an actor of its own; none of our models' arithmetic is in it.  A flow has the bytes that its packets take of a cable,
and begins after what comes before the first link and between links; PCIe is no link, since it is faster than a cable.

SimGrid is Debian's, and no requirement of anything else: its packages are unpacked into results/simgrid, not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from testbed.experiment import loads
from testbed.plan.ideal import costs_of
from testbed.predict.large import large_figures, of_any_size, places_of
from topologies.graph.frames import ACK_BYTES, FRAME_BYTES, IMM_BYTES, RETH_BYTES
from workloads.times.messages import Link
from workloads.times.queue_pairs import FIRST
from workloads.times.wide.fabric import Wide
from workloads.times.wide.peers import Peers, exchanged
from workloads.times.wide.rounds import doubling, halving_doubling, shift

ROOT = Path(__file__).parent.parent
UNPACKED = ROOT / "results" / "simgrid"
LIBRARIES = UNPACKED / "usr" / "lib" / "x86_64-linux-gnu"
MODULES = UNPACKED / "usr" / "lib" / "python3" / "dist-packages"
PACKAGE = "python3-simgrid"

ROUNDS = {"shift": shift, "halving_doubling": halving_doubling, "recursive_doubling": doubling}
CASES = [
    (ranks, topology, collective, algorithm, size)
    for ranks, topologies in (
        (64, ("torus: {dims: [8, 8]}", "clos: {leaves: 8, spines: 4, hosts_per_leaf: 8}", "star: {hosts: 64}")),
        (512, ("torus: {dims: [8, 8, 8]}", "clos: {leaves: 16, spines: 16, hosts_per_leaf: 32}")),
        (4096, ("torus: {dims: [16, 16, 16]}", "clos: {leaves: 64, spines: 32, hosts_per_leaf: 64}")),
    )
    for topology in topologies
    for collective, algorithm in (
        ("send_recv", "shift"), ("all_reduce", "halving_doubling"), ("all_gather", "recursive_doubling"),
    )
    for size in (1 << 20, 16 << 20)
]  # fmt: skip


def unpack() -> None:
    """Fetches what Debian's package needs and this machine lacks.  Raises CalledProcessError if it cannot be had."""
    if list(MODULES.glob("simgrid*.so")):
        return
    asked = ["apt-get", "install", "--simulate", "--no-install-recommends", PACKAGE]
    said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    lacking = [line.split()[1] for line in said.splitlines() if line.startswith("Inst ")]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", "-q", *(lacking or [PACKAGE])], check=True, cwd=folder)
        for package in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, UNPACKED], check=True)


def told(ranks: int, topology: str, collective: str, algorithm: str, size: int) -> tuple[dict[str, Any], float]:
    """What SimGrid is told of a case, and what we predict."""
    with of_any_size():
        text = f"name: s\nfabric: {{topology: {{{topology}}}}}\nworkload:\n"
        one = loads(text + f"- {{collective: {collective}, algorithm: {algorithm}, sizes: [{size}B]}}\n")
    (figure,) = large_figures(one)
    spec, costs = one.fabric, costs_of(one)
    places = places_of(spec.topology.kind, spec.topology.params)
    rounds = list(ROUNDS[algorithm](ranks, size // 4, 4))
    peers = Peers(exchanged(r.to for r in rounds), np.full(ranks, FIRST))
    ways = Wide(places, Link(spec.cable.rate, spec.cable.delay), spec.switch.latency, None, peers)
    sent = []
    for r in rounds:
        links: list[list[int]] = [[] for _ in range(ranks)]
        for which, ids in ways.stages(np.arange(ranks), r.to, np.zeros(ranks, bool)):
            for message, link in zip(which.tolist(), ids.tolist(), strict=True):
                links[message].append(link)
        packets = costs.packets(r.nbytes)
        wire = r.nbytes + packets * FRAME_BYTES + RETH_BYTES + IMM_BYTES
        first = min(costs.mtu, r.nbytes)
        # before the flow: posting, doorbell, fetching, and a packet at each switch; after it: into memory, and a sum
        before = costs.post_ns + 2 * costs.pcie_latency_ns + first * 8e9 / costs.pcie_rate_bps
        after = costs.pcie_latency_ns + first * 8e9 / costs.pcie_rate_bps + r.reduce * costs.reduce_ns(r.nbytes)
        hop = (first + FRAME_BYTES) * 8e9 / spec.cable.rate
        waits = [before + (len(its) - 1) * (hop + spec.switch.latency) + len(its) * spec.cable.delay for its in links]
        back = ACK_BYTES * 8e9 / spec.cable.rate + spec.cable.delay + spec.switch.latency
        acks = [len(its) * back - spec.switch.latency + costs.pcie_latency_ns for its in links]
        sent.append(
            {"bytes": wire, "to": r.to.tolist(), "links": links, "before_ns": waits, "after_ns": after, "acks_ns": acks}
        )
    return {"ranks": ranks, "bytes_per_s": spec.cable.rate / 8, "rounds": sent}, figure.time_ns


def simulate(case: dict[str, Any]) -> float:
    """The time in ns that SimGrid finds.  Runs in a process of its own: SimGrid has one world in each."""
    import simgrid

    engine = simgrid.Engine(["simgrid", "--log=root.thresh:critical"])
    for key, value in {
        "network/model": "CM02", "network/TCP-gamma": "0", "network/crosstraffic": "0", "network/latency-factor": "1",
        "network/bandwidth-factor": "1", "network/weight-S": "0", "surf/precision": "1e-12",
    }.items():  # fmt: skip
        simgrid.Engine.set_config(f"{key}:{value}")
    zone = simgrid.NetZone.create_full_zone("fabric")
    hosts = [zone.create_host(f"h{rank}", 1e9) for rank in range(case["ranks"])]
    links: dict[int, Any] = {}
    known: dict[tuple[int, int], list[int]] = {}
    for one in case["rounds"]:
        for rank, (to, way) in enumerate(zip(one["to"], one["links"], strict=True)):
            if known.setdefault((rank, to), way) is not way:
                assert known[rank, to] == way
                continue
            for link in way:
                if link not in links:
                    links[link] = zone.create_link(f"l{link}", case["bytes_per_s"]).set_latency(0).seal()
            route = [simgrid.LinkInRoute(links[link]) for link in way]
            zone.add_route(hosts[rank].netpoint, hosts[to].netpoint, None, None, route, False)
    for host in hosts:
        host.seal()
    zone.seal()

    def rank_of(me: int) -> None:
        for k, one in enumerate(case["rounds"]):
            simgrid.this_actor.sleep_for(one["before_ns"][me] / 1e9)
            comm = simgrid.Mailbox.by_name(f"{k}-{one['to'][me]}").put_async(me, int(one["bytes"]))
            simgrid.Mailbox.by_name(f"{k}-{me}").get()
            here = simgrid.Engine.clock
            if k < len(case["rounds"]) - 1:
                simgrid.this_actor.sleep_for(one["after_ns"] / 1e9)
                comm.wait()
            else:  # nobody leaves before it knows that its message has arrived
                comm.wait()
                heard = simgrid.Engine.clock + one["acks_ns"][me] / 1e9
                simgrid.this_actor.sleep_until(max(here + one["after_ns"] / 1e9, heard))

    for rank, host in enumerate(hosts):
        simgrid.Actor.create(f"r{rank}", host, rank_of, rank)
    engine.run()
    return float(simgrid.Engine.clock) * 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=4096)
    parser.add_argument("--simulate", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.simulate:
        print(simulate(json.loads(asked.simulate.read_text())))
        return 0
    try:
        unpack()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"SimGrid cannot be had here: {error}", file=sys.stderr)
        return 3
    env = {**os.environ, "LD_LIBRARY_PATH": str(LIBRARIES), "PYTHONPATH": f"{ROOT}:{MODULES}"}
    for ranks, topology, collective, algorithm, size in CASES:
        if ranks > asked.most:
            continue
        case, ours = told(ranks, topology, collective, algorithm, size)
        with tempfile.TemporaryDirectory() as folder:
            (file := Path(folder) / "case.json").write_text(json.dumps(case))
            command = [sys.executable, "-m", "tests.prove_simgrid", "--simulate", str(file)]
            said = subprocess.run(command, check=True, capture_output=True, text=True, env=env, cwd=ROOT)
        theirs = float(said.stdout)
        of = f"{{{topology}}}, {collective} by {algorithm}, {size >> 20} MiB"
        print(f"{ours / 1e3:10.1f} us, SimGrid {theirs / 1e3:10.1f} us: {ours / theirs - 1:+7.2%}  {of}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
