"""The agent: carries out what faults do to processes, when fabricd says that it is time."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from testbed.machine.processes import Process, wait_for
from testbed.machine.teardown import GONE_S

if TYPE_CHECKING:
    from testbed.fabric.lab import Lab

NAME = "agent"
"""Its name at fabricd."""


class Agent:
    """Carries out `act` events: `acts` of them by now. `kill_worker` kills a rank's container (None: for good)."""

    def __init__(self, lab: Lab, kill_worker: Callable[[int], None] | None = None) -> None:
        self.lab = lab
        self.acts = 0
        self._kill_worker = kill_worker or (lambda rank: lab.containers.kill(rank))

    def heed(self) -> int:
        """Carries out what has been asked by now; returns how much that was."""
        acts = [event for event in self.lab.fabricd.events() if event["event"] == "act"]
        for event in acts:
            self.act(event)
        return len(acts)

    def act(self, event: Mapping[str, Any]) -> None:
        """Carries out the event, and answers fabricd, so that time goes on."""
        spec = event["spec"]
        if spec.get("worker") == "kill":
            if event["on"]:
                self._kill_worker(spec["rank"])
            else:
                self._revive_unless_faults_say(spec["rank"])
        elif spec.get("worker") == "freeze":
            self._freeze_as_faults_say(spec["rank"])
        elif spec.get("worker") == "quota":
            self._give_cpus_as_faults_say(spec["rank"], begins=event["on"])
        elif "controller" in spec:
            self._make_controller_as_faults_say()
        self.acts += 1
        self.lab.fabricd.request("settled", event=event["id"])

    def end_controller(self) -> None:
        """Kills the controller, and waits until it is gone."""
        self._signal_controller(signal.SIGKILL)
        wait_for(lambda: self.lab.controller.poll() is not None, GONE_S)

    def _on(self) -> list[Mapping[str, Any]]:
        """The requests to the agent of all faults that are on."""
        faults = self.lab.fabricd.request("faults")["faults"]
        return [f["request"].get("spec", {}) for f in faults if f["on"]]

    def _of_worker(self, what: str, rank: int) -> list[Mapping[str, Any]]:
        return [spec for spec in self._on() if spec.get("worker") == what and spec["rank"] == rank]

    def _revive_unless_faults_say(self, rank: int) -> None:
        if not self._of_worker("kill", rank):
            self.lab.containers.revive(rank)
            if self._of_worker("quota", rank):
                self._give_cpus_as_faults_say(rank, begins=True)
            if self._of_worker("freeze", rank):
                self.lab.containers.freeze(rank)

    def _freeze_as_faults_say(self, rank: int) -> None:
        frozen = self._of_worker("freeze", rank)
        (self.lab.containers.freeze if frozen else self.lab.containers.thaw)(rank)

    def _give_cpus_as_faults_say(self, rank: int, *, begins: bool) -> None:
        """Sets the least quota of all faults that are on, else the experiment's.

        Of a container: if a fault `begins`, a rank without one gets one; else there is nothing to take back.
        """
        containers = self.lab.containers
        if not (containers.strikable(rank) if begins else containers.running(rank)):
            return
        quotas = [spec["cpus"] for spec in self._of_worker("quota", rank)]
        containers.limit_cpus(rank, min(quotas) if quotas else self.lab.state["limits"]["cpus"])

    def _make_controller_as_faults_say(self) -> None:
        """Dead if any fault that is on says so, else hung if any says so, else running."""
        states = {spec.get("controller") for spec in self._on()}
        alive = self.lab.controller.poll() is None
        if "dead" in states:
            if alive:
                self.end_controller()
            return
        if not alive:
            self.lab.restart_controller()
        if "hung" in states:
            with suppress(ProcessLookupError):
                controller = Process.of(self.lab.controller.pid)
                controller.signal(signal.SIGSTOP)
                wait_for(lambda: controller.stopped() or not controller.alive(), GONE_S)
        else:
            self._signal_controller(signal.SIGCONT)
            self.lab.fabricd.request("ask_controller")

    def _signal_controller(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.lab.controller.pid, number)
