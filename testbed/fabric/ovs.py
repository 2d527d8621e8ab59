"""A fabric's own Open vSwitch: database, daemon, sockets and logs in one directory, devices in one network namespace.

The host's own Open vSwitch is neither needed nor touched. Many run side by side. All sockets are in the directory, so
the usual tools work with the variables of `env`. One transaction on the database makes many bridges (ovsdb.py).
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from controllers.openflow import straight
from controllers.openflow.straight import Flows
from testbed.base.errors import MachineError
from testbed.base.text import tail
from testbed.machine.mounts import CHECKOUT
from testbed.machine.ovsdb import DATABASE, Operation, Transaction, named, set_of
from testbed.machine.processes import MARK, wait_for

_PROTOCOLS = ("OpenFlow13", "OpenFlow15")
_ARGS_BYTES = 500_000  # well below what one command line may have
_HINT = "`testbed doctor` tells whether an Open vSwitch starts here"
_START_S = 30.0
_CHECK_S = 0.2
_MOST_FILES = 1 << 20
_VSCTL = ("ovs-vsctl", "--timeout=120", "--retry")  # ovsdb-server may be about to listen
_LOGS = ("-vconsole:emer", "-vsyslog:off", "-vfile:info")
# It takes and gives back buffers for each port that it looks at: the kernel need not hear of that, nor the C library.
_MALLOC = {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=268435456:glibc.malloc.top_pad=16777216"}
_BUFFERS = CHECKOUT / "hardware" / "bin" / "buffers"
# As in Debian's ovs-ctl: everything waits for the switch.
_PRIORITY = ("nice", "-n", "-10")

_empty: list[bytes] = []
"""A new database, once there has been one."""

Command = subprocess.Popen[str] | Transaction | Flows
Spawn = Callable[..., subprocess.Popen[Any]]
"""Starts a command in the fabric's network namespace, as subprocess.Popen does."""


@dataclass(frozen=True)
class Bridge:
    """A bridge to be: `ports[i]` is the device of OpenFlow port i + 1."""

    name: str
    dpid: int
    ports: tuple[str, ...]


@dataclass(frozen=True)
class OpenVSwitch:
    """The Open vSwitch whose directory is `dir`; whatever is started to speak to it carries its fabric's `mark`."""

    dir: Path
    mark: str = ""

    # -- where things are

    @cached_property
    def env(self) -> dict[str, str]:
        """With these variables ovs-vsctl, ovs-ofctl and ovs-appctl speak to this one."""
        marked = {MARK: self.mark} if self.mark else {}
        return dict.fromkeys(("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"), str(self.dir)) | marked

    @property
    def database(self) -> Path:
        return self.dir / "db.sock"

    @property
    def _file(self) -> Path:
        return self.dir / "conf.db"

    @property
    def control(self) -> Path:
        """ovs-vswitchd's control socket, which ovs-appctl speaks to."""
        return self.dir / "ovs-vswitchd.ctl"

    @property
    def log(self) -> Path:
        return self.dir / "ovs-vswitchd.log"

    # -- its processes

    def make_database(self, group: int | None = None) -> list[Command]:
        """Makes the directory, and starts making an empty database; `finish` waits. Raises MachineError.

        `group` may speak to ovs-vswitchd. All are alike: later ones of this process are copies of the first.
        """
        self.dir.mkdir(mode=0o700)
        if group is not None:
            with suppress(OSError):  # our user namespace does not have it: fabricd stays root then
                os.chown(self.dir, -1, group)
                self.dir.chmod(0o2710)  # the group's is what is made in it
        if _empty:
            self._file.write_bytes(_empty[0])
            return []
        return [self._start(["ovsdb-tool", "create", str(self._file)])]

    def start_database(self, spawn: Spawn) -> subprocess.Popen[Any]:
        """Starts ovsdb-server, whose database has been made; returns before it listens."""
        if not _empty:
            _empty.append(self._file.read_bytes())
        remote = f"--remote=punix:{self.database}"
        return self._daemon(spawn, "ovsdb-server", [str(self._file), remote])

    def start_switch(self, spawn: Spawn, database: subprocess.Popen[Any]) -> subprocess.Popen[Any]:
        """Waits for ovsdb-server and starts ovs-vswitchd; returns before that is ready. Raises MachineError."""
        wait_for(lambda: self.database.exists() or database.poll() is not None, _START_S, pause=0.002)
        if database.poll() is not None or not self.database.exists():
            log = self.dir / "ovsdb-server.log"
            raise MachineError(f"ovsdb-server does not start: {tail(log)}", where=str(log), hint=_HINT)
        process = self._daemon(spawn, "ovs-vswitchd", [f"unix:{self.database}"], umask=0o007)
        # ovs-appctl without a target looks for the socket of the pid that the pid file gives.
        (self.dir / f"ovs-vswitchd.{process.pid}.ctl").symlink_to(self.control.name)
        return process

    def _daemon(self, spawn: Spawn, program: str, arguments: Sequence[str], umask: int = -1) -> subprocess.Popen[Any]:
        log = self.dir / f"{program}.log"
        files = ["--pidfile", f"--unixctl={self.dir / program}.ctl", f"--log-file={log}"]
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # a switch port takes a descriptor or two
        most = _MOST_FILES if most == resource.RLIM_INFINITY else min(most, _MOST_FILES)
        command = [*_PRIORITY, "prlimit", f"--nofile={most}:", program, *arguments, *files, *_LOGS]
        with log.open("ab") as errors:
            return spawn(
                command, env={**self.env, **_MALLOC, **_preloaded()}, umask=umask,
                stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
            )  # fmt: skip

    def begin(self) -> subprocess.Popen[str]:
        """Starts waiting until ovs-vswitchd has read its database; `finish` waits."""
        return self._start([*_VSCTL, "init"])

    # -- its bridges

    def create(self, bridges: Sequence[Bridge]) -> list[Command]:
        """Starts making these bridges, fail-secure and without controller; `finish` waits and reports errors."""
        operations, made = _bridge_rows(bridges)
        if self._row_there():
            added = [["bridges", "insert", set_of(made)]]
            operations.append({"op": "mutate", "table": DATABASE, "where": [], "mutations": added})
        else:
            operations.append({"op": "insert", "table": DATABASE, "row": {"bridges": set_of(made)}})
        return [self._transaction(operations, settle=True)]

    def _row_there(self) -> bool:
        """Whether the database has its one row of all: a new one has not."""
        asked = self._transaction([{"op": "select", "table": DATABASE, "where": [], "columns": ["cur_cfg"]}])
        self.finish([asked])
        return bool(asked.results[0]["rows"])

    def _transaction(self, operations: list[Operation], *, settle: bool = False) -> Transaction:
        try:
            return Transaction(self.database, operations, settle=settle)
        except OSError as error:
            log = self.dir / "ovsdb-server.log"
            raise MachineError(f"Open vSwitch's database does not answer: {error}", str(log), _HINT) from None

    def finish(self, commands: Iterable[Command], check: Callable[[], object] = lambda: None) -> None:
        """Waits for started transactions. Raises MachineError with what went wrong, and what `check` raises.

        They wait forever if their server is gone. So `check` is called now and then, which may raise.
        """
        for command, errors in [(command, _errors(command, check)) for command in commands]:
            # ovs-vsctl reports a port or bridge that could not be set up only on stderr.
            if command.returncode or "Error detected" in errors:
                what = f"Open vSwitch refused: {' '.join(errors.split())[:500]}"
                raise MachineError(what, where=str(self.log), hint=_HINT)

    def set_controller(self, names: Sequence[str], target: str) -> list[Command]:
        """Starts pointing bridges to a controller that already listens: refused, they try again only 8 s later.

        Does not wait for them: the controller sees them come. Nor do they ask whether it is still there, as by
        default after 5 s of silence: a switch whose turns take longer than that, with thousands of ports, would take
        the controller for gone, come again, and have all its flows made anew in the middle of a run.
        """
        operations: list[Operation] = []
        for number, name in enumerate(names):
            row = {"target": target, "inactivity_probe": 0}
            controller = {"op": "insert", "table": "Controller", "row": row, "uuid-name": f"r{number}"}
            where = [["name", "==", name]]
            its = {"controller": named(number)}
            operations += [controller, {"op": "update", "table": "Bridge", "where": where, "row": its}]
        return [self._transaction(operations)]

    def add_flows(self, bridge: str, flows: Iterable[bytes]) -> Flows:
        """Starts giving a bridge flows; `finish` waits. Raises MachineError."""
        try:
            return Flows(self.dir / f"{bridge}.mgmt", flows)
        except OSError as error:
            what = f"Open vSwitch's bridge {bridge} does not answer: {error}"
            raise MachineError(what, where=str(self.log), hint=_HINT) from None

    def return_to_sender(self, name: str, port: int = 1) -> Flows:
        """Starts giving the fence bridge its only flow: what comes in on the port goes out on it."""
        return self.add_flows(name, [straight.back(port)])

    def delete(self, names: Sequence[str]) -> None:
        """Deletes bridges, and waits until Open vSwitch has let go of their ports. Raises MachineError."""
        commands = (["--", "--if-exists", "del-br", name] for name in names)
        self.finish([self._start([*_VSCTL, *args]) for args in _transactions(commands)])

    def _start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        env = {**os.environ, **self.env}
        try:
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)
        except FileNotFoundError:
            hint = "./setup.sh installs it (package openvswitch-switch)"
            raise MachineError("Open vSwitch is not installed", hint=hint) from None


def _preloaded() -> dict[str, str]:
    """The variable by which it keeps its buffers, where the loader can be told of it: it takes no path with blanks."""
    path = str(_BUFFERS)
    return {"LD_PRELOAD": path} if _BUFFERS.exists() and not set(path) & set(" :") else {}


def _bridge_rows(bridges: Sequence[Bridge]) -> tuple[list[Operation], list[Any]]:
    """Operations that insert bridges with their ports, and the bridges' names in the transaction."""
    operations: list[Operation] = []

    def insert(table: str, **row: Any) -> list[str]:
        number = len(operations)
        operations.append({"op": "insert", "table": table, "row": row, "uuid-name": f"r{number}"})
        return named(number)

    def port(name: str, **interface: Any) -> list[str]:
        return insert("Port", name=name, interfaces=insert("Interface", name=name, **interface))

    made = []
    for bridge in bridges:
        ports = [port(bridge.name, type="internal")]
        ports += [port(device, ofport_request=number) for number, device in enumerate(bridge.ports, 1)]
        config = {"datapath-id": f"{bridge.dpid:016x}", "disable-in-band": "true"}
        made.append(
            insert(
                "Bridge",
                name=bridge.name,
                ports=set_of(ports),
                datapath_type="netdev",
                fail_mode="secure",
                protocols=set_of(_PROTOCOLS),
                other_config=["map", [list(pair) for pair in config.items()]],
            )
        )
    return operations, made


def _transactions(commands: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Joins commands into as few transactions as command lines allow."""
    args: list[str] = []
    size = 0
    for command in commands:
        args += command
        size += sum(map(len, command)) + len(command)
        if size > _ARGS_BYTES:
            yield args
            args, size = [], 0
    if args:
        yield args


def _errors(command: Command, check: Callable[[], object]) -> str:
    """What a command says on stderr until it ends."""
    while True:
        try:
            return command.communicate(timeout=_CHECK_S)[1]
        except subprocess.TimeoutExpired:
            try:
                check()
            except BaseException:
                command.kill()
                raise
