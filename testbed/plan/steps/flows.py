"""From flows, written or drawn, to steps of the plan."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING

from testbed.experiment.blocks.fabric import dscp_of
from testbed.plan.steps.planned import Planned, PlannedFlow, PlannedFlows
from topologies.graph import endpoint
from workloads import traffic

if TYPE_CHECKING:
    from testbed.experiment.blocks.transport import Own
    from testbed.experiment.steps.flows import Flow, FlowsStep, LoadStep
    from testbed.plan.steps.planner import Planner


def flows_steps(step: FlowsStep, planner: Planner) -> list[Planned]:
    """As they are written."""

    def planned(flow: Flow) -> PlannedFlow:
        source, target = (endpoint.number(end, planner.fabric) for end in (flow.from_, flow.to))
        dscp = None if flow.traffic_class is None else dscp_of(flow.traffic_class, planner.basis.fabric)
        transport = None
        if flow.transport:
            transport = planner.senders.number(source, flow.traffic_class, step.transport, flow.transport)
        return PlannedFlow(source, target, flow.size, flow.start, flow.traffic_class, dscp, transport)

    flows = [planned(flow) for flow in step.flows]
    return [PlannedFlows(flows, _senders(planner, flows, ((step.transport, flow.transport) for flow in step.flows)))]


def _senders(planner: Planner, flows: list[PlannedFlow], own: Iterable[tuple[Own | None, ...]]) -> list[str]:
    return planner.senders.names((f.source, f.traffic_class, its) for f, its in zip(flows, own, strict=False))


def load_steps(step: LoadStep, planner: Planner) -> list[Planned]:
    """A load's flows, drawn from the seed.  Where the senders' NICs differ, `load` is of the slowest."""
    load, seed = step.load, planner.experiment.seed + planner.number(step)
    ranks = list(range(planner.fabric.ranks)) if load.senders is None else load.senders
    sizes = load.drawn_sizes()
    if load.pattern == "burst":
        drawn = traffic.burst(sizes, ranks=ranks, to=load.to, each=load.flows, seed=seed)
    else:
        drawn = traffic.poisson(
            sizes,
            ranks=ranks,
            pattern=load.pattern,
            load=load.load,
            line_rate_bps=planner.basis.line_rate_bps([load.to] if load.pattern == "incast" else ranks),
            flows=load.flows,
            seed=seed,
            to=load.to,
        )
    flows = [PlannedFlow(a.source, a.target, a.size_bytes, a.start_ns) for a in drawn]
    return [PlannedFlows(flows, _senders(planner, flows, repeat((step.transport,))))]
