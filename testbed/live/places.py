"""Where on this machine a live fabric is: processes, containers, namespaces, interfaces, bridges and TAP devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testbed.fabric.parts import parts
from testbed.live import jobs

if TYPE_CHECKING:
    from testbed.fabric.lab import Lab
    from topologies import Nic, Switch


def places(lab: Lab) -> dict[str, Any]:
    """For each rank and each switch, and commands that look at the first switch."""
    job = jobs.running(lab.record)
    lab.job = job.id if job else ""
    bridge = lab.names.bridge(lab.fabric.switches[0])
    tap = lab.names.tap(lab.fabric.switches[0], 1)
    return {
        "fabric": lab.id,
        "dir": str(lab.dir),
        "parts": [part.to_dict() for part in parts(lab.record)],
        "ranks": [_rank(lab, nic) for nic in lab.fabric.nics],
        "switches": [_switch(lab, switch) for switch in lab.fabric.switches],
        "type": [
            f"testbed ovs --fabric {lab.id} ovs-ofctl -O OpenFlow13 dump-flows {bridge}",
            f"testbed ovs --fabric {lab.id} ovs-ofctl -O OpenFlow13 dump-ports {bridge}",
            f"testbed ovs --fabric {lab.id} ip -s link show {tap}",
        ],
    }


def _rank(lab: Lab, nic: Nic) -> dict[str, Any]:
    process = lab.containers.running(nic.rank)
    ports = [
        f"{end.node}:{end.port}" for cable in lab.fabric.cables if nic.name in (cable.a.node, cable.b.node)
        for end in [cable.other(nic.name)]
    ]  # fmt: skip
    return {
        "rank": nic.rank,
        "nic": nic.name,
        "host": nic.host,
        "netns": f"/proc/{lab.hosts[nic.host].pid}/ns/net",
        "container": lab.containers.name(nic.rank) if process else "",
        "pid": process.pid if process else None,
        "interface": lab.names.interface(nic) if lab.kernel else "",
        "mac": nic.mac,
        "ip": str(nic.ip),
        "port": ports,
    }


def _switch(lab: Lab, switch: Switch) -> dict[str, Any]:
    return {
        "switch": switch.name,
        "bridge": lab.names.bridge(switch),
        "dpid": f"{lab.names.dpid(switch):016x}",
        "taps": [lab.names.tap(switch, port) for port in range(1, switch.ports + 1)],
    }
