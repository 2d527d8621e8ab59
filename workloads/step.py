"""A step of a plan as a worker sees it: which ranks it is for, what each of them is told, its connection tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workloads import registry
from workloads.parts import flows
from workloads.parts.context import Context, HostCosts
from workloads.parts.iteration import Measured, measured
from workloads.parts.part import Part
from workloads.verbs import Device

Plan = Mapping[str, Any]
TAGS_PER_PART = 1 << 12  # of a step that uses several algorithms
_TAGS_PER_STEP = 1 << 16


class Step:
    """A step of the plan, and which ranks it is for."""

    def __init__(self, number: int, plan: Mapping[str, Any], ranks: int) -> None:
        self.number = number
        self.plan = plan
        self.flows: list[flows.Flow] = []
        self.tasks = self.none = False
        self.programs = "processes" in plan
        if plan["kind"] == "flows":
            self.flows = flows.parse(plan["flows"])
            self.ranks: Sequence[int] = flows.participants(self.flows)
        else:
            self.ranks = plan["ranks"] if plan.get("ranks") is not None else range(ranks)
            self.tasks = plan["kind"] == "tasks"
            self.none = self.tasks and plan["iterations"] == 0
            self.helpers = plan.get("helpers", [])  # compute complexes: they take part, and have no result of their own
            self.ranks = [*self.ranks, *self.helpers]

    def told(self, rank: int) -> tuple[Mapping[str, Any], dict[str, Any], int]:
        """What the rank's group does, what tells it from others in an output line, and its first connection tag."""
        tag = self.tag
        for number, group in enumerate(self.plan.get("groups", ())):
            if rank in group["ranks"]:
                return {**self.plan, **group}, {"group": number}, tag
            tag += len(group["ranks"]) + 1
        return self.plan, {}, tag

    @property
    def tag(self) -> int:
        """The first of this step's connection tags."""
        return self.number * _TAGS_PER_STEP

    def largest_bytes(self) -> int:
        return max(self.plan.get("sizes", ()), default=0)


def steps_of(plan: Plan, rank: int) -> tuple[list[Step], list[Step], int]:
    """All steps, those in which the rank takes part, and how many ranks take part in any.

    Raises ValueError for another rank's plan.
    """
    if plan["rank"] != rank:
        raise ValueError(f"the plan is for rank {plan['rank']}, the socket is rank {rank}'s")
    steps = [Step(number, step, plan["ranks"]) for number, step in enumerate(plan["steps"])]
    return steps, [step for step in steps if rank in step.ranks], len({r for step in steps for r in step.ranks})


def context_of(plan: Plan, device: Device, ours: Sequence[Step]) -> Context:
    """What a rank works with in its steps."""
    costs, largest = HostCosts.from_plan(plan["costs"]), max(step.largest_bytes() for step in ours)
    return Context(device, plan["seed"], costs, largest)


def kept_of(ours: Sequence[Step], rank: int) -> int:
    """The most that any step of flows keeps of what comes to a rank."""
    return max(sum(flows.windows(step.flows, rank).values()) for step in ours)


def sends(device: Device, told: Mapping[str, Any]) -> None:
    """What is connected from now on sends by what the step, or its group, is told to."""
    device.sends_by = told.get("sends_by", {})


def part_of(context: Context, step: Step, told: Mapping[str, Any], tag: int) -> Part:
    """Our part of an algorithm, connected with the others'."""
    entry = registry.shipped(told)
    ranks = [*told["ranks"], *step.helpers] if told.get("ranks") is not None else step.ranks
    context.options = told
    part: Part = entry.load()(context, entry, ranks, told["dtype"], told.get("op"), tag)
    return part


def _part(told: Mapping[str, Any]) -> tuple[Any, ...]:
    """What has a part of its own."""
    library = told.get("library") or {}
    return told["algorithm"], told.get("trees"), library.get("protocol"), library.get("channels")


class Collective:
    """Our part of a step that is one, connected as soon as a size's algorithm is known (with `auto` it depends)."""

    def __init__(self, context: Context, step: Step) -> None:
        self.context, self.step = context, step
        self.plan, self.group, self._tag = step.told(context.device.rank)
        self._parts: dict[tuple[Any, ...], Part] = {}

    def part(self, size_bytes: int) -> tuple[str, Part]:
        """The algorithm for a size, and our part of it."""
        sends(self.context.device, self.plan)
        told = self._told(size_bytes)
        key = _part(told)
        if key not in self._parts:
            if chosen := self.plan.get("chosen"):  # memory for the sizes that it is chosen for
                told["sizes"] = [size for size in told["sizes"] if _part(chosen[str(size)]) == key]
            tag = self._tag + len(self._parts) * TAGS_PER_PART
            self._parts[key] = part_of(self.context, self.step, told, tag)
        return key[0], self._parts[key]

    def _told(self, size_bytes: int) -> dict[str, Any]:
        """With what `auto` has chosen for this size."""
        return {**self.plan, **self.plan.get("chosen", {}).get(str(size_bytes), {})}

    def once(self, part: Part, size_bytes: int, variant: int) -> tuple[Measured, int]:
        """An iteration: what it took, and how many elements are wrong."""
        sends(self.context.device, self.plan)
        if "chosen" in self.plan:
            part.options = self._told(size_bytes)  # a chunk of its own
        part.prepare(size_bytes, variant)
        took = measured(self.context.device, self.step.number, len(self.step.ranks), lambda _: part.run())
        return took._replace(host_ns=took.host_ns + part.cores_ns), part.finish()

    def close(self) -> None:
        for part in self._parts.values():
            part.close()
