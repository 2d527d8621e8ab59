"""From an experiment to the plan of each worker, and to the ports that are captured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.plan.steps.kinds import steps_of
from testbed.plan.steps.planner import Planner
from topologies import Fabric
from topologies.graph import endpoint
from workloads.base.entry import named
from workloads.base.vocabulary import DTYPES
from workloads.registry import any_of
from workloads.sparse.sizes import spot_blocks

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.blocks.fabric import Complex, Nic

Plan = dict[str, Any]


def plan(experiment: Experiment) -> Plan:
    """The plan that all workers share; each gets it with its own `rank` added. workloads/worker.py reads it."""
    costs, cores = experiment.costs, experiment.fabric.nic.complex
    planner = Planner(experiment)
    return {
        "ranks": planner.fabric.ranks,
        "seed": experiment.seed,
        "costs": {
            "post_ns": costs.post,
            "reduce_bps": costs.reduce,
            "wake_ns": costs.wake,
            "convert_bps": costs.convert,
        },
        "complex_costs": _complex_costs(experiment.fabric.nic),
        "steps": [
            _helped(made, planner.fabric, cores) for step in experiment.workload for made in steps_of(step, planner)
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
