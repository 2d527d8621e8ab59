"""Real Open vSwitch bridges wired like a fabric, the real controller's process, and a stand-in for fabricd's socket."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from controllers.openflow import vswitchd
from tests.parts.own_switch import OwnSwitch, shared
from topologies import Fabric, Switch

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0


def run(*command: str) -> str:
    """Runs a command where the tests' shared Open vSwitch is."""
    return shared().run(*command)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"waited {DEADLINE_S} s for: {what}"
        time.sleep(0.01)


class LiveFabric:
    """The bridges of a fabric; cables between switches are patch ports, NICs' ports lead nowhere unless plugged."""

    def __init__(self, fabric: Fabric, switch: OwnSwitch | None = None) -> None:
        self.fabric = fabric
        self.switch = switch or shared()
        self.prefix = f"rbt{secrets.token_hex(2)}"
        self.dpid_base = int.from_bytes(secrets.token_bytes(4), "big") << 32
        self._names = {f"{self.prefix}-{s.index}": s.name for s in fabric.switches}

    def bridge(self, switch: str) -> str:
        return f"{self.prefix}-{self.fabric.switch_by_name[switch].index}"

    def port(self, switch: str, number: int) -> str:
        return f"{self.bridge(switch)}-{number}"

    def up(self, taps: Callable[[Switch, int], str] | None = None) -> None:
        """Make the bridges; `taps` names the devices that are their ports instead of patch ports."""
        command = ["ovs-vsctl"]
        for s in self.fabric.switches:
            name, dpid = self.bridge(s.name), f"{self.dpid_base | s.dpid:016x}"
            command += ["--", "add-br", name, "--", "set", "Bridge", name, "datapath_type=netdev", "fail_mode=secure"]
            command += ["protocols=OpenFlow13,OpenFlow15", f"other-config:datapath-id={dpid}"]
            for number in range(1, s.ports + 1):
                device = taps(s, number) if taps else self.port(s.name, number)
                command += ["--", "add-port", name, device, "--", "set", "Interface", device]
                command += [f"ofport_request={number}", *([] if taps else self._patch(s.name, number))]
        self.switch.run(*command)

    def _patch(self, switch: str, number: int) -> list[str]:
        end = self.fabric.cable_at[switch, number].other(switch)
        there = end.node in self.fabric.switch_by_name
        peer = self.port(end.node, end.port) if there else f"{self.port(switch, number)}-nic"
        return ["type=patch", f"options:peer={peer}"]

    def down(self) -> None:
        self.switch.run("ovs-vsctl", *(w for b in self._names for w in ("--", "--if-exists", "del-br", b)))

    def plug(self, switch: str, number: int, device: str) -> None:
        """Put a network device in place of a port."""
        bridge, name = self.bridge(switch), self.port(switch, number)
        self.switch.run("ovs-vsctl", "del-port", bridge, name, "--", "add-port", bridge, device,
                        "--", "set", "Interface", device, f"ofport_request={number}")  # fmt: skip

    def connect(self, tcp_port: int) -> None:
        command = ["ovs-vsctl"]
        for bridge in self._names:
            command += ["--", "set-controller", bridge, f"tcp:127.0.0.1:{tcp_port}"]
            command += ["--", "set", "Controller", bridge, "max_backoff=1000"]
        self.switch.run(*command)

    def flows(self, switch: str) -> str:
        """The flow table as ovs-ofctl prints it, sorted, without counters and ages."""
        text = self.switch.run("ovs-ofctl", "-OOpenFlow13", "--no-stats", "dump-flows", self.bridge(switch))
        return "".join(sorted(text.splitlines(keepends=True)))

    def groups(self, switch: str) -> list[str]:
        """The group tables as ovs-ofctl prints them, sorted."""
        text = self.switch.run("ovs-ofctl", "-OOpenFlow13", "dump-groups", self.bridge(switch))
        return sorted(text.splitlines()[1:])

    def all_flows(self) -> dict[str, str]:
        return {s.name: self.flows(s.name) for s in self.fabric.switches}

    def trace(self, source: str, destination: str, udp_source: int = 49152) -> list[tuple[str, int]]:
        """The (switch, port out) that OVS sends a packet through; empty port 0 where it drops it."""
        nics = self.fabric.nic_by_name
        end = self.fabric.cable_at[source, 1].other(source)
        packet = f"in_port={end.port},udp,dl_src={nics[source].mac},dl_dst={nics[destination].mac}"
        packet += f",nw_src={nics[source].ip},nw_dst={nics[destination].ip},udp_src={udp_source},udp_dst=4791"
        text = vswitchd.command(self.switch.ovs.control, "ofproto/trace", self.bridge(end.node), packet)
        parts = re.split(r'bridge\("([^"]+)"\)', text)[1:]
        hops = zip(parts[::2], parts[1::2], strict=True)
        return [(self._names[name], int(m[1]) if (m := re.search(r"output:(\d+)", what)) else 0) for name, what in hops]

    def arrives(self, source: str, destination: str) -> bool:
        switch, port = self.trace(source, destination)[-1]
        return port != 0 and self.fabric.cable_at[switch, port].other(switch).node == destination


class ControllerProcess:
    """`python -m controllers.main`, listening."""

    def __init__(self, live: LiveFabric, folder: Path, python: str, *arguments: str, port: int | None = None) -> None:
        self.port = port or _free_port()
        self.log = folder / "controller.log"
        file = folder / "fabric.json"
        file.write_text(json.dumps(live.fabric.to_dict()))
        command = [python, "-m", "controllers.main", "--fabric", str(file), "--port", str(self.port)]
        command += ["--dpid-base", hex(live.dpid_base), "--log", str(self.log)]
        command += ["--ovs", str(live.switch.ovs.control), *arguments]
        self.process = subprocess.Popen(
            [*live.switch.inside, *command],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        wait_until(self._listens, "the controller to listen")

    def _listens(self) -> bool:
        assert self.process.poll() is None, "the controller ended"
        net = Path(f"/proc/{self.process.pid}/net")
        if "TCP: inuse 0 " in (net / "sockstat").read_text():  # the list takes the kernel 4 ms
            return False
        sockets = [line.split() for line in (net / "tcp").read_text().splitlines()[1:]]
        return any(fields[1].endswith(f":{self.port:04X}") and fields[3] == "0A" for fields in sockets)

    def said(self) -> Any:
        """The next line on standard output."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def logged(self, text: str) -> int:
        return self.log.read_text().count(text)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class FakeFabricd:
    """fabricd's end of the control socket: accepts subscriptions, sends events, collects what is settled."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settled: list[tuple[int, dict[str, str]]] = []  # event, and what `snapshot` gave when it was settled
        self.subscriptions = 0
        self.snapshot: Callable[[], dict[str, str]] = dict
        self._connection: socket.socket | None = None
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                self._connection = connection
                with contextlib.suppress(OSError):
                    self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        for line in connection.makefile():
            request = json.loads(line)
            if request["op"] == "subscribe" and request["settles"]:
                self.subscriptions += 1
                self._reply(connection, {"id": request["id"], "ok": True})
            elif request["op"] == "settled":
                self.settled.append((request["event"], self.snapshot()))
                self._reply(connection, {"id": None, "ok": True})

    @staticmethod
    def _reply(connection: socket.socket, message: dict[str, Any]) -> None:
        connection.sendall(json.dumps(message).encode() + b"\n")

    def ends(self, fabric: Fabric, name: str, up: bool, first_id: int) -> list[dict[str, Any]]:
        """What fabricd sends when a cable changes: an event for each end on a switch."""
        cable = fabric.cable(name)
        ends = [e for e in (cable.a, cable.b) if e.node in fabric.switch_by_name]
        own = {"event": "port", "time_ns": 1, "up": up}
        return [
            {**own, "id": first_id + i, "switch": e.node, "port": e.port, "more": i + 1 < len(ends)}
            for i, e in enumerate(ends)
        ]

    def send(self, *events: dict[str, Any]) -> list[int]:
        """Sends events in one piece; returns their ids."""
        assert self._connection is not None
        self._connection.sendall(b"".join(json.dumps(e).encode() + b"\n" for e in events))
        return [e["id"] for e in events]

    def cable(self, fabric: Fabric, name: str, up: bool, first_id: int) -> list[int]:
        """Sends what fabricd sends when a cable changes; returns the events' ids."""
        return self.send(*self.ends(fabric, name, up, first_id))

    def wait_settled(self, ids: list[int]) -> None:
        wait_until(lambda: set(ids) <= {i for i, _ in self.settled}, f"events {ids} to be settled")

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()
        self.hang_up()


@contextlib.contextmanager
def live_fabric(fabric: Fabric) -> Iterator[LiveFabric]:
    live = LiveFabric(fabric)
    try:
        live.up()
        yield live
    finally:
        live.down()


@contextlib.contextmanager
def controller(
    live: LiveFabric, folder: Path, *arguments: str, python: str = sys.executable, port: int | None = None
) -> Iterator[ControllerProcess]:
    process = ControllerProcess(live, folder, python, *arguments, port=port)
    try:
        live.connect(process.port)
        yield process
    finally:
        process.kill()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port
