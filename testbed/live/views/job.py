"""The steps of the job that a held fabric repeats (docs/held.md), and what ranks' programs have had of the CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from testbed.base.errors import InputError
from testbed.live.look.look import Look
from testbed.live.look.steps import RankStep, Step
from testbed.live.look.table import Table
from testbed.live.views.view import View
from testbed.words import kinds
from testbed.words.entry import Parameter

EQUAL = 0.01
"""Steps whose times differ by less are shown as one."""
STANDS_OUT = 1.05
"""A rank is said to be slow if it is at work for so much longer than the middle one."""
STANDS = 1.5
"""A step under way is said to take long from so many times the longest of those before on."""
RANKS = Parameter("ranks", kinds.FLAG, "A row for each rank, of the last steps.", True)
LAST = Parameter("last", kinds.Number("steps", "N", 1, 1e6), "The last N steps alone.", True)
NOW = Parameter("now", kinds.FLAG, "A row for each rank: what it does in the step that is under way.", True)
_SHOWN = 5


def job(look: Look, ranks: str | bool = False, last: int | None = None, now: str | bool = False) -> list[Table]:
    """Steps that are equal, one after the other, are one row."""
    steps = look.source.steps()
    if steps is None:
        hint = "testbed up FILE --virtual --job brings up one that has"
        raise InputError("this fabric has no job that is repeated", "job", hint)
    if now:
        rows = [_now(worker, look.time_ns) for worker in look.source.request("status")["workers"]]
        return [Table("job", "", rows, NOW_COLUMNS)]
    best = min((step.time_ns for step in steps), default=0.0)
    if ranks:
        shown = steps[-int(last or _SHOWN) :]
        return [Table("job", "", [row for step in shown for row in _ranks(step)], ("step", "rank"))]
    rows = [_row(group, best) for group in folded(steps[-int(last or len(steps)) :])]
    stands = under_way(steps, look.time_ns)
    if stands and (lost := gone(look.source.request("status")["workers"])):
        stands += f"; {lost}"
    return [Table("job", stands, rows, COLUMNS)]


def under_way(steps: Sequence[Step], time_ns: float) -> str:
    """That the job stands, if the step under way takes longer than those before: a table of steps cannot show it."""
    since = max((step.end_ns for step in steps), default=0.0)
    longest = max((step.end_ns - step.start_ns for step in steps[-_SHOWN:]), default=0.0)
    if not steps or time_ns - since <= STANDS * longest:
        return ""
    return f"step {steps[-1].number + 1} has been under way for {_us(time_ns - since):g} us (show job --now)"


def gone(workers: Sequence[Mapping[str, Any]]) -> str:
    """Which ranks are no more: whatever is mended, the step under way cannot end without them."""
    ranks = [str(worker["rank"]) for worker in workers if worker["state"] == "lost"]
    if not ranks:
        return ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)} {'are' if len(ranks) > 1 else 'is'} gone"


NOW_COLUMNS = ("rank", "state", "for_us", "waits_for")
STATES = {"running": "at work", "waiting": "waits", "done": "done", "lost": "gone", "absent": "not there"}
"""What a rank does at this moment, by fabricd's name of it."""


def _now(worker: Mapping[str, Any], time_ns: float) -> dict[str, Any]:
    """What a rank does, and for how long it has done so."""
    lacks = worker["waits_for"] if worker["lacks"] else ""
    state = "at work" if worker["state"] == "waiting" and not lacks else STATES[worker["state"]]
    return {"rank": worker["rank"], "state": state, "for_us": _us(time_ns - worker["time_ns"]), "waits_for": lacks}


COLUMNS = ("step", "time_us", "vs_best", "slowest_rank", "host_us", "compute_us", "wait_us")
"""They count nothing."""


def folded(steps: Sequence[Step]) -> Iterator[list[Step]]:
    group: list[Step] = []
    for step in steps:
        if group and not _alike(group[0], step):
            yield group
            group = []
        group.append(step)
    if group:
        yield group


def _alike(one: Step, other: Step) -> bool:
    near = abs(one.time_ns - other.time_ns) <= EQUAL * min(one.time_ns, other.time_ns)
    return near and (one.wrong > 0) == (other.wrong > 0) and slowest(one) == slowest(other)


def slowest(step: Step) -> int | None:
    """The rank for which the others wait, if one stands out: its host and compute tasks are at work for longer."""
    busy = sorted(rank.busy_ns for rank in step.ranks.values())
    most = step.busiest
    return most if step.ranks[most].busy_ns > STANDS_OUT * busy[(len(busy) - 1) // 2] else None


def _row(group: Sequence[Step], best: float) -> dict[str, Any]:
    """`host_us` and `compute_us` are of the busiest rank, `wait_us` of the one that waits longest."""
    first, last = group[0], group[-1]
    time_ns = fmean(step.time_ns for step in group)
    slow = slowest(first)
    fallback = next((r.fallback for step in group for r in step.ranks.values() if r.fallback), "")
    return {
        "step": str(first.number) if first is last else f"{first.number}..{last.number}",
        "began_us": _us(first.start_ns),
        "time_us": _us(time_ns),
        "vs_best": f"{time_ns / best:.2f}x",
        "slowest_rank": "-" if slow is None else slow,
        "host_us": _us(fmean(step.ranks[step.busiest].host_ns for step in group)),
        "compute_us": _us(fmean(step.ranks[step.busiest].compute_ns for step in group)),
        "wait_us": _us(fmean(max(r.wait_ns for r in step.ranks.values()) for step in group)),
        "wrong": sum(step.wrong for step in group),
        **({"fallback": fallback} if fallback else {}),
    }


def _ranks(step: Step) -> Iterator[dict[str, Any]]:
    for rank, its in step.ranks.items():
        yield {"step": str(step.number), "rank": rank, "time_us": _us(its.end_ns - its.start_ns), **_times(its)}


def _times(part: RankStep) -> dict[str, Any]:
    times = {"host_us": _us(part.host_ns), "compute_us": _us(part.compute_ns), "wait_us": _us(part.wait_ns)}
    return {**times, "wrong": part.wrong, **({"fallback": part.fallback} if part.fallback else {})}


def _us(ns: float) -> float:
    return round(ns / 1000, 3)


def cpu(look: Look) -> list[Table]:
    """A row for each rank's container, as its control group's cpu.stat has it; times are wall time."""
    rows = look.source.cpus()
    if rows is None:
        raise InputError("emulated time knows no CPUs", "cpu", "it is for the real clock: testbed up without --virtual")
    return [Table("cpu", "", rows, ("rank", "cpu_s"))]


VIEWS = (
    View(words="cpu", about="Show what each rank's programs have had of the CPUs (real clock).", make=cpu),
    View(
        words="job",
        about="Show the steps of the job that a held fabric repeats: their times, and for whom the ranks wait.",
        make=job,
        parameters=(RANKS, LAST, NOW),
        samples=("", "--ranks", "--last 20", "--now"),
    ),
)
