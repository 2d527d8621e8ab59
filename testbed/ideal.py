"""What a flow would take if it were alone: the other half of its slowdown."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import networkx as nx

from workloads.closed_form import Costs, Path, flow_ns

if TYPE_CHECKING:
    from testbed.spec import Experiment


def costs_of(experiment: Experiment) -> Costs:
    """What an experiment's hosts and NICs take."""
    nic, costs = experiment.fabric.nic, experiment.costs
    return Costs(
        mtu=nic.mtu,
        post_ns=costs.post,
        pcie_rate_bps=nic.pcie.rate,
        pcie_latency_ns=nic.pcie.latency,
        ack_every=nic.ack_every,
        wake_ns=costs.wake,
        reduce_bps=costs.reduce,
    )


class Ideal:
    """Times of lone flows on an experiment's fabric, in ns (docs/closed-form.md)."""

    def __init__(self, experiment: Experiment) -> None:
        self._fabric = experiment.build_fabric()
        spec = experiment.fabric
        self._link = {"rate_bps": spec.cable.rate, "delay_ns": spec.cable.delay, "latency_ns": spec.switch.latency}
        self._scale_up = spec.scale_up
        self._costs = costs_of(experiment)
        self.time_ns = cache(self._time_ns)
        self._switches = cache(self._count_switches)

    def _count_switches(self, source: int, target: int) -> int:
        nics = self._fabric.nics
        return int(nx.shortest_path_length(self._fabric.graph, nics[source].name, nics[target].name)) - 1

    def _time_ns(self, source: int, target: int, size_bytes: int) -> float | None:
        """None where the formulas say nothing: inside a scale-up domain."""
        names = {self._fabric.nics[source].name, self._fabric.nics[target].name}
        if any(names <= set(domain) for domain in self._fabric.scale_up):
            return None
        path = Path.uniform(self._switches(source, target), **self._link)
        return flow_ns(size_bytes, path, self._costs)
