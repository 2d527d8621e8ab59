"""Mininet over a Railbed fabric: its nodes, links, API and command line, built in batches.

What differs from stock Mininet:
- A host's namespace is held by a small process (hardware/holder); its shell starts with its first command.
- A switch is a bridge of the fabric's own Open vSwitch, all made in one transaction; its shell is where that runs.
- A link is an emulated cable in fabricd between two TAP devices: `link A B down` cuts that, not an interface.
- Nothing global is changed: no sysctls, no limits, no `killall`.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn, Protocol

from mininet.link import Intf, Link
from mininet.log import StreamHandlerNoNewline, error, lg, output
from mininet.net import Mininet
from mininet.node import Controller, Host, Node, OVSSwitch
from mininet.topo import Topo

from testbed.base.errors import MachineError
from testbed.fabric.names import Names
from testbed.fabric.ovs import Bridge, OpenVSwitch
from topologies import Fabric

MOST_NAMES = 16
NO_KERNEL_INTERFACE = (
    "With the virtual clock hosts have no kernel interface: only RDMA workloads run on it. Use the real clock."
)


class Cables(Protocol):
    """Sets cables down and up by name: what `link A B down` asks for, and whoever knows faults provides."""

    def down(self) -> dict[str, str]:
        """The cables that are down, each with the id of a fault that has it down."""

    def cut(self, cable: str) -> str:
        """Sets a cable down; returns the fault's id."""

    def mend(self, cable: str) -> tuple[list[str], list[str]]:
        """Heals what has only this cable down; returns these ids, and those of faults that have others down, too."""


class LazyShell(Node):
    """A node whose shell starts with its first command, in the namespaces of the process `pid` (none: the root's)."""

    def __init__(self, name: str, pid: int | None = None, mark: Mapping[str, str] | None = None, **params: Any) -> None:
        self._holder = pid or os.getpid()
        self._mark = dict(mark or {})
        self._shell_allowed = self._starting = False
        super().__init__(name, **params)
        self._shell_allowed = True

    @classmethod
    def setup(cls) -> None:
        if missing := [tool for tool in ("mnexec", "ifconfig") if not shutil.which(tool)]:
            raise MachineError(f"{' and '.join(missing)} not found", hint="./setup.sh installs it (package mininet)")

    def startShell(self, mnopts: str | None = None) -> None:
        """Called by Mininet when the node is made: only notes where the shell will live."""
        self.pid = self._holder

    def _start_shell_now(self) -> None:
        if self.shell is None:
            mine = self.inNamespace  # type: ignore[has-type]
            self.inNamespace, self._starting = False, True  # no new namespace
            try:
                super().startShell()
            finally:
                self.inNamespace, self._starting, self.pid = mine, False, self._holder

    def _popen(self, cmd: Sequence[str], **params: Any) -> Any:
        params.setdefault("env", {**os.environ, **self._mark})
        if self._starting and self._holder != os.getpid():
            cmd = ["mnexec", "-a", str(self._holder), *cmd]
        return super()._popen(cmd, **params)

    def cmd(self, *args: Any, **kwargs: Any) -> Any:
        if not self._shell_allowed:  # what constructors of Mininet want configured is configured already
            return ""
        if not self._starting:
            self._start_shell_now()
        return super().cmd(*args, **kwargs)

    def sendCmd(self, *args: Any, **kwargs: Any) -> Any:
        if not self._starting:
            self._start_shell_now()
        return super().sendCmd(*args, **kwargs)


class FabricHost(LazyShell, Host):
    """A server: the namespace in which its NICs' kernel interfaces are, and its ranks' containers live."""


class FabricSwitch(LazyShell, OVSSwitch):
    """A bridge of the fabric under its topology name."""

    def __init__(self, name: str, bridge: str = "", switches: OpenVSwitch | None = None, **params: Any) -> None:
        super().__init__(name, **{**params, "inNamespace": False, "datapath": "user", "protocols": "OpenFlow13"})
        assert switches is not None
        self.bridge = bridge
        self.switches = switches

    @classmethod
    def setup(cls) -> None:
        LazyShell.setup()

    @classmethod
    def isOldOVS(cls) -> bool:
        return False

    def as_bridge(self) -> Bridge:
        ports = tuple(intf.name for intf in self.intfList() if self.ports[intf])
        return Bridge(self.bridge, int(self.dpid, 16), ports)

    def start(self, controllers: Sequence[Any]) -> None:
        """Makes the bridge anew, after `stop` (a whole fabric's bridges are made by the lab, at once)."""
        self.switches.finish(self.switches.create([self.as_bridge()]))
        if controllers:
            self.switches.finish(self.switches.set_controller([self.bridge], f"tcp:127.0.0.1:{controllers[0].port}"))

    def stop(self, deleteIntfs: bool = False) -> None:
        """Removes the bridge; its TAP devices stay."""
        self.switches.delete([self.bridge])

    def dpctl(self, *args: Any) -> Any:
        return self.cmd("ovs-ofctl", "-O", "OpenFlow13", args[0], self.bridge, *args[1:])

    def vsctl(self, *args: Any, **kwargs: Any) -> Any:
        return self.cmd("ovs-vsctl", *[self.bridge if a is self else a for a in args], **kwargs)

    def controllerUUIDs(self, update: bool = False) -> list[str]:
        text = self.cmd("ovs-vsctl", "get", "Bridge", self.bridge, "controller").strip()
        return [uuid.strip() for uuid in text.strip("[]").split(",") if uuid.strip()]

    def connected(self) -> bool:
        return any("true" in self.cmd("ovs-vsctl get Controller", u, "is_connected") for u in self.controllerUUIDs())

    def attach(self, intf: Any) -> None:
        self.cmd("ovs-vsctl add-port", self.bridge, intf)

    def detach(self, intf: Any) -> None:
        self.cmd("ovs-vsctl del-port", self.bridge, intf)


class FabricController(LazyShell, Controller):
    """The fabric's controller, a process of the fabric: Mininet shows it, and neither starts nor stops it."""

    def checkListening(self) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self, *args: Any, **kwargs: Any) -> None:
        pass


class FabricIntf(Intf):
    """One end of a cable: a switch's TAP device, or a NIC's kernel interface (not there with the virtual clock)."""

    def config(self, mac: str | None = None, ip: str | None = None, **_params: Any) -> dict[str, Any]:
        """Only takes note: devices are configured in batches."""
        if ip:
            self.ip, _, self.prefixLen = ip.partition("/")
        return {}

    def updateIP(self) -> str | None:
        """The address from `ifconfig`; where there is no interface, the NIC's."""
        known = self.ip
        self.ip = super().updateIP() or known
        return self.ip

    def delete(self) -> None:
        self.node.delIntf(self)
        self.link = None


class FabricLink(Link):
    """An emulated cable."""

    def __init__(self, *args: Any, cable: str, **params: Any) -> None:
        self.cable = cable
        super().__init__(*args, intf=FabricIntf, **{k: v for k, v in params.items() if k != "intf"})

    @classmethod
    def makeIntfPair(cls, *args: Any, **kwargs: Any) -> None:
        """Nothing to make: fabricd has made both ends."""


class FabricTopo(Topo):
    """A Railbed fabric as a Mininet topology; port numbers and device names are the fabric's."""

    def build(self, fabric: Fabric, names: Names, pids: Mapping[str, int], common: Mapping[str, Any]) -> None:
        for host in fabric.hosts:
            self.addHost(host.name, pid=pids.get(host.name), **common["host"])
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

    `ovs` is the fabric's Open vSwitch, `inside` a process in the network namespace where that is.

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
        ovs: OpenVSwitch,
        inside: int,
        cables: Cables,
        stop: Callable[[], Any],
    ) -> None:
        self.fabric = fabric
        self.kernel = kernel
        self.cables = cables
        self._stop = stop
        common = {"host": {"mark": mark}, "switch": {"mark": {**mark, **ovs.env}, "switches": ovs, "pid": inside}}
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
        """Takes the fabric down."""
        self.close()
        self._stop()

    def close(self) -> None:
        """Ends the shells that were started from here; the fabric stays."""
        for node in (*self.hosts, *self.switches, *self.controllers):
            Node.terminate(node)

    # -- cables

    def configLinkStatus(self, src: str, dst: str, status: str) -> bool:
        """Cuts (`down`) or mends (`up`) the cables between two nodes, by the fault that this is. False: it cannot."""
        cables = self._between(src, dst) if self.knows(src, dst) else []
        done = [self._cut(cable) if status == "down" else self._mend(cable) for cable in cables]
        return bool(done) and all(done)

    def knows(self, *names: str) -> bool:
        """Whether these are nodes; says which one is not, and what there is."""
        for name in names:
            if name not in self.nameToNode:
                near = get_close_matches(name, list(self.nameToNode), n=1)
                meant = f"did you mean {near[0]}? " if near else ""
                there = listed([*self.nameToNode], MOST_NAMES)
                error(f"there is no node {name!r}: {meant}there are {there}\n")
                return False
        return True

    def _between(self, src: str, dst: str) -> list[str]:
        """The cables between two nodes, by name."""
        links = self.linksBetween(self.nameToNode[src], self.nameToNode[dst])
        found = [link.cable for link in links]
        if not found and f"{src}-{dst}" in self.fabric.cable_by_name:  # at a bridge in a NIC, called as its host is
            found = [self.fabric.cable(f"{src}-{dst}").name]
        if not found:
            ends = [link.intf2 if link.intf1.node.name == src else link.intf1 for link in self.links]
            far = [end.node.name for end, link in zip(ends, self.links, strict=True) if self._ends_at(link, src)]
            error(f"there is no cable between {src} and {dst}: from {src} cables go to {listed(far, MOST_NAMES)}\n")
        return found

    @staticmethod
    def _ends_at(link: Any, node: str) -> bool:
        return node in (link.intf1.node.name, link.intf2.node.name)

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


class _Output(StreamHandlerNoNewline):
    """Ends with whoever read what it writes (`testbed shell -c net | head -1`), without a traceback for each line."""

    def handleError(self, record: logging.LogRecord) -> None:
        if isinstance(sys.exc_info()[1], BrokenPipeError):
            nobody_reads()
        super().handleError(record)


def nobody_reads() -> NoReturn:
    """Ends the program as one whose reader has gone: quietly, with what SIGPIPE gives."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):  # what they still hold is written when Python ends
        os.dup2(nowhere, stream.fileno())
    raise SystemExit(128 + signal.SIGPIPE)  # an OSError would be caught by Mininet, which would go on


def log_to_stdout() -> None:
    """Mininet writes everything to stderr; a script wants results on stdout, errors on stderr."""
    results, errors = _Output(sys.stdout), _Output(sys.stderr)
    results.addFilter(lambda record: record.levelno < logging.WARNING)
    errors.setLevel(logging.WARNING)
    for old in lg.handlers[:]:
        results.setFormatter(old.formatter)
        errors.setFormatter(old.formatter)
        lg.removeHandler(old)
    lg.addHandler(results)
    lg.addHandler(errors)
