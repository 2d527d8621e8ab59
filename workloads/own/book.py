"""Programs as plain data and back: how they reach ranks' containers, and come from a process of the user's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

from workloads.collectives.schedule import Copy, Lane, Program, Recv, Send, Shape, Step, Wait

_KINDS: tuple[type[Step], ...] = (Send, Recv, Copy, Wait)
_OF = {kind: number for number, kind in enumerate(_KINDS)}


class Nonsense(ValueError):
    """What is no program."""


def written(program: Program, most: int) -> list[Any]:
    """Of at most so many steps.  Raises Nonsense for what is none."""
    if not isinstance(program, Sequence) or isinstance(program, str | bytes):
        raise Nonsense(f"{_called(program)} is no list of lanes")
    lanes = []
    for number, lane in enumerate(program):
        if not isinstance(lane, Lane):
            raise Nonsense(f"lane {number} is {_called(lane)}, not a Lane")
        steps = []
        for k, step in enumerate(lane.steps):
            if type(step) not in _OF:
                raise Nonsense(f"lane {number}, step {k} is {_called(step)}, not a Send, Recv, Copy or Wait")
            try:
                steps.append([_OF[type(step)], *map(index, step)])
            except TypeError:
                raise Nonsense(f"lane {number}, step {k} has what is no whole number: {step!r:.100}") from None
            if (most := most - 1) < 0:
                raise Nonsense("there are too many steps")
        if lane.window is not None and (type(lane.window) is not int or lane.window < 1):
            raise Nonsense(f"lane {number}'s window is {lane.window!r:.40}, not a number of messages")
        lanes.append([steps, lane.window, bool(lane.per_peer), bool(lane.buffered)])
    return lanes


def _called(value: object) -> str:
    return f"{value!r:.60} ({type(value).__name__})"


def read(data: Sequence[Any]) -> Program:
    """What `written` made."""
    lanes = []
    for steps, window, per_peer, buffered in data:
        made = []
        for kind, *numbers in steps:
            step = _KINDS[kind](*numbers)
            made.append(step._replace(reduce=bool(step.reduce)) if isinstance(step, Recv | Copy) else step)
        lanes.append(Lane(made, window, per_peer=per_peer, buffered=buffered))
    return lanes


class Book:
    """A schedule that is written out: programs by the number of ranks and elements, and by rank."""

    def __init__(self, data: Mapping[str, Mapping[str, Any]]) -> None:
        self._data = data

    def __call__(self, shape: Shape, rank: int) -> Program:
        return read(self._data[f"{shape.ranks} {shape.count}"][str(rank)])
