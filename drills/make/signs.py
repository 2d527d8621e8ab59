"""The signature of a fault: the columns of views that differ from the healthy twin's, and the symptom of the job."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from drills.check.looked import SIGHTS as ALL_SIGHTS
from drills.check.looked import Seen
from drills.check.marks import Signature
from drills.check.probes import MESH
from drills.check.rivals import signature, steady
from drills.game import Game
from drills.looking import Seen as Source
from drills.looking import look
from drills.sheet.drill import Views
from testbed.base.errors import UserError
from testbed.live.views import VIEWS

SHARED = 0.8
"""Signatures with so much in common (of all that is in either) are alike."""
JOB, NIC, TRAFFIC, FLOWS = "job", "nic", "traffic", "flows"
NOTHING = frozenset([f"{JOB}.{JOB}.same"])
FIRST_LOOKS = (JOB, "interfaces status", "interfaces errors", "nics")
"""The job, the interfaces, the NICs."""
TELLING = (*(words for words in VIEWS if words.endswith(" config")), NIC, TRAFFIC, FLOWS, MESH)
SIGHTS = tuple(sight for sight in ALL_SIGHTS.values() if sight.drops in ("wjh", "counters"))


def seen(game: Game, views: Views) -> Seen:
    """Every view that needs no parameters, and that of each NIC, at a sight."""
    source = Source(game.stage)
    shown: dict[str, dict[str, list[Any]]] = {}
    for words, view in VIEWS.items():
        for own in ([str(nic.rank)] for nic in game.fabric.nics) if words == NIC else ([],):
            try:
                tables = view.show(look(source, views), **view.read(list(own), game.fabric))
            except UserError:
                continue
            for table in tables:
                shown.setdefault(words, {}).setdefault(table.name, []).extend(table.rows)
    return shown


def of_others(ill: Seen, well: Seen) -> Signature:
    """Whether there is new traffic between ranks that is not the job's."""
    pairs, usual = (
        {(row["rank"], row["peer"]) for row in seen.get(TRAFFIC, {}).get(TRAFFIC, ()) if row["tenant"] != "job"}
        for seen in (ill, well)
    )
    return frozenset([f"{TRAFFIC}.{TRAFFIC}.others"] if pairs - usual else [])


def signed(ill: Seen, well: Seen, job: str, probes: Signature = frozenset()) -> Signature:
    """Whether some steps are longer, or all, depends on the fault's parameters: both are `slower`."""
    job = "slower" if job == "unsteady" else job
    return signature(ill, well) | of_others(ill, well) | {f"{JOB}.{JOB}.{job}"} | probes


def by_view(signature: Iterable[str]) -> dict[str, frozenset[str]]:
    parts: dict[str, set[str]] = {}
    for column in signature:
        parts.setdefault(column.partition(".")[0], set()).add(column)
    return {view: frozenset(columns) for view, columns in parts.items()}


def of_views(signature: Signature, views: Collection[str]) -> Signature:
    return frozenset(column for column in signature if column.partition(".")[0] in views)


def resemble(one: Signature, other: Signature) -> bool:
    """Also if both are empty. Settings, senders and probes have no degrees, so these must be the same."""
    telling = of_views(one, TELLING)
    if telling != of_views(other, TELLING):
        return False
    rest, others = one - telling, other - telling
    return len(rest & others) >= SHARED * len(rest | others)


def named(ill: Seen, well: Seen) -> set[str]:
    """Ports and NICs whose rows differ in the first looks, by more than the job's speed: `port:leaf0:4`, `nic:3`."""
    places = {f"nic:{rank}" for rank in _slowest(ill) - _slowest(well)}
    for view in FIRST_LOOKS[1:]:
        for table, rows in ill.get(view, {}).items():
            before = [steady(row) for row in well.get(view, {}).get(table, [])]
            for row in rows if isinstance(rows, list) else ():
                if steady(row) in before:
                    continue
                port = row.get("IFACE", row.get("Interface"))
                if port is not None:
                    places.add(f"port:{port}")
                elif "rank" in row:
                    places.add(f"nic:{row['rank']}")
    return places


def _slowest(seen: Seen) -> set[int]:
    """The ranks that `show job` names for being far longer at work than others."""
    return {row["slowest_rank"] for row in seen.get(JOB, {}).get(JOB, ()) if isinstance(row.get("slowest_rank"), int)}
