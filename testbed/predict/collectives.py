"""The times of a collective's step: its schedule followed message by message, or what NICs and switches take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.plan.library import way_of
from testbed.plan.offloads import offload_ns
from testbed.plan.steps.planned import WHY, taken
from testbed.predict.figure import FORMULA, MESSAGES, Figure
from testbed.predict.wide import WideStep, for_too_many
from topologies.ranks.hops import Hop
from workloads.base.entry import NoModel, named
from workloads.base.vocabulary import DTYPES
from workloads.collectives.schedule import Send, program_of, schedule_of, steps
from workloads.registry import find
from workloads.times.case import Case
from workloads.times.expected import replayed
from workloads.times.queue_pairs import Numbers

if TYPE_CHECKING:
    from testbed.plan.steps.planned import PlannedCollective
    from testbed.predict.ground import Ground, Turn
    from workloads.base.entry import Algorithm
    from workloads.times.buffers import Buffers
    from workloads.times.wide.peers import ConnectedPairs

MOST_FOLLOWED = 60_000
"""Messages of a schedule that are followed one by one: a few seconds of ours."""
MOST_MULTICAST = 64
"""Ranks whose multicasts' ways are looked at one by one."""


def collective_figures(ground: Ground, turn: Turn, planned: Sequence[PlannedCollective]) -> Iterator[Figure]:
    """A line for each size and group of a step of the plan.

    Of more messages than are followed it is the model of large fabrics; of what `auto` takes and that has not, either,
    the formula by which it was chosen.
    """
    (step,) = planned
    buffers = ground.buffers(ground.large.class_of(turn.step))
    parts = _Parts(ground, turn, step)
    for size_bytes in step.sizes:
        chosen = step.chosen.get(str(size_bytes), {})
        for part in parts.of(size_bytes):
            time_ns, how = _found(ground, part, size_bytes, buffers)
            yield Figure(
                step=turn.number,
                name=step.collective,
                algorithm=f"{taken(chosen)} ({step.algorithm})" if chosen else part.entry.name,
                ranks=len(part.ranks),
                size_bytes=size_bytes,
                time_ns=time_ns,
                how=how,
                times=step.iterations + step.warmup,
                busbw_factor=part.entry.collective.busbw.of(len(part.ranks)),
                group=part.group if step.groups else None,
                holds_up=buffers.holds_up,
                paused=buffers.take_paused(looked=how == MESSAGES and not part.large),
                chosen={key: chosen[key] for key in WHY if key in chosen},
                bar=ground.errors.get((ground.planner.number(turn.step), size_bytes)) if ground.errors else None,
            )


@dataclass
class _Part:
    """An algorithm of a group.  `way`: what its ranks are told for a size.

    `turn`: with its own job.  `numbers`: of its queue pairs, `made`: those before; `large`: its model where it is not
    followed.
    """

    turn: Turn
    entry: Algorithm
    group: int
    ranks: Sequence[int]
    way: Mapping[str, Any]
    numbers: tuple[Numbers, ...]
    made: ConnectedPairs
    large: WideStep | None = None


class _Parts:
    """Of a step: an algorithm connects its queue pairs, as in the run, when a size first takes it."""

    def __init__(self, ground: Ground, turn: Turn, step: PlannedCollective) -> None:
        self._ground, self._turn, self._step = ground, turn, step
        self._parts: dict[tuple[Any, ...], _Part] = {}
        self._users: dict[Hop, int] = {}

    def of(self, size_bytes: int) -> Iterator[_Part]:
        """Those of a size, group by group."""
        for g, group in enumerate(self._step.groups or [{}]):
            way = {**self._step.told(), **group, **self._step.chosen.get(str(size_bytes), {})}
            key = g, way["algorithm"], way.get("trees"), *way_of(way)
            if key not in self._parts:
                self._parts[key] = self._made(g, way)
            self._parts[key].way = way  # `auto` may cut each size into other pieces
            yield self._parts[key]

    def _made(self, g: int, way: Mapping[str, Any]) -> _Part:
        ground = self._ground
        before = sum(part.entry.jobs(part.way) for part in self._parts.values())
        turn = replace(self._turn, job=self._turn.job + before)
        entry = find(self._step.collective, way["algorithm"])
        ranks, made = way["ranks"] or list(range(ground.ranks)), ground.connected.made(ground.ranks)
        part = _Part(turn, entry, g, ranks, way, ground.connected.part(entry, ranks, way), made)
        if len(self._step.groups) > 1:
            _apart(ground, part, self._users)
        elif entry.multicast and len(ranks) > MOST_MULTICAST:
            with suppress(InputError):
                part.large = for_too_many(ground.large, turn, entry, made)
        return part


def _found(ground: Ground, part: _Part, size_bytes: int, buffers: Buffers) -> tuple[float, str]:
    """A size's time, and how it was found."""
    if not part.large and (found := _time(ground, part, size_bytes, buffers)):
        return found
    formula = "expected_ns" in part.way and bool(part.entry.time)  # by which `auto` has chosen it, too
    if not (formula and (part.way.get("chunk") or part.entry.by_library)):  # there is no model of these for large ones
        try:
            return _large(ground, part, size_bytes)
        except InputError:
            if not formula:
                raise
    return float(named(part.entry.time)(_case(ground, part, size_bytes))), FORMULA


def _time(ground: Ground, part: _Part, size_bytes: int, buffers: Buffers) -> tuple[float, str] | None:
    """None where there is more to follow than can be."""
    try:
        if not part.entry.schedule:
            basis, way, job = ground.planner.basis, part.way, part.turn.job
            return offload_ns(
                ground.chooser, basis, part.entry, part.ranks, size_bytes, way, part.numbers, job
            ), FORMULA
        followed = replayed(_case(ground, part, size_bytes), schedule_of(part.entry), MOST_FOLLOWED, buffers)
    except NoModel as none:
        raise InputError(none.what, f"{part.turn.place}.{none.key}", none.hint) from None
    return None if followed is None else (followed, MESSAGES)


def _large(ground: Ground, part: _Part, size_bytes: int) -> tuple[float, str]:
    """As on a large fabric.  Raises InputError if there is no model of it there, either."""
    try:
        if part.large is None:
            part.large = for_too_many(ground.large, part.turn, part.entry, part.made)
            ground.connected.counted(part.made)
        return part.large(size_bytes), part.large.how
    except InputError as error:
        what = f"{part.entry} has more than {MOST_FOLLOWED:,} messages among {len(part.ranks)} ranks"
        hint = f"fewer ranks, or another algorithm: {error.hint}"
        raise InputError(f"{what}, and otherwise {error.what}", part.turn.place, hint) from None


def _case(ground: Ground, part: _Part, size_bytes: int) -> Case:
    chooser, n, way = ground.chooser, len(part.ranks), part.way
    ways = chooser.ways(part.ranks, numbers=part.numbers[0])
    return Case.of(part.entry, n, size_bytes, DTYPES[way["dtype"]], way, chooser.seed, chooser.costs, ways)


def _apart(ground: Ground, part: _Part, users: dict[Hop, int]) -> None:
    """Raises InputError if its group uses a cable in the same direction as one before it (`users`)."""
    if part.entry.layout == "domain":  # of which each GPU has its own link
        return
    if not part.entry.schedule:
        what = f"there is no model of groups that do {part.entry.name} side by side"
        raise InputError(what, part.turn.place, "one group at a time (`ranks`)")
    case = _case(ground, part, max(part.way["sizes"]))
    for index in range(len(part.ranks)):
        for step in steps(program_of(schedule_of(part.entry), case.shape, index)):
            if isinstance(step, Send):
                for hop in case.ways.route((index, step.peer), step.channel).keys:
                    if users.setdefault(hop, part.group) != part.group:  # type: ignore[arg-type]
                        what = f"groups {users[hop]} and {part.group} share {' -> '.join(map(str, hop))}"  # type: ignore
                        raise InputError(what, part.turn.place, "predict one group at a time (`ranks`), or run it")
