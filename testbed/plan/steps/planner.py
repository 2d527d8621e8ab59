"""What a step of a workload needs to be planned; and how a collective is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from testbed.base.types import Model
from testbed.experiment.blocks.layout import group
from topologies import Fabric
from topologies.graph import endpoint
from workloads.base.vocabulary import AUTO
from workloads.registry import extra, find

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

    def collective(self, step: CollectiveStep) -> dict[str, Any]:
        """One that is done by itself."""
        keys = ("collective", "algorithm", "sizes", "dtype", "op", "iterations", "warmup", "ranks")
        heeded = extra(step.collective, step.algorithm)
        told = {"kind": "collective"} | {key: _plain(getattr(step, key)) for key in (*keys, *heeded)}
        if step.algorithm == AUTO:
            return told | {"chosen": self.chooser.choose(step)}
        entry = find(step.collective, step.algorithm)
        if step.groups is None:
            told |= group(entry, step.ranks, self.fabric)
            if told["ranks"] is not None:
                told["ranks"] = [endpoint.number(end, self.fabric) for end in told["ranks"]]
        else:
            told["groups"] = [group(entry, ranks, self.fabric) for ranks in step.groups]
            told["ranks"] = [rank for ranks in step.groups for rank in ranks]
        if entry.accelerators:
            told["aggregation"] = _aggregation(step, self.experiment, self.fabric)
        if told.get("feed"):
            told["feed"] |= {"post": self.experiment.costs.post}  # which accelerator, follows from what cores keep up
        return told


def collective_steps(step: CollectiveStep, planner: Planner) -> list[dict[str, Any]]:
    return [planner.collective(step)]


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
