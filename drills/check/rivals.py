"""Which classes cannot be told apart: one place, struck by each class that can, and what sets each world apart from the
healthy one (marks.py), at every sight that a drill may give.

A generated drill is compared by less (`signature`): by the columns alone in which a world differs from its twin.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drills.check.check import WINDOW_NS, WINDOWS
from drills.check.looked import NOW, SIGHTS, Seen, closely, playing
from drills.check.marks import Signature, marks, of_job
from drills.check.probes import Probed, of_probes, probed
from drills.check.symptom import STOPS, steps, symptom
from drills.game import Game
from drills.sheet.carried import measured
from drills.sheet.case import Case
from drills.sheet.drill import Drill
from drills.sheet.file import loads
from drills.sheet.truth import kind_of
from testbed.base.errors import InputError, UserError
from testbed.faults import CATALOGUE, Injection

RESTLESS = ("interfaces counters", "queues", "queue counters", "queue watermark", "priority-group watermark", "qps",
            "traffic", "job")  # fmt: skip
_VOLUME = re.compile(r"[rt]x_(packets_phy|prio[36]_packets|vport_rdma_unicast_packets)")
"""Of a NIC. These and the views above change with the speed of the job, whatever has changed it."""
NOT_COMPARED = ("miswired", "loop", "wrong_port", "dead_ecmp_member", "victim_flow", "incast")
"""They need a second place."""

_WHEN = ("on", "at", "for", "every")


def signature(ill: Seen, well: Seen) -> Signature:
    found = set()
    for view, tables in ill.items():
        if view in RESTLESS or not isinstance(tables, Mapping):
            continue
        for table, rows in tables.items():
            found |= {f"{view}.{table}.{c}" for c in _columns(rows, (well.get(view) or {}).get(table, []))}
    return frozenset(found)


def _columns(ones: Any, others: Any) -> set[str]:
    if not isinstance(ones, list) or not isinstance(others, list):
        return set()
    if any("actions" in row for row in (*ones, *others)):
        return _of_entries(ones, others)
    if len(ones) != len(others):
        new = [row for row in ones if row not in others]
        gone = [row for row in others if row not in ones]
        reasons = {f"reason={row['reason']}" for row in (*new, *gone) if "reason" in row}
        return reasons or {"rows"}
    return {
        key
        for one, other in zip(ones, others, strict=True)
        for key in {*one, *other}
        if one.get(key) != other.get(key) and not _volume(key)
    }


def _volume(column: str) -> bool:
    return column == "bytes" or column.endswith(("_bytes", "bytes_phy")) or _VOLUME.fullmatch(column) is not None


def steady(row: Mapping[str, Any]) -> dict[str, Any]:
    """What of a row does not follow the job's speed."""
    return {key: value for key, value in row.items() if not _volume(key)}


def _of_entries(ones: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> set[str]:
    """Of flow tables: entries are gone, or new, or do something else. What each has counted follows the job."""
    its, usual = (Counter((row["switch"], row["table"], row["priority"], row["match"], row["actions"]) for row in rows)
                  for rows in (ones, others))  # fmt: skip
    new, gone = its - usual, usual - its
    changed = {entry[:4] for entry in new} & {entry[:4] for entry in gone}
    found = {"actions"} if changed else set()
    found |= {"new"} if any(entry[:4] not in changed for entry in new) else set()
    return found | ({"gone"} if any(entry[:4] not in changed for entry in gone) else set())


def indistinct(signatures: Mapping[str, Signature]) -> list[frozenset[str]]:
    """Classes that show the same. One that shows nothing is like no other."""
    groups: dict[Signature, set[str]] = {}
    for kind, its in signatures.items():
        groups.setdefault(its, set()).add(kind)
    return sorted((frozenset(g) for its, g in groups.items() if its and len(g) > 1), key=sorted)


@dataclass(frozen=True)
class Struck:
    """A place of a drill's world, struck by one class after the other."""

    by_sight: dict[str, dict[str, Signature]]
    """The marks of each class whose truth is such a place; of loss at a NIC it is the cable."""
    left: list[str]
    """Why other classes have none."""


@dataclass(frozen=True)
class _Look:
    seen: Mapping[str, Seen]  # by sight
    steps: list[tuple[float, float, int]]
    probes: Probed


def rivals(drill: Drill, seed: str, target: str, kinds: Collection[str] = ()) -> Struck:
    """Raises InputError if the place is none, or the job does not pass it."""
    if drill.on_real_clock:
        raise InputError(f"{drill.id} is on the real clock: no two of its worlds can be compared", "--rivals")
    found = Struck({sight: {} for sight in SIGHTS}, [])
    with playing(drill, seed, healthy=True) as game:
        _passed(game, target)
        well = _looked(game)
    for kind in kinds or striking(target):
        its = _with(drill, kind, target)
        try:
            names = _names(its, seed)
            if kind_of(names[0]) != kind_of(target):
                found.left.append(f"{kind}: at fault is {names[0]}")
                continue
            with playing(its, seed, healthy=False) as game:
                ill = _looked(game)
        except UserError as error:
            found.left.append(f"{kind}: {error.what}")
            continue
        job = symptom(ill.steps, well.steps, drill.warmup)
        for sight, rows in found.by_sight.items():
            seen = {view: tables for view, tables in ill.seen[sight].items() if job == STOPS or view != NOW}
            rows[kind] = marks(seen, well.seen[sight], names) | of_job(job) | of_probes(ill.probes, well.probes)
    return found


def _names(drill: Drill, seed: str) -> tuple[str, ...]:
    """All names of the place that is at fault, the usual one first."""
    case = Case.of(drill, seed, False)
    return case.cause(Injection.of(drill.faults[0])).resources


def _looked(game: Game) -> _Look:
    game.command(f"advance {WINDOWS * WINDOW_NS}ns")
    seen = {name: closely(game, sight) for name, sight in SIGHTS.items()}
    return _Look(seen, steps(game), probed(game))


def _passed(game: Game, target: str) -> None:
    """Raises InputError if the job has nothing to do with the place: no class would show anything there."""
    world = game.stage.world
    carries = measured(world.fabric, game.stage.case.experiment, world.counters()["ports"])
    if target.partition(":")[0] in ("cable", "port", "nic", "switch") and target not in carries:
        like = sorted(place for place in carries if place.startswith(target.partition(":")[0]))
        raise InputError(f"data of the job do not pass {target}", "command line: --rivals", ", ".join(like[:6]))


def striking(target: str) -> Iterable[str]:
    """Classes that strike such a place."""
    of = target.partition(":")[0]
    return [name for name, cls in CATALOGUE.items() if of in cls.on and name not in NOT_COMPARED]


def _with(drill: Drill, kind: str, target: str) -> Drill:
    """The same drill with one fault of this class there. Its parameters are the drill's own if that is what is wrong
    in it, else those of the catalogue's example."""
    import yaml

    told = yaml.safe_load(drill.text)
    own = [entry for entry in drill.faults if entry["fault"] == kind and "$" not in _others(entry)]
    example = {k: v for k, v in (*own, CATALOGUE[kind].example)[0].items() if k not in ("fault", *_WHEN)}
    told |= {"benign": [*map(dict, drill.benign)], "faults": [{"fault": kind, "on": target, **example}]}
    return loads(yaml.safe_dump(told, sort_keys=False), drill.id, drill._directory, id=drill.id)


def _others(entry: Mapping[str, Any]) -> str:
    """What a fault says besides where and when."""
    return str({key: value for key, value in entry.items() if key not in _WHEN})
