"""What runs in a worker's container: takes the plan's steps one after the other and says what came of them.

    python -m workloads.worker        with the plan at $RAILBED_PLAN and the fabric at $RAILBED_SOCKET

JSON lines on stdout: `collective` (one per measured iteration), `flow` (one from each end), `progress` (for a person),
`error` (the last line of a run that failed), `done` (the last line of one that did not).  Exit code 0 or 1.
A plan with `repeat` is gone through again and again (passes.py).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import workloads.base.process
from workloads import registry
from workloads.base import native
from workloads.base.failed import Failed
from workloads.parts import flows
from workloads.parts.context import Context
from workloads.parts.iteration import Emit, measured, progress
from workloads.step import Collective, Plan, Step, context_of, kept_of, sends, steps_of
from workloads.verbs import CompletionError, Device, FabricError

DEFAULT_PLAN = "/run/railbed/plan.json"


def run(plan: Plan, device: Device, emit: Emit) -> None:
    """Runs the plan's steps as rank `device.rank`.  Raises FabricError when the fabric fails."""
    rank = device.rank
    steps, ours, everyone = steps_of(plan, rank)
    if not ours:
        return
    context = context_of(plan, device, ours)
    kept_bytes = kept_of(ours, rank)
    for step in steps:
        device.sync(0, everyone)  # steps follow each other, also where they have no rank in common
        if rank not in step.ranks or step.none:
            continue
        sends(device, step.plan)
        if step.flows:
            _run_flows(context, step, kept_bytes, emit)
        elif step.programs:
            from workloads.parts.processes import Programs  # most workers never need it

            programs = Programs(context, step.plan, step.number, step.tag, emit)
            programs.run(device.sync(step.number + 1, len(step.ranks)))
        elif step.tasks:
            from workloads.tasks import runner

            runner.run_tasks(context, step.plan, step.number, step.tag, len(step.ranks), registry.find, emit)
        else:
            _run_collective(context, step, emit)
    device.sync(0, everyone)  # nobody leaves while another may still have something to send again


def _run_collective(context: Context, step: Step, emit: Emit) -> None:
    device, work = context.device, Collective(context, step)
    plan, variant = work.plan, step.number * 997
    try:
        for size_bytes in plan["sizes"]:
            algorithm, part = work.part(size_bytes)
            said = {"step": step.number, "collective": plan["collective"], "algorithm": algorithm}
            said |= {"rank": device.rank, **work.group}
            for iteration in range(-plan["warmup"], plan["iterations"]):
                line = {**said, "size_bytes": size_bytes, "iteration": iteration}
                context.tick = progress(line, emit if device.rank == step.ranks[0] else None)
                variant += 1
                took, wrong = work.once(part, size_bytes, variant)
                if part.fallback:
                    line["fallback"] = part.fallback
                if device.rank not in step.helpers and (iteration >= 0 or wrong):
                    emit({"kind": "collective", **line, **took._asdict(), "wrong": wrong, **part.moved})
    finally:
        work.close()


def _run_flows(context: Context, step: Step, kept_bytes: int, emit: Emit) -> None:
    device = context.device
    part = flows.Flows(context, step.flows, step.tag, kept_bytes, watched=step.plan.get("watched", False))
    part.prepare()
    context.tick = progress({"step": step.number, "rank": device.rank}, emit)
    measured(device, step.number, len(step.ranks), part.run)
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
                **({"course": outcome.course} if outcome.course else {}),
            }
        )


def _emit(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def serve(plan: Plan, socket: str | None, emit: Emit) -> int:
    """Runs the plan as the rank whose socket that is (None: $RAILBED_SOCKET); returns the exit code."""
    try:
        pairs = plan.get("queue_pairs", {})
        with Device(socket, wake_ns=plan["costs"].get("wake_ns") or 0.0, mapped=native.shared, **pairs) as device:
            if plan.get("repeat"):
                from workloads import passes  # of a fabric that stands still: most workers never need it

                passes.run(plan, device, emit)
            else:
                run(plan, device, emit)
    except Failed as e:
        emit({"kind": "error", "what": str(e), "hint": e.hint or None, "status": None, "peer": None})
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
