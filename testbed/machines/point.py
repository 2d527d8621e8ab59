"""One point of a sweep, in a process of its own, which sends its answer over a pipe.

The master is the process at the other end of the pipe. When that ends, in whatever way, the point takes its fabric down
and ends, as after SIGTERM.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import threading
import time
import traceback
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from testbed.base import this_process
from testbed.base.errors import InputError, MachineError, UserError
from testbed.base.progress import Progress
from testbed.experiment import Experiment, loads
from testbed.fabric.fork_server import ControllerSeat
from testbed.fabric.lab import Lab
from testbed.live.standing import Place
from testbed.machines.identity import resolved_hash
from testbed.run.sweep import measured


class Notices(Progress):
    """Collects notes and warnings for the master, which shows them."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def main(master: Connection, point: dict[str, Any], controller: socket.socket) -> None:
    """`point`: `text` of the experiment, its `name` for errors, `directory`, `resolved` (its hash), `folder`.

    `controller` is the socket of a ControllerSeat.
    """
    with suppress(OSError):
        os.setsid()  # a Ctrl-C at the terminal is the master's
    gc.set_threshold(100_000)
    gc.freeze()
    this_process.ours = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_end_with, args=(master,), name="master", daemon=True).start()
    notices = Notices()
    began = time.monotonic()
    try:
        answer = _read_and_run(point, notices, ControllerSeat(controller))
    except SystemExit as end:  # before its run began, or after it ended
        answer = {"row": {"error": "the run was interrupted", "stopped": end.code}}
    answer |= {"notes": notices.notes, "warnings": notices.warnings, "seconds": round(time.monotonic() - began, 3)}
    with suppress(OSError):  # the master is gone
        master.send(answer)
    os._exit(0)


def _read_and_run(point: dict[str, Any], notices: Notices, seat: ControllerSeat) -> dict[str, Any]:
    """As `answer_of`, of an experiment that is read first."""
    try:
        experiment = loads(point["text"], point["name"], Path(point["directory"]))
    except UserError as error:
        return _problem(error)
    if resolved_hash(experiment) != point["resolved"]:
        return _problem(MachineError("the experiment means something else here: another default, or another path"))
    return answer_of(experiment, Path(point["folder"]), notices, nullcontext(Place(up=partial(Lab.up, seat=seat))))


def answer_of(
    experiment: Experiment, folder: Path, progress: Progress, place: AbstractContextManager[Place]
) -> dict[str, Any]:
    """`row` of the sweep, or what kept the run from beginning, or `bug`.

    `mistake`: the point asks for what cannot be, on any machine. `problem` (with `exit_code`): this machine cannot.
    """
    try:
        return {"row": measured(experiment, folder, progress, place)}
    except InputError as error:
        # a folder that cannot be written: others can, perhaps
        return _problem(error) if error.where.startswith(str(folder)) else {"mistake": error.to_dict()}
    except UserError as error:
        return _problem(error)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = str(error.filename or folder)
            return _problem(MachineError(f"a point cannot run: {error.strerror}", where, "make room there"))
        return _bug(error)
    except Exception as error:
        return _bug(error)


def _problem(error: UserError) -> dict[str, Any]:
    return {"problem": {**error.to_dict(), "exit_code": error.exit_code}}


def _bug(error: Exception) -> dict[str, Any]:
    traceback.print_exc()
    return {"bug": f"internal error: {type(error).__name__}: {error}"}


def _stop(number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: what follows is tidying up
    raise SystemExit(128 + number)


def _end_with(master: Connection) -> None:
    with suppress(EOFError, OSError):
        master.recv_bytes()
    os.kill(os.getpid(), signal.SIGTERM)
