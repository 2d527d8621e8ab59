"""What a step of a workload needs to be planned; and how a collective is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from testbed.base.types import Model
from testbed.experiment.basis import Basis
from testbed.experiment.blocks.layout import group
from testbed.plan.sending import Senders
from testbed.plan.steps.planned import Planned, PlannedCollective
from topologies import Fabric
from topologies.graph import endpoint
from workloads.base.entry import named
from workloads.base.vocabulary import AUTO, DTYPES, LIBRARY
from workloads.registry import any_of, extra, find
from workloads.sparse.sizes import spot_blocks

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment
    from testbed.experiment.blocks.transport import Own
    from testbed.experiment.steps.step import Step
    from testbed.plan.choose import Chooser
    from testbed.plan.library import ByLibrary


class Planner:
    """Plans steps on the fabric of an experiment."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    @cached_property
    def basis(self) -> Basis:
        return Basis(self.experiment)

    @property
    def fabric(self) -> Fabric:
        return self.basis.graph

    @cached_property
    def chooser(self) -> Chooser:
        from testbed.plan.choose import Chooser  # imports numpy

        return Chooser(self.experiment)

    @cached_property
    def senders(self) -> Senders:
        return Senders(self.experiment, self.basis)

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
        if step.algorithm == LIBRARY:
            by = self.by_library(step)
            return PlannedCollective(**same, ranks=by.ranks, options=options, chosen=by.chosen())
        entry = find(step.collective, step.algorithm)
        groups = [group(entry, ranks, self.fabric) for ranks in step.groups or ()]
        each: Sequence[Own | None] = step.transports or len(groups) * [None]
        own = [(step.transport, its) for its in each]
        names = self.senders.names((ranks[0], None, of) for ranks, of in zip(step.groups or (), own, strict=True))
        for members, of, name in zip(groups, own, names, strict=False):
            members |= {"sends_by": self.senders.by_class(*of), "sender": name}
        ranks: list[int] | None = [rank for members in step.groups or () for rank in members]
        if not groups:
            of_all = group(entry, step.ranks, self.fabric)
            ranks = of_all.pop("ranks")
            ranks = ranks and [endpoint.number(end, self.fabric) for end in ranks]
            options |= of_all
        if entry.accelerators:
            from testbed.plan.offloads import told_of_sums  # imports numpy

            options["aggregation"] = told_of_sums(entry, step, self.basis, self.experiment.costs.reduce)
        if options.get("feed"):
            options["feed"] |= {"post": self.experiment.costs.post}  # what cores keep up says who gets a batch
        ships = None
        if entry.own:
            from workloads.own.algorithm import Shipping

            whole = (list(its["ranks"] or range(self.fabric.ranks)) for its in groups or [{"ranks": ranks}])
            ships = Shipping(entry, list(whole), {**same, **options}, self.experiment.seed)
        return PlannedCollective(**same, ranks=ranks, options=options, groups=groups, ships=ships)

    def by_library(self, step: CollectiveStep) -> ByLibrary:
        """How the experiment's library does a step, or what is a part of one."""
        from testbed.plan.library import ByLibrary  # imports numpy

        at = [number for number, one in enumerate(self.experiment.workload) if one is step]
        return ByLibrary(self.experiment, self.chooser, step, self.experiment.place("workload", *at))

    def helped(self, plain: PlannedCollective) -> PlannedCollective:
        """With the compute complexes that it asks for, and spots that fit into their cache."""
        cores, entry = self.basis.fabric.nic.complex, any_of(plain.collective, plain.algorithm)
        if cores is None or not entry.on_complexes:
            return plain
        ranks, options = plain.ranks or range(self.fabric.ranks), dict(plain.options)
        helped = named(entry.helped_by)(ranks, plain.told()) if entry.helped_by else ranks[: options["aggregators"]]
        if "spot" in options:
            block = options["block"] * DTYPES[plain.dtype]
            options["spot"] = options["spot"] or spot_blocks(len(ranks), block, cores.cache)
        return replace(plain, options=options, helpers=[self.fabric.ranks + rank for rank in helped])


def collective_steps(step: CollectiveStep, planner: Planner) -> list[Planned]:
    return [planner.helped(planner.collective(step))]


def _plain(value: Any) -> Any:
    """A key's value as workers get it: quantities as numbers."""
    return value.model_dump(by_alias=True) if isinstance(value, Model) else value
