"""Cables of a live fabric, cut and mended by name for Mininet's `link`. A cut is the fault cable_down.

So `testbed show faults` lists it, and `testbed heal` mends it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.faults import Injection
from testbed.faults.base import fault_id
from testbed.faults.cable import CableDown
from testbed.inject import live
from testbed.inject.faults import Row, injected

if TYPE_CHECKING:
    from testbed.fabric.lab import Lab
    from testbed.fabric.net import FabricNet


def mininet(lab: Lab) -> FabricNet:
    """The fabric as a Mininet, whose `link A B down` is a fault."""
    return lab.mininet(Links(lab))


class Links:
    """The cables of a live fabric by name."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def down(self) -> dict[str, str]:
        """Cables that are down, each with the id of its fault; of several faults, one that has only this cable down."""
        faults = self._faults()
        cables: dict[str, list[str]] = {}
        for fault in faults:
            cables.setdefault(fault_id(fault["fault"]), []).append(fault["request"]["cable"])
        found = sorted(faults, key=lambda fault: len(cables[fault_id(fault["fault"])]), reverse=True)
        return {fault["request"]["cable"]: fault_id(fault["fault"]) for fault in found if fault["on"]}

    def cut(self, cable: str) -> str:
        """Sets a cable down, if no fault has; returns the fault's id. Raises UserError."""
        return self.down().get(cable) or live.put_in(self._lab, Injection(CableDown(), f"cable:{cable}"))

    def mend(self, cable: str) -> tuple[list[str], list[str]]:
        """Heals faults that have only this cable down; returns their ids, and those of faults that have more down."""
        faults = self._faults()
        here = {fault_id(f["fault"]) for f in faults if f["request"]["cable"] == cable}
        wider = sorted({fault_id(f["fault"]) for f in faults if f["request"]["cable"] != cable} & here)
        healed = sorted(here - set(wider))
        for name in healed:
            live.take_out(self._lab, name)
        return healed, wider

    def _faults(self) -> list[Row]:
        """The primitives of all faults that cut cables."""
        return [f for f in injected(self._lab.fabricd) if f["request"].get("about", {}).get("fault") == CableDown.name]
