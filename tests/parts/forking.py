"""The process that forks programs for tests (forked.py): what is asked of it, and what becomes a program.

python -P -m tests.parts.forking FD ASKS ROOM    FD is where it is asked; by ASKS those that it forks may ask, too
python -P -m tests.parts.forking FD ROOM         the one that has PyTorch, which the first one starts
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

_OPENFLOW = ("controllers.app", "controllers.apps", "controllers.report")
_COMMANDS = (
    *("testbed.cli", "testbed.experiment", "testbed.fabric.lab", "testbed.live.status", "testbed.live.standing"),
    *("testbed.run.run", "testbed.run.sweep", "testbed.world.keeper", "testbed.inject.live", "results"),
    "testbed.machines.sweep",
)
MODULES = {
    "controllers.fork_server": _OPENFLOW,
    "controllers.main": _OPENFLOW,
    "drills.play.drilld": (*_COMMANDS, "drills.play.drilld"),
    "testbed": _COMMANDS,
    "testbed.run.job": (*_COMMANDS, "testbed.run.job"),
    "tests.prove_drills": (*_COMMANDS, "tests.prove_drills"),
}
"""What is forked, and what is imported for it, when it is first asked for."""
WITH_TORCH = {"workloads.torch.rank", "tests.parts.over_gloo"}
"""What is forked from a second process, that is started for the first of them: it has PyTorch, and little else."""
_TORCH = (
    *("torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor", "torch.distributed.pipelining"),
    *("workloads.torch.charge", "workloads.torch.group", "workloads.torch.steps_of_script", "workloads.torch.streams"),
)
_ROOT = Path(__file__).resolve().parents[2]
OF_TORCH = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "TORCH_CPP_LOG_LEVEL": "ERROR"}
_ROOM = "." * 4096
"""For what /proc is to show."""
_ORDER_BYTES = 1 << 20
_MOST_DESCRIPTORS = 64
_ABOVE = 200
"""Descriptors that have come are put there first, out of the way of where they are to be."""
_NEW_NET, _NEW_PID, _NEW_MOUNTS = 0x40000000, 0x20000000, 0x20000  # CLONE_NEW.. of linux/sched.h
_PRIVATE, _RECURSIVE, _NO_SUID_DEV_EXEC = 1 << 18, 1 << 14, 2 | 4 | 8  # MS_.. of sys/mount.h
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h


QUIET = "PYTHONWARNINGS", "ignore"


@dataclass(frozen=True)
class Order:
    module: str
    argv: list[str]
    words: list[str]
    """The whole command line."""
    alone: bool
    """python -P: the folder is not where modules come from."""
    folder: str
    environment: dict[str, str]
    network: str
    isolated: bool
    """In a network and among processes of its own, as workloads/torch/launch.py has it."""
    ends_with: int
    """A process, or 0."""
    group: int
    """0: a session of its own."""
    blocked: list[int]
    targets: list[int]
    """Of the descriptors that come with it."""


def begin(requests: int, asks: int) -> NoReturn:
    """What a child of a process of tests does: it waits until something is asked for, and becomes that process."""
    ours = os.getppid()
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() == ours:
        select.select([requests], [], [])
        for descriptor in (requests, asks):
            os.set_inheritable(descriptor, True)
        os.chdir(_ROOT)
        os.execve(sys.executable, _command(requests, asks), {**os.environ, "ROOM": _ROOM})
    os._exit(0)


def _command(*descriptors: int) -> list[str]:
    return [sys.executable, "-P", "-m", "tests.parts.forked", *map(str, descriptors), _ROOM]


def serve(requests: socket.socket, asks: socket.socket | None) -> NoReturn:
    """Forks what is asked for, and tells its end; `asks` is how those that are forked ask."""
    for name in () if asks else _TORCH:
        importlib.import_module(name)
    for descriptor in (requests, *([asks] if asks else [])):
        descriptor.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those that were asked for
    gc.set_threshold(100_000)
    gc.freeze()
    _Server(requests, asks.fileno() if asks else None).serve()


class _Server:
    def __init__(self, requests: socket.socket, asks: int | None) -> None:
        self._requests, self._asks = requests, asks
        self._torch: socket.socket | None = None
        self._children: dict[int, tuple[int, socket.socket]] = {}
        """By its pidfd: a process, and where its end is told."""
        self._owners: dict[int, int] = {}
        """By its pidfd: whoever has asked for a process that is to end with it, and that one's pidfd."""
        self._poll = select.poll()
        self._poll.register(requests, select.POLLIN)

    def serve(self) -> NoReturn:
        while True:
            ready = self._poll.poll()[0][0]
            if ready == self._requests.fileno():
                self._hear()
            elif ready in self._owners:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._owners.pop(ready), signal.SIGKILL)
                self._forget(ready)
            else:
                self._ended(ready)

    def _hear(self) -> None:
        message, descriptors, _, _ = socket.recv_fds(self._requests, _ORDER_BYTES, _MOST_DESCRIPTORS)
        if not message:
            os._exit(0)
        order = Order(**json.loads(message))
        if order.module in WITH_TORCH and self._asks is not None:
            socket.send_fds(self._with_torch(), [message], descriptors)
        else:
            self._fork(order, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def _with_torch(self) -> socket.socket:
        """Where one asks a process that has PyTorch."""
        if self._torch is None:
            self._torch, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with far:
                subprocess.Popen(
                    _command(far.fileno()),
                    cwd=_ROOT,
                    env={**os.environ, **OF_TORCH},
                    pass_fds=[far.fileno()],
                    preexec_fn=lambda: ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL),
                )
        return self._torch

    def _fork(self, order: Order, descriptors: Sequence[int]) -> None:
        """Forks it, and says its pid to whoever has asked."""
        for name in MODULES.get(order.module, ()):
            if name not in sys.modules:
                importlib.import_module(name)
                gc.freeze()
        pid = os.fork()
        if pid == 0:
            _be(order, descriptors[1:], self._asks)
        teller = socket.socket(fileno=os.dup(descriptors[0]))
        with suppress(OSError):
            teller.send(str(pid).encode())
        self._children[pidfd := os.pidfd_open(pid)] = pid, teller
        self._poll.register(pidfd, select.POLLIN)
        if order.ends_with:
            try:
                owner = os.pidfd_open(order.ends_with)
            except ProcessLookupError:
                os.kill(pid, signal.SIGKILL)
                return
            self._owners[owner] = pidfd
            self._poll.register(owner, select.POLLIN)

    def _ended(self, pidfd: int) -> None:
        pid, teller = self._children.pop(pidfd)
        _, status = os.waitpid(pid, 0)
        with teller, suppress(OSError):
            teller.send(str(status).encode())
        for owner in [owner for owner, its in self._owners.items() if its == pidfd]:
            del self._owners[owner]
            self._forget(owner)
        self._forget(pidfd)

    def _forget(self, pidfd: int) -> None:
        self._poll.unregister(pidfd)
        os.close(pidfd)


def _be(order: Order, descriptors: Sequence[int], asks: int | None) -> NoReturn:
    """The child's whole life."""
    code = 1
    try:
        _prepare(order, descriptors, asks)
        if order.isolated:
            _isolate()
        code = _run(order)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _prepare(order: Order, descriptors: Sequence[int], asks: int | None) -> None:
    if order.group:
        with suppress(ProcessLookupError, PermissionError):  # who has asked is gone
            os.setpgid(0, order.group)
    else:
        os.setsid()
    if order.network:
        with open(order.network) as namespace:
            _call("setns", namespace.fileno(), _NEW_NET)
    above = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for one in descriptors]
    for here, there in zip(above, order.targets, strict=True):
        os.dup2(here, there)
    kept = [*sorted({*order.targets, *([] if asks is None else [asks])}), os.sysconf("SC_OPEN_MAX")]
    for low, high in pairwise(kept):
        os.closerange(low + 1, high)
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    _be_seen(order.words, order.environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, order.blocked)
    sys.stdin = sys.__stdin__ = _stream(0, "r", sys.stdin)
    sys.stdout = sys.__stdout__ = _stream(1, "w", sys.stdout, lines=os.isatty(1))
    sys.stderr = sys.__stderr__ = _stream(2, "w", sys.stderr, lines=True)
    if order.environment.get(QUIET[0]) == QUIET[1]:
        warnings.simplefilter("ignore")
    if not order.alone:
        sys.path.insert(0, order.folder)


def _call(name: str, *arguments: Any) -> None:
    """A function of the C library that returns 0 where nothing is wrong."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        raise OSError(ctypes.get_errno(), name)


def _isolate() -> None:
    """Goes on as the first process of others, in a network of its own; whose end is ours (unshare --kill-child)."""
    _call("unshare", _NEW_NET | _NEW_PID | _NEW_MOUNTS)
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code < 0:
            os.kill(os.getpid(), -code)
        os._exit(code)
    _call("prctl", _DEATH_SIGNAL, signal.SIGKILL)
    _call("mount", b"none", b"/", None, _PRIVATE | _RECURSIVE, None)
    _call("mount", b"proc", b"/proc", b"proc", _NO_SUID_DEV_EXEC, None)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def _stream(descriptor: int, mode: str, before: Any, *, lines: bool = False) -> Any:
    stream = open(descriptor, mode, encoding=before.encoding, errors=before.errors)  # noqa: SIM115 - it stays
    if mode == "w":
        at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
        stream.reconfigure(line_buffering=lines and not at_once, write_through=at_once)
    return stream


def _be_seen(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """As cmdline and environ in /proc: what fits where ours were, marks of fabrics first. `os.environ` is elsewhere."""
    places = [int(field) for field in Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:49]]
    marks_first = sorted(environment.items(), key=lambda item: not item[0].startswith("RAILBED_"))
    for texts, start, end in (
        (words, *places[:2]),
        ([f"{name}={value}" for name, value in marks_first], *places[2:]),
    ):
        text = b"".join(os.fsencode(text) + b"\0" for text in texts)[: end - start - 1]
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def _run(order: Order) -> int:
    """As `python -m` does it, to the end."""
    sys.argv = ["", *order.argv]
    code: Any = 0
    try:
        runpy.run_module(order.module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = 120
    return (code or 0) & 0xFF
