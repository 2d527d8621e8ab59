"""The times of a collective's step: its schedule followed message by message, or what NICs and switches take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.predict.figure import FORMULA, MESSAGES, Figure
from testbed.predict.offloads import offload_ns
from topologies.ranks.hops import Hop
from workloads.base.vocabulary import AUTO, DTYPES
from workloads.collectives.schedule import Send, program_of, schedule_of, steps
from workloads.registry import any_of, find
from workloads.times.case import Case
from workloads.times.replay import replayed

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.plan.choose import Chooser
    from workloads.base.entry import Algorithm

MOST_FOLLOWED = 60_000
"""Messages of a schedule that are followed one by one: a few seconds of ours."""


def collective_figures(
    experiment: Experiment, chooser: Chooser, told: Mapping[str, Any], number: int, job: int, place: str
) -> Iterator[Figure]:
    """A line for each size and group of a step of the plan; if it is offloaded, it is the fabric's `job`th."""
    groups = told.get("groups", [told])
    if len(groups) > 1:
        _apart(experiment, chooser, told, groups, place)
    for size_bytes in told["sizes"]:
        for g, group in enumerate(groups):
            way = told | group | told.get("chosen", {}).get(str(size_bytes), {})
            entry = find(told["collective"], way["algorithm"])
            ranks = way["ranks"] or list(range(experiment.build_fabric().ranks))
            time_ns, how = _time(experiment, chooser, entry, ranks, size_bytes, way, job + g, place)
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
    job: int,
    place: str,
) -> tuple[float, str]:
    if not entry.schedule:
        return offload_ns(experiment, chooser, entry, ranks, size_bytes, way, job), FORMULA
    case = _case(experiment, chooser, entry, ranks, size_bytes, way)
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
) -> Case:
    costs, ways = chooser.costs, chooser.ways(ranks)
    return Case.of(entry, len(ranks), size_bytes, DTYPES[way["dtype"]], way, experiment.seed, costs, ways)


def _apart(
    experiment: Experiment,
    chooser: Chooser,
    told: Mapping[str, Any],
    groups: Sequence[Mapping[str, Any]],
    place: str,
) -> None:
    """Raises InputError if two groups use a cable in the same direction."""
    entry = find(told["collective"], told["algorithm"])
    if not entry.schedule:
        what = f"there is no model of groups that do {told['algorithm']} side by side"
        raise InputError(what, place, "one group at a time (`ranks`)")
    users: dict[Hop, int] = {}
    size_bytes = max(told["sizes"])
    for g, group in enumerate(groups):
        ranks = group["ranks"]
        case = _case(experiment, chooser, entry, ranks, size_bytes, {**told, **group})
        for index in range(len(ranks)):
            for step in steps(program_of(schedule_of(entry), case.shape, index)):
                if isinstance(step, Send):
                    for hop in case.ways.route((index, step.peer)).keys:
                        if users.setdefault(hop, g) != g:  # type: ignore[arg-type]
                            what = f"groups {users[hop]} and {g} share {' -> '.join(map(str, hop))}"  # type: ignore
                            raise InputError(what, place, "predict one group at a time (`ranks`), or run it")
