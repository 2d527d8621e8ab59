"""From an experiment to the plan of each worker, and to the ports that are captured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from testbed.base.types import Model
from testbed.experiment.blocks.fabric import dscp_of
from testbed.experiment.blocks.layout import group
from topologies import Fabric
from topologies.graph import endpoint
from workloads import traffic
from workloads.base.entry import named
from workloads.base.vocabulary import AUTO, DTYPES
from workloads.registry import any_of, extra, find
from workloads.sparse.sizes import spot_blocks

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment, FlowsStep
    from testbed.experiment.blocks.fabric import Complex, Nic
    from testbed.experiment.steps.flows import Load, LoadStep
    from testbed.experiment.steps.steps import Step
    from testbed.experiment.steps.tasks import Tasks, TasksStep
    from testbed.experiment.steps.traces import AicbStep, ChakraStep
    from testbed.plan.choose import Chooser

Plan = dict[str, Any]


def plan(experiment: Experiment) -> Plan:
    """The plan that all workers share; each gets it with its own `rank` added. workloads/worker.py reads it."""
    costs = experiment.costs
    fabric, cores = experiment.build_fabric(), experiment.fabric.nic.complex

    @cache
    def chooser() -> Chooser:
        from testbed.plan.choose import Chooser  # imports numpy

        return Chooser(experiment, fabric)

    return {
        "ranks": fabric.ranks,
        "seed": experiment.seed,
        "costs": {
            "post_ns": costs.post,
            "reduce_bps": costs.reduce,
            "wake_ns": costs.wake,
            "convert_bps": costs.convert,
        },
        "complex_costs": _complex_costs(experiment.fabric.nic),
        "steps": [
            _helped(made, fabric, cores)
            for k, step in enumerate(experiment.workload)
            for made in _steps(step, experiment, fabric, experiment.seed + k, chooser)
        ],
    }


def _complex_costs(nic: Nic) -> dict[str, Any] | None:
    """The costs of work on the cores of an off-path SmartNIC."""
    if nic.complex is None:
        return None
    cores = nic.complex
    return {
        "post_ns": cores.post,
        "wake_ns": cores.wake,
        "reduce_bps": cores.reduce,
        "cache_bytes": cores.cache,
        "memory_reduce_bps": cores.memory_reduce,
    }


def endpoints(plan: Plan) -> list[int]:
    """Numbers of all endpoints that run a worker: the ranks, then the compute complexes that a step asks for."""
    ranks = plan["ranks"]
    asked = {end for step in plan["steps"] for end in _ends(step) if end >= ranks}
    return [*range(ranks), *sorted(asked)]


def _ends(step: Mapping[str, Any]) -> Iterator[int]:
    """Numbers of those that a step names: of its helpers, too."""
    if step["kind"] == "flows":
        yield from (flow[end] for flow in step["flows"] for end in ("from", "to"))
    else:
        yield from (*(step.get("ranks") or ()), *step.get("helpers", ()))


def _own(step: Mapping[str, Any], ranks: Sequence[int]) -> Mapping[str, Any]:
    if step["kind"] != "tasks":
        return step
    its = {str(rank): step["tasks"][str(rank)] for rank in ranks if str(rank) in step["tasks"]}
    return {**step, "tasks": its, "about": {}, "about_step": {}, "printed": []}


def for_ranks(plan: Plan, ranks: Sequence[int]) -> Plan:
    """The plan of endpoints that share a process: of tasks those of their own. workloads/together.py reads it."""
    own = [{"rank": rank, "costs": plan["costs" if rank < plan["ranks"] else "complex_costs"]} for rank in ranks]
    together = {"together": own} if len(ranks) > 1 else {}
    return {**plan, **own[0], **together, "steps": [_own(step, ranks) for step in plan["steps"]]}


def steps(plan: Plan) -> list[dict[str, Any]]:
    """The steps as results.frames.metrics.result_rows takes them, with their factors of bus bandwidth."""
    return [_described(step, plan["ranks"]) for step in plan["steps"]]


def _described(step: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    if step["kind"] == "flows":
        named = {str(end): endpoint.name(end, ranks) for end in sorted(set(_ends(step))) if end >= ranks}
        return {"kind": "flows", **({"names": named} if named else {})}
    if step["kind"] == "tasks":
        return _tasks_described(step)
    entry = any_of(step["collective"], step["algorithm"])
    described = {key: step[key] for key in ("kind", "collective", "algorithm", "dtype")}

    def of(taking_part: int) -> dict[str, Any]:
        workers = taking_part - (0 if entry.on_complexes else step.get("aggregators") or 0)
        return {"ranks": taking_part, "busbw_factor": entry.collective.busbw.of(workers)}

    return described | {
        "op": step["op"] if entry.ops else None,
        **of(len(step["ranks"]) if step["ranks"] else ranks),
        **({"chosen": step["chosen"]} if "chosen" in step else {}),
        **({"groups": [of(len(told["ranks"])) for told in step["groups"]]} if "groups" in step else {}),
    }


def _tasks_described(step: Mapping[str, Any]) -> dict[str, Any]:
    """With the ways in which each group's collectives are done."""
    ways: dict[tuple[str, str, str], int] = {}
    for rank, orders in step["tasks"].items():
        for order in orders:
            if order["do"] == "collective":
                way, its = step["ways"][order["way"]], step["communicators"][order["communicator"]]
                key = (its["group"], way["collective"], way["algorithm"])
                ways[key] = ways.get(key, 0) + (int(rank) == its["ranks"][0])
    done = [{"group": g, "collective": c, "algorithm": a, "count": n} for (g, c, a), n in ways.items()]
    count = sum(map(len, step["tasks"].values()))
    described = {"kind": "tasks", "name": step["name"], "ranks": len(step["ranks"]), "tasks": count, "ways": done}
    return {**described, **step.get("about_step", {})}


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
        elif step["kind"] == "tasks":
            total += len(step["ranks"]) * step["iterations"]
        else:
            total += len(step["ranks"] or range(plan["ranks"])) * len(step["sizes"]) * step["iterations"]
    return total


def _steps(
    step: Step,
    experiment: Experiment,
    fabric: Fabric,
    seed: int,
    chooser: Callable[[], Chooser],
) -> list[dict[str, Any]]:
    """One, most often."""
    from testbed.experiment.steps.serve import ServeStep
    from testbed.experiment.steps.traces import TorchStep
    from testbed.experiment.steps.train import TrainStep

    def alone(one: CollectiveStep) -> dict[str, Any]:
        return _collective(one, experiment, fabric, chooser)

    if isinstance(step, TrainStep):
        from testbed.plan.training import training_steps

        return training_steps(
            step.train, experiment, fabric, lambda one, on: _collective(one, on, fabric, chooser), chooser
        )
    if isinstance(step, ServeStep):
        from testbed.plan.serving import serving_steps

        return serving_steps(step.serve, experiment, fabric, alone, chooser)
    if isinstance(step, TorchStep):
        from testbed.plan.scripts import script_steps

        return script_steps(step, experiment, fabric, alone, chooser)
    return [_step(step, experiment, fabric, seed, chooser)]


def _step(
    step: CollectiveStep | FlowsStep | LoadStep | TasksStep | ChakraStep | AicbStep,
    experiment: Experiment,
    fabric: Fabric,
    seed: int,
    chooser: Callable[[], Chooser],
) -> dict[str, Any]:
    from testbed.experiment.steps.flows import FlowsStep, LoadStep
    from testbed.experiment.steps.tasks import TasksStep
    from testbed.experiment.steps.traces import AicbStep, ChakraStep

    if isinstance(step, FlowsStep):
        return _flows(step, experiment, fabric)
    if isinstance(step, LoadStep):
        return _drawn(step.load, experiment, fabric, seed)
    if isinstance(step, TasksStep):
        return _tasks(step.tasks, experiment, fabric, chooser)
    if isinstance(step, ChakraStep | AicbStep):
        return _tasks(step, experiment, fabric, chooser)
    return _collective(step, experiment, fabric, chooser)


def _tasks(
    told: Tasks | ChakraStep | AicbStep,
    experiment: Experiment,
    fabric: Fabric,
    chooser: Callable[[], Chooser],
) -> dict[str, Any]:
    from testbed.plan.tasks import planned

    return planned(
        told.graph(fabric.ranks),
        experiment,
        fabric,
        lambda step: _collective(step, experiment, fabric, chooser),
        chooser,
        iterations=told.iterations,
        warmup=told.warmup,
    )


def _collective(
    step: CollectiveStep, experiment: Experiment, fabric: Fabric, chooser: Callable[[], Chooser]
) -> dict[str, Any]:
    keys = ("collective", "algorithm", "sizes", "dtype", "op", "iterations", "warmup", "ranks")
    heeded = extra(step.collective, step.algorithm)
    told = {"kind": "collective"} | {key: _plain(getattr(step, key)) for key in (*keys, *heeded)}
    if step.algorithm == AUTO:
        return told | {"chosen": chooser().choose(step)}
    entry = find(step.collective, step.algorithm)
    if step.groups is None:
        told |= group(entry, step.ranks, fabric)
        if told["ranks"] is not None:
            told["ranks"] = [endpoint.number(end, fabric) for end in told["ranks"]]
    else:
        told["groups"] = [group(entry, ranks, fabric) for ranks in step.groups]
        told["ranks"] = [rank for ranks in step.groups for rank in ranks]
    if entry.accelerators:
        told["aggregation"] = _aggregation(step, experiment, fabric)
    if told.get("feed"):
        told["feed"] |= {"post": experiment.costs.post}  # accelerators are chosen by what cores keep up, posts too
    return told


def _plain(value: Any) -> Any:
    """A key's value as workers get it: quantities as numbers."""
    return value.model_dump(by_alias=True) if isinstance(value, Model) else value


def _helped(told: dict[str, Any], fabric: Fabric, cores: Complex | None) -> dict[str, Any]:
    """Adds the compute complexes that a collective asks for, and spots that fit into their cache."""
    if cores is None or told["kind"] != "collective":
        return told
    entry = any_of(told["collective"], told["algorithm"])
    if not entry.on_complexes:
        return told
    ranks = told["ranks"] or list(range(fabric.ranks))
    helped = named(entry.helped_by)(ranks, told) if entry.helped_by else ranks[: told["aggregators"]]
    helpers = [fabric.ranks + rank for rank in helped]
    if "spot" not in told:
        return {**told, "helpers": helpers}
    spot = told["spot"] or spot_blocks(len(ranks), told["block"] * DTYPES[told["dtype"]], cores.cache)
    return {**told, "helpers": helpers, "spot": spot}


def _aggregation(step: CollectiveStep, experiment: Experiment, fabric: Fabric) -> dict[str, Any]:
    """For in-network aggregation: slots wanted, elements of a packet, and the timeout of a contribution."""
    from testbed.plan.hardware import aggregation_timeout_ns, slots_for

    accelerator = experiment.fabric.switch.accelerator
    entry = find(step.collective, step.algorithm)
    elements = accelerator.elements if accelerator else 256
    elements = min(elements, experiment.fabric.nic.mtu // 4)
    slots = step.slots or slots_for(experiment, fabric, elements, server=entry.shared_slots)
    groups = step.groups or [step.ranks or list(range(fabric.ranks))]
    most = max(len(ranks) for ranks in groups)
    return {
        "slots": slots,
        "elements": elements,
        "timeout_ns": step.timeout
        or aggregation_timeout_ns(
            experiment, fabric, elements, slots, most, groups=len(groups), server=entry.shared_slots
        ),
        "retry": experiment.fabric.nic.retry,
    }


def _flows(step: FlowsStep, experiment: Experiment, fabric: Fabric) -> dict[str, Any]:
    def number(end: int) -> int:
        return endpoint.number(end, fabric)

    def marking(its: int | None) -> dict[str, Any]:
        return {} if its is None else {"traffic_class": its, "dscp": dscp_of(its, experiment.fabric)}

    flows = [
        {"from": number(f.from_), "to": number(f.to), "size_bytes": f.size, "start_ns": f.start}
        | marking(f.traffic_class)
        for f in step.flows
    ]
    return {"kind": "flows", "flows": flows}


def _drawn(load: Load, experiment: Experiment, fabric: Fabric, seed: int) -> dict[str, Any]:
    """A load's flows, drawn from the seed.  Where the senders' NICs differ, `load` is of the slowest."""
    from testbed.plan.hardware import line_rate_bps

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
    return {"kind": "flows", "flows": flows}


def capture_ports(target: str, fabric: Fabric) -> list[str]:
    """The `NODE:PORT`s that a capture target stands for: `port:SWITCH:N`, `nic:RANK`, or both ends of `cable:A-B`."""
    kind, _, name = target.partition(":")
    if kind == "port":
        return [name]
    if kind == "nic":
        end = endpoint.parse(target)
        return [f"{fabric.nics[int(name) if end is None else endpoint.number(end, fabric)].name}:1"]
    cable = fabric.cable(name)
    return [f"{end.node}:{end.port}" for end in (cable.a, cable.b)]
