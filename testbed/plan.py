"""From an experiment to what each worker is told to do, and to the ports that are captured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from testbed.layout import group
from topologies import Fabric
from workloads import traffic
from workloads.registry import AUTO, any_of, extra, find

if TYPE_CHECKING:
    from testbed.choose import Chooser
    from testbed.spec import CollectiveStep, Experiment, FlowsStep
    from testbed.spec.steps import Load, LoadStep

Plan = dict[str, Any]


def plan(experiment: Experiment) -> Plan:
    """The plan that all workers share; each gets it with its own `rank` added. workloads/worker.py reads it."""
    costs = experiment.costs
    fabric = experiment.build_fabric()

    @cache
    def chooser() -> Chooser:
        from testbed.choose import Chooser  # imports numpy

        return Chooser(experiment, fabric)

    return {
        "ranks": len(fabric.nics),
        "seed": experiment.seed,
        "costs": {"post_ns": costs.post, "reduce_bps": costs.reduce, "wake_ns": costs.wake},
        "steps": [
            _step(step, fabric, experiment.fabric.cable.rate, experiment.seed + k, chooser)
            for k, step in enumerate(experiment.workload)
        ],
    }


def steps(plan: Plan) -> list[dict[str, Any]]:
    """What each step is, as results.metrics.result_rows takes it: with its bus bandwidth factor from the registry."""
    return [{"kind": "flows"} if step["kind"] == "flows" else _described(step, plan["ranks"]) for step in plan["steps"]]


def _described(step: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    entry = any_of(step["collective"], step["algorithm"])
    taking_part = len(step["ranks"]) if step["ranks"] else ranks
    described = {key: step[key] for key in ("kind", "collective", "algorithm", "dtype")}
    return described | {
        "op": step["op"] if entry.ops else None,
        "ranks": taking_part,
        "busbw_factor": entry.busbw_factor(taking_part),
        **({"chosen": step["chosen"]} if "chosen" in step else {}),
    }


def choices(plan: Plan) -> list[dict[str, Any]]:
    """Events that say which algorithms were chosen, and what each candidate is expected to take."""
    return [
        {
            "event": "algorithm_chosen",
            "time_ns": 0,
            "step": number,
            "size_bytes": int(size),
            "algorithm": chosen["algorithm"],
            "expected_ns": chosen["expected_ns"],
        }
        for number, step in enumerate(plan["steps"])
        for size, chosen in step.get("chosen", {}).items()
    ]


def measurements(plan: Plan) -> int:
    """How many measurement lines the workers print in all: one per rank and iteration, one from each end of a flow."""
    total = 0
    for step in plan["steps"]:
        if step["kind"] == "flows":
            total += 2 * len(step["flows"])
        else:
            total += len(step["ranks"] or range(plan["ranks"])) * len(step["sizes"]) * step["iterations"]
    return total


def _step(
    step: CollectiveStep | FlowsStep | LoadStep,
    fabric: Fabric,
    rate_bps: float,
    seed: int,
    chooser: Callable[[], Chooser],
) -> dict[str, Any]:
    from testbed.spec.steps import FlowsStep, LoadStep

    if isinstance(step, FlowsStep):
        return _flows(step)
    return (
        _drawn(step.load, fabric, rate_bps, seed) if isinstance(step, LoadStep) else _collective(step, fabric, chooser)
    )


def _collective(step: CollectiveStep, fabric: Fabric, chooser: Callable[[], Chooser]) -> dict[str, Any]:
    keys = ("collective", "algorithm", "sizes", "dtype", "op", "iterations", "warmup", "ranks")
    told = {"kind": "collective"} | {
        key: getattr(step, key) for key in (*keys, *extra(step.collective, step.algorithm))
    }
    if step.algorithm == AUTO:
        return told | {"chosen": chooser().choose(step)}
    return told | group(find(step.collective, step.algorithm), step.ranks, fabric)


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
