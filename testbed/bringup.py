"""Brings a fabric up, step by step, with as much at the same time as can be.

fabricd makes the TAP devices, one transaction makes the bridges on them, the controller fills their tables; meanwhile a
helper unshares the hosts' namespaces. Each process is known by its mark from its first moment, and journaled at once.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from hardware.client import Fabricd, FabricdError
from testbed import ovs
from testbed.errors import MachineError, UserError
from testbed.names import Names
from testbed.ownership import HOST, Journal, Record, link_group, owner_tag
from testbed.processes import MARK, Process, wait_for
from topologies import Fabric, Nic

TAP_MTU = 9216
CONTROLLER_OUT = "controller.out"
_KERNEL_MTU = 1500  # at least, for a NIC's kernel interface
_CHECKOUT = Path(__file__).resolve().parent.parent
_HOLDER = Path(__file__).with_name("holder.py")


@dataclass
class Bringup:
    """The parts of one fabric while it comes up. `persistent`: its processes outlive us."""

    record: Record
    journal: Journal
    fabric: Fabric
    names: Names
    persistent: bool
    kernel: bool  # NICs have kernel interfaces
    children: list[subprocess.Popen[Any]] = field(default_factory=list)

    @property
    def dir(self) -> Path:
        return self.record.dir

    @cached_property
    def mark(self) -> dict[str, str]:
        return {MARK: self.record.mark}

    # -- processes

    def spawn(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts a process of the fabric, in a session of its own; unless persistent it dies with us."""
        tether = [] if self.persistent else ["setpriv", "--pdeathsig", "KILL"]
        env = {**os.environ, **self.mark, "PYTHONPATH": str(_CHECKOUT)}
        process = subprocess.Popen([*tether, *argv], env=env, start_new_session=True, **options)
        self.children.append(process)
        return process

    def start_holder(self) -> Holder:
        """Starts what holds the hosts' namespaces."""
        self.journal.write("makes", what="host namespaces", hosts=len(self.fabric.hosts))
        process = self.spawn(
            [sys.executable, "-I", "-S", str(_HOLDER)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        holder = Holder(process)
        self.journal.made({"holder": Process.of(process.pid)})
        holder.ask({"names": [h.name for h in self.fabric.hosts], "die_with_parent": not self.persistent})
        return holder

    def take_hosts(self, holder: Holder) -> dict[str, int]:
        """The processes that hold the hosts' namespaces, by host. Raises MachineError."""
        answer = holder.answer()
        if errors := answer.get("errors"):
            name, error = next(iter(errors.items()))
            raise MachineError(f"cannot make a network namespace for {name}: {error}", hint="are you root?")
        pids: dict[str, int] = answer["pids"]
        self.journal.made({HOST + name: Process.of(pid) for name, pid in pids.items()})
        return pids

    def start_fabricd(self, config: Mapping[str, Any], *, fifo: bool) -> Fabricd:
        """Raises MachineError."""
        self.journal.write("makes", what="links", prefix=f"rb{self.record.id}-", group=link_group(self.record.id))
        with (self.dir / "fabricd.log").open("wb") as log:
            try:
                fabricd = Fabricd.start(config, self.dir, fifo=fifo, log=log, env=self.mark)
            except FabricdError as error:
                raise MachineError(str(error), where=str(log.name), hint="testbed doctor") from None
        assert fabricd.process is not None
        self.children.append(fabricd.process)
        self.journal.made({"fabricd": Process.of(fabricd.process.pid)})
        return fabricd

    def start_controller(self, control: Mapping[str, Any], port: int | None = None) -> Controller:
        """Starts the controller that the experiment's `control` asks for; it waits for fabricd and the switches."""
        port = port or _free_port()
        log, out = self.dir / "controller.log", self.dir / CONTROLLER_OUT
        argv = [_interpreter(control["library"]), "-m", "controllers.main", "--fabric", str(self.dir / "fabric.json")]
        argv += ["--port", str(port), "--dpid-base", str(self.names.dpid_base)]
        argv += ["--routing", control["routing"], *(["--dateline"] if control["dateline"] else [])]
        argv += ["--fabricd", str(self.dir / "control.sock"), "--log", str(log)]
        argv += [word for app in control["apps"] for word in ("--app", app)]
        with out.open("wb") as stdout, log.open("ab") as stderr:
            process = self.spawn(argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        self.journal.made({"controller": Process.of(process.pid)})
        return Controller(process, port, out, log)

    # -- switches

    def set_taps_up(self) -> None:
        """Sets up the switches' TAP devices: jumbo frames, one link group, and nothing of IPv6's own on them."""
        taps = [self.names.tap(s, p) for s in self.fabric.switches for p in range(1, s.bridge_ports + 1)]
        taps.append(self.names.fence_tap)
        for tap in taps:
            with suppress(FileNotFoundError):  # a kernel without IPv6
                Path(f"/proc/sys/net/ipv6/conf/{tap}/disable_ipv6").write_text("1")
        group = link_group(self.record.id)
        _ip("".join(f"link set dev {tap} mtu {TAP_MTU} group {group} up\n" for tap in taps))

    def make_bridges(self, owner: Process) -> list[subprocess.Popen[str]]:
        """Starts making all bridges; ovs.finish waits for them."""
        self.journal.write("makes", what="bridges", external_ids={ovs.TAG: self.record.id})
        bridges = [
            ovs.Bridge(
                self.names.bridge(s), self.names.dpid(s), tuple(self.names.tap(s, p + 1) for p in range(s.bridge_ports))
            )
            for s in self.fabric.switches
        ]
        bridges.append(ovs.Bridge(self.names.fence_bridge, self.names.dpid_base, (self.names.fence_tap,)))
        return ovs.create(bridges, self.tags(owner))

    def tags(self, owner: Process) -> dict[str, str]:
        """External ids of the fabric's bridges."""
        return {ovs.TAG: self.record.id, ovs.OWNER_TAG: owner_tag(owner)}

    # -- hosts

    def with_kernel_interfaces(self, config: dict[str, Any], pids: Mapping[str, int]) -> dict[str, Any]:
        """fabricd's configuration, with every NIC's interface in the namespace that this process holds for its host."""
        for nic, entry in zip(self.fabric.nics, config["nics"], strict=True):
            entry |= {"netdev": self.names.interface(nic), "netns": f"/proc/{pids[nic.host]}/ns/net"}
        return config

    def plug_in(self, holder: Holder, mtu: int) -> None:
        """Configures each NIC's kernel interface, which fabricd has made in its host's namespace."""
        mtu = max(mtu, _KERNEL_MTU)
        holder.ask({"configure": {host.name: self._interfaces(host.nics, mtu) for host in self.fabric.hosts}})
        if errors := holder.answer()["errors"]:
            name, error = next(iter(errors.items()))
            raise MachineError(f"cannot configure the interfaces of {name}: {error}")

    def _interfaces(self, nic_names: Sequence[str], mtu: int) -> dict[str, Any]:
        nics = [self.fabric.nic_by_name[name] for name in nic_names]
        lines = [line for n, nic in enumerate(nics) for line in self._addresses(nic, n, len(nics), mtu)]
        return {"ip": "\n".join(lines) + "\n", "offloads_off": [self.names.interface(nic) for nic in nics]}

    def _addresses(self, nic: Nic, number: int, of: int, mtu: int) -> list[str]:
        """One NIC has all of 10/8 on its link. Of several, each has its rail, and what has its address as source."""
        device = self.names.interface(nic)
        up = f"link set dev {device} address {nic.mac} mtu {mtu} up"
        if of == 1:
            return [f"address add {nic.ip}/8 brd + dev {device}", up]
        table = 100 + number
        lines = [f"address add {nic.ip}/16 brd + dev {device}", up]
        if number == 0:
            lines.append(f"route add 10.0.0.0/8 dev {device} src {nic.ip}")
        return [
            *lines,
            f"route add 10.0.0.0/8 dev {device} src {nic.ip} table {table}",
            f"rule add from {nic.ip} lookup {table} priority {1000 + number}",
        ]


class Holder:
    """The conversation with holder.py."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, question: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # `answer` will tell
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Raises MachineError if it has died."""
        line = self._stream(self.process.stdout).readline()
        if not line:
            raise MachineError(f"the process that holds the hosts' namespaces died (code {self.process.wait()})")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def let_go(self) -> None:
        """Ends the conversation; it holds on."""
        for stream in (self.process.stdin, self.process.stdout):
            self._stream(stream).close()

    @staticmethod
    def _stream(stream: IO[str] | None) -> IO[str]:
        assert stream is not None
        return stream


@dataclass
class Controller:
    """A controller's process that we have started."""

    process: subprocess.Popen[bytes]
    port: int
    out: Path
    log: Path

    def wait_listening(self, timeout: float = 30) -> None:
        """Waits until it listens: this very process, not another one on its port. Raises MachineError."""
        self._await(lambda: _listens(self.process.pid, self.port), timeout, "does not listen")

    def wait_programmed(self, timeout: float = 60) -> dict[str, Any]:
        """Waits until all switches have their flows; returns what it said then. Raises MachineError."""
        self._await(lambda: "programmed" in self._said(), timeout, "has not programmed all switches")
        return self._said()

    def _await(self, condition: Any, timeout: float, complaint: str) -> None:
        wait_for(lambda: condition() or "error" in self._said() or self.process.poll() is not None, timeout)
        if condition():
            return
        if "where" in (about := self._said()):
            raise UserError(f"a controller application failed: {about['error']}", about["where"])
        said = about.get("error") or " ".join(self.log.read_text(errors="replace").split())[-300:]
        ended = self.process.poll() is not None
        raise MachineError(f"the controller {'ended' if ended else complaint}: {said}", where=str(self.log))

    def _said(self) -> dict[str, Any]:
        return next(iter(controller_lines(self.out)), {})


def controller_lines(out: Path) -> list[dict[str, Any]]:
    """What a controller has said on its standard output, `out`."""
    said = []
    with suppress(OSError):
        for line in out.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                said.append(json.loads(line))
    return [line for line in said if isinstance(line, dict)]


def _interpreter(library: str) -> str:
    """The Python that has the OpenFlow library. Raises MachineError."""
    if library == "os-ken":
        return sys.executable
    python = _CHECKOUT / ".venv-ryu" / "bin" / "python"
    if not python.exists():
        raise MachineError("ryu's environment is not built", where="control.library", hint="./setup.sh ryu")
    return str(python)


def _free_port() -> int:
    """A TCP port on the loopback that nobody uses now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def _listens(pid: int, port: int) -> bool:
    """Whether a process listens on a TCP port, by the kernel's tables: a trial connection would be a false switch."""
    local = f":{port:04X}"
    inodes = {
        fields[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if (fields := line.split())[1].endswith(local) and fields[3] == "0A"
    }
    if not inodes:
        return False
    links = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            links.add(os.readlink(fd))
    return any(f"socket:[{inode}]" in links for inode in inodes)


def _ip(batch: str) -> None:
    done = subprocess.run(["ip", "-batch", "-"], input=batch, text=True, capture_output=True, check=False)
    if done.returncode:
        raise MachineError(f"cannot configure links: {' '.join(done.stderr.split())[:300]}", hint="are you root?")


def import_in_background(name: str) -> threading.Thread:
    """Imports a module while others work; join before using it."""
    thread = threading.Thread(target=import_module, args=(name,), daemon=True)
    thread.start()
    return thread
