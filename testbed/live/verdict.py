"""How far a fabric's figures can be trusted, from its counters (the rules are in results.figures.fidelity)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from results.figures.fidelity import Fidelity, real_clock, smallest_hop_ns, virtual_clock
from testbed.plan.hardware import hardware_of

if TYPE_CHECKING:
    from testbed.experiment import Experiment


def judged(experiment: Experiment, seen: Mapping[str, Any], steal: float | None) -> Fidelity:
    """The verdict by `fidelity` of fabricd's counters; `steal`: share of CPU time that the hypervisor took."""
    if experiment.clock.mode == "virtual":
        return virtual_clock(seen)
    fabric, hardware = experiment.build_fabric(), hardware_of(experiment)
    hops = (hardware.cable(fabric, cable) for cable in fabric.cables if cable.name not in fabric.inside)
    hop = smallest_hop_ns(hops, experiment.fabric.nic.mtu)
    return real_clock(seen, smallest_hop_ns=hop, dilation=seen["dilation"], steal=steal)
