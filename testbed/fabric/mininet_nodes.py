"""Mininet's nodes and links for a fabric that is up: hosts, bridges, the controller, cables.

What differs from stock Mininet:
- A host's namespace is held by a small process (hardware/holder); its shell starts with its first command.
- A switch is a bridge of the fabric's own Open vSwitch; its shell is where that runs.
- A link is an emulated cable in fabricd between two TAP devices.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mininet.link import Intf, Link
from mininet.node import Controller, Host, Node, OVSSwitch

from testbed.base.errors import MachineError
from testbed.fabric.ovs import Bridge, OpenVSwitch


class LazyShell(Node):
    """A node whose shell starts with its first command, in the namespaces of the process `pid` (None: the root's)."""

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
        """Called by Mininet when the node is made: the shell is only started later, in this process's namespaces."""
        self.pid = self._holder

    def _start_shell_now(self) -> None:
        if self.shell is None:
            namespace = self.inNamespace  # type: ignore[has-type]
            self.inNamespace, self._starting = False, True  # no new namespace
            try:
                super().startShell()
            finally:
                self.inNamespace, self._starting, self.pid = namespace, False, self._holder

    def _popen(self, cmd: Sequence[str], **params: Any) -> Any:
        params.setdefault("env", {**os.environ, **self._mark})
        if self._starting and self._holder != os.getpid():
            cmd = ["mnexec", "-a", str(self._holder), *cmd]
        return super()._popen(cmd, **params)

    def cmd(self, *args: Any, **kwargs: Any) -> Any:
        if not self._shell_allowed:  # Mininet's constructors configure nodes, which are configured already
            return ""
        if not self._starting:
            self._start_shell_now()
        return super().cmd(*args, **kwargs)

    def sendCmd(self, *args: Any, **kwargs: Any) -> Any:
        if not self._starting:
            self._start_shell_now()
        return super().sendCmd(*args, **kwargs)


class FabricHost(LazyShell, Host):
    """A server: the namespace in which its NICs' kernel interfaces are, and its ranks' containers live.

    `begins` is called before its first command.
    """

    def __init__(self, name: str, begins: Callable[[], None], **params: Any) -> None:
        self._begins = begins
        super().__init__(name, **params)

    def _start_shell_now(self) -> None:
        if self.shell is None:
            self._begins()
        super()._start_shell_now()


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
    """The fabric's controller: Mininet shows it, but neither starts nor stops it."""

    def checkListening(self) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self, *args: Any, **kwargs: Any) -> None:
        pass


class FabricIntf(Intf):
    """One end of a cable: a switch's TAP device, or a NIC's kernel interface (not there with the virtual clock)."""

    def config(self, mac: str | None = None, ip: str | None = None, **_params: Any) -> dict[str, Any]:
        """Only stores the address: devices are configured in batches."""
        if ip:
            self.ip, _, self.prefixLen = ip.partition("/")
        return {}

    def updateIP(self) -> str | None:
        """The address from `ifconfig`; where there is no interface, the NIC's."""
        before = self.ip
        self.ip = super().updateIP() or before
        return self.ip

    def delete(self) -> None:
        self.node.delIntf(self)
        self.link = None


class FabricLink(Link):
    def __init__(self, *args: Any, cable: str, **params: Any) -> None:
        self.cable = cable
        super().__init__(*args, intf=FabricIntf, **{k: v for k, v in params.items() if k != "intf"})

    @classmethod
    def makeIntfPair(cls, *args: Any, **kwargs: Any) -> None:
        """Nothing to make: fabricd has made both ends."""
