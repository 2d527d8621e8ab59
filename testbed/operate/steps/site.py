"""Where an operator acts: a fabric that is up, with its hardware, flow tables, and faults that an action may mend."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base.errors import UserError
from testbed.faults import Injection, Mistakes
from testbed.faults.base import CannotInject, Place, fault_id
from topologies.graph.fabric import Cable, Fabric

if TYPE_CHECKING:
    from hardware.cc import Setting
    from hardware.client import Fabricd
    from testbed.fabric.lab import Lab

OfCtl = Callable[[str, Sequence[str]], str]
"""Runs `ovs-ofctl VERB BRIDGE ARGUMENTS` for a switch: its name, then the verb and the arguments."""


@dataclass
class Site:
    """A fabric. `directory` has its configuration, and gets the record of what was done."""

    fabric: Fabric
    fabricd: Fabricd
    directory: Path
    heal: Callable[[str], Any]
    """Takes a fault out, by its id."""
    ofctl: OfCtl
    restart_controller: Callable[[], None]

    @classmethod
    def of(cls, lab: Lab) -> Site:
        """The site of a live fabric."""
        from testbed.inject import live

        return cls(
            lab.fabric, lab.fabricd, lab.dir, lambda name: live.take_out(lab, name),
            lambda switch, words: _ofctl(lab, switch, words), lambda: live.restart_controller(lab),
        )  # fmt: skip

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
        from testbed.plan.hardware import setting_of

        return setting_of(loads((self.directory / "experiment.json").read_text()), self.fabric)

    def cable(self, cable: Cable) -> Mapping[str, Any]:
        return self._named("cables", cable.name)

    def switch(self, name: str) -> Mapping[str, Any]:
        return self._named("switches", name)

    def nic(self, rank: int) -> Mapping[str, Any]:
        return self._named("nics", self.fabric.nics[rank].name)

    def _named(self, kind: str, name: str) -> Mapping[str, Any]:
        return next(one for one in self.configured[kind] if one["name"] == name)

    # -- what lies over that

    def _injected(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.fabricd.request("faults")["faults"]
        return found

    def settings(self) -> list[dict[str, Any]]:
        """What operators have configured and not taken back, as fabricd's `faults` lists it."""
        return [f for f in self._injected() if f["request"].get("operator")]

    def faults(self) -> dict[str, tuple[Injection, Place]]:
        """The faults that are in, by id."""
        found = {}
        for fault in self._injected():
            about = fault["request"].get("about")
            if not about or fault["request"].get("operator") or (name := fault_id(fault["fault"])) in found:
                continue
            try:
                injection = Injection.of(about)
                found[name] = injection, injection.place(self.fabric)
            except (Mistakes, CannotInject):
                continue  # not one of the catalogue's
        return found

    def down(self) -> set[str]:
        """Cables whose link is down."""
        injected = [f for f in self._injected() if f["on"]]
        cables = [f["request"] for f in injected if "cable" in f["request"]]
        return {r["cable"] for r in cables if r.get("values", {}).get("up") is False}

    # -- who would be cut off

    def alone(self, without: set[str]) -> set[int]:
        """The ranks that cannot reach most others without these cables (and without those that are down)."""
        gone = without | self.down()
        beside: dict[str, list[str]] = {}
        for cable in self.fabric.cables:
            if cable.name not in gone:
                beside.setdefault(cable.a.node, []).append(cable.b.node)
                beside.setdefault(cable.b.node, []).append(cable.a.node)
        left = {nic.name: nic.rank for nic in self.fabric.nics}
        groups = []
        while left:
            seen = {next(iter(left))}
            queue = list(seen)
            for node in queue:
                new = [far for far in beside.get(node, ()) if far not in seen]
                seen.update(new)
                queue += new
            groups.append({left.pop(node) for node in list(left) if node in seen})
        largest = max(groups, key=len, default=set())
        return set().union(*(group for group in groups if group is not largest))

    def newly_alone(self, cables: set[str]) -> list[int]:
        """The ranks that these cables alone connect to most others."""
        return sorted(self.alone(cables) - self.alone(set()))


def _ofctl(lab: Lab, switch: str, words: Sequence[str]) -> str:
    """Raises UserError with Open vSwitch's words."""
    verb, *rest = words
    bridge = lab.names.bridge(lab.fabric.switch_by_name[switch])
    command, env = lab.ovs_command(["ovs-ofctl", "-OOpenFlow13", verb, bridge, *rest])
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    if done.returncode:
        said = done.stderr.strip().removeprefix("ovs-ofctl: ").splitlines()
        raise UserError(said[0] if said else "ovs-ofctl failed")
    return done.stdout
