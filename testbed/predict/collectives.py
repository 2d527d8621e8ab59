"""The times of a collective's step: its schedule followed message by message, or what NICs and switches take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.predict.connected import Connected
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
    from testbed.experiment import CollectiveStep, Experiment
    from testbed.plan.choose import Chooser
    from testbed.plan.steps.planned import PlannedCollective
    from workloads.base.entry import Algorithm
    from workloads.times.buffers import Buffers
    from workloads.times.wide.peers import ConnectedPairs

MOST_FOLLOWED = 60_000
"""Messages of a schedule that are followed one by one: a few seconds of ours."""
MOST_MULTICAST = 64
"""Ranks whose multicasts' ways are looked at one by one."""


def collective_figures(
    experiment: Experiment,
    chooser: Chooser,
    connected: Connected,
    buffers: Buffers,
    step: CollectiveStep,
    planned: Sequence[PlannedCollective],
    number: int,
    job: int,
    place: str,
) -> Iterator[Figure]:
    """A line for each size and group of a step of the plan; if it is offloaded, it is the fabric's `job`th.

    Of more messages than are followed it is the model of large fabrics; of what `auto` takes and that has not, either,
    the formula by which it was chosen.
    """
    (its_step,) = planned
    told = its_step.told()
    groups: Sequence[Mapping[str, Any]] = its_step.groups or [{}]
    parts: dict[tuple[int, str], _Part] = {}
    users: dict[Hop, int] = {}
    for size_bytes in told["sizes"]:
        for g, group in enumerate(groups):
            way = {**told, **group, **its_step.chosen.get(str(size_bytes), {})}
            entry = find(told["collective"], way["algorithm"])
            ranks = way["ranks"] or list(range(experiment.build_fabric().ranks))
            if (its := parts.get((g, entry.name))) is None:  # as in the run, when a size first takes it
                made = connected.made(experiment.build_fabric().ranks)
                its = parts[g, entry.name] = _Part(connected.part(entry, ranks, way), made)
                if len(groups) > 1:
                    _apart(experiment, chooser, entry, ranks, way, its.numbers, users, g, place)
                elif entry.multicast and len(ranks) > MOST_MULTICAST:
                    with suppress(InputError):
                        its.large = for_too_many(experiment, step, entry, made, job, place)
            followed = False
            if not its.large and (
                found := _time(experiment, chooser, buffers, entry, ranks, size_bytes, way, its, job + g, place)
            ):
                time_ns, how = found
                followed = how == MESSAGES
            else:
                try:
                    time_ns, how = _large(experiment, connected, step, entry, its, size_bytes, job, place)
                except InputError:
                    if told["algorithm"] != AUTO or not entry.time:  # by this it was chosen, too
                        raise
                    case = _case(experiment, chooser, entry, ranks, size_bytes, way, its.numbers)
                    time_ns, how = float(named(entry.time)(case)), FORMULA
            yield Figure(
                step=number,
                name=told["collective"],
                algorithm=f"{entry.name}{' (auto)' if told['algorithm'] == AUTO else ''}",
                ranks=len(ranks),
                size_bytes=size_bytes,
                time_ns=time_ns,
                how=how,
                busbw_factor=entry.collective.busbw.of(len(ranks)),
                group=g if "groups" in told else None,
                paused=buffers.take_paused(looked=followed),
            )


@dataclass
class _Part:
    """An algorithm of a group: its queue pairs, and those made before; `large`: its model where it is not followed."""

    numbers: tuple[Numbers, ...]
    made: ConnectedPairs
    large: WideStep | None = None


def _time(
    experiment: Experiment,
    chooser: Chooser,
    buffers: Buffers,
    entry: Algorithm,
    ranks: Sequence[int],
    size_bytes: int,
    way: Mapping[str, Any],
    part: _Part,
    job: int,
    place: str,
) -> tuple[float, str] | None:
    """None where there is more to follow than can be."""
    if not entry.schedule:
        try:
            return offload_ns(experiment, chooser, entry, ranks, size_bytes, way, part.numbers, job), FORMULA
        except NoModel as none:
            raise InputError(none.what, f"{place}.{none.key}", none.hint) from None
    case = _case(experiment, chooser, entry, ranks, size_bytes, way, part.numbers)
    followed = replayed(case, schedule_of(entry), MOST_FOLLOWED, buffers)
    return None if followed is None else (followed, MESSAGES)


def _large(
    experiment: Experiment,
    connected: Connected,
    step: CollectiveStep,
    entry: Algorithm,
    part: _Part,
    size_bytes: int,
    job: int,
    place: str,
) -> tuple[float, str]:
    """As on a large fabric.  Raises InputError if there is no model of it there, either."""
    try:
        if part.large is None:
            part.large = for_too_many(experiment, step, entry, part.made, job, place)
            connected.counted(part.made)
        return part.large(size_bytes), part.large.how
    except InputError as error:
        ranks = len(step.ranks or range(experiment.build_fabric().ranks))
        what = f"{entry} has more than {MOST_FOLLOWED:,} messages among {ranks} ranks, and otherwise {error.what}"
        smaller = "fewer ranks, a larger `chunk`" if step.chunk and "chunk" not in error.hint else "fewer ranks"
        raise InputError(what, place, f"{smaller}, or another algorithm: {error.hint}") from None


def _case(
    experiment: Experiment,
    chooser: Chooser,
    entry: Algorithm,
    ranks: Sequence[int],
    size_bytes: int,
    way: Mapping[str, Any],
    numbers: tuple[Numbers, ...],
) -> Case:
    costs, ways = chooser.costs, chooser.ways(ranks, numbers=numbers[0])
    return Case.of(entry, len(ranks), size_bytes, DTYPES[way["dtype"]], way, experiment.seed, costs, ways)


def _apart(
    experiment: Experiment,
    chooser: Chooser,
    entry: Algorithm,
    ranks: Sequence[int],
    way: Mapping[str, Any],
    numbers: tuple[Numbers, ...],
    users: dict[Hop, int],
    g: int,
    place: str,
) -> None:
    """Raises InputError if group `g` uses a cable in the same direction as one before it (`users`)."""
    if not entry.schedule:
        what = f"there is no model of groups that do {entry.name} side by side"
        raise InputError(what, place, "one group at a time (`ranks`)")
    case = _case(experiment, chooser, entry, ranks, max(way["sizes"]), way, numbers)
    for index in range(len(ranks)):
        for step in steps(program_of(schedule_of(entry), case.shape, index)):
            if isinstance(step, Send):
                for hop in case.ways.route((index, step.peer), step.channel).keys:
                    if users.setdefault(hop, g) != g:  # type: ignore[arg-type]
                        what = f"groups {users[hop]} and {g} share {' -> '.join(map(str, hop))}"  # type: ignore
                        raise InputError(what, place, "predict one group at a time (`ranks`), or run it")
