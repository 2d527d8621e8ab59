"""Python programs of ours that tests start, forked from a process that has imported what they need.

To import is most of what a small command does, and tests start hundreds of them: `python -m testbed ..` as a user does,
and controllers. `serve()` forks that process before the first test, so that nothing of a test is in it. From then on
`subprocess` asks it for such a program, also in the processes that tests run in (tests/parts/beside.py).

A program that is forked has what one that is started has: arguments and environment (in /proc as far as there is
room), folder, descriptors, process group or session, signal mask, network namespace, exit code; it may ask for programs
in its turn. It has another parent, and shares memory with it. Commands with more in front of them than `setpriv
--pdeathsig KILL` and `nsenter --net` are started as ever.

    python -P -m tests.parts.forked FD ASKS ROOM    that process; FD is where it is asked, ASKS how its children ask
    python -P -m tests.parts.forked FD ROOM         one that has PyTorch: the other one starts it
"""

from __future__ import annotations

import inspect
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tests.parts import forking
from tests.parts.forking import MODULES, OF_TORCH, QUIET, WITH_TORCH, Order
from workloads.torch import launch

_requests: socket.socket | None = None


def serve() -> None:
    """Forks the process that forks programs, and has `subprocess` ask it. It ends with us."""
    global _requests
    if _requests is not None:
        return
    _requests, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    subprocess.Popen = _Popen  # type: ignore[misc]
    if os.fork() == 0:
        try:
            forking.begin(far.fileno(), _requests.fileno())
        finally:
            os._exit(1)
    far.close()


_Plain = subprocess.Popen
_PARAMETERS = inspect.signature(_Plain._execute_child)  # type: ignore[attr-defined]
_UNUSUAL = {"preexec_fn": None, "shell": False, "gid": None, "gids": None, "uid": None, "umask": -1, "executable": None}


class _Popen(_Plain):  # type: ignore[type-arg]
    """As ever, unless it is a program that is forked: then its end is told by who has forked it."""

    _told: socket.socket | None = None

    def _execute_child(self, *args: Any) -> None:
        asked = _PARAMETERS.bind(self, *args).arguments
        waits_itself = sys._getframe(2).f_globals["__name__"].startswith("asyncio.")
        order = None if _requests is None or waits_itself else _order(asked)
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


def _order(asked: Mapping[str, Any]) -> Order | None:
    """What to fork for this, or None if it is to be started."""
    words, environment = asked["args"], dict(os.environ if asked["env"] is None else asked["env"])
    if isinstance(words, str | bytes | os.PathLike):
        return None
    words, network, isolation, ends_with = [os.fspath(word) for word in words], "", launch._isolated()[3:], 0
    if words[:3] == ["setpriv", "--pdeathsig", "KILL"]:
        words, ends_with = words[3:], os.getpid()
    if len(words) > 2 and words[0] == "nsenter" and words[1].startswith("--net="):
        network, words = words[1].removeprefix("--net="), words[2:]
    if isolated := bool(isolation) and words[: len(isolation)] == isolation:
        words = words[len(isolation) :]
    plain, alone = [sys.executable, "-m"], [sys.executable, "-P", "-m"]
    begins = next((begin for begin in (plain, alone) if words[: len(begin)] == begin), None)
    if begins is None or not asked["close_fds"] or asked["process_group"] != -1:
        return None
    module, *argv = words[len(begins) :]
    ours = {**os.environ, **OF_TORCH} if module in WITH_TORCH else os.environ
    if module not in {*MODULES, *WITH_TORCH} or _python(environment) != _python(ours):
        return None
    if any(asked[name] != usual for name, usual in _UNUSUAL.items()):
        return None
    return Order(
        module,
        argv,
        words,
        begins is alone,
        os.fspath(asked["cwd"] or os.getcwd()),
        environment,
        network,
        isolated,
        ends_with,
        0 if asked["start_new_session"] else os.getpgrp(),
        [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        [0, 1, 2, *asked["pass_fds"]],
    )


def _python(environment: Mapping[str, str]) -> dict[str, str]:
    """What says how Python starts, but for folders that we have modules from anyhow."""
    found = {name: value for name, value in environment.items() if name.startswith("PYTHON") and (name, value) != QUIET}
    if {*found.get("PYTHONPATH", "").split(os.pathsep)} <= {"", *sys.path}:
        found.pop("PYTHONPATH", None)
    return found


def _ask(order: Order, descriptors: Sequence[int]) -> tuple[int, socket.socket]:
    """Its pid, and who tells its end."""
    assert _requests is not None
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with far:
        socket.send_fds(_requests, [json.dumps(asdict(order)).encode()], [far.fileno(), *descriptors])
    return int(near.recv(16)), near


def main() -> None:
    global _requests
    descriptors = [socket.socket(fileno=int(word)) for word in sys.argv[1:-1]]
    if descriptors[1:]:
        _requests = descriptors[1]
        subprocess.Popen = _Popen  # type: ignore[misc]
    forking.serve(descriptors[0], _requests)


if __name__ == "__main__":
    from tests.parts import forked  # not a second copy of it

    forked.main()
