"""A live fabric: brought up, used, taken down. `Lab.up` makes one, `Lab.attach` finds one that is up already."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from hardware.client import Fabricd, FabricdError
from testbed.base.errors import MachineError, UserError, require_root
from testbed.base.this_process import undisturbed
from testbed.containers import programs
from testbed.containers.bundle import Limits
from testbed.containers.container import Containers
from testbed.containers.forked import forkable
from testbed.containers.image import Image
from testbed.containers.worker import File, Worker
from testbed.fabric.bringup import HOLDER, STATE, Bringup, bring_up, controller_settings, inside, own_ovs
from testbed.fabric.controller import CONTROLLER_OUT, CONTROLLER_PORT, controller_lines
from testbed.fabric.inventory import topology_text
from testbed.fabric.names import Names
from testbed.fabric.ovs import OpenVSwitch
from testbed.fabric.parts import Supervision, failed, trouble, why_dead
from testbed.machine import descriptors, ownership
from testbed.machine.lockfile import LockFile
from testbed.machine.mounts import binds
from testbed.machine.ownership import HOST, Record, Removed
from testbed.machine.processes import MARK, Process, Running
from topologies import Fabric

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.fabric.fork_server import ControllerSeat
    from testbed.fabric.net import Cables, FabricNet

_TOOLS = {
    "runc": "runc",
    "ip": "iproute2",
    "ovs-vsctl": "openvswitch-switch",
    "ovs-vswitchd": "openvswitch-switch",
    "mnexec": "mininet",
}


def usable(fabric_id: str | None) -> Record:
    """The fabric of this id, or the only one there is, if it can go on. Raises UserError."""
    record = ownership.find(fabric_id)
    if record.state == "dead":
        raise UserError(f"fabric {record.id} is dead: {why_dead(record)}", hint=f"testbed clean {record.id}")
    _require_our_namespace(record)
    if reason := trouble(record):
        raise UserError(f"fabric {record.id} cannot go on: {reason.what}", str(record.dir), reason.hint)
    return record


def _require_our_namespace(record: Record, hint: str = "use it from there") -> None:
    if not record.in_our_namespace:
        raise UserError(f"fabric {record.id} lives in another pid namespace", hint=hint)


@dataclass
class Lab:
    """One live fabric.

    `fabricd` is the connection to its emulated hardware, `controller` its controller's process (`pid`, `poll()`),
    `mininet()` the same fabric as a Mininet. As a context manager it goes down at the end.
    """

    record: Record
    fabric: Fabric
    state: dict[str, Any]
    fabricd: Fabricd
    controller: Any
    _children: list[subprocess.Popen[Any]] = field(default_factory=list)
    _lock: LockFile | None = None
    _starting: list[Worker] = field(default_factory=list)
    _down: bool = False
    _net: FabricNet | None = None
    _seat: ControllerSeat | None = None  # its controller ends with it
    job: str = ""  # what runs here now: its workers have containers of their own
    keeps: bool = False  # its containers, for workers that come later

    # -- up

    @classmethod
    def up(cls, experiment: Experiment, *, persistent: bool = False, seat: ControllerSeat | None = None) -> Lab:
        """Brings a fabric up.

        It belongs to this process and its processes die with it; a `persistent` one stays when this process ends, and
        then belongs to its fabricd. To be called in the main thread: helpers die with the thread that started them.
        `seat` has a controller that waits for one; it ends with this process.
        Raises UserError; nothing is left then.
        """
        _check_machine()
        fabric = experiment.build_fabric()
        descriptors.allow(fabric)
        kernel = experiment.clock.mode == "real"
        with ExitStack() as making:
            making.enter_context(undisturbed())
            record, journal, lock = ownership.create()
            work = Bringup(record, journal, fabric, Names(fabric, record.id), persistent, kernel, seat)
            try:
                making.close()  # from here on it is undone
                fabricd, controller, state = bring_up(work, experiment)
                lab = cls(Record.read(record.dir), fabric, state, fabricd, controller.process, work.children)
                if persistent:
                    work.hand_over(lab.fabricd)
                    lab.record = Record.read(record.dir)
                    lock.release()
                lab._lock, lab._seat = lock, seat
                return lab
            except BaseException:
                with undisturbed():
                    ownership.undo(record)
                    lock.release()
                    _reap(work.children)
                raise
            finally:
                work.release_process_lock()
                journal.close()

    @classmethod
    def attach(cls, fabric_id: str | None = None) -> Lab:
        """The live fabric of this id, or the only one there is. Raises UserError."""
        record = usable(fabric_id)
        try:
            state = json.loads((record.dir / STATE).read_text())
            fabric = Fabric.from_dict(json.loads((record.dir / "fabric.json").read_text()))
            fabricd = Fabricd(record.dir / "control.sock")
        except FileNotFoundError:
            raise UserError(f"fabric {record.id} is still coming up", hint="try again in a moment") from None
        except FabricdError as error:
            raise failed(error, record.dir) from None
        return cls(record, fabric, state, fabricd, Running(record.processes["controller"]))

    # -- what it is

    @property
    def id(self) -> str:
        """Four hexadecimal digits."""
        return self.record.id

    @property
    def dir(self) -> Path:
        """The fabric's directory, /run/railbed/<id>; its logs are DIR/*.log."""
        return self.record.dir

    @property
    def kernel(self) -> bool:
        """Whether the hosts have kernel interfaces (the real clock's)."""
        return bool(self.state["clock"]["mode"] == "real")

    @property
    def dilation(self) -> int:
        """Wall time per emulated time with the real clock; 1 with the virtual one, where it means nothing."""
        return int(self.state["clock"].get("dilation", 1))

    @cached_property
    def names(self) -> Names:
        return Names(self.fabric, self.id)

    @cached_property
    def hosts(self) -> dict[str, Process]:
        """The processes that hold the hosts' namespaces."""
        processes = self.record.processes.items()
        return {name.removeprefix(HOST): process for name, process in processes if name.startswith(HOST)}

    def flows(self) -> list[dict[str, Any]]:
        """The rules in the switches' flow tables, with what each has counted. Raises MachineError."""
        from testbed.fabric.flow_tables import flows

        bridges = {switch.name: self.names.bridge(switch) for switch in self.fabric.switches}
        return flows(self.ovs, bridges, self.fabricd.request("flows")["flows"])

    def counters(self) -> dict[str, Any]:
        """All of fabricd's counters, and `flows`. Raises FabricdError, MachineError."""
        return {**self.fabricd.request("counters"), "flows": self.flows()}

    @property
    def ovs(self) -> OpenVSwitch:
        return own_ovs(self.record)

    def ovs_command(self, argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        return ovs_command(self.record, argv)

    def mininet(self, cables: Cables) -> FabricNet:
        """The fabric as a Mininet, the same each time; `cables` carries out its `link` (testbed.inject.links)."""
        if self._net:
            return self._net
        from testbed.fabric.net import FabricNet

        net = FabricNet(
            self.fabric,
            self.names,
            {name: process.pid for name, process in self.hosts.items()},
            kernel=self.kernel,
            mark={MARK: self.record.mark},
            programs={host.name: self._for_programs_at(host.name) for host in self.fabric.hosts},
            let_run=self._let_programs_run,
            ovs=self.ovs,
            inside=self.record.processes["fabricd"].pid,
            cables=cables,
            stop=self.down,
        )
        net.build()
        net.add_controller(CONTROLLER_PORT, self.controller.pid)
        self._net = net
        return net

    @property
    def hardware(self) -> Any:
        """fabricd's process (`pid`, `poll()`)."""
        return self.fabricd.process or Running(self.record.processes["fabricd"])

    @cached_property
    def supervision(self) -> Supervision:
        """Of all its processes, from now on; for who has started them."""
        return Supervision(self.record, self._children)

    @property
    def helpers(self) -> dict[str, Running]:
        """The fabric's other processes by name, to be watched: besides fabricd and the controller."""
        wanted = ("holder", "ovs-vswitchd", "ovsdb-server")
        return {name: Running(self.record.processes[name]) for name in wanted if name in self.record.processes}

    def restart_controller(self) -> None:
        """Starts the controller anew, after it has died. Raises MachineError."""
        from testbed.experiment import loads

        experiment = loads((self.dir / "experiment.json").read_text())
        work = Bringup(self.record, self.record.journal, self.fabric, self.names, self.record.standing, self.kernel)
        controller = work.start_controller(controller_settings(experiment))
        work.release_process_lock()
        controller.wait_programmed()
        if isinstance(controller.process, subprocess.Popen):
            self._children.append(controller.process)
        self.controller = controller.process

    def controller_messages(self) -> list[dict[str, Any]]:
        """The controller's messages about its applications: `note` (text), or `error` and `where` it failed."""
        return controller_lines(self.dir / CONTROLLER_OUT)

    def describe(self) -> dict[str, Any]:
        """A description for people and programs, such as `testbed up --json`."""
        return {
            "id": self.id,
            "dir": str(self.dir),
            "name": self.state["name"],
            "topology": topology_text(self.fabric.kind, self.fabric.params),
            "clock": self.state["clock"]["mode"],
            "dilation": self.dilation,
            "ranks": {nic.rank: {"name": nic.name, "host": nic.host, "ip": str(nic.ip)} for nic in self.fabric.nics},
            "switches": [s.name for s in self.fabric.switches],
            "hosts": [h.name for h in self.fabric.hosts],
        }

    # -- workers

    @cached_property
    def containers(self) -> Containers:
        image = self.state["image"]
        return Containers(
            self.id,
            self.dir,
            self.record.mark,
            ownership.control_group(self.id),
            {nic.rank: nic.name for nic in self.fabric.nics},
            {nic.rank: self.hosts[nic.host].pid for nic in self.fabric.nics},
            Limits(**self.state["limits"]),
            Image(Path(image["rootfs"]), image["env"]) if image else None,
            self.state["ids"],
            binds(self.state["bind"]),
            f"-{self.job}" if self.job else "",
            {} if self.keeps else None,
        )

    def worker_dir(self, rank: int) -> Path:
        """Where a rank's `plan.json` belongs before its worker starts."""
        return self.containers.worker_dir(rank)

    def start_worker(
        self, rank: int, argv: Sequence[str], *, stdout: File, stderr: File, others: Sequence[int] = ()
    ) -> Worker:
        """Starts a program as a rank's container, which `others` share.

        Returns before it runs, so that several start at the same time; it does when `started` has been asked.
        """
        self._starting = [w for w in self._starting if w.starting]
        if len(self._starting) >= 2 * (os.cpu_count() or 1):  # more would only get in each other's way
            self._starting.pop(0).started()
        start = self.containers.fork if forkable(argv) else self.containers.start
        worker = start(rank, argv, stdout=stdout, stderr=stderr, others=others)
        self._starting.append(worker)
        return worker

    def exec_command(self, rank: int, argv: Sequence[str], *, tty: bool) -> tuple[list[str], Mapping[str, str]]:
        """Command and environment that run `argv` in a rank's container. Makes an idle one if none runs."""
        if not 0 <= rank < len(self.fabric.nics):
            raise UserError(f"there is no rank {rank}", hint=f"ranks: 0 to {len(self.fabric.nics) - 1}", exit_code=2)
        self.containers.idle(rank)
        command = self.containers.exec_command(rank, argv, tty=tty, env=self._for_programs())
        return command, {**os.environ, MARK: self.record.mark}

    def execute(self, rank: int, argv: Sequence[str], env: Mapping[str, str], *, stdout: File, stderr: File) -> Worker:
        """Starts `argv` in a rank's container, an idle one if none runs, with `env` in its environment."""
        self.containers.idle(rank)
        return self.containers.execute(rank, argv, {**self._for_programs(), **env}, stdout=stdout, stderr=stderr)

    def _for_programs(self) -> dict[str, str]:
        """The environment in which programs use their rank's NIC; with the virtual clock, that runs for them."""
        self._let_programs_run()
        return programs.environment(virtual=not self.kernel)

    def _for_programs_at(self, host: str) -> dict[str, str]:
        """The same in the host's shell, which is in no container: its first rank's NIC."""
        rank = next((nic.rank for nic in self.fabric.nics if nic.host == host), None)
        if rank is None:
            return {}
        return programs.outside(self.dir, rank, self.worker_dir(rank) / "sock", virtual=not self.kernel)

    def _let_programs_run(self) -> None:
        if not self.kernel:
            programs.let_run(self.fabricd)

    # -- down

    def down(self) -> None:
        """Takes the fabric down; nothing of it is left. Raises MachineError if that fails."""
        if self._down:
            return
        self._down = True
        if self._net:
            self._net.close()
        with undisturbed():
            self._watch_no_more()
            with suppress(FabricdError):  # it closes its captures; if it is gone, it has none
                self.fabricd.request("stop", timeout=2.0)
            self.fabricd.close()
            ownership.undo(Record.read(self.dir))
            if self._lock:
                self._lock.release()
            _reap(self._children)

    def _watch_no_more(self) -> None:
        if "supervision" in vars(self):
            self.supervision.close()
            del self.supervision

    def close(self) -> None:
        """Disconnects; the fabric stays up."""
        if self._net:
            self._net.close()
        self._watch_no_more()
        self.fabricd.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()


def ovs_command(record: Record, argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Command and environment that run `argv` where a fabric's switches are. Raises UserError."""
    _require_our_namespace(record)
    return [*inside(record), *argv], {**os.environ, **own_ovs(record).env}


def _reap(children: Sequence[subprocess.Popen[Any]]) -> None:
    """Closes the pipes to processes that were killed, and reaps them in the background."""
    for child in children:
        for stream in filter(None, (child.stdin, child.stdout)):
            with suppress(OSError):
                stream.close()
        if child.poll() is None:
            threading.Thread(target=child.wait, daemon=True).start()


def take_down(record: Record) -> Removed:
    """Takes down a persistent fabric, or what is left of a dead one. Raises UserError if another process owns it."""
    if record.state != "dead":
        _require_our_namespace(record, hint="take it down from there")
        if not record.standing:
            raise UserError(
                f"fabric {record.id} is in use by process {record.owner.pid if record.owner else '?'}",
                hint=f"stop that process, or testbed clean {record.id} --force",
            )
        lock = LockFile(record.dir / f"{secrets.token_hex(4)}.lock")
        record.journal.own(Process.of(os.getpid()), lock)  # ours until it is gone: nobody else begins to clean
        with suppress(FabricdError, OSError):
            fabricd = Fabricd(record.dir / "control.sock")
            fabricd.request("stop", timeout=2.0)
            fabricd.close()
    return ownership.undo(Record.read(record.dir))


def _check_machine() -> None:
    """Raises MachineError for what would fail later, before anything is made."""
    require_root()
    for tool, package in _TOOLS.items():
        if not shutil.which(tool):
            raise MachineError(f"{tool} is not installed", hint=f"./setup.sh installs it (package {package})")
    if not HOLDER.exists():
        raise MachineError(f"{HOLDER} is missing", hint="python -m hardware.build, or ./setup.sh build")
    if not os.path.exists("/dev/net/tun"):
        raise MachineError("there is no /dev/net/tun", hint="testbed doctor")
