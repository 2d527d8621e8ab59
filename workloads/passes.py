"""A workload that is repeated for ever: a rank goes through its steps again and again.

Everything is connected before the first pass and kept, as a training job does it. Each step is done once in a pass,
whatever its iterations and warmup.

JSON lines on stdout: `pass` (one per pass, with what it took), `error` (the last one, if any).

A pass's `host_ns` is what the rank's host did for it (posts, reductions, waking up), `compute_ns` how long at least one
of its compute tasks was under way. What is left of its time the rank waited for the network and for other ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from workloads import registry
from workloads.parts import flows
from workloads.parts.context import Context
from workloads.parts.part import Part
from workloads.step import TAGS_PER_PART, Plan, Step, context_of, kept_of, part_of, steps_of
from workloads.verbs import Device

Emit = Callable[[dict[str, Any]], None]


@dataclass
class Took:
    """What a step, or a pass, has taken of one rank."""

    start_ns: float
    end_ns: float
    host_ns: float = 0.0
    compute_ns: float = 0.0
    wrong: int = 0
    fallback: str = ""  # why offloaded work was done by the hosts ("": it was not)

    def and_then(self, more: Took) -> Took:
        """Both, one after the other."""
        return Took(
            self.start_ns,
            more.end_ns,
            self.host_ns + more.host_ns,
            self.compute_ns + more.compute_ns,
            self.wrong + more.wrong,
            self.fallback or more.fallback,
        )


class _Repeated(Protocol):
    """One rank's part of a step, connected."""

    def once(self, number: int) -> Took: ...


def run(plan: Plan, device: Device, emit: Emit) -> None:
    """Never returns.  Raises FabricError when the fabric fails."""
    rank = device.rank
    steps, ours, everyone = steps_of(plan, rank)
    if not ours:
        return
    context, kept_bytes = context_of(plan, device, ours), kept_of(ours, rank)
    does = {step.number: _repeated(context, step, kept_bytes) for step in ours}
    for number in itertools.count():
        took: Took | None = None
        for step in steps:
            device.sync(0, everyone)  # steps follow each other, also where they have no rank in common
            if step.number in does:
                one = does[step.number].once(number)
                took = took.and_then(one) if took else one
        assert took is not None
        emit({"kind": "pass", "rank": rank, "pass": number, **vars(took)})


def _repeated(context: Context, step: Step, kept_bytes: int) -> _Repeated:
    if step.flows:
        return _Flows(context, step, kept_bytes)
    if step.tasks:
        return _Tasks(context, step)
    return _Collective(context, step)


class _Collective:
    """Each of its sizes once."""

    def __init__(self, context: Context, step: Step) -> None:
        self.device, self.step = context.device, step
        self.plan, _, tag = step.told(self.device.rank)
        parts: dict[str, Part] = {}
        self.sizes: list[tuple[int, Part]] = []
        for size_bytes in self.plan["sizes"]:
            told = {**self.plan, **self.plan.get("chosen", {}).get(str(size_bytes), {})}
            if told["algorithm"] not in parts:
                parts[told["algorithm"]] = part_of(context, step, told, tag + len(parts) * TAGS_PER_PART)
            self.sizes.append((size_bytes, parts[told["algorithm"]]))

    def once(self, number: int) -> Took:
        took: Took | None = None
        for of_pass, (size_bytes, part) in enumerate(self.sizes):
            part.prepare(size_bytes, self.step.number * 997 + number * len(self.sizes) + of_pass + 1)
            start_ns = self.device.sync(self.step.number + 1, len(self.step.ranks))
            before = self.device.tally
            part.run()
            end_ns = self.device.time_ns
            host_ns = self.device.tally.since(before).host_ps / 1000 + part.cores_ns
            one = Took(start_ns, end_ns, host_ns, wrong=part.finish(), fallback=part.fallback)
            took = took.and_then(one) if took else one
        assert took is not None
        return took


class _Tasks:
    """Its graph of tasks once."""

    def __init__(self, context: Context, step: Step) -> None:
        from workloads.tasks.executor import Executor

        self.device, self.step = context.device, step
        self.tasks = step.plan["tasks"][str(self.device.rank)]
        self.executor = Executor(context, {**step.plan, "tasks": self.tasks}, step.tag, registry.find)

    def once(self, number: int) -> Took:
        self.executor.prepare(number)
        start_ns = self.device.sync(self.step.number + 1, len(self.step.ranks))
        before = self.device.tally
        self.executor.run()
        end_ns = self.device.time_ns
        spans = [span for span in self.executor.spans if span]
        computed = [
            (span.start_ps, span.end_ps)
            for order, span in zip(self.tasks, spans, strict=True)
            if order["do"] == "compute"
        ]
        return Took(
            start_ns,
            end_ns,
            self.device.tally.since(before).host_ps / 1000,
            covered(computed) / 1000,
            sum(span.wrong for span in spans),
            next(iter(self.executor.fallbacks.values()), ""),
        )


class _Flows:
    """Each of its flows once."""

    def __init__(self, context: Context, step: Step, kept_bytes: int) -> None:
        self.device, self.step = context.device, step
        self.part = flows.Flows(context, step.flows, step.tag, kept_bytes)

    def once(self, number: int) -> Took:
        self.part.prepare()
        start_ns = self.device.sync(self.step.number + 1, len(self.step.ranks))
        before = self.device.tally
        self.part.run(start_ns)
        end_ns = self.device.time_ns
        wrong = sum(outcome.wrong for outcome in self.part.finish())
        return Took(start_ns, end_ns, self.device.tally.since(before).host_ps / 1000, wrong=wrong)


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """How long at least one of the spans goes on."""
    total = until = 0
    for start, end in sorted(spans):
        total += max(end - max(start, until), 0)
        until = max(until, end)
    return total
