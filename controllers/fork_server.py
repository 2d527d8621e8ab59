"""A process that has imported the OpenFlow library, and forks controllers: most of a small fabric's controller is that.

    python -P -m controllers.fork_server FD        with a unix socket at FD

For each socket that comes over FD a child is forked, which is told over that socket what to do: one JSON object with
`argv` (of controllers.main), `environment` and the process's `name`, and with it four descriptors: the fabric's network
namespace, standard output, standard error, and a lock to keep.  The child enters the namespace and says its pid.  It
begins when it is told so, by one byte: then somebody has written down that it is there.  When the other end of its
socket closes, the kernel kills it, even if it is stopped; so it ends with its testbed.  When FD closes, this process
ends; its children go on.

Nothing of a fabric is ever in this process: each child begins with the same memory.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from typing import NoReturn

import controllers.app
import controllers.apps
import controllers.report
from controllers import main

IMPORTED = (controllers.app, controllers.apps, controllers.report)
ORDER_BYTES = 1 << 20
_DESCRIPTORS = 4
_NEW_NET = 0x40000000  # CLONE_NEWNET
_SET_NAME = 15  # PR_SET_NAME of prctl(2)


def serve(requests: socket.socket) -> None:
    """Forks a child for each socket that comes, until there is nobody who could send one."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
    gc.collect()
    gc.freeze()  # it is not for the children to look through
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, 1, 1)
        if not message:
            return
        if os.fork() == 0:
            requests.close()
            _child(socket.socket(fileno=descriptors[0]))
        for descriptor in descriptors:
            os.close(descriptor)


def _child(testbed: socket.socket) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _control(testbed)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _control(testbed: socket.socket) -> None:
    """Takes the order, and is the controller."""
    message, descriptors, _, _ = socket.recv_fds(testbed, ORDER_BYTES, _DESCRIPTORS)
    if not message:
        return
    order = json.loads(message)
    namespace, output, errors, _lock = descriptors
    os.setsid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _NEW_NET):
        raise OSError(ctypes.get_errno(), "cannot enter the fabric's network namespace")
    os.dup2(output, 1)
    os.dup2(errors, 2)
    for descriptor in (namespace, output, errors):
        os.close(descriptor)
    os.environ.update(order["environment"])
    libc.prctl(_SET_NAME, order["name"].encode(), 0, 0, 0)  # all have the server's command line
    testbed.sendall(f"{os.getpid()}\n".encode())
    if testbed.recv(1) and _tethered(testbed):
        main.main(order["argv"])


def _tethered(testbed: socket.socket) -> bool:
    """Has the kernel kill us when the other end closes (nothing more comes from there); False if it has already.

    A thread that waits for that would not run in a process that is stopped.
    """
    fcntl.fcntl(testbed, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(testbed, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(testbed, fcntl.F_SETFL, fcntl.fcntl(testbed, fcntl.F_GETFL) | os.O_ASYNC)
    return not select.select([testbed], [], [], 0)[0]


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
