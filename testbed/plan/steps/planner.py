"""What a step of a workload needs to be planned; and how a collective is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from testbed.base.types import Model
from testbed.experiment.blocks.layout import group
from testbed.plan.steps.planned import Planned, PlannedCollective
from topologies import Fabric
from topologies.graph import endpoint
from workloads.base.entry import named
from workloads.base.vocabulary import AUTO, DTYPES
from workloads.registry import any_of, extra, find
from workloads.sparse.sizes import spot_blocks

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment
    from testbed.experiment.steps.step import Step
    from testbed.plan.choose import Chooser


@dataclass
class Planner:
    """Plans steps on the fabric of an experiment."""

    experiment: Experiment
    whole: Planner | None = None
    """Of the experiment that this one is made smaller from: what it has chosen holds here, too."""

    @cached_property
    def fabric(self) -> Fabric:
        return self.whole.fabric if self.whole else self.experiment.build_fabric()

    @cached_property
    def chooser(self) -> Chooser:
        from testbed.plan.choose import Chooser  # imports numpy

        return self.whole.chooser if self.whole else Chooser(self.experiment, self.fabric)

    def number(self, step: Step) -> int:
        """Which one of the workload it is; 0 of none."""
        return next((k for k, one in enumerate(self.experiment.workload) if one is step), 0)

    def collective(self, step: CollectiveStep) -> PlannedCollective:
        """One that is done by itself."""
        keys = ("collective", "algorithm", "sizes", "dtype", "op", "iterations", "warmup")
        same = {key: getattr(step, key) for key in keys}
        options = {key: _plain(getattr(step, key)) for key in extra(step.collective, step.algorithm)}
        if step.algorithm == AUTO:
            return PlannedCollective(**same, ranks=step.ranks, options=options, chosen=self.chooser.choose(step))
        entry = find(step.collective, step.algorithm)
        groups = [group(entry, ranks, self.fabric) for ranks in step.groups or ()]
        ranks: list[int] | None = [rank for its in step.groups or () for rank in its]
        if not groups:
            of_all = group(entry, step.ranks, self.fabric)
            ranks = of_all.pop("ranks")
            ranks = ranks and [endpoint.number(end, self.fabric) for end in ranks]
            options |= of_all
        if entry.accelerators:
            options["aggregation"] = _aggregation(step, self.experiment, self.fabric)
        if options.get("feed"):
            options["feed"] |= {"post": self.experiment.costs.post}  # what cores keep up says who gets a batch
        ships = None
        if entry.own:
            from workloads.own.algorithm import Shipping

            whole = (list(its["ranks"] or range(self.fabric.ranks)) for its in groups or [{"ranks": ranks}])
            ships = Shipping(entry, list(whole), {**same, **options}, self.experiment.seed)
        return PlannedCollective(**same, ranks=ranks, options=options, groups=groups, ships=ships)

    def helped(self, its: PlannedCollective) -> PlannedCollective:
        """With the compute complexes that it asks for, and spots that fit into their cache."""
        cores, entry = self.experiment.fabric.nic.complex, any_of(its.collective, its.algorithm)
        if cores is None or not entry.on_complexes:
            return its
        ranks, options = its.ranks or range(self.fabric.ranks), dict(its.options)
        helped = named(entry.helped_by)(ranks, its.told()) if entry.helped_by else ranks[: options["aggregators"]]
        if "spot" in options:
            block = options["block"] * DTYPES[its.dtype]
            options["spot"] = options["spot"] or spot_blocks(len(ranks), block, cores.cache)
        return replace(its, options=options, helpers=[self.fabric.ranks + rank for rank in helped])


def collective_steps(step: CollectiveStep, planner: Planner) -> list[Planned]:
    return [planner.helped(planner.collective(step))]


def _plain(value: Any) -> Any:
    """A key's value as workers get it: quantities as numbers."""
    return value.model_dump(by_alias=True) if isinstance(value, Model) else value


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
