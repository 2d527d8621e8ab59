"""A workload that is repeated for ever: a rank goes through its steps again and again.

Everything is connected before the first pass and kept, as a training job does it. Each step is done once in a pass,
whatever its iterations and warmup.

JSON lines on stdout: `pass` (one per pass, with what it took), `error` (the last one, if any).

A pass's `host_ns` is what the rank's host did for it (posts, reductions, waking up), `compute_ns` how long at least one
of its compute tasks was under way. What is left of its time the rank waited for the network and for other ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from workloads import registry
from workloads.parts import flows
from workloads.parts.context import Context
from workloads.parts.iteration import Emit, measured
from workloads.step import Collective, Plan, Step, context_of, kept_of, sends, steps_of
from workloads.verbs import Device


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
                sends(device, step.plan)
                one = does[step.number].once(number)
                took = took.and_then(one) if took else one
        assert took is not None
        emit({"kind": "pass", "rank": rank, "pass": number, **vars(took)})


def _repeated(context: Context, step: Step, kept_bytes: int) -> _Repeated:
    sends(context.device, step.plan)
    if step.flows:
        return _Flows(context, step, kept_bytes)
    if step.tasks:
        return _Tasks(context, step)
    return _Collective(context, step)


class _Collective:
    """Each of its sizes once."""

    def __init__(self, context: Context, step: Step) -> None:
        self.step, self.work = step, Collective(context, step)
        self.sizes = [(size_bytes, self.work.part(size_bytes)[1]) for size_bytes in self.work.plan["sizes"]]

    def once(self, number: int) -> Took:
        took: Took | None = None
        for of_pass, (size_bytes, part) in enumerate(self.sizes):
            variant = self.step.number * 997 + number * len(self.sizes) + of_pass + 1
            of_part, wrong = self.work.once(part, size_bytes, variant)
            one = Took(*of_part[:3], wrong=wrong, fallback=part.fallback)
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
        took = measured(self.device, self.step.number, len(self.step.ranks), lambda _: self.executor.run())
        spans = [span for span in self.executor.spans if span]
        computed = [
            (span.start_ps, span.end_ps)
            for order, span in zip(self.tasks, spans, strict=True)
            if order["do"] == "compute"
        ]
        return Took(
            *took[:3],
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
        took = measured(self.device, self.step.number, len(self.step.ranks), self.part.run)
        return Took(*took[:3], wrong=sum(outcome.wrong for outcome in self.part.finish()))


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """How long at least one of the spans goes on."""
    total = until = 0
    for start, end in sorted(spans):
        total += max(end - max(start, until), 0)
        until = max(until, end)
    return total
