"""Brings a fabric up, step by step, with as much at the same time as can be.

The holder unshares a network namespace for the fabric's switches. In it run an Open vSwitch, fabricd, which makes the
TAP devices, and the controller. One transaction makes the bridges, and the controller fills their tables. Meanwhile the
holder unshares the hosts' namespaces. Each process has the fabric's mark from its start, and is journaled at once.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hardware.client import Fabricd, FabricdError
from hardware.config import Hardware, fabricd_config
from hardware.devices import FENCE_BRIDGE, FENCE_TAP
from testbed.base.errors import MachineError
from testbed.containers import programs
from testbed.containers.bundle import fabricd_id, first_id
from testbed.containers.image import root_of
from testbed.fabric.controller import (
    CONTROLLER_LOG,
    CONTROLLER_OUT,
    CONTROLLER_PORT,
    FORKED_LIBRARY,
    Controller,
    controller_arguments,
    interpreter,
)
from testbed.fabric.names import Names
from testbed.fabric.ovs import Bridge, Command, OpenVSwitch
from testbed.fabric.parts import needed
from testbed.machine import memory
from testbed.machine.bytecode import keep_compiled
from testbed.machine.lockfile import LockFile
from testbed.machine.mounts import CHECKOUT
from testbed.machine.ownership import HOST, PROCESSES, SWITCHES, Journal, Record, control_group
from testbed.machine.processes import MARK, Process, Running
from testbed.plan.dilation import automatic, partitions_of
from testbed.plan.hardware import hardware_of
from topologies import Fabric, Nic

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.fabric.fork_server import ControllerSeat

STATE = "lab.json"
FABRICD_BYTES = 4 << 30  # what it may take for itself: state of the fabric, frames on their way, files being written
_KERNEL_MTU = 1500  # at least, for a NIC's kernel interface
HOLDER = CHECKOUT / "hardware" / "bin" / "holder"


@dataclass
class Bringup:
    """The parts of one fabric while it comes up. `persistent`: its processes outlive us."""

    record: Record
    journal: Journal
    fabric: Fabric
    names: Names
    persistent: bool
    kernel: bool  # NICs have kernel interfaces
    seat: ControllerSeat | None = None
    children: list[subprocess.Popen[Any]] = field(default_factory=list)
    ids: int | None = None  # first user id of the ranks', if they have user namespaces
    holder: Holder | None = None
    controller: Controller | None = None

    @property
    def dir(self) -> Path:
        return self.record.dir

    @cached_property
    def mark(self) -> dict[str, str]:
        return {MARK: self.record.mark}

    # -- processes

    def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, outlives: bool = False, **options: Any
    ) -> subprocess.Popen[Any]:
        """Starts a process of the fabric in its own session; it dies with us, unless it `outlives` us."""
        tether = [] if outlives or self.persistent else ["setpriv", "--pdeathsig", "KILL"]
        env = {**os.environ, **self.mark, "PYTHONPATH": str(CHECKOUT), **(env or {})}
        command = [*tether, *argv]
        process = subprocess.Popen(command, env=env, start_new_session=True, pass_fds=[self.process_lock.fd], **options)
        self.children.append(process)
        return process

    @cached_property
    def process_lock(self) -> LockFile:
        """Locked by all processes that are started here: any pid namespace can see whether one is alive."""
        return LockFile(self.dir / f"{secrets.token_hex(4)}{PROCESSES}")

    def release_process_lock(self) -> None:
        """The lock is the processes' alone from now on."""
        if "process_lock" in vars(self):  # it is made for the first of them
            self.process_lock.release()

    def spawn_inside(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """As `spawn`, in the fabric's network namespace."""
        return self.spawn([*self.inside, *argv], **options)

    @cached_property
    def inside(self) -> list[str]:
        """The prefix of commands that run in the fabric's network namespace."""
        return inside(Record.read(self.dir))

    @cached_property
    def ovs(self) -> OpenVSwitch:
        return own_ovs(self.record)

    def start_holder(self) -> Holder:
        """Starts the holder of the fabric's and the hosts' namespaces. `enter` waits for the fabric's."""
        self.journal.write("makes", what="namespaces", hosts=len(self.fabric.hosts))
        process = self.spawn(
            [str(HOLDER)], outlives=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.holder = Holder(process)
        self.journal.made({"holder": Process.of(process.pid)})
        return self.holder

    def enter(self, holder: Holder) -> None:
        """Waits for the fabric's namespace, then asks for the hosts'. Raises MachineError."""
        _raise_for(holder.answer())
        names = [h.name for h in self.fabric.hosts]
        group = control_group(self.record.id)
        holder.ask({"names": names, "ids": first_id(self.record.id), "group": group})

    def take_hosts(self, holder: Holder) -> dict[str, int]:
        """The processes that hold the hosts' namespaces, by host. Raises MachineError."""
        answer = holder.answer()
        _raise_for(answer)
        self.ids = first_id(self.record.id) if answer["users"] else None
        pids: dict[str, int] = answer["pids"]
        self.journal.made({HOST + name: Process.of(pid) for name, pid in pids.items()})
        return pids

    def start_database(self) -> subprocess.Popen[Any]:
        process = self.ovs.start_database(self.spawn_inside)
        self.journal.made({"ovsdb-server": Process.of(process.pid)})
        return process

    def start_switch(self, database: subprocess.Popen[Any]) -> int:
        """Starts the fabric's ovs-vswitchd; returns its pid. Raises MachineError."""
        process = self.ovs.start_switch(self.spawn_inside, database)
        self.journal.made({"ovs-vswitchd": Process.of(process.pid)})
        return int(process.pid)

    def start_fabricd(self, config: Mapping[str, Any], *, fifo: bool, workers_bytes: int) -> Fabricd:
        """Starts fabricd, with the lock that makes it the owner if the fabric is persistent. Raises MachineError.

        Its memory limit has room for itself and for what each worker may share with it.
        """
        self.journal.write("makes", what="TAP devices")
        command = [*([] if self.persistent else ["setpriv", "--pdeathsig", "KILL"]), *self.inside]
        locks = [self.process_lock.fd, *([self.fabricd_lock.fd] if self.fabricd_lock else [])]
        with (self.dir / "fabricd.log").open("wb") as log:
            try:
                fabricd = Fabricd.start(
                    config, self.dir, user=fabricd_id(self.record.id), fifo=fifo, log=log, env=self.mark,
                    before=command, pass_fds=locks,
                )  # fmt: skip
            except FabricdError as error:
                raise MachineError(str(error), where=str(log.name), hint="testbed doctor") from None
        assert fabricd.process is not None
        self.children.append(fabricd.process)
        room = FABRICD_BYTES + len(config["nics"]) * workers_bytes
        memory.limit(f"{control_group(self.record.id)}/fabricd", fabricd.process.pid, room)
        self.journal.made({"fabricd": Process.of(fabricd.process.pid)})
        return fabricd

    @cached_property
    def fabricd_lock(self) -> LockFile | None:
        """The lock file of a persistent fabric, which fabricd keeps locked."""
        return LockFile(self.dir / "fabricd.lock") if self.persistent else None

    def hand_over(self, fabricd: Fabricd) -> None:
        assert fabricd.process and self.fabricd_lock and self.holder
        self.journal.own(Process.of(fabricd.process.pid), self.fabricd_lock)
        self.holder.let_go()
        self.fabricd_lock.release()

    def start_controller(self, control: Mapping[str, Any]) -> Controller:
        """Starts the controller that the experiment's `control` asks for; it waits for fabricd and the switches."""
        with self._controller_files() as (stdout, stderr):
            process = self.spawn_inside(
                [*interpreter(control["library"]), *self._controller_arguments(control)],
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            )  # fmt: skip
        return self._has_controller(process)

    def order_controller(self, control: Mapping[str, Any]) -> None:
        """Orders a controller at our seat, for `seated_controller`; starts one if the seat is for another library."""
        if self.seat is None or control["library"] != FORKED_LIBRARY:
            self.start_controller(control)
            return
        with self._controller_files() as (stdout, stderr), network(Record.read(self.dir)) as namespace:
            descriptors = [namespace.fileno(), stdout.fileno(), stderr.fileno(), self.process_lock.fd]
            self.seat.order(self._controller_arguments(control), self.mark, f"rb{self.record.id}-control", descriptors)

    def seated_controller(self, control: Mapping[str, Any]) -> Controller:
        """The controller that was ordered; waits for it if need be, and starts one if it is gone."""
        if self.controller:
            return self.controller
        assert self.seat is not None
        forked = self.seat.taken()
        if forked is None:
            return self.start_controller(control)
        controller = self._has_controller(forked)
        self.seat.go()
        return controller

    def look_at_seat(self, control: Mapping[str, Any]) -> None:
        """Lets the ordered controller begin if it is ready: called now and then, it saves a wait at the end."""
        if self.seat and not self.controller and self.seat.answered:
            self.seated_controller(control)

    def _has_controller(self, process: subprocess.Popen[Any] | Running) -> Controller:
        self.journal.made({"controller": Process.of(process.pid)})
        self.controller = Controller(process, self.dir / CONTROLLER_OUT, self.dir / CONTROLLER_LOG)
        return self.controller

    def _controller_arguments(self, control: Mapping[str, Any]) -> list[str]:
        log = self.dir / CONTROLLER_LOG
        return controller_arguments(control, self.dir, self.names.dpid_base, self.ovs.control, log)

    @contextmanager
    def _controller_files(self) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        with (self.dir / CONTROLLER_OUT).open("wb") as stdout, (self.dir / CONTROLLER_LOG).open("ab") as stderr:
            yield stdout, stderr

    def check(self) -> None:
        """Raises MachineError if a process of the fabric has ended, and what Controller.check raises."""
        if self.controller:
            self.controller.check()
        for name, process in Record.read(self.dir).processes.items():
            if name in SWITCHES and not process.alive():
                log = self.dir / ("ovs" if name.startswith("ovs") else "") / f"{name}.log"
                raise MachineError(f"{name} ended while the fabric came up", where=str(log))

    # -- switches

    def make_bridges(self) -> list[Command]:
        """Starts making all bridges; OpenVSwitch.finish waits for them."""
        bridges = []
        for s in self.fabric.switches:
            taps = tuple(self.names.tap(s, port) for port in range(1, s.bridge_ports + 1))
            bridges.append(Bridge(self.names.bridge(s), self.names.dpid(s), taps))
        return self.ovs.create([*bridges, Bridge(FENCE_BRIDGE, self.names.dpid_base, (FENCE_TAP,))])

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
        """A single NIC gets all of 10/8; of several, each gets its rail and packets with its source address."""
        nics = [self.fabric.nic_by_name[name] for name in nic_names]
        prefix = 8 if len(nics) == 1 else 16
        links = [
            {"name": self.names.interface(nic), "mac": nic.mac, "mtu": mtu, "ip": str(nic.ip), "prefix": prefix}
            for nic in nics
        ]
        lines = [line for n, nic in enumerate(nics) for line in self._routes(nic, n)] if len(nics) > 1 else []
        return {"links": links, "routes": "".join(line + "\n" for line in lines)}

    def _routes(self, nic: Nic, number: int) -> list[str]:
        route, table = f"route add 10.0.0.0/8 dev {self.names.interface(nic)} src {nic.ip}", 100 + number
        first = [route] if number == 0 else []
        return [*first, f"{route} table {table}", f"rule add from {nic.ip} lookup {table} priority {1000 + number}"]


@cache
def _compile_what_ranks_run() -> None:
    keep_compiled(CHECKOUT / "workloads")


def controller_settings(experiment: Experiment) -> dict[str, Any]:
    """`control`, as controllers are told of it (controller.py)."""
    routing, cable = experiment.control.routing, experiment.fabric.cable
    told = {
        "routing": routing.name,
        "cable_bps": cable.rate if routing.weighs else None,
        "hash_seed": routing.hashing.seed,
        "hash_dest_qp": routing.hashing.dest_qp,
    }
    return experiment.control.model_dump(exclude={"routing"}) | told


def clock_of(experiment: Experiment, fabric: Fabric, hardware: Hardware) -> dict[str, Any]:
    """The clock as fabricd is told of it."""
    clock = experiment.clock
    if clock.mode == "real":
        return {"mode": "real", "dilation": clock.dilation or automatic(fabric, hardware)}
    partitions = clock.partitions or partitions_of(fabric)
    return {"mode": "virtual", **({"partitions": partitions} if partitions > 1 else {})}


def bring_up(work: Bringup, experiment: Experiment) -> tuple[Fabricd, Controller, dict[str, Any]]:
    """All the steps in their order; returns also what has to be known of the fabric later, as stored in STATE."""
    directory, fabric = work.dir, work.fabric
    holder = work.start_holder()
    database_files = work.ovs.make_database(group=fabricd_id(work.record.id))
    for name, said in (("fabric", fabric.to_dict()), ("experiment", experiment.resolved())):
        (directory / f"{name}.json").write_text(json.dumps(said))
    work.enter(holder)
    control = controller_settings(experiment)
    work.order_controller(control)  # first: its imports take longest
    work.ovs.finish(database_files, work.check)
    work.look_at_seat(control)
    database = work.start_database()
    _compile_what_ranks_run()
    hardware, fast = hardware_of(experiment), experiment.control.fast_path
    clock = clock_of(experiment, fabric, hardware)
    config = fabricd_config(
        fabric,
        hardware,
        fabric_id=work.record.id,
        clock=clock,
        seed=experiment.seed,
        patience_s=experiment.patience / 1e9,
        fast_path={"sample": fast.sample, "ovs": str(work.ovs.dir)} if fast else None,
    )
    config["worker_memory_bytes"] = experiment.workers.memory
    config["ovs_pid"] = work.start_switch(database)
    work.look_at_seat(control)
    if work.kernel:
        pids = work.take_hosts(holder)
        config = work.with_kernel_interfaces(config, pids)
    fabricd = work.start_fabricd(config, fifo=experiment.clock.fifo, workers_bytes=experiment.workers.memory)
    bridges = work.make_bridges()
    if not work.kernel:
        work.take_hosts(holder)
    programs.provide(directory, fabric, hardware, clock, work.ids)
    image = root_of(experiment.workers.image, directory, work.ids or 0)
    if work.kernel:
        work.plug_in(holder, experiment.fabric.nic.mtu)
    work.ovs.finish(bridges, work.check)
    controller = work.seated_controller(control)
    controller.wait_listening(work.check)
    names = [work.names.bridge(s) for s in fabric.switches]
    commands = work.ovs.set_controller(names, f"tcp:127.0.0.1:{CONTROLLER_PORT}")
    # Not before: an idle ovs-vswitchd takes half a second to see what a new controller says; a new flow wakes it.
    commands.append(work.ovs.return_to_sender(FENCE_BRIDGE))
    work.ovs.finish(commands, work.check)
    state = {
        "name": experiment.name,
        "clock": clock,
        "limits": {"cpus": experiment.workers.cpus, "memory_bytes": experiment.workers.memory},
        "ids": work.ids,
        "bind": experiment.workers.bind,
        "image": None if image is None else {"rootfs": str(image.rootfs), "env": dict(image.env)},
        "flows": controller.wait_programmed(work.check)["flows"],
    }
    (directory / f"{STATE}.new").write_text(json.dumps(state))
    os.rename(directory / f"{STATE}.new", directory / STATE)
    work.check()  # if nothing took long nobody has looked yet
    fabricd.request("watch", processes=needed(Record.read(directory)))
    return fabricd, controller, state


class Holder:
    """The conversation with the process that holds the namespaces (hardware/holder/main.c)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin and process.stdout
        self._process, self._questions, self._answers = process, process.stdin, process.stdout

    def ask(self, question: Mapping[str, Any]) -> None:
        with suppress(BrokenPipeError):  # `answer` raises then
            self._questions.write(json.dumps(question) + "\n")
            self._questions.flush()

    def answer(self) -> dict[str, Any]:
        """Raises MachineError if it has died."""
        if not (line := self._answers.readline()):
            raise MachineError(f"the process that holds the fabric's namespaces died (code {self._process.wait()})")
        return dict(json.loads(line))

    def let_go(self) -> None:
        """Ends the conversation; holder and fabric stay."""
        self.ask({"stays": True})
        self._questions.close()
        self._answers.close()


def inside(record: Record) -> list[str]:
    """The prefix of commands that run in a fabric's network namespace. Raises MachineError."""
    with network(record) as namespace:
        return ["nsenter", f"--net={namespace.name}"]


def network(record: Record) -> IO[bytes]:
    """A fabric's network namespace. Raises MachineError."""
    for name in SWITCHES:
        process = record.processes.get(name)
        if process and process.alive():
            with suppress(FileNotFoundError):  # it has just ended
                return open(f"/proc/{process.pid}/ns/net", "rb")
    raise MachineError(f"fabric {record.id} has no process left in its network namespace", hint="testbed status --all")


def own_ovs(record: Record) -> OpenVSwitch:
    return OpenVSwitch(record.dir / "ovs", record.mark)


def _raise_for(answer: Mapping[str, Any]) -> None:
    if errors := answer.get("errors"):
        name, error = next(iter(errors.items()))
        raise MachineError(f"cannot make a network namespace for {name}: {error}", hint="are you root?")
