"""A process that has imported what ranks' workers run, and forks them into their containers.

    python -P -m testbed.containers.fork_server FD        with a unix socket at FD

For each order that comes over FD, one JSON object, a child is forked into a container that runs already. It takes over
from the container's init all that this may do and see (joining.py), and then runs `main` of the module that the order's
`argv` names. With the order come three descriptors: a socket, standard output, standard error. Over the socket go
`{"pid"}`, `{"joined"}` or `{"cannot"}`: why it is not in the container, and at its end `{"code"}`, negative for a
signal. The container ends with the child, unless the order says `keep`. When FD closes, all of them end, and then this
process: a container whose child nobody reaps could not end.

Nothing of a fabric is ever in this process: each child begins with the same memory, and with this environment.
"""

from __future__ import annotations

import workloads.base.process  # isort: skip  # before numpy

import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from testbed.containers import joining
from workloads import together, worker
from workloads.collectives import engine
from workloads.tasks import runner

IMPORTED = (engine, runner, together, worker)
ORDER_BYTES = 1 << 16
_DESCRIPTORS = 3
_NOT_JOINED = 126  # a child's code; its container goes on
_MOST_DESCRIPTORS = 1 << 20


class Server:
    """The children that run, by pid: the socket that is told of each one's end, its container's init."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._children: dict[int, tuple[socket.socket, int, bool]] = {}
        self._filters: list[bytes] | None = None
        self._own_pids = os.pidfd_open(os.getpid())
        self._woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Forks a child for each order, until there is nobody who could send one."""
        gc.collect()
        gc.freeze()  # it is not for the children to look through
        while True:
            ready, _, _ = select.select([self._requests.fileno(), self._woken], [], [])
            if self._woken in ready:
                with suppress(BlockingIOError):
                    os.read(self._woken, 1 << 10)
                self._reap()
            if self._requests.fileno() in ready:
                message, descriptors, _, _ = socket.recv_fds(self._requests, ORDER_BYTES, _DESCRIPTORS)
                if not message:
                    self._end()
                    return
                seat, *streams = descriptors
                self._take(json.loads(message), socket.socket(fileno=seat), streams)
                for descriptor in streams:
                    os.close(descriptor)

    def _take(self, order: dict[str, Any], seat: socket.socket, streams: list[int]) -> None:
        init = -1
        try:
            init = os.pidfd_open(order["init"])
            if self._filters is None:  # all containers have the same
                self._filters = joining.filters_of(order["init"])
            joining.enter_pid_namespace(init)
            try:
                if (pid := os.fork()) == 0:
                    _child(order, init, seat, streams, self._filters)
            finally:
                joining.enter_pid_namespace(self._own_pids)
        except OSError as error:
            if init >= 0:
                os.close(init)
            _say(seat, cannot=str(error))
            seat.close()
            return
        self._children[pid] = seat, init, order["keep"]
        _say(seat, pid=pid)

    def _end(self) -> None:
        for pid, (_, init, _) in self._children.items():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(init, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid in self._children:
                    seat, init, keep = self._children.pop(pid)
                    code = os.waitstatus_to_exitcode(status)
                    if code != _NOT_JOINED and not keep:
                        with suppress(ProcessLookupError):
                            signal.pidfd_send_signal(init, signal.SIGKILL)
                    _say(seat, code=code)
                    seat.close()
                    os.close(init)


def _child(order: dict[str, Any], init: int, seat: socket.socket, streams: list[int], filters: list[bytes]) -> NoReturn:
    code = _NOT_JOINED
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.dup2(streams[0], 1)
        os.dup2(streams[1], 2)
        try:
            joining.show_as(order["argv"], order["environment"])
            joining.join(order["init"], init, order["groups"], filters)
        except OSError as error:
            _say(seat, cannot=str(error))
            os._exit(code)
        _say(seat, joined=True)
        os.closerange(3, _MOST_DESCRIPTORS)
        os.environ.clear()
        os.environ.update(order["environment"])
        _, _, module, *arguments = order["argv"]
        sys.argv, sys.dont_write_bytecode = [module, *arguments], True
        code = import_module(module).main() or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        code = 1
        traceback.print_exc()
    finally:
        workloads.base.process.leave(code)


def _say(seat: socket.socket, **what: Any) -> None:
    with suppress(OSError):  # nobody is there any more
        seat.sendall(json.dumps(what).encode())


if __name__ == "__main__":
    Server(socket.socket(fileno=int(sys.argv[1]))).serve()
