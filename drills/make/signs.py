"""What a fault shows: the columns of the views that differ from the healthy twin's, and what the job is like."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
"""Signatures that have so much in common (of all that is in either) are one."""
JOB, NIC, TRAFFIC, FLOWS = "job", "nic", "traffic", "flows"
NOTHING = frozenset([f"{JOB}.{JOB}.same"])
FIRST_LOOKS = (JOB, "interfaces status", "interfaces errors", "nics")
"""The job, the interfaces, the NICs."""
TELLING = (*(words for words in VIEWS if words.endswith(" config")), NIC, TRAFFIC, FLOWS, MESH)
SIGHTS = tuple(
    Views.model_validate({"drops": drops, "config": config})
    for drops in ("wjh", "counters")
    for config in ("true", "golden")
)


def seen(game: Game, views: Views) -> Seen:
    """Every view that needs no words of its own, and that of each NIC, as one with that sight has it."""
    source = Source(game.stage)
    found: dict[str, dict[str, list[Any]]] = {}
    for words, view in VIEWS.items():
        for own in ([str(nic.rank)] for nic in game.fabric.nics) if words == NIC else ([],):
            try:
                tables = view.show(look(source, views), **view.read(list(own), game.fabric))
            except UserError:
                continue
            for table in tables:
                found.setdefault(words, {}).setdefault(table.name, []).extend(table.rows)
    return found


def of_others(ill: Seen, well: Seen) -> Signature:
    """Whether there is traffic between ranks that is not the job's, and was not there before: how much is another
    matter."""
    its, usual = (
        {(row["rank"], row["peer"]) for row in seen.get(TRAFFIC, {}).get(TRAFFIC, ()) if row["tenant"] != "job"}
        for seen in (ill, well)
    )
    return frozenset([f"{TRAFFIC}.{TRAFFIC}.others"] if its - usual else [])


def signed(ill: Seen, well: Seen, job: str, probes: Signature = frozenset()) -> Signature:
    """Whether some steps are longer, or all, is a matter of how much."""
    told = "slower" if job == "unsteady" else job
    return signature(ill, well) | of_others(ill, well) | {f"{JOB}.{JOB}.{told}"} | probes


def by_view(whole: Iterable[str]) -> dict[str, frozenset[str]]:
    """A signature, a view at a time."""
    found: dict[str, set[str]] = {}
    for column in whole:
        found.setdefault(column.partition(".")[0], set()).add(column)
    return {view: frozenset(columns) for view, columns in found.items()}


def of_views(whole: Signature, views: Iterable[str]) -> Signature:
    parts = by_view(whole)
    return frozenset(column for view in views for column in parts.get(view, ()))


def resemble(one: Signature, other: Signature) -> bool:
    """Also if neither shows anything. What is set, who sends, and what a probe finds is there or is not, and has to be
    the same: it is none of what may differ a little."""
    telling = [of_views(its, TELLING) for its in (one, other)]
    if telling[0] != telling[1]:
        return False
    its, others = one - telling[0], other - telling[1]
    return len(its & others) >= SHARED * len(its | others)


def named(ill: Seen, well: Seen) -> set[str]:
    """Ports and NICs whose rows differ in the first looks, by more than the job's speed: `port:leaf0:4`, `nic:3`."""
    found = {f"nic:{rank}" for rank in _slowest(ill) - _slowest(well)}
    for view in FIRST_LOOKS[1:]:
        for table, rows in ill.get(view, {}).items():
            before = [steady(row) for row in well.get(view, {}).get(table, [])]
            for row in rows if isinstance(rows, list) else ():
                if steady(row) in before:
                    continue
                port = row.get("IFACE", row.get("Interface"))
                if port is not None:
                    found.add(f"port:{port}")
                elif "rank" in row:
                    found.add(f"nic:{row['rank']}")
    return found


def _slowest(seen: Seen) -> set[int]:
    """The ranks that `show job` names: who is far longer at work than others."""
    return {row["slowest_rank"] for row in seen.get(JOB, {}).get(JOB, ()) if isinstance(row.get("slowest_rank"), int)}
