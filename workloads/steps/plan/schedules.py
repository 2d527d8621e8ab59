"""Schedules of pipelines as pure data: in which order a stage goes forward and backward through micro-batches.

gpipe: Huang et al. 2019; the backward passes in the order of the forward ones, as PyTorch's ScheduleGPipe.
1f1b: Narayanan et al. (SOSP'19, PipeDream-Flush), as in Megatron and ScheduleOneFOneB.
interleaved: Narayanan et al. (SC'21), section 2.2: each stage has `chunks` parts of the model, in Megatron's order.
With as many micro-batches as stages all forward passes come first, as in their code (later versions do not do that).
zero_bubble: ZB-H1 of Qi et al. (2023): the gradients of weights are computed by themselves, later, where a stage would
wait; no more micro-batches are held than the first stage of 1F1B does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FORWARD, BACKWARD, WEIGHTS = "F", "B", "W"

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero_bubble")


class Pass(NamedTuple):
    """One pass of a micro-batch through the chunk of a stage.  Backward without a WEIGHTS pass has both in it."""

    kind: str
    micro_batch: int
    chunk: int = 0


def schedule(name: str, stages: int, micro_batches: int, stage: int, chunks: int = 1) -> list[Pass]:
    """What one stage does, in order."""
    make = {"gpipe": _gpipe, "1f1b": _one_forward_one_backward, "zero_bubble": _zero_bubble}
    if name == "interleaved":
        return _interleaved(stages, micro_batches, stage, chunks)
    return make[name](stages, micro_batches, stage)


def held(passes: Sequence[Pass]) -> int:
    """Micro-batches (of one chunk each) whose activations a stage holds at most at a time."""
    last = WEIGHTS if any(p.kind == WEIGHTS for p in passes) else BACKWARD
    now = most = 0
    for p in passes:
        now += (p.kind == FORWARD) - (p.kind == last)
        most = max(most, now)
    return most


def _gpipe(stages: int, micro_batches: int, stage: int) -> list[Pass]:
    return [Pass(kind, j) for kind in (FORWARD, BACKWARD) for j in range(micro_batches)]


def _one_forward_one_backward(stages: int, micro_batches: int, stage: int) -> list[Pass]:
    warmup = min(stages - 1 - stage, micro_batches)
    passes = [Pass(FORWARD, j) for j in range(warmup)]
    for j in range(warmup, micro_batches):
        passes += [Pass(FORWARD, j), Pass(BACKWARD, j - warmup)]
    return passes + [Pass(BACKWARD, j) for j in range(micro_batches - warmup, micro_batches)]


def _interleaved(stages: int, micro_batches: int, stage: int, chunks: int) -> list[Pass]:
    """`micro_batches` is a multiple of `stages`: they go through a chunk in groups of as many as there are stages."""
    total = micro_batches * chunks
    warmup = min((stages - 1 - stage) * 2 + (chunks - 1) * stages, total)
    if micro_batches == stages:
        warmup = total

    def nth(kind: str, k: int) -> Pass:
        chunk = k % (stages * chunks) // stages
        j = k // (stages * chunks) * stages + k % stages
        return Pass(kind, j, chunk if kind == FORWARD else chunks - 1 - chunk)

    passes = [nth(FORWARD, k) for k in range(warmup)]
    for k in range(warmup, total):
        passes += [nth(FORWARD, k), nth(BACKWARD, k - warmup)]
    return passes + [nth(BACKWARD, k) for k in range(total - warmup, total)]


def _zero_bubble(stages: int, micro_batches: int, stage: int) -> list[Pass]:
    """1F1B, whose weights' gradients come as many micro-batches late as the stage's number."""
    passes: list[Pass] = []
    done = owed = 0
    for p in _one_forward_one_backward(stages, micro_batches, stage):
        passes.append(p)
        if p.kind == BACKWARD:
            owed += 1
            if owed > stage:
                passes.append(Pass(WEIGHTS, done))
                done, owed = done + 1, owed - 1
    return passes + [Pass(WEIGHTS, j) for j in range(done, micro_batches)]
