"""Python programs of ours that tests start, forked from a process that has imported what they need.

To import is most of what a small command does, and tests start hundreds of them: `python -m testbed ..` as a user does,
and controllers. `server()` forks that process before the first test, so that nothing of a test is in it. From then on
`subprocess` asks it for such a program, also in the processes that tests run in (tests/parts/beside.py).

A program that is forked has what one that is started has: its arguments, environment, folder, descriptors, process
group or session, signal mask, network namespace, exit code. Not so: what /proc says that it was started with, its
parent, and memory that is its alone. Tests of such things say `started` (a fixture), and commands with more in front of
them than `nsenter --net` are started as ever.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import faulthandler
import gc
import importlib
import inspect
import io
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

MODULES = {
    "testbed": ("testbed.cli", "testbed.commands.run", "testbed.commands.up", "testbed.live.status", "numpy"),
    "controllers.main": ("controllers.app", "controllers.apps", "controllers.report"),
}
"""What is forked, and what is imported for it, when it is first asked for."""
_ORDER_BYTES = 1 << 20
_MOST_DESCRIPTORS = 64
_ABOVE = 200
"""Descriptors that have come are put there first, out of the way of where they are to be."""
_NEW_NET = 0x40000000  # CLONE_NEWNET of linux/sched.h
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_OF_PYTHON = "PYTHON"
"""What begins so in an environment says how Python starts, and this one has."""


@dataclass(frozen=True)
class _Order:
    module: str
    argv: list[str]
    alone: bool
    """python -P: the folder is not where modules come from."""
    folder: str
    environment: dict[str, str]
    network: str
    group: int
    """0: a session of its own."""
    blocked: list[int]
    targets: list[int]
    """Of the descriptors that come with it."""


_requests: socket.socket | None = None


def serve() -> None:
    """Forks the process that forks programs, and has `subprocess` ask it. It ends with us."""
    global _requests
    if _requests is not None:
        return
    _requests, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours = os.getpid()
    if os.fork() == 0:
        _requests.close()
        try:
            _serve(far, ours)
        finally:
            os._exit(1)
    far.close()
    subprocess.Popen = _Popen  # type: ignore[misc]


@contextmanager
def started() -> Iterator[None]:
    """Within it, programs are started, and not forked."""
    global _requests
    before, _requests = _requests, None
    try:
        yield
    finally:
        _requests = before


# --- who asks --------------------------------------------------------------

_Plain = subprocess.Popen
_PARAMETERS = inspect.signature(_Plain._execute_child)  # type: ignore[attr-defined]
_UNUSUAL = {"preexec_fn": None, "shell": False, "gid": None, "gids": None, "uid": None, "umask": -1, "executable": None}


class _Popen(_Plain):  # type: ignore[type-arg]
    """As ever, unless it is a program that is forked: then its end is told by who has forked it."""

    _told: socket.socket | None = None

    def _execute_child(self, *args: Any) -> None:
        asked = _PARAMETERS.bind(self, *args).arguments
        order = _order(asked) if _requests is not None else None
        if order is None:
            super()._execute_child(*args)  # type: ignore[misc]
            return
        names = ("p2cread", "c2pwrite", "errwrite")
        ends = [number if asked[name] == -1 else asked[name] for number, name in enumerate(names)]
        self.pid, self._told = _ask(order, [*ends, *order.targets[3:]])
        self._child_created = True
        ours = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in ours))  # type: ignore[attr-defined]

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._told is None:
            return super()._try_wait(flags)  # type: ignore[misc,no-any-return]
        if flags & os.WNOHANG and not select.select([self._told], [], [], 0)[0]:
            return 0, 0
        status = self._told.recv(16) or str(int(signal.SIGKILL)).encode()  # the server was killed, and its children
        return self.pid, int(status)

    def _internal_poll(self, *args: Any, **keys: Any) -> int | None:
        if self._told is None:
            return super()._internal_poll(*args, **keys)  # type: ignore[misc,no-any-return]
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def _order(asked: Mapping[str, Any]) -> _Order | None:
    """What to fork for this, or None if it is to be started."""
    words, environment = asked["args"], dict(asked["env"] or os.environ)
    if isinstance(words, str | bytes | os.PathLike):
        return None
    words, network = [os.fspath(word) for word in words], ""
    if len(words) > 2 and words[0] == "nsenter" and words[1].startswith("--net="):
        network, words = words[1].removeprefix("--net="), words[2:]
    plain, alone = [sys.executable, "-m"], [sys.executable, "-P", "-m"]
    begins = next((begin for begin in (plain, alone) if words[: len(begin)] == begin), None)
    if begins is None or words[len(begins)] not in MODULES or not asked["close_fds"] or asked["process_group"] != -1:
        return None
    if any(asked[name] != usual for name, usual in _UNUSUAL.items()) or _python(environment) != _python(os.environ):
        return None
    module, *argv = words[len(begins) :]
    return _Order(
        module,
        argv,
        begins is alone,
        os.fspath(asked["cwd"] or os.getcwd()),
        environment,
        network,
        0 if asked["start_new_session"] else os.getpgrp(),
        [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        [0, 1, 2, *asked["pass_fds"]],
    )


def _python(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_OF_PYTHON)}


def _ask(order: _Order, descriptors: Sequence[int]) -> tuple[int, socket.socket]:
    """Its pid, and who tells its end."""
    assert _requests is not None
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with far:
        socket.send_fds(_requests, [json.dumps(asdict(order)).encode()], [far.fileno(), *descriptors])
    return int(near.recv(16)), near


# --- who forks -------------------------------------------------------------


def _serve(requests: socket.socket, ours: int) -> NoReturn:
    """Forks what is asked for, and tells its end, until there is nobody who could ask."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != ours:
        os._exit(0)
    faulthandler.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those that were asked for
    atexit._clear()
    gc.collect()
    gc.freeze()
    poll, children = select.poll(), dict[int, tuple[int, socket.socket]]()
    poll.register(requests, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready == requests.fileno():
                message, descriptors, _, _ = socket.recv_fds(requests, _ORDER_BYTES, _MOST_DESCRIPTORS)
                if not message:
                    os._exit(0)
                order = _Order(**json.loads(message))
                _import_for(order.module)
                pid = os.fork()
                if pid == 0:
                    _be(order, descriptors[1:])
                teller = socket.socket(fileno=descriptors[0])
                for descriptor in descriptors[1:]:
                    os.close(descriptor)
                with suppress(OSError):
                    teller.send(str(pid).encode())
                pidfd = os.pidfd_open(pid)
                children[pidfd] = (pid, teller)
                poll.register(pidfd, select.POLLIN)
            else:
                pid, teller = children.pop(ready)
                poll.unregister(ready)
                os.close(ready)
                _, status = os.waitpid(pid, 0)
                with teller, suppress(OSError):
                    teller.send(str(status).encode())


def _import_for(module: str) -> None:
    for name in MODULES[module]:
        if name not in sys.modules:
            importlib.import_module(name)
            gc.freeze()


def _be(order: _Order, descriptors: Sequence[int]) -> NoReturn:
    """The child's whole life."""
    code = 1
    try:
        _prepare(order, descriptors)
        code = _run(order)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _prepare(order: _Order, descriptors: Sequence[int]) -> None:
    if order.group:
        with suppress(ProcessLookupError, PermissionError):  # who has asked is gone
            os.setpgid(0, order.group)
    else:
        os.setsid()
    if order.network:
        with open(order.network) as namespace:
            if (libc := ctypes.CDLL(None, use_errno=True)).setns(namespace.fileno(), _NEW_NET):
                raise OSError(ctypes.get_errno(), f"setns: {libc}")
    above = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for one in descriptors]
    for here, there in zip(above, order.targets, strict=True):
        os.dup2(here, there)
    gaps = [*sorted(order.targets), os.sysconf("SC_OPEN_MAX")]
    for low, high in zip(gaps, gaps[1:]):
        os.closerange(low + 1, high)
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, order.blocked)
    sys.stdin = sys.__stdin__ = open(0)
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(open(1, "wb"), encoding="utf-8", line_buffering=os.isatty(1))
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(
        open(2, "wb"), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
    if not order.alone:
        sys.path.insert(0, order.folder)


def _run(order: _Order) -> int:
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
