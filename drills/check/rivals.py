"""Which classes cannot be told apart: each class at one place, and how its world differs from the healthy one
(marks.py), at every sight that a drill may choose.

A generated drill is compared by less (`signature`): only the columns in which a world differs from its twin.
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
from drills.check.probes import Snapshot, of_probes, probed
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
"""Of a NIC. These and the views above change with the speed of the job, whatever the cause."""
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
    """The columns of a row that do not change with the job's speed."""
    return {key: value for key, value in row.items() if not _volume(key)}


def _of_entries(ones: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> set[str]:
    """Of flow tables: entries are gone, or new, or have other actions. Their counters follow the job."""
    entries, usual = (
        Counter((row["switch"], row["table"], row["priority"], row["match"], row["actions"]) for row in rows)
        for rows in (ones, others)
    )
    new, gone = ({entry[:4] for entry in more} for more in (entries - usual, usual - entries))
    marks = {"actions": new & gone, "new": new - gone, "gone": gone - new}
    return {mark for mark, which in marks.items() if which}


def indistinct(signatures: Mapping[str, Signature]) -> list[frozenset[str]]:
    """Groups of classes with the same signature. One with an empty signature is like no other."""
    groups: dict[Signature, set[str]] = {}
    for kind, signature in signatures.items():
        groups.setdefault(signature, set()).add(kind)
    return sorted((frozenset(g) for signature, g in groups.items() if signature and len(g) > 1), key=sorted)


@dataclass(frozen=True)
class Struck:
    """A place of a drill's world, with one class of fault after the other."""

    by_sight: dict[str, dict[str, Signature]]
    """The marks of each class whose truth is such a place; of loss at a NIC it is the cable."""
    left: list[str]
    """Why other classes have none."""


def rivals(drill: Drill, seed: str, target: str, kinds: Collection[str] = ()) -> Struck:
    """Raises InputError if the place is none, or the job does not pass it."""
    if drill.on_real_clock:
        raise InputError(f"{drill.id} is on the real clock: no two of its worlds can be compared", "--rivals")
    result = Struck({sight: {} for sight in SIGHTS}, [])
    with playing(drill, seed, healthy=True) as game:
        _must_be_passed(game, target)
        well = _snapshot(game)
    for kind in kinds or striking(target):
        variant = _with(drill, kind, target)
        try:
            names = Case.of(variant, seed, False).cause(Injection.of(variant.faults[0])).resources
            if kind_of(names[0]) != kind_of(target):
                result.left.append(f"{kind}: at fault is {names[0]}")
                continue
            with playing(variant, seed, healthy=False) as game:
                ill = _snapshot(game)
        except UserError as error:
            result.left.append(f"{kind}: {error.what}")
            continue
        job = symptom(ill.steps, well.steps, drill.warmup)
        for sight, signatures in result.by_sight.items():
            seen = {view: tables for view, tables in ill.seen[sight].items() if job == STOPS or view != NOW}
            signatures[kind] = marks(seen, well.seen[sight], names) | of_job(job) | of_probes(ill.probes, well.probes)
    return result


def _snapshot(game: Game) -> Snapshot:
    game.command(f"advance {WINDOWS * WINDOW_NS}ns")
    seen = {name: closely(game, sight) for name, sight in SIGHTS.items()}
    return Snapshot(seen, steps(game), probed(game))


def _must_be_passed(game: Game, target: str) -> None:
    """Raises InputError if the job does not use the place: no class would have symptoms there."""
    world = game.stage.world
    carries = measured(world.fabric, game.stage.case.experiment, world.counters()["ports"])
    if kind_of(target) in ("cable", "port", "nic", "switch") and target not in carries:
        like = sorted(place for place in carries if place.startswith(kind_of(target)))
        raise InputError(f"data of the job do not pass {target}", "command line: --rivals", ", ".join(like[:6]))


def striking(target: str) -> Iterable[str]:
    """Classes that strike such a place."""
    of = kind_of(target)
    return [name for name, cls in CATALOGUE.items() if of in cls.on and name not in NOT_COMPARED]


def _with(drill: Drill, kind: str, target: str) -> Drill:
    """The drill with one fault of this class there, with the parameters of the drill's own fault of this class, else of
    the catalogue's example."""
    import yaml

    def parameters(entry: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in entry.items() if key not in ("fault", *_WHEN)}

    own = [entry for entry in drill.faults if entry["fault"] == kind and "$" not in str(parameters(entry))]
    fault = {"fault": kind, "on": target, **parameters((*own, CATALOGUE[kind].example)[0])}
    keys = yaml.safe_load(drill.text) | {"benign": [*map(dict, drill.benign)], "faults": [fault]}
    return loads(yaml.safe_dump(keys, sort_keys=False), drill.id, drill._directory, id=drill.id)
