"""Ranks' containers: one runc container each, in the network namespace of the rank's host."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from testbed.base.errors import MachineError, UserError
from testbed.base.text import tail
from testbed.containers import forked, idle
from testbed.containers.bundle import (
    CPU_PERIOD_US,
    INSIDE,
    SOCKETS,
    Binds,
    Limits,
    Users,
    configuration,
    cpu_quota_us,
)
from testbed.containers.image import Image
from testbed.containers.worker import File, ForkedWorker, Worker, become_subreaper
from testbed.machine.directories import remove_tree
from testbed.machine.mounts import CHECKOUT, Bind
from testbed.machine.processes import MARK, STOPPED, Process, reap, wait_for
from testbed.machine.teardown import control_group_paths, in_control_groups, remove_control_groups

_USERS = 100  # a host process's descriptor of its user namespace (hardware/holder/holder.h)
_IDLE = [str(INSIDE / "idle")]
_FREEZE_S = 30.0  # until every program has stopped: each needs a CPU for that


@dataclass(frozen=True)
class Containers:
    """The containers of one fabric. `networks` gives each rank's host process, `names` its host name."""

    fabric_id: str
    dir: Path
    mark: str
    control_group: str
    names: Mapping[int, str]
    networks: Mapping[int, int]
    limits: Limits
    image: Image | None = None
    ids: int | None = None  # the first of the users inside, as seen from outside; None: they are our own
    binds: Sequence[Bind] = ()  # what the experiment binds
    suffix: str = ""  # tells the containers of a job from those that stay
    kept: dict[int, tuple[tuple[int, ...], Worker]] | None = None
    """Those that stay when a program that was forked into them ends, by rank: who else is in it, and itself."""

    def name(self, rank: int) -> str:
        return f"rb{self.fabric_id}-r{rank}{self.suffix}"

    def group(self, rank: int) -> str:
        """The control group of a rank's container, below the root of each hierarchy."""
        return f"{self.control_group}/r{rank}{self.suffix}"

    def prepare(self, rank: int, argv: Sequence[str], others: Sequence[int] = ()) -> Path:
        """Writes the bundle of a rank's container, which `others` share; returns its directory."""
        bundle = self.dir / "containers" / f"{rank}{self.suffix}"
        (bundle / "rootfs").mkdir(parents=True, exist_ok=True)
        plan = self.plan_path(rank)
        host = self.networks[rank]
        users = None if self.ids is None else Users(Path(f"/proc/{host}/fd/{_USERS}"), self.ids)
        sockets = {r: self.worker_dir(r) / "sock" for r in (rank, *others)}
        for socket in sockets.values() if users else ():
            os.chown(socket, users.first, users.first)  # type: ignore[union-attr]
        config = configuration(
            hostname=self.names[rank].replace(".", "-"),
            argv=self._argv(argv),
            env=self.environment(rank),
            network_namespace=f"/proc/{host}/ns/net",
            users=users,
            control_group=f"/{self.group(rank)}",
            limits=self.limits.of(1 + len(others)),
            binds=Binds(
                sockets[rank],
                sockets if others else {},
                plan if plan.exists() else None,
                idle.write(self.dir / "idle") if list(argv) == _IDLE else None,
                self.dir,
                self.binds,
            ),
            rootfs=self.image.rootfs if self.image else None,
        )
        (bundle / "config.json").write_text(json.dumps(config))
        return bundle

    def worker_dir(self, rank: int) -> Path:
        """The directory of the rank's socket, which fabricd has made, and of the rank's plan."""
        return self.dir / "workers" / str(rank)

    def plan_path(self, rank: int) -> Path:
        """The file that is /run/railbed/plan.json in the container, if it exists when the container starts."""
        return self.worker_dir(rank) / "plan.json"

    def environment(self, rank: int) -> dict[str, str]:
        """The environment of every command in a rank's container."""
        path = os.pathsep.join([os.path.dirname(sys.executable), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin"])
        own = {
            "RAILBED_RANK": str(rank),
            "RAILBED_RANKS": str(len(self.names)),
            "RAILBED_NAME": self.names[rank],
            "RAILBED_SOCKET": str(INSIDE / "worker.sock"),
            "RAILBED_SOCKETS": str(SOCKETS),
            "RAILBED_PLAN": str(INSIDE / "plan.json"),
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
        }
        if self.image:
            return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **self.image.env, **own}
        return {"PATH": f"{path}:/usr/bin:/sbin:/bin", **own}

    def _argv(self, argv: Sequence[str]) -> list[str]:
        """In an image the image's own Python is used: this machine's does not run there."""
        return ["python3" if self.image and a == sys.executable and i == 0 else a for i, a in enumerate(argv)]

    def runc(self, *args: str) -> list[str]:
        return [_runc(), "--root", str(self.dir / "runc"), "--log", str(self.dir / "runc.log"), *args]

    def start(
        self, rank: int, argv: Sequence[str], *, stdout: File, stderr: File, others: Sequence[int] = ()
    ) -> Worker:
        """Starts `argv` as a rank's container; returns at once. Raises UserError if a fault has killed it.

        `others` are ranks that share it: their sockets are in it, too, and it may use as much more.
        """
        for each in (rank, *others):
            if self._killed(each).exists():
                hint = f"testbed show faults --fabric {self.fabric_id}; healed, the rank gets a new container"
                raise UserError(f"the container of rank {each} was killed by the fault worker_killed", hint=hint)
        self.remove(rank)
        bundle = self.prepare(rank, argv, others)
        for each in (rank, *others) if others else ():
            self._shared(each).touch()
        pid_file = bundle / "pid"
        pid_file.unlink(missing_ok=True)
        become_subreaper()
        command = self.runc("run", "--detach", "--bundle", str(bundle), "--pid-file", str(pid_file), self.name(rank))
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            env={**os.environ, MARK: self.mark}, start_new_session=True,
        )  # fmt: skip
        return Worker(rank, process, pid_file)

    def fork(self, rank: int, argv: Sequence[str], *, stdout: File, stderr: File, others: Sequence[int] = ()) -> Worker:
        """As `start`, of a program that is `forkable`: it is imported once for all ranks, if this kernel lets us."""
        server = forked.server()
        if self.image or server.refused:
            return self.start(rank, argv, stdout=stdout, stderr=stderr, others=others)
        server.begin()
        container = self._to_fork_into(rank, tuple(others), stderr)

        def order(init: int, out: int, err: int) -> forked.Fork:
            groups = [str(path) for path in control_group_paths(self.group(rank))]
            return server.fork(init, groups, argv, self.environment(rank), out, err, keep=self.kept is not None)

        def instead(out: int, err: int) -> Worker:
            server.refuses()
            return self.execute(rank, argv, {}, stdout=out, stderr=err)

        return ForkedWorker(container, order, instead, stdout, stderr, keep=self.kept is not None)

    def _to_fork_into(self, rank: int, others: tuple[int, ...], stderr: File) -> Worker:
        """A container whose init does nothing: that of the program before, if it is kept, or a new one."""
        if self.kept is None:
            return self.start(rank, _IDLE, stdout=subprocess.DEVNULL, stderr=stderr, others=others)
        whose, container = self.kept.get(rank, ((), None))
        if container is None or whose != others or self.running(rank) is None:
            with (self.dir / f"container{rank}.log").open("ab") as log:  # it would keep a program's pipe open
                container = self.start(rank, _IDLE, stdout=log, stderr=log, others=others)
            self.kept[rank] = others, container
        return container

    def running(self, rank: int) -> Process | None:
        """The init of a rank's container, if that runs."""
        with suppress(OSError, ValueError, ProcessLookupError):
            state = json.loads((self.dir / "runc" / self.name(rank) / "state.json").read_text())
            process = Process(int(state["init_process_pid"]), int(state["init_process_start"]))
            return process if process.alive() else None
        return None

    def idle(self, rank: int) -> None:
        """Starts a container to run commands in, if the rank has none. Raises UserError, MachineError."""
        with self._locked(rank):
            init = self.running(rank)
            state = init.state() if init else ""
            if state in STOPPED:
                hint = f"testbed show faults --fabric {self.fabric_id}; testbed heal lets it go on"
                raise UserError(f"rank {rank} stands still: the fault worker_frozen", hint=hint)
            if not state:
                self._start_idle(rank)

    def strikable(self, rank: int) -> bool:
        """Whether a fault can strike the rank's container, started if there is none: not one that was killed.

        Raises MachineError.
        """
        with self._locked(rank):
            if self._killed(rank).exists():
                return False
            if self.running(rank) is None:
                self._start_idle(rank)
            return True

    def _start_idle(self, rank: int) -> None:
        log = self.dir / f"container{rank}.log"
        with log.open("wb") as out:
            worker = self.start(rank, _IDLE, stdout=out, stderr=out)
            if not worker.started():
                raise MachineError(f"the container of rank {rank} does not start: {tail(log)}", where=str(log))

    def limit_cpus(self, rank: int, cpus: float | None) -> None:
        """Gives a rank's running container so many CPUs (None: no limit). Raises MachineError."""
        quota = -1 if cpus is None else cpu_quota_us(cpus)
        command = self.runc("update", "--cpu-period", str(CPU_PERIOD_US), "--cpu-quota", str(quota), self.name(rank))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise MachineError(f"the CPUs of rank {rank} cannot be limited: {' '.join(done.stderr.split())[:200]}")

    def remove(self, rank: int) -> None:
        """Removes what is left of a container that has ended."""
        if (self.dir / "runc" / self.name(rank)).exists():
            init = self.running(rank)
            subprocess.run(self.runc("delete", "--force", self.name(rank)), capture_output=True, check=False)
            reap([init] if init else [])

    def discard(self, rank: int) -> None:
        """Ends a job's container, if it runs, and removes what was made for it.

        runc tries for some tenths of a second to remove its control groups, whose last process may need longer to be
        gone.
        """
        self.remove(rank)
        remove_control_groups(self.group(rank), [])
        with suppress(FileNotFoundError):
            remove_tree(self.dir / "containers" / f"{rank}{self.suffix}")
        self.plan_path(rank).unlink(missing_ok=True)
        self._shared(rank).unlink(missing_ok=True)

    def kill(self, rank: int) -> None:
        """Removes a rank's container, and refuses to start another one before `revive`."""
        with self._locked(rank):
            self._killed(rank).touch()
            self.remove(rank)

    def revive(self, rank: int) -> None:
        self._killed(rank).unlink(missing_ok=True)

    def shared(self, rank: int) -> bool:
        """Whether the rank's worker shares its container with others': what strikes one would strike all."""
        return self._shared(rank).exists()

    def freeze(self, rank: int) -> None:
        """Stops all programs in a rank's container, and refuses to start others, until `thaw`.

        Nothing but the stopped init says so: a drill's player, who is to find out which rank it is, could read a file.
        So a rank without a container gets one, unless it was killed. (Where a new container could be seen, all have
        one: world/real.py.) Raises MachineError.
        """
        if not self.strikable(rank):
            return
        with self._locked(rank):
            wait_for(lambda: not self._signal(rank, signal.SIGSTOP, unless=STOPPED), _FREEZE_S)

    def thaw(self, rank: int) -> None:
        with self._locked(rank):
            self._signal(rank, signal.SIGCONT)

    def _signal(self, rank: int, number: int, unless: Iterable[str] = ()) -> int:
        """Signals every program in the container that is in none of these states (proc(5)); returns how many."""
        count = 0
        for process in in_control_groups(self.group(rank)):
            if process.state() not in (*unless, "Z", ""):
                count += 1
                process.signal(number)
        return count

    def _shared(self, rank: int) -> Path:
        return self.worker_dir(rank) / "shared"

    def _killed(self, rank: int) -> Path:
        return self.dir / "containers" / f"{rank}.killed"

    def exec_command(
        self, rank: int, argv: Sequence[str], *, tty: bool, cwd: str = "/", env: Mapping[str, str] | None = None
    ) -> list[str]:
        """The command that runs `argv` in a rank's running container, with our standard streams and its exit code."""
        options = ["--cwd", cwd, *(["--tty"] if tty else []), *_options(env or {})]
        if term := os.environ.get("TERM"):
            options += ["--env", f"TERM={term}"]
        return self.runc("exec", *options, self.name(rank), *argv)

    def execute(self, rank: int, argv: Sequence[str], env: Mapping[str, str], *, stdout: File, stderr: File) -> Worker:
        """Starts `argv` in a rank's running container, with `env` in its environment; returns at once.

        Detached: runc would otherwise stay until the output is closed, which a child of the program may do long after.
        """
        pid_file = self.dir / "containers" / f"{rank}{self.suffix}.{secrets.token_hex(8)}.pid"
        become_subreaper()
        options = ["--cwd", "/", *_options(env)]
        command = self.runc("exec", "--detach", "--pid-file", str(pid_file), *options, self.name(rank), *argv)
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env={**os.environ, MARK: self.mark}
        )
        return Worker(rank, process, pid_file, through_init=False)

    @contextmanager
    def _locked(self, rank: int) -> Iterator[None]:
        """The locks of all ranks are made together, and nothing is written to them: they do not tell who was locked."""
        folder = self.dir / "containers"
        folder.mkdir(exist_ok=True)
        if not (folder / f"{rank}.lock").exists():
            for each in self.names:
                (folder / f"{each}.lock").open("a").close()
        with (folder / f"{rank}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _options(env: Mapping[str, str]) -> list[str]:
    return [word for name, value in env.items() for word in ("--env", f"{name}={value}")]


@cache
def _runc() -> str:
    if path := shutil.which("runc"):
        return path
    raise MachineError("runc is not installed", hint="./setup.sh installs it (package runc)")
