"""Aggregated trees (workloads/collectives/pat.py) with a library's clocks: its channels, which do all alike, as one.

It has as many times the buffers, and its clock is as many times as fast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from workloads.collectives import pat
from workloads.collectives.schedule import Program, Send, Shape, Step, Work
from workloads.library.schedules.lanes import lane, manner_of


def all_gather(shape: Shape, index: int) -> Program:
    return _clocked(shape, index, pat.all_gather)


def reduce_scatter(shape: Shape, index: int) -> Program:
    return _clocked(shape, index, pat.reduce_scatter)


def _clocked(shape: Shape, index: int, schedule: Callable[[Shape, int], Program]) -> Program:
    its = manner_of(shape)
    buffers = replace(shape, chunk=max(1, its.channels * its.chunk // its.width))
    lanes = []
    for plain in schedule(buffers, index):
        steps: list[Step] = []
        for step in plain.steps:
            steps += [Work(step.stop - step.start), step] if isinstance(step, Send) else [step]
        lanes.append(lane(shape, index, steps, byte=1 / its.channels))
    return lanes
