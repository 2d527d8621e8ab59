"""The times of a collective's step: its schedule followed message by message, or what NICs and switches take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.predict.connected import Connected
from testbed.predict.figure import FORMULA, MESSAGES, Figure
from testbed.predict.offloads import offload_ns
from topologies.ranks.hops import Hop
from workloads.base.vocabulary import AUTO, DTYPES
from workloads.collectives.schedule import Send, program_of, schedule_of, steps
from workloads.registry import any_of, find
from workloads.times.case import Case
from workloads.times.queue_pairs import Numbers
from workloads.times.replay import replayed

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.plan.choose import Chooser
    from workloads.base.entry import Algorithm

MOST_FOLLOWED = 60_000
"""Messages of a schedule that are followed one by one: a few seconds of ours."""


def collective_figures(
    experiment: Experiment,
    chooser: Chooser,
    connected: Connected,
    told: Mapping[str, Any],
    number: int,
    job: int,
    place: str,
) -> Iterator[Figure]:
    """A line for each size and group of a step of the plan; if it is offloaded, it is the fabric's `job`th."""
    groups = told.get("groups", [told])
    parts: dict[tuple[int, str], tuple[Numbers, ...]] = {}
    users: dict[Hop, int] = {}
    for size_bytes in told["sizes"]:
        for g, group in enumerate(groups):
            way = told | group | told.get("chosen", {}).get(str(size_bytes), {})
            entry = find(told["collective"], way["algorithm"])
            ranks = way["ranks"] or list(range(experiment.build_fabric().ranks))
            if (part := (g, entry.name)) not in parts:  # as in the run, when a size first takes it
                parts[part] = connected.part(entry, ranks, way)
                if len(groups) > 1:
                    _apart(experiment, chooser, entry, ranks, way, parts[part], users, g, place)
            time_ns, how = _time(experiment, chooser, entry, ranks, size_bytes, way, parts[part], job + g, place)
            yield Figure(
                step=number,
                name=told["collective"],
                algorithm=f"{way['algorithm']}{' (auto)' if told['algorithm'] == AUTO else ''}",
                ranks=len(ranks),
                size_bytes=size_bytes,
                time_ns=time_ns,
                how=how,
                busbw_factor=entry.collective.busbw.of(len(ranks)),
                group=g if "groups" in told else None,
            )


def jobs(told: Mapping[str, Any]) -> int:
    """How many groups of NICs or switches a step of the plan asks for."""
    entry = any_of(told["collective"], told["algorithm"])
    offloaded = entry.code.startswith("workloads.offloads") and entry.name != "host"
    return len(told.get("groups", [told])) if offloaded else 0


def _time(
    experiment: Experiment,
    chooser: Chooser,
    entry: Algorithm,
    ranks: Sequence[int],
    size_bytes: int,
    way: Mapping[str, Any],
    numbers: tuple[Numbers, ...],
    job: int,
    place: str,
) -> tuple[float, str]:
    if not entry.schedule:
        return offload_ns(experiment, chooser, entry, ranks, size_bytes, way, numbers, job, place), FORMULA
    case = _case(experiment, chooser, entry, ranks, size_bytes, way, numbers)
    followed = replayed(case, schedule_of(entry), MOST_FOLLOWED)
    if followed is None:
        what = f"{entry} has more than {MOST_FOLLOWED:,} messages among {len(ranks)} ranks"
        raise InputError(what, place, "fewer ranks, or another algorithm")
    return followed, MESSAGES


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
