"""What faults do to processes: the testbed's part of a fault, when fabricd says that its time has come."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.lab import Lab

NAME = "agent"
"""What it subscribes as at fabricd."""


class Agent:
    """Carries out `act` events. `kill_worker` kills a rank's container."""

    def __init__(self, lab: Lab, kill_worker: Callable[[int], None]) -> None:
        self._lab = lab
        self._kill_worker = kill_worker

    def act(self, event: Mapping[str, Any]) -> None:
        """Does what the event says, and tells fabricd so that time goes on."""
        spec, on = event["spec"], event["on"]
        if spec.get("worker") == "kill" and on:
            self._kill_worker(spec["rank"])
        elif spec.get("controller") == "hung":
            self._signal_controller(signal.SIGSTOP if on else signal.SIGCONT)
        elif spec.get("controller") == "dead":
            if on:
                self._signal_controller(signal.SIGKILL)
            else:
                self._lab.restart_controller()
        self._lab.fabricd.request("settled", event=event["id"])

    def _signal_controller(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._lab.controller.pid, number)
