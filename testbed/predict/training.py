"""A training step on a large fabric: a few ranks that stand for all others, and what all do at a time.

Ranks of one pipeline stage compute the same, whatever replica and part of a tensor they have; those of a context ring
and of a group of experts send each other messages of their own.  So one pipeline is followed, with the ring and the
experts that it belongs to.  What its groups take comes from the loads of all groups' messages together.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from testbed.base.errors import InputError
from testbed.experiment.steps.training import settings_of, training_of
from testbed.plan.steps.training import about, name_of
from testbed.predict.figure import ONE_PIPELINE, Figure
from topologies.kinds import KINDS
from workloads.base.vocabulary import DTYPES
from workloads.registry import choices, find
from workloads.steps.build import folded_graph
from workloads.steps.plan.parallel import DIMENSIONS, Layout, Place
from workloads.steps.plan.placement import CannotPlace, places
from workloads.tasks.oracle import oracle, step_ns
from workloads.tasks.task import Collective, Compute, Recv, Send, Task
from workloads.times.wide.groups import Together, has_model
from workloads.times.wide.model import model_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from testbed.experiment.blocks.fabric import Topology
    from testbed.experiment.steps.train import Train
    from testbed.predict.ground import Turn
    from testbed.predict.large_fabric import LargeFabric
    from workloads.base.entry import Algorithm
    from workloads.steps.plan.training import Training
    from workloads.tasks.graph import Graph

    Ranks = NDArray[np.int64]

MOST_FOLLOWED = 512
"""Ranks that stand for all: pipeline stages times context ranks times experts' ranks."""


def training_figure(large: LargeFabric, train: Train, turn: Turn) -> Figure:
    """The line of a step.  Raises InputError."""
    place = turn.place
    _refuse(train, place)
    t, together = training_of(train), large.together
    ranks = _ranks(large.spec.topology, train, t, together.hosts.places.ranks, place)
    some = _some(t, ranks, place)
    groups = _groups(t, ranks)
    own = {
        name: tuple(tuple(row) for row in of[np.isin(of, list(some.values())).any(axis=1)].tolist())
        for name, of in groups.items()
    }
    graph = folded_graph(t, some, own, settings_of(train))
    durations = _Durations(graph, t, ranks, groups, together, place)
    time_ns = step_ns(oracle(graph, durations, durations.ends))
    return Figure(
        step=turn.number,
        name=name_of(t),
        algorithm="-",
        ranks=t.parallel.ranks,
        size_bytes=None,
        time_ns=time_ns,
        how=ONE_PIPELINE,
        times=train.iterations + train.warmup,
        no_model=tuple(durations.no_model),
        about=about(t, Layout(t.parallel, some)),
        paused=large.unseen(),
    )


def _refuse(train: Train, place: str) -> None:
    if train.scale is not None:
        what = "scale makes a step small enough to be run, and so large a fabric is not"
        raise InputError(what, f"{place}.train.scale", "leave it out: the whole step is predicted")
    for name, group in train.groups.items():
        if group.compression:
            what = "there is no model of compression in NICs"
            raise InputError(what, f"{place}.train.groups.{name}.compression", "leave it out")


def _ranks(topology: Topology, train: Train, t: Training, n: int, place: str) -> Ranks:
    """Of `n`, by their numbers in the dimensions, in that order."""
    axes = KINDS[topology.kind].axes(topology.params) or (("ranks", n),)
    placing = {str(dimension): axis for dimension, axis in train.place.items()}
    try:
        rank_at = places(t.parallel, placing, axes)
    except CannotPlace as error:
        where = f"place.{error.key}" if error.key else "parallel"
        raise InputError(error.what, f"{place}.train.{where}", error.hint) from None
    shape = tuple(getattr(t.parallel, name) for name in DIMENSIONS)
    return np.asarray(rank_at(dict(zip(DIMENSIONS, np.indices(shape), strict=True))), np.int64)


def _some(t: Training, ranks: Ranks, place: str) -> dict[Place, int]:
    p = t.parallel
    if (followed := p.pipeline * p.context * p.closed) > MOST_FOLLOWED:
        what = f"{followed} ranks of a pipeline, its context rings and its experts are too many to be followed"
        raise InputError(what, f"{place}.train.parallel", f"at most {MOST_FOLLOWED}")
    at = product(range(1), range(p.context), range(p.closed), range(p.pipeline))
    return {Place(*index): int(ranks[index]) for index in at}


def _groups(t: Training, ranks: Ranks) -> dict[str, Ranks]:
    """Of all ranks: name -> a row for each group, as Layout.groups has them."""
    p = t.parallel
    tensor, context, data, pipeline = range(4)

    def along(*moving: int) -> Ranks:
        fixed = [axis for axis in range(4) if axis not in moving]
        length = int(np.prod([ranks.shape[axis] for axis in moving]))
        return ranks.transpose(*fixed, *moving).reshape(-1, length)

    groups = {
        "tensor": along(tensor),
        "context": along(context),
        "pipeline": along(pipeline),
        "data": along(data, context),
        "expert": along(data, context).reshape(-1, p.expert),
    }
    if p.expert > 1:
        stages = groups["data"].reshape(p.tensor, p.pipeline, p.expert_copies, p.expert)
        groups["expert_data"] = stages.transpose(0, 3, 1, 2).reshape(-1, p.expert_copies)
    if t.mirrored:  # the stage is what changes fastest from row to row
        for name in groups.keys() & {"data", "expert_data"}:
            rows = groups[name].reshape(-1, p.pipeline, groups[name].shape[1])
            both = np.concatenate([rows, rows[:, ::-1]], axis=2)[:, : p.pipeline // 2]
            groups[name] = both.reshape(-1, both.shape[2])
    if t.model.tied and t.model.vocab and not t.ends_meet:
        groups["embedding"] = along(pipeline)[:, [0, -1]]
    return {name: rows for name, rows in groups.items() if rows.shape[1] > 1}


class _Durations:
    """What a task takes, with whatever all ranks do at the same time."""

    def __init__(
        self, graph: Graph, t: Training, ranks: Ranks, groups: Mapping[str, Ranks], together: Together, place: str
    ) -> None:
        self._graph, self._ranks, self._groups, self._together, self._place = graph, ranks, groups, together, place
        self._at = {int(ranks[index]): index for index in np.ndindex(ranks.shape) if int(ranks[index]) in graph.tasks}
        self.no_model: dict[str, None] = {}  # that groups without `algorithm` may take
        self._message = cache(self._message_ns)
        self._collective = cache(self._collective_ns)

    def __call__(self, rank: int, task: Task) -> float:
        match task:
            case Compute():
                return task.duration_ns
            case Collective():
                algorithm = self._graph.algorithm(task)
                return self._collective(task.collective, task.group, algorithm, task.size_bytes, task.dtype)
            case Send():
                return self._message(rank, task.peer, task.size_bytes)[1]
            case Recv():
                return self._message(task.peer, rank, task.size_bytes)[0]
        raise TypeError(f"{type(task).__name__} is no kind of task")

    def ends(self, task: Collective, starts: Mapping[int, float]) -> dict[int, float]:
        """Together."""
        last = max(starts.values())
        return {rank: last + self(rank, task) for rank in starts}

    def _message_ns(self, source: int, target: int, size_bytes: int) -> tuple[float, float]:
        """While all ranks that do the same send theirs: to the next stage, or around a context ring."""
        ranks, here, there = self._ranks, self._at[source], self._at[target]
        axis = next(k for k in range(4) if here[k] != there[k])
        by = there[axis] - here[axis]
        length = ranks.shape[axis]
        senders = np.arange(length) if axis == 1 else np.arange(max(0, -by), length - max(0, by))
        from_, to = (np.take(ranks, at % length, axis).reshape(-1) for at in (senders, senders + by))
        like = np.take(ranks, [here[axis]], axis).reshape(-1)
        return self._together.message_ns(from_, to, np.flatnonzero(np.isin(from_, like)), size_bytes)

    def _collective_ns(self, name: str, group: str, algorithm: str | None, size_bytes: int, dtype: str) -> float:
        groups = self._groups[group]
        entries = [find(name, algorithm)] if algorithm else list(choices(name))
        alone = self._together.alone(groups)
        dims = self._together.dims(groups)
        able = [
            one
            for one in entries
            if has_model(one, groups.shape[1], alone=alone, dims=dims) and self._may(one, groups, alone)
        ]
        if not able:
            what = f"there is no model of {name} by {algorithm or 'any algorithm'} in groups of {groups.shape[1]} ranks"
            known = sorted({entry.name for entry in choices(name) if has_model(entry, groups.shape[1], alone=alone)})
            hint = ", ".join(known) or "experts that all get as much (gating without zipf and hot)"
            raise InputError(what, f"{self._place}.train.groups.{group}.algorithm", hint)
        others = [one for one in entries if one not in able and self._fits(one, groups)]
        self.no_model.update(dict.fromkeys(map(str, others)))
        return min(self._together.collective_ns(entry, groups, size_bytes, DTYPES[dtype]) for entry in able)

    def _fits(self, entry: Algorithm, groups: Ranks) -> bool:
        """Whether a run may take it: one along the dimensions of a grid if there is one."""
        if entry.layout == "rails":
            return self._together.on_rails(groups) is not None
        if entry.layout == "domain":
            return self._together.in_domains(groups)
        shaped = not entry.shaped or len(self._together.hosts.places.dims) > 1
        ranks = groups.shape[1]
        return shaped and entry.min_ranks <= ranks <= (entry.max_ranks or ranks) and entry.fits(ranks)

    def _may(self, entry: Algorithm, groups: Ranks, alone: bool) -> bool:
        """Whether all ranks are in one of the groups, for what goes in rounds of all; or groups are whole rails."""
        if entry.layout == "rails":
            return self._together.on_rails(groups) is not None
        if entry.layout == "domain":
            return self._together.in_domains(groups)
        return alone or not model_of(entry).of_all or groups.size == self._ranks.size
