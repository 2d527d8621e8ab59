"""What runs in a worker's container: takes the plan's steps one after the other and says what came of them.

    python -m workloads.worker        with the plan at $RAILBED_PLAN and the fabric at $RAILBED_SOCKET

JSON lines on stdout: `collective` (one per measured iteration), `flow` (one from each end), `progress` (for a person),
`error` (the last line of a run that failed), `done` (the last line of one that did not).  Exit code 0 or 1.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import workloads.base.process
from workloads import registry
from workloads.parts import flows
from workloads.parts.context import Context, HostCosts
from workloads.parts.part import Part
from workloads.verbs import CompletionError, Device, FabricError

DEFAULT_PLAN = "/run/railbed/plan.json"
PROGRESS_EVERY_S = 0.5
_TAGS_PER_STEP = 1 << 16
_TAGS_PER_PART = 1 << 12  # of a step that uses several algorithms

Emit = Callable[[dict[str, Any]], None]
Plan = Mapping[str, Any]


class _Step:
    """A step of the plan, and which ranks it is for."""

    def __init__(self, number: int, plan: Mapping[str, Any], ranks: int) -> None:
        self.number = number
        self.plan = plan
        self.flows: list[flows.Flow] = []
        self.tasks = self.none = False
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


def run(plan: Plan, device: Device, emit: Emit) -> None:
    """Runs the plan's steps as rank `device.rank`.  Raises FabricError when the fabric fails."""
    rank = device.rank
    if plan["rank"] != rank:
        raise ValueError(f"the plan is for rank {plan['rank']}, the socket is rank {rank}'s")
    steps = [_Step(number, step, plan["ranks"]) for number, step in enumerate(plan["steps"])]
    everyone = len({r for step in steps for r in step.ranks})
    ours = [step for step in steps if rank in step.ranks]
    if not ours:
        return
    context = Context(
        device, plan["seed"], HostCosts.from_plan(plan["costs"]), max(step.largest_bytes() for step in ours)
    )
    kept_bytes = max(sum(flows.windows(step.flows, rank).values()) for step in ours)
    for step in steps:
        device.sync(0, everyone)  # steps follow each other, also where they have no rank in common
        if rank not in step.ranks or step.none:
            continue
        if step.flows:
            _run_flows(context, step, kept_bytes, emit)
        elif step.tasks:
            from workloads.tasks import runner

            runner.run_tasks(context, step.plan, step.number, step.tag, len(step.ranks), registry.find, emit)
        else:
            _run_collective(context, step, emit)
    device.sync(0, everyone)  # nobody leaves while another may still have something to send again


def _run_collective(context: Context, step: _Step, emit: Emit) -> None:
    parts: dict[str, Part] = {}
    try:
        _measure(context, step, parts, emit)
    finally:
        for part in parts.values():
            part.close()


def _measure(context: Context, step: _Step, parts: dict[str, Part], emit: Emit) -> None:
    device = context.device
    plan, group, tag = step.told(device.rank)
    variant = step.number * 997
    for size_bytes in plan["sizes"]:
        told = {**plan, **plan.get("chosen", {}).get(str(size_bytes), {})}  # with `auto` the algorithm depends on it
        if told["algorithm"] not in parts:
            parts[told["algorithm"]] = _part(context, step, told, tag + len(parts) * _TAGS_PER_PART)
        part = parts[told["algorithm"]]
        said = {"step": step.number, "collective": plan["collective"], "algorithm": told["algorithm"]}
        said |= {"rank": device.rank, **group}
        for iteration in range(-plan["warmup"], plan["iterations"]):
            line = {**said, "size_bytes": size_bytes, "iteration": iteration}
            context.tick = _progress(line, emit if device.rank == step.ranks[0] else None)
            variant += 1
            part.prepare(size_bytes, variant)
            start_ns = device.sync(step.number + 1, len(step.ranks))
            before = device.tally
            part.run()
            end_ns = device.time_ns
            took = device.tally.since(before)
            wrong = part.finish()
            if part.fallback:
                line["fallback"] = part.fallback
            if device.rank not in step.helpers and (iteration >= 0 or wrong):
                costs = {"host_ns": took.host_ps / 1000 + part.cores_ns, "sent_bytes": took.sent_bytes}
                times = {"start_ns": start_ns, "end_ns": end_ns, "wrong": wrong}
                emit({"kind": "collective", **line, **times, **costs, **part.moved})


def _part(context: Context, step: _Step, told: Mapping[str, Any], tag: int) -> Part:
    """Our part of an algorithm, connected with the others'."""
    entry = registry.find(told["collective"], told["algorithm"])
    ranks = [*told["ranks"], *step.helpers] if told.get("ranks") is not None else step.ranks
    context.options = told
    part: Part = entry.load()(context, entry, ranks, told["dtype"], told.get("op"), tag)
    return part


def _run_flows(context: Context, step: _Step, kept_bytes: int, emit: Emit) -> None:
    device = context.device
    part = flows.Flows(context, step.flows, step.tag, kept_bytes)
    part.prepare()
    begin_ns = device.sync(step.number + 1, len(step.ranks))
    context.tick = _progress({"step": step.number, "rank": device.rank}, emit)
    part.run(begin_ns)
    for outcome in part.finish():
        flow = outcome.flow
        emit(
            {
                "kind": "flow",
                "step": step.number,
                "flow": flow.number,
                "from": flow.source,
                "to": flow.target,
                "size_bytes": flow.size_bytes,
                "start_ns": outcome.start_ns,
                "end_ns": outcome.end_ns,
                "wrong": outcome.wrong,
                "rank": device.rank,
                "role": outcome.role,
            }
        )


def _progress(line: Mapping[str, Any], emit: Emit | None) -> Callable[[int, int], None]:
    """A tick that says how far an operation is, when it takes long (None: says nothing)."""
    last = time.monotonic()

    def tick(done: int, of: int) -> None:
        nonlocal last
        now = time.monotonic()
        if emit and now - last >= PROGRESS_EVERY_S:
            last = now
            emit({"kind": "progress", **line, "done": done, "of": of})

    return tick


def _emit(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def serve(plan: Plan, socket: str | None, emit: Emit) -> int:
    """Runs the plan as the rank whose socket that is (None: $RAILBED_SOCKET); returns the exit code."""
    try:
        with Device(socket, wake_ns=plan["costs"].get("wake_ns") or 0.0) as device:
            run(plan, device, emit)
    except CompletionError as e:
        emit({"kind": "error", "what": str(e), "status": e.status, "peer": e.peer})
    except (FabricError, OSError, ValueError, KeyError) as e:
        emit({"kind": "error", "what": f"{type(e).__name__}: {e}", "status": None, "peer": None})
    else:
        emit({"kind": "done"})
        return 0
    return 1


def asked(*_: object) -> None:
    """SIGUSR1: which tasks wait, and for whom?"""
    from workloads.tasks import runner  # most workers never need it

    runner.answer()


def main() -> int:
    """Reads the plan, runs it, and returns the exit code."""
    signal.signal(signal.SIGUSR1, asked)
    try:
        with open(os.environ.get("RAILBED_PLAN", DEFAULT_PLAN), encoding="utf-8") as file:
            plan = json.load(file)
    except (OSError, ValueError) as e:
        _emit({"kind": "error", "what": f"{type(e).__name__}: {e}", "status": None, "peer": None})
        return 1
    return serve(plan, None, _emit)


if __name__ == "__main__":
    workloads.base.process.leave(main())
