"""How far a fabric's figures can be trusted, from its counters (the rules are in results.figures.fidelity)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from results.figures.fidelity import Fidelity, real_clock, smallest_hop_ns, virtual_clock
from testbed.experiment.basis import Basis

if TYPE_CHECKING:
    from testbed.experiment import Experiment


def judged(experiment: Experiment, seen: Mapping[str, Any], steal: float | None) -> Fidelity:
    """The verdict by `fidelity` of fabricd's counters; `steal`: share of CPU time that the hypervisor took."""
    if experiment.clock.mode == "virtual":
        return virtual_clock(seen)
    basis = Basis(experiment)
    hops = (basis.cable(cable) for cable in basis.graph.cables if cable.name not in basis.graph.inside)
    hop = smallest_hop_ns(hops, basis.fabric.nic.mtu)
    return real_clock(seen, smallest_hop_ns=hop, dilation=seen["dilation"], steal=steal)
