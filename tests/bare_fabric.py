"""The least fabric that carries real frames: fabricd, Open vSwitch bridges, one static flow per switch and destination.

No hosts, no containers, no controller: for tests of what runs above the worker socket.  Needs root and a running
Open vSwitch.  All names begin with `rb` and the id.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import networkx as nx

from hardware.client import Fabricd
from hardware.config import Hardware, fabricd_config, fence_name, tap_name
from topologies.fabric import Fabric

REPO = Path(__file__).resolve().parent.parent


class BareFabric:
    """A running fabric; `run` has workers take the steps of a plan over it."""

    def __init__(self, fabric: Fabric, directory: Path, fabricd: Fabricd, virtual: bool) -> None:
        self.fabric = fabric
        self.directory = directory
        self.fabricd = fabricd
        self.virtual = virtual

    def run(self, plan: Mapping[str, Any], ranks: list[int] | None = None) -> list[dict[str, Any]]:
        """Starts a worker process for each rank and returns the lines that they print, all of them."""
        ranks = list(range(len(self.fabric.nics))) if ranks is None else ranks
        if self.virtual:
            self.fabricd.request("start", ranks=ranks)
        workers = [self._worker(rank, plan) for rank in ranks]
        said = [worker.communicate(timeout=120)[0] for worker in workers]
        return [json.loads(line) for text in said for line in text.splitlines()]

    def _worker(self, rank: int, plan: Mapping[str, Any]) -> subprocess.Popen[str]:
        plan_file = self.directory / f"plan-{rank}.json"
        plan_file.write_text(json.dumps({**plan, "rank": rank}))
        socket = self.directory / "workers" / str(rank) / "sock"
        env = {**os.environ, "RAILBED_SOCKET": str(socket), "RAILBED_PLAN": str(plan_file), "PYTHONPATH": str(REPO)}
        command = [sys.executable, "-m", "workloads.worker"]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


@contextmanager
def bare_fabric(
    fabric: Fabric, fabric_id: str, hardware: Hardware = Hardware(), clock: Mapping[str, Any] | None = None
) -> Iterator[BareFabric]:
    """Brings a fabric up, and takes it down whatever happens."""
    bridges = [f"rb{fabric_id}-s{s.index}" for s in fabric.switches]
    fence_bridge = f"rb{fabric_id}-fb"
    with tempfile.TemporaryDirectory(prefix=f"rb{fabric_id}-") as folder:
        clock = clock or {"mode": "virtual"}
        config = fabricd_config(fabric, hardware, fabric_id=fabric_id, clock=clock)
        fabricd = Fabricd.start(config, Path(folder))
        try:
            _ovs_up(fabric, fabric_id, bridges, fence_bridge)
            yield BareFabric(fabric, Path(folder), fabricd, clock["mode"] == "virtual")
        finally:
            _ovs_down([*bridges, fence_bridge])
            fabricd.stop()


def _ovs_up(fabric: Fabric, fabric_id: str, bridges: list[str], fence_bridge: str) -> None:
    fence = fence_name(fabric_id)
    commands = _bridge(fence_bridge) + _port(fence_bridge, fence, 1)
    taps = [fence]
    for bridge, switch in zip(bridges, fabric.switches, strict=True):
        commands += _bridge(bridge)
        for port in range(1, switch.ports + 1):
            taps.append(tap_name(fabric_id, switch, port))
            commands += _port(bridge, taps[-1], port)
    for tap in taps:
        Path(f"/proc/sys/net/ipv6/conf/{tap}/disable_ipv6").write_text("1")  # no frames of the kernel's own
    links = "".join(f"link set {tap} mtu 9216 up\n" for tap in taps)
    subprocess.run(["ip", "-batch", "-"], input=links, text=True, check=True)
    subprocess.run(["ovs-vsctl", *commands], check=True)
    _flows(fence_bridge, ["in_port=1,actions=in_port"])
    paths = dict(nx.all_pairs_shortest_path(fabric.graph))
    for bridge, switch in zip(bridges, fabric.switches, strict=True):
        port = {c.other(switch.name).node: c.end(switch.name).port for c in fabric.cables if _has(c, switch.name)}
        _flows(
            bridge,
            [f"dl_dst={nic.mac},actions=output:{port[paths[switch.name][nic.name][1]]}" for nic in fabric.nics],
        )


def _has(cable: Any, node: str) -> bool:
    return node in (cable.a.node, cable.b.node)


def _bridge(name: str) -> list[str]:
    new = ["--", "add-br", name, "--", "set", "bridge", name]
    return [*new, "datapath_type=netdev", "fail_mode=secure", "other-config:disable-in-band=true"]


def _port(bridge: str, tap: str, number: int) -> list[str]:
    return ["--", "add-port", bridge, tap, "--", "set", "interface", tap, f"ofport_request={number}"]


def _flows(bridge: str, flows: list[str]) -> None:
    subprocess.run(["ovs-ofctl", "add-flows", bridge, "-"], input="\n".join(flows) + "\n", text=True, check=True)


def _ovs_down(bridges: list[str]) -> None:
    commands = [word for name in bridges for word in ("--", "--if-exists", "del-br", name)]
    subprocess.run(["ovs-vsctl", "--no-wait", *commands], check=True)
