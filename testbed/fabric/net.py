"""A fabric as a Mininet: its API and its tests, `link` as a fault, nodes as in mininet_nodes.py.

Bridges and interfaces are made in batches, by the lab. Nothing global is changed: no sysctls, no limits, no `killall`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Protocol

from mininet.log import error, output
from mininet.net import Mininet
from mininet.node import Node
from mininet.topo import Topo

from testbed.fabric.mininet_nodes import FabricController, FabricHost, FabricLink, FabricSwitch
from testbed.fabric.names import Names
from testbed.fabric.ovs import OpenVSwitch
from topologies import Fabric

MOST_NAMES = 16
NO_KERNEL_INTERFACE = (
    "With the virtual clock hosts have no kernel interface: only RDMA workloads run on it. Use the real clock."
)


class Cables(Protocol):
    """Sets cables down and up by name, for `link A B down`. testbed.inject.links provides it."""

    def down(self) -> dict[str, str]:
        """The cables that are down, each with the id of a fault that has it down."""

    def cut(self, cable: str) -> str:
        """Sets a cable down; returns the fault's id."""

    def mend(self, cable: str) -> tuple[list[str], list[str]]:
        """Heals faults that have only this cable down; returns their ids, and those of faults that have more down."""


class FabricTopo(Topo):
    """A Railbed fabric as a Mininet topology; port numbers and device names are the fabric's."""

    def build(self, fabric: Fabric, names: Names, pids: Mapping[str, int], common: Mapping[str, Any]) -> None:
        for host in fabric.hosts:
            mark = {**common["host"]["mark"], **common["programs"].get(host.name, {})}
            self.addHost(host.name, pid=pids.get(host.name), **{**common["host"], "mark": mark})
        for switch in fabric.switches:
            self.addSwitch(switch.name, dpid=f"{names.dpid(switch):x}", bridge=names.bridge(switch), **common["switch"])
        for cable in fabric.cables:
            options: dict[str, Any] = {"cable": cable.name}
            nodes: list[str] = []
            for n, end in enumerate((cable.a, cable.b), 1):
                nic = fabric.nic_by_name.get(end.node)
                if nic is None:
                    nodes.append(end.node)
                    options |= {f"port{n}": end.port}
                    options |= {f"intfName{n}": names.tap(fabric.switch_by_name[end.node], end.port)}
                else:
                    nodes.append(nic.host)
                    options |= {f"port{n}": names.interface_number(nic), f"intfName{n}": names.interface(nic)}
                    options |= {f"addr{n}": nic.mac, f"params{n}": {"ip": f"{nic.ip}/8"}}
            self.addLink(*nodes, **options)


class FabricNet(Mininet):
    """The live fabric as a Mininet. `cables` cuts and mends them by name; `kernel` says whether NICs have interfaces.

    `ovs` is the fabric's Open vSwitch, `inside` a process in the network namespace where that is. `programs` is what a
    host's programs find in their environment, and `let_run` is called before the first.

    The lab makes namespaces, TAP devices and controller before `start`, and takes all down again.
    """

    def __init__(
        self,
        fabric: Fabric,
        names: Names,
        pids: Mapping[str, int],
        *,
        kernel: bool,
        mark: Mapping[str, str],
        programs: Mapping[str, Mapping[str, str]],
        let_run: Callable[[], None],
        ovs: OpenVSwitch,
        inside: int,
        cables: Cables,
        stop: Callable[[], Any],
    ) -> None:
        self.fabric, self.id = fabric, names.id
        self.kernel = kernel
        self.cables = cables
        self._stop = stop
        host = {"mark": mark, "begins": let_run}
        switch = {"mark": {**mark, **ovs.env}, "switches": ovs, "pid": inside}
        common = {"host": host, "programs": programs, "switch": switch}
        topo = FabricTopo(fabric=fabric, names=names, pids=pids, common=common)
        super().__init__(
            topo=topo, switch=FabricSwitch, host=FabricHost, link=FabricLink, controller=None, build=False
        )  # fmt: skip

    @classmethod
    def init(cls) -> None:
        """Mininet would raise limits and global sysctls here."""

    def configHosts(self) -> None:
        """Done in a batch by the lab."""

    def add_controller(self, port: int, pid: int) -> None:
        self.addController("c0", FabricController, ip="127.0.0.1", port=port, pid=None)
        self.get("c0").pid = pid

    def start(self) -> None:
        """Nothing is left to do: the lab has brought the fabric up."""

    def stop(self) -> None:
        self.close()
        self._stop()

    def close(self) -> None:
        """Ends the shells that were started from here; the fabric stays."""
        for node in (*self.hosts, *self.switches, *self.controllers):
            Node.terminate(node)

    # -- cables

    def configLinkStatus(self, src: str, dst: str, status: str) -> bool:
        """Cuts (`down`) or mends (`up`) the cables between two nodes, as a fault. Returns False if it cannot."""
        cables = self._between(src, dst) if self.knows(src, dst) else []
        done = [self._cut(cable) if status == "down" else self._mend(cable) for cable in cables]
        return bool(done) and all(done)

    def knows(self, *names: str) -> bool:
        """Whether these are nodes; prints an error for one that is not."""
        for name in names:
            if name not in self.nameToNode:
                near = get_close_matches(name, list(self.nameToNode), n=1)
                meant = f"did you mean {near[0]}? " if near else ""
                error(f"there is no node {name!r}: {meant}there are {listed([*self.nameToNode], MOST_NAMES)}\n")
                return False
        return True

    def _between(self, src: str, dst: str) -> list[str]:
        cables = [link.cable for link in self.linksBetween(self.nameToNode[src], self.nameToNode[dst])]
        if not cables and f"{src}-{dst}" in self.fabric.cable_by_name:  # at a bridge in a NIC, called as its host is
            cables = [self.fabric.cable(f"{src}-{dst}").name]
        if not cables:
            ends = [(link.intf1.node.name, link.intf2.node.name) for link in self.links]
            far = [b if a == src else a for a, b in ends if src in (a, b)]
            error(f"there is no cable between {src} and {dst}: from {src} cables go to {listed(far, MOST_NAMES)}\n")
        return cables

    def _cut(self, cable: str) -> bool:
        before = self.cables.down().get(cable)
        fault = self.cables.cut(cable)
        output(f"{cable} is down{' already' if before else ''}: fault {fault}\n")
        return True

    def _mend(self, cable: str) -> bool:
        healed, wider = self.cables.mend(cable)
        if wider:
            faults = listed([f"{fault} (testbed heal {fault})" for fault in wider], MOST_NAMES)
            error(f"{cable} is still down: other cables, too, are by {faults}\n")
            return False
        output(f"{cable} is up{': healed ' + ', '.join(healed) if healed else ' already'}\n")
        return True

    # -- tests

    def ping(self, hosts: Sequence[Any] | None = None, timeout: str | None = None) -> float:
        """As Mininet's, but the pings of one host run at the same time. Returns the loss in percent."""
        if not self.kernel:
            error(NO_KERNEL_INTERFACE + "\n")
            return 100.0
        if not hosts:
            hosts = self.hosts
            output("*** Ping: testing ping reachability\n")
        sent = received = 0
        wait = ["-W", str(timeout)] if timeout else []
        for node in hosts:
            output(f"{node.name} -> ")
            others = [dest for dest in hosts if dest is not node]
            pings = [node.popen(["ping", "-c1", *wait, dest.IP()]) for dest in others]
            for dest, ping in zip(others, pings, strict=True):
                s, r = self._parsePing(ping.communicate()[0].decode())
                sent, received = sent + s, received + r
                output(f"{dest.name} " if r else "X ")
            output("\n")
        if not sent:
            output("*** Warning: No packets sent\n")
            return 0.0
        loss = 100.0 * (sent - received) / sent
        output(f"*** Results: {loss:.0f}% dropped ({received}/{sent} received)\n")
        return loss

    def iperf(
        self,
        hosts: Sequence[Any] | None = None,
        l4Type: str = "TCP",
        udpBw: str = "10M",
        fmt: str | None = None,
        seconds: int = 5,
        port: int = 5001,
    ) -> list[str]:
        """As Mininet's, with iperf3 (and no `killall`): [server's rate, client's rate], for UDP the asked one first."""
        if not self.kernel:
            error(NO_KERNEL_INTERFACE + "\n")
            return ["", ""]
        client, server = hosts or [self.hosts[0], self.hosts[-1]]
        output(f"*** Iperf: testing {l4Type} bandwidth between {client} and {server}\n")
        base = ["iperf3", "-p", str(port), *(["-f", fmt] if fmt else [])]
        listener = server.popen([*base, "-s", "-1", "--forceflush"], stderr=subprocess.STDOUT)
        try:
            while (line := listener.stdout.readline()) and b"listening" not in line:
                pass
            extra = ["-u", "-b", udpBw] if l4Type == "UDP" else []
            talk, _, _ = client.pexec([*base, "-c", server.IP(), "-t", str(seconds), *extra])
            listen = listener.communicate(timeout=seconds + 30)[0].decode()
        except subprocess.TimeoutExpired:
            talk = listen = ""
        finally:
            if listener.poll() is None:
                listener.kill()
            listener.wait()
        result = [self._parseIperf(listen), self._parseIperf(talk)]
        if l4Type == "UDP":
            result.insert(0, udpBw)
        output(f"*** Results: {result}\n")
        return result


def listed(names: Sequence[str], most: int) -> str:
    """`h0, h1 and 14 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
