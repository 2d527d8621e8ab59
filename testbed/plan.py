"""From an experiment to what each worker is told to do, and to the ports that are captured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from topologies import Fabric
from topologies.grid import grid, servers_and_gpus
from topologies.ring_order import ring_order
from workloads import traffic
from workloads.registry import Collective, find

if TYPE_CHECKING:
    from testbed.spec import CollectiveStep, Experiment, FlowsStep
    from testbed.spec.steps import Load, LoadStep

Plan = dict[str, Any]


def plan(experiment: Experiment) -> Plan:
    """The plan that all workers share; each gets it with its own `rank` added. workloads/worker.py reads it."""
    costs = experiment.costs
    fabric = experiment.build_fabric()
    return {
        "ranks": len(fabric.nics),
        "seed": experiment.seed,
        "costs": {"post_ns": costs.post, "reduce_bps": costs.reduce, "wake_ns": costs.wake},
        "steps": [
            _step(step, fabric, experiment.fabric.cable.rate, experiment.seed + k)
            for k, step in enumerate(experiment.workload)
        ],
    }


def steps(plan: Plan) -> list[dict[str, Any]]:
    """What each step is, as results.metrics.result_rows takes it: with its bus bandwidth factor from the registry."""
    return [{"kind": "flows"} if step["kind"] == "flows" else _described(step, plan["ranks"]) for step in plan["steps"]]


def _described(step: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    entry = find(step["collective"], step["algorithm"])
    taking_part = len(step["ranks"]) if step["ranks"] else ranks
    described = {key: step[key] for key in ("kind", "collective", "algorithm", "dtype")}
    return described | {
        "op": step["op"] if entry.ops else None,
        "ranks": taking_part,
        "busbw_factor": entry.busbw_factor(taking_part),
    }


def measurements(plan: Plan) -> int:
    """How many measurement lines the workers print in all: one per rank and iteration, one from each end of a flow."""
    total = 0
    for step in plan["steps"]:
        if step["kind"] == "flows":
            total += 2 * len(step["flows"])
        else:
            total += len(step["ranks"] or range(plan["ranks"])) * len(step["sizes"]) * step["iterations"]
    return total


def _step(step: CollectiveStep | FlowsStep | LoadStep, fabric: Fabric, rate_bps: float, seed: int) -> dict[str, Any]:
    from testbed.spec.steps import FlowsStep, LoadStep

    if isinstance(step, FlowsStep):
        return _flows(step)
    return _drawn(step.load, fabric, rate_bps, seed) if isinstance(step, LoadStep) else _collective(step, fabric)


def _collective(step: CollectiveStep, fabric: Fabric) -> dict[str, Any]:
    keys = ("collective", "algorithm", "sizes", "dtype", "op", "iterations", "warmup", "ranks")
    entry = find(step.collective, step.algorithm)
    told = {"kind": "collective"} | {key: getattr(step, key) for key in (*keys, *entry.extra)}
    return told | group(entry, step.ranks, fabric)


def group(entry: Collective, ranks: Sequence[int] | None, fabric: Fabric) -> dict[str, Any]:
    """The ranks that take part, in the order that suits the algorithm, and their grid where it needs one.

    Raises NoGrid.
    """
    everybody = list(ranks) if ranks is not None else [nic.rank for nic in fabric.nics]
    if entry.layout == "grid":
        return {"ranks": sorted(everybody), "dims": list(grid(fabric, everybody))}
    if entry.layout == "domains":
        return {"ranks": sorted(everybody), "dims": list(servers_and_gpus(fabric, everybody))}
    if "ring" in entry.algorithm and ranks is None:
        return {"ranks": ring_order(fabric)}
    return {"ranks": ranks}


def _flows(step: FlowsStep) -> dict[str, Any]:
    flows = [{"from": f.from_, "to": f.to, "size_bytes": f.size, "start_ns": f.start} for f in step.flows]
    return {"kind": "flows", "flows": flows}


def _drawn(load: Load, fabric: Fabric, rate_bps: float, seed: int) -> dict[str, Any]:
    """A load's flows, drawn from the seed."""
    ranks = list(range(len(fabric.nics))) if load.senders is None else load.senders
    sizes = traffic.sizes_named(load.distribution, load.size, load.most)
    if load.pattern == "burst":
        drawn = traffic.burst(sizes, ranks=ranks, to=load.to, each=load.flows, seed=seed)
    else:
        drawn = traffic.poisson(
            sizes,
            ranks=ranks,
            pattern=load.pattern,
            load=load.load,
            line_rate_bps=rate_bps,
            flows=load.flows,
            seed=seed,
            to=load.to,
        )
    flows = [{"from": a.source, "to": a.target, "size_bytes": a.size_bytes, "start_ns": a.start_ns} for a in drawn]
    return {"kind": "flows", "flows": flows}


def capture_ports(target: str, fabric: Fabric) -> list[str]:
    """The `NODE:PORT`s that a capture target stands for: `port:SWITCH:N`, `nic:RANK`, or both ends of `cable:A-B`."""
    kind, _, name = target.partition(":")
    if kind == "port":
        return [name]
    if kind == "nic":
        return [f"{fabric.nics[int(name)].name}:1"]
    cable = fabric.cable(name)
    return [f"{end.node}:{end.port}" for end in (cable.a, cable.b)]
