"""From flows, written or drawn, to steps of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testbed.experiment.blocks.fabric import dscp_of
from testbed.plan.hardware import line_rate_bps
from topologies.graph import endpoint
from workloads import traffic

if TYPE_CHECKING:
    from testbed.experiment.steps.flows import FlowsStep, LoadStep
    from testbed.plan.steps.planner import Planner


def flows_steps(step: FlowsStep, planner: Planner) -> list[dict[str, Any]]:
    """As they are written."""

    def number(end: int) -> int:
        return endpoint.number(end, planner.fabric)

    def marking(its: int | None) -> dict[str, Any]:
        return {} if its is None else {"traffic_class": its, "dscp": dscp_of(its, planner.experiment.fabric)}

    flows = [
        {"from": number(f.from_), "to": number(f.to), "size_bytes": f.size, "start_ns": f.start}
        | marking(f.traffic_class)
        for f in step.flows
    ]
    return [{"kind": "flows", "flows": flows}]


def load_steps(step: LoadStep, planner: Planner) -> list[dict[str, Any]]:
    """A load's flows, drawn from the seed.  Where the senders' NICs differ, `load` is of the slowest."""
    load, experiment, fabric, seed = (
        step.load,
        planner.experiment,
        planner.fabric,
        planner.experiment.seed + planner.number(step),
    )
    ranks = list(range(fabric.ranks)) if load.senders is None else load.senders
    sizes = load.drawn_sizes()
    if load.pattern == "burst":
        drawn = traffic.burst(sizes, ranks=ranks, to=load.to, each=load.flows, seed=seed)
    else:
        drawn = traffic.poisson(
            sizes,
            ranks=ranks,
            pattern=load.pattern,
            load=load.load,
            line_rate_bps=line_rate_bps(experiment, fabric, [load.to] if load.pattern == "incast" else ranks),
            flows=load.flows,
            seed=seed,
            to=load.to,
        )
    flows = [{"from": a.source, "to": a.target, "size_bytes": a.size_bytes, "start_ns": a.start_ns} for a in drawn]
    return [{"kind": "flows", "flows": flows}]
