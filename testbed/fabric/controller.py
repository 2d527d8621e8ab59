"""The process of a fabric's controller: how it is started, and what it says while it comes up.

It speaks on its standard output, in JSON lines (controllers/main.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from hardware.patience import Patience
from testbed.base.errors import MachineError, UserError
from testbed.base.text import tail
from testbed.machine.mounts import CHECKOUT
from testbed.machine.processes import Running

CONTROLLER_PORT = 6653  # OpenFlow's; the fabric's namespace has no other
CONTROLLER_OUT = "controller.out"
CONTROLLER_LOG = "controller.log"
FORKED_LIBRARY = "os-ken"  # of our own Python, which a fork server has imported (fork_server.py)
_MODULE = ("-P", "-m", "controllers.main")
_POLL_S = 0.005
_CHECK_EVERY = 20  # of these

Check = Callable[[], object]


def controller_arguments(
    control: Mapping[str, Any], directory: Path, dpid_base: int, ovs_control: Path, log: Path
) -> list[str]:
    """The arguments of the controller that the experiment's `control` asks for."""
    argv = ["--fabric", str(directory / "fabric.json"), "--port", str(CONTROLLER_PORT), "--dpid-base", str(dpid_base)]
    argv += ["--routing", control["routing"], *(["--dateline"] if control["dateline"] else [])]
    argv += ["--cable-bps", str(control["cable_bps"])] if control["cable_bps"] else []
    argv += [] if control["hash_seed"] is None else ["--hash-seed", str(control["hash_seed"])]
    argv += ["--hash-dest-qp"] if control["hash_dest_qp"] else []
    argv += ["--fabricd", str(directory / "control.sock"), "--ovs", str(ovs_control), "--log", str(log)]
    return argv + [word for app in control["apps"] for word in ("--app", app)]


@dataclass
class Controller:
    """A controller's process that we have started."""

    process: subprocess.Popen[bytes] | Running
    out: Path
    log: Path

    def wait_listening(self, check: Check = lambda: None) -> None:
        """Waits until it listens. Raises MachineError, and what `check` raises, which is called now and then."""
        self._await(lambda: _listens(self.process.pid), "does not listen", check)

    def wait_programmed(self, check: Check = lambda: None) -> dict[str, Any]:
        """Waits until all switches have their flows; returns the controller's message. Raises as `wait_listening`."""
        self._await(lambda: "programmed" in self._message(), "has not programmed all switches", check)
        return self._message()

    def check(self) -> None:
        """Raises MachineError (UserError for an error in an application) if it has ended or reported an error."""
        if "error" in self._message() or self.process.poll() is not None:
            self._fail("ended")

    def _await(self, condition: Callable[[], bool], complaint: str, check: Check) -> None:
        """Waits for the condition, as long as the controller lives, has reported no error and patience lasts."""
        patience = Patience(self.process.pid)
        for n in count(1):
            if condition():
                return
            self.check()
            if n % _CHECK_EVERY == 0:
                check()
            if patience.look() and not condition():
                self._fail(complaint)
            time.sleep(_POLL_S)

    def _fail(self, complaint: str) -> NoReturn:
        message = self._message()
        if "where" in message:
            raise UserError(f"a controller application failed: {message['error']}", message["where"])
        reason = message.get("error") or tail(self.log)
        raise MachineError(f"the controller {complaint}: {reason}", where=str(self.log))

    def _message(self) -> dict[str, Any]:
        return next(iter(controller_lines(self.out)), {})


def controller_lines(out: Path) -> list[dict[str, Any]]:
    """The JSON lines that a controller has printed to `out`."""
    messages = []
    with suppress(OSError):
        for line in out.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                messages.append(json.loads(line))
    return [message for message in messages if isinstance(message, dict)]


def interpreter(library: str) -> list[str]:
    """What runs the controller with the Python that has the OpenFlow library. Raises MachineError."""
    if library == FORKED_LIBRARY:
        return [sys.executable, *_MODULE]
    python = CHECKOUT / ".venv-ryu" / "bin" / "python"
    if not python.exists():
        raise MachineError("ryu's environment is not built", where="control.library", hint="./setup.sh ryu")
    return [str(python), *_MODULE]


def _listens(pid: int) -> bool:
    """Whether the controller listens, from the kernel's tables: it would take a test connection for a switch.

    For the list of sockets the kernel walks through those of the whole machine (4 ms), and this is asked often: first
    how many the namespace has.
    """
    local = f":{CONTROLLER_PORT:04X}"
    with suppress(FileNotFoundError, ProcessLookupError):
        if "TCP: inuse 0 " in Path(f"/proc/{pid}/net/sockstat").read_text():
            return False
        lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
        return any((fields := line.split())[1].endswith(local) and fields[3] == "0A" for line in lines)
    return False
