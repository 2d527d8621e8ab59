"""From an experiment to the plan of each worker, and to the ports that are captured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.plan.steps.kinds import steps_of
from testbed.plan.steps.planned import Plan
from testbed.plan.steps.planner import Planner
from topologies import Fabric
from topologies.graph import endpoint

if TYPE_CHECKING:
    from testbed.experiment import Experiment


def plan(experiment: Experiment) -> Plan:
    """What all workers share; `convert_bps` only ranks have, caches only compute complexes."""
    costs, cores, planner = experiment.costs, experiment.fabric.nic.complex, Planner(experiment)
    of_ranks = {"post_ns": costs.post, "reduce_bps": costs.reduce, "wake_ns": costs.wake}
    of_ranks |= {"convert_bps": costs.convert, "by_channel": costs.reduce_by == "channel"}
    of_complexes = None
    if cores is not None:
        of_complexes = {"post_ns": cores.post, "reduce_bps": cores.reduce, "wake_ns": cores.wake}
        of_complexes |= {"cache_bytes": cores.cache, "memory_reduce_bps": cores.memory_reduce}
    made = [(step, planned) for step in experiment.workload for planned in steps_of(step, planner)]
    by = [planner.senders.by_class(step.transport) for step, _ in made]
    pairs = {"queue_pairs": experiment.transport.qps, "split": experiment.transport.qps_split}
    return Plan(
        *(planner.fabric.ranks, experiment.seed, of_ranks, of_complexes, [planned for _, planned in made]),
        transports=planner.senders.transports,
        sends_by=by,
        queue_pairs=pairs if experiment.transport.qps > 1 else {},
    )


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
