"""Which classes cannot be told apart: one place, struck by each class that can, and what the views show.

A signature is the set of columns in which a world differs from its healthy twin. How much they differ depends on a
fault's parameters, so it does not count. Classes whose signatures are the same are a family.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from testbed.base.errors import InputError, UserError
from testbed.drill.check.check import WINDOW_NS, WINDOWS
from testbed.drill.check.looked import Seen, playing, views
from testbed.drill.check.symptom import steps, symptom
from testbed.drill.game import Game
from testbed.drill.sheet.carried import measured
from testbed.drill.sheet.drill import Drill
from testbed.drill.sheet.file import loads
from testbed.faults import CATALOGUE

RESTLESS = ("interfaces counters", "queues", "queue counters", "queue watermark", "priority-group watermark", "qps",
            "traffic", "job")  # fmt: skip
_VOLUME = re.compile(r"[rt]x_(packets_phy|prio[36]_packets|vport_rdma_unicast_packets)")
"""Of a NIC. These and the views above change with the speed of the job, whatever has changed it."""
NOT_COMPARED = ("miswired", "loop", "wrong_port", "dead_ecmp_member", "victim_flow", "incast")
"""They need a second place."""

_WHEN = ("on", "at", "for", "every")

Signature = frozenset[str]


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
    return column.endswith(("_bytes", "bytes_phy")) or _VOLUME.fullmatch(column) is not None


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


def families(signatures: Mapping[str, Signature]) -> list[frozenset[str]]:
    """Classes that show the same. One that shows nothing is like no other."""
    groups: dict[Signature, set[str]] = {}
    for kind, its in signatures.items():
        groups.setdefault(its, set()).add(kind)
    return sorted((frozenset(g) for its, g in groups.items() if its and len(g) > 1), key=sorted)


def rivals(drill: Drill, seed: str, target: str, kinds: Collection[str] = ()) -> tuple[dict[str, Signature], list[str]]:
    """The signature of each class at a place of a drill, and why classes have none."""
    if drill.on_real_clock:
        raise InputError(f"{drill.id} is on the real clock: no two of its worlds can be compared", "--rivals")
    signatures: dict[str, Signature] = {}
    left: list[str] = []
    with playing(drill, seed, healthy=True) as game:
        _passed(game, target)
        well = _looked(game)
    for kind in kinds or striking(target):
        try:
            with playing(_with(drill, kind, target), seed, healthy=False) as game:
                ill = _looked(game)
        except UserError as error:
            left.append(f"{kind}: {error.what}")
            continue
        signatures[kind] = signature(ill[0], well[0]) | _job(symptom(ill[1], well[1], drill.warmup))
    return signatures, left


def _job(symptom_: str) -> Signature:
    """Whether some steps are longer, or all, is a matter of how much."""
    same = {"same": "", "unsteady": "slower"}.get(symptom_, symptom_)
    return frozenset([f"job.job.{same}"] if same else [])


def _looked(game: Game) -> tuple[Seen, list[tuple[float, float, int]]]:
    game.command(f"advance {WINDOWS * WINDOW_NS}ns")
    return views(game), steps(game)


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
    told.pop("draw", None)
    benign = [dict(entry) for entry in drill.benign if "$" not in str(entry)]
    example = {k: v for k, v in (*own, CATALOGUE[kind].example)[0].items() if k not in ("fault", *_WHEN)}
    told |= {"benign": benign, "faults": [{"fault": kind, "on": target, **example}]}
    return loads(yaml.safe_dump(told), drill.id, drill._directory, id=drill.id)


def _others(entry: Mapping[str, Any]) -> str:
    """What a fault says besides where and when."""
    return str({key: value for key, value in entry.items() if key not in _WHEN})
