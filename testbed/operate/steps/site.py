"""Where an operator acts: a fabric that is up, with its hardware, flow tables, and faults that an action may mend."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from testbed.base.errors import UserError
from testbed.faults import Injection, Mistakes
from testbed.faults.base import Place, fault_id
from testbed.faults.built import CannotInject
from testbed.inject.faults import TakesRequests, injected
from topologies.graph.fabric import Cable, Fabric

if TYPE_CHECKING:
    from hardware.cc import Setting
    from testbed.fabric.lab import Lab


_LEFT_OUT = "normalization changed ofp_match"  # what ovs-ofctl says of a match that is not whole


class Job(Protocol):
    def workload(self) -> list[dict[str, Any]]:
        """Its steps, as a file has them."""
        ...

    def restart(self, workload: list[dict[str, Any]], away_ns: float) -> None:
        """It begins anew when so much time has passed. Raises InputError if it does not fit; then nothing was done."""
        ...


@dataclass
class Site:
    """A live fabric. Its directory has its configuration, and gets the record of what was done."""

    lab: Lab
    fabricd: TakesRequests
    heal: Callable[[str], Any]
    """Takes a fault out, by its id."""
    job: Job | None = None
    settle: Callable[[], str] = lambda: ""
    """Waits until what was asked of fabricd is carried out; returns who does not follow, or "". A world that is held
    does so by itself."""

    @classmethod
    def of(cls, lab: Lab) -> Site:
        """A fabric whose clock nobody holds."""
        from testbed.inject import live

        return cls(lab, lab.fabricd, lambda name: live.taken_out(lab, name), settle=lambda: live.settled(lab))

    @property
    def fabric(self) -> Fabric:
        return self.lab.fabric

    @property
    def directory(self) -> Path:
        return self.lab.dir

    @property
    def now_ns(self) -> float:
        return float(self.fabricd.request("status")["time_ns"])

    # -- as it was configured

    @cached_property
    def configured(self) -> Mapping[str, Any]:
        """What fabricd began with (docs/fabricd-protocol.md)."""
        found: dict[str, Any] = json.loads((self.directory / "fabricd.json").read_text())
        return found

    @cached_property
    def cc_setting(self) -> Setting:
        """What the defaults of congestion controls depend on."""
        from testbed.experiment import loads
        from testbed.experiment.basis import Basis

        return Basis(loads((self.directory / "experiment.json").read_text())).setting

    def cable(self, cable: Cable) -> Mapping[str, Any]:
        return self._named("cables", cable.name)

    def switch(self, name: str) -> Mapping[str, Any]:
        return self._named("switches", name)

    def nic(self, rank: int) -> Mapping[str, Any]:
        return self._named("nics", self.fabric.nics[rank].name)

    @property
    def reaction_ns(self) -> float:
        """From a port's change to the controller's new rules."""
        return float(self.configured["control"]["reaction_ns"])

    @property
    def gives_up_ns(self) -> float:
        """The queue pairs of some NIC fail when nothing has got through for so long: a timeout, and each retry's."""
        return min(float(nic["timeout_ns"]) * (int(nic["retry"]) + 1) for nic in self.configured["nics"])

    def _named(self, kind: str, name: str) -> Mapping[str, Any]:
        return next(part for part in self.configured[kind] if part["name"] == name)

    # -- what lies over that

    def settings(self) -> list[dict[str, Any]]:
        """What operators have configured and not taken back, as fabricd's `faults` lists it."""
        return [f for f in self.fabricd.request("faults")["faults"] if f["request"].get("operator")]

    def faults(self) -> dict[str, tuple[Injection, Place]]:
        faults_in = {}
        for fault in injected(self.fabricd):
            about = fault["request"].get("about")
            if not about or (name := fault_id(fault["fault"])) in faults_in:
                continue
            try:
                injection = Injection.of(about)
                faults_in[name] = injection, injection.place(self.fabric)
            except (Mistakes, CannotInject):
                continue  # not one of the catalogue's
        return faults_in

    def down(self) -> set[str]:
        active = [f for f in self.fabricd.request("faults")["faults"] if f["on"]]
        cables = [f["request"] for f in active if "cable" in f["request"]]
        return {r["cable"] for r in cables if r.get("values", {}).get("up") is False}

    def drained(self) -> set[str]:
        """Cables that operators have drained."""
        return {cable for s in self.settings() for cable in s["request"].get("drain", {}).get("cables", ())}

    # -- control

    def restart_controller(self) -> None:
        from testbed.inject import live

        live.restart_controller(self.lab)

    def ofctl(self, switch: str, *words: str) -> str:
        """Runs `ovs-ofctl OPTIONS VERB BRIDGE ARGUMENTS`. Raises UserError with Open vSwitch's words."""
        at = next(k for k, word in enumerate(words) if not word.startswith("-")) + 1
        bridge = self.lab.names.bridge(self.fabric.switch_by_name[switch])
        return self._ofctl(*words[:at], bridge, *words[at:]).stdout

    def check_flow(self, flow: str) -> None:
        """Raises UserError for a flow that Open vSwitch does not take, or of whose match it would leave a part out."""
        warning = self._ofctl("parse-flow", flow).stderr
        if _LEFT_OUT in warning:
            pre, post = (warning.partition(f"{which}:")[2].splitlines()[0].strip() for which in ("pre", "post"))
            hint = "a field needs its protocol before it, such as udp,tp_dst=4791 or ip,nw_dst=10.0.0.1"
            raise UserError(f"of {pre!r} Open vSwitch would take {post or 'nothing'!r} alone", hint=hint, exit_code=2)

    def _ofctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        command, env = self.lab.ovs_command(["ovs-ofctl", "-OOpenFlow13", *words])
        process = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        if process.returncode:
            lines = process.stderr.strip().splitlines()
            raise UserError(lines[-1].removeprefix("ovs-ofctl: ") if lines else "ovs-ofctl failed", exit_code=2)
        return process

    def flows_changed(self) -> None:
        """No frame meets flows of before from now on, neither in Open vSwitch's cache nor on the fast path."""
        from controllers.openflow.revalidation import NotPurged, purge

        try:
            purge(self.lab.ovs.control)
        except NotPurged as error:
            raise UserError(f"old flows may still be in force: {error}") from None
        self.fabricd.request("settled", event=0)

    # -- who would be cut off

    def alone(self, without: set[str]) -> set[int]:
        """The ranks that cannot reach most others without these cables (and without those that are down or drained)."""
        gone = without | self.down() | self.drained()
        neighbours: dict[str, list[str]] = {}
        for cable in self.fabric.cables:
            if cable.name not in gone:
                neighbours.setdefault(cable.a.node, []).append(cable.b.node)
                neighbours.setdefault(cable.b.node, []).append(cable.a.node)
        unseen = {nic.name: nic.rank for nic in self.fabric.nics}
        groups = []
        while unseen:
            seen = {next(iter(unseen))}
            queue = list(seen)
            for node in queue:
                new = [far for far in neighbours.get(node, ()) if far not in seen]
                seen.update(new)
                queue += new
            groups.append({unseen.pop(node) for node in list(unseen) if node in seen})
        largest = max(groups, key=len, default=set())
        return set().union(*(group for group in groups if group is not largest))

    def newly_alone(self, cables: set[str]) -> list[int]:
        """The ranks that these cables alone connect to most others."""
        return sorted(self.alone(cables) - self.alone(set()))
