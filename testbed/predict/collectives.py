"""The times of a collective's step: its schedule followed message by message, or what NICs and switches take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.predict.figure import FORMULA, MESSAGES, Figure
from testbed.predict.offloads import offload_ns
from testbed.predict.wide import WideStep, for_too_many
from topologies.ranks.hops import Hop
from workloads.base.entry import NoModel, named
from workloads.base.vocabulary import AUTO, DTYPES
from workloads.collectives.schedule import Send, program_of, schedule_of, steps
from workloads.registry import find
from workloads.times.case import Case
from workloads.times.queue_pairs import Numbers
from workloads.times.replay import replayed

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
    auto, buffers = step.algorithm == AUTO, ground.buffers(ground.large.class_of(turn.step))
    parts = _Parts(ground, turn, step)
    for size_bytes in step.sizes:
        for part in parts.of(size_bytes):
            followed = None if part.large else _time(ground, turn, part, size_bytes, buffers)
            try:
                time_ns, how = followed or _large(ground, turn, part, size_bytes)
            except InputError:
                if not auto or not part.entry.time:  # by this it was chosen, too
                    raise
                time_ns, how = float(named(part.entry.time)(_case(ground, part, size_bytes))), FORMULA
            yield Figure(
                step=turn.number,
                name=step.collective,
                algorithm=f"{part.entry.name}{' (auto)' if auto else ''}",
                ranks=len(part.ranks),
                size_bytes=size_bytes,
                time_ns=time_ns,
                how=how,
                times=step.iterations + step.warmup,
                busbw_factor=part.entry.collective.busbw.of(len(part.ranks)),
                group=part.group if step.groups else None,
                paused=buffers.take_paused(looked=followed is not None and how == MESSAGES),
            )


@dataclass
class _Part:
    """An algorithm of a group.  `way`: what its ranks are told; `numbers`: of its queue pairs, `made`: those before.

    `large`: its model where it is not followed.
    """

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
        self._parts: dict[tuple[int, str], _Part] = {}
        self._users: dict[Hop, int] = {}

    def of(self, size_bytes: int) -> Iterator[_Part]:
        """Those of a size, group by group."""
        for g, group in enumerate(self._step.groups or [{}]):
            way = {**self._step.told(), **group, **self._step.chosen.get(str(size_bytes), {})}
            key = g, way["algorithm"]
            if key not in self._parts:
                self._parts[key] = self._made(g, way)
            yield self._parts[key]

    def _made(self, g: int, way: Mapping[str, Any]) -> _Part:
        ground, turn = self._ground, self._turn
        entry = find(self._step.collective, way["algorithm"])
        ranks, made = way["ranks"] or list(range(ground.ranks)), ground.connected.made(ground.ranks)
        part = _Part(entry, g, ranks, way, ground.connected.part(entry, ranks, way), made)
        if len(self._step.groups) > 1:
            _apart(ground, turn.place, part, self._users)
        elif entry.multicast and len(ranks) > MOST_MULTICAST:
            with suppress(InputError):
                part.large = for_too_many(ground.large, turn, entry, made)
        return part


def _time(ground: Ground, turn: Turn, part: _Part, size_bytes: int, buffers: Buffers) -> tuple[float, str] | None:
    """None where there is more to follow than can be."""
    if not part.entry.schedule:
        job = turn.job + part.group
        try:
            return offload_ns(ground, part.entry, part.ranks, size_bytes, part.way, part.numbers, job), FORMULA
        except NoModel as none:
            raise InputError(none.what, f"{turn.place}.{none.key}", none.hint) from None
    followed = replayed(_case(ground, part, size_bytes), schedule_of(part.entry), MOST_FOLLOWED, buffers)
    return None if followed is None else (followed, MESSAGES)


def _large(ground: Ground, turn: Turn, part: _Part, size_bytes: int) -> tuple[float, str]:
    """As on a large fabric.  Raises InputError if there is no model of it there, either."""
    try:
        if part.large is None:
            part.large = for_too_many(ground.large, turn, part.entry, part.made)
            ground.connected.counted(part.made)
        return part.large(size_bytes), part.large.how
    except InputError as error:
        what = f"{part.entry} has more than {MOST_FOLLOWED:,} messages among {len(part.ranks)} ranks"
        hint = f"fewer ranks, or another algorithm: {error.hint}"
        raise InputError(f"{what}, and otherwise {error.what}", turn.place, hint) from None


def _case(ground: Ground, part: _Part, size_bytes: int) -> Case:
    chooser, n, way = ground.chooser, len(part.ranks), part.way
    ways = chooser.ways(part.ranks, numbers=part.numbers[0])
    return Case.of(part.entry, n, size_bytes, DTYPES[way["dtype"]], way, chooser.seed, chooser.costs, ways)


def _apart(ground: Ground, place: str, part: _Part, users: dict[Hop, int]) -> None:
    """Raises InputError if its group uses a cable in the same direction as one before it (`users`)."""
    if not part.entry.schedule:
        what = f"there is no model of groups that do {part.entry.name} side by side"
        raise InputError(what, place, "one group at a time (`ranks`)")
    case = _case(ground, part, max(part.way["sizes"]))
    for index in range(len(part.ranks)):
        for step in steps(program_of(schedule_of(part.entry), case.shape, index)):
            if isinstance(step, Send):
                for hop in case.ways.route((index, step.peer), step.channel).keys:
                    if users.setdefault(hop, part.group) != part.group:  # type: ignore[arg-type]
                        what = f"groups {users[hop]} and {part.group} share {' -> '.join(map(str, hop))}"  # type: ignore
                        raise InputError(what, place, "predict one group at a time (`ranks`), or run it")
