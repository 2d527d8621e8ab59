"""What sets a world apart from its healthy twin, as one who reads both would say it: a view, a column, how, and where.

How much a column differs follows from a fault's parameters. So of a number there is only said whether it is new,
gone, at least twice or at most half of what it is in the twin; of a word, which it is; and whether that is where the
world was struck or elsewhere. Numbers that count the job's own traffic are compared for the same work done, else all
of them would be half where the job has slowed down.

Marks that are more or less of the same (twice, half, the deepest queue, how far the job has slowed down) differ from
one rate of a fault to the next, so classes may be alike although some of these differ; all others must be the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any

from drills.check.looked import Seen
from drills.check.symptom import STOPS

Row = Mapping[str, Any]
Signature = frozenset[str]

HERE, ELSEWHERE = "here", "elsewhere"
LIKE = 0.8
"""Of all degrees that either of two classes shows: classes that have so many in common may be alike."""
CHANCE = 3.0
"""So many standard deviations of a count are no chance."""

STOPPED = "job stopped"

_PORT = ("IFACE", "Interface", "Port", "Port Rx", "Port Tx", "PORT", "LocalPort")
_NODE = ("Switch", "switch", "node")
_KEYS = (*_PORT, *_NODE, "port", "rank", "peer", "qp", "NIC", "TxQ", "Queue", "TC", "reason", "table", "priority",
         "match", "tenant", "Pool", "parameter")  # fmt: skip
"""Columns that say which row it is."""
_AGAIN = re.compile(
    r"STATE|step|.*(_BPS|_UTIL|_Gbps|_us|Time.*|Took.*|Last said|Unanswered|headers|vs_best|window_bytes|waits_for)"
)
"""They say again what other columns say, or when, or how quickly."""
_TIMES = ("host_us", "compute_us")
"""Of a rank's step: these tell who works longer. Who waits longer is told by the job."""
_TRAFFIC = re.compile(r".*(bytes|pkts|packets|_OK|_phy|prio\d)")
"""They count what the job sends."""
_WATERMARK = re.compile(r"(UC|PG)\d")
_WORK = ("nics", "nics", "tx_vport_rdma_unicast_bytes")
_REPEATED = ("job", "queue counters", "queue watermark", "priority-group watermark")
"""Views whose tables others show, too; the job's own course is compared as a whole (symptom.py)."""


def marks(ill: Seen, well: Seen, struck: Collection[str]) -> Signature:
    """`struck`: the names of the place (`port:leaf0:1`, `nic:3`, `switch:leaf0`)."""
    share = _work(ill) / (_work(well) or 1) or 1.0
    found = set()
    for view, tables in ill.items():
        if view not in _REPEATED:
            for table, rows in tables.items():
                twin = well.get(view, {}).get(table, [])
                found |= {f"{view}.{table}.{mark}" for mark in _of_table(rows, twin, struck, share)}
    return frozenset(found)


def degree(mark: str) -> bool:
    """Whether it is a matter of more or less."""
    column, _, how = mark.rpartition(" ")[0].rpartition(".")[2].rpartition(" ")
    return how in ("twice", "half") or _WATERMARK.fullmatch(column) is not None or mark == STOPPED


def alike(one: Signature, other: Signature) -> bool:
    """Whether nobody can tell them apart who does not know how strong the fault is. What shows nothing is like no
    other."""
    if not one or not other or {m for m in one if not degree(m)} != {m for m in other if not degree(m)}:
        return False
    more, less = ({m for m in marks_ if degree(m)} for marks_ in (one, other))
    return len(more & less) >= LIKE * len(more | less)


def groups(signatures: Mapping[str, Signature]) -> list[list[str]]:
    """The largest sets of classes that are all alike, so that two classes are alike if and only if some group has both.

    A class may be in several groups, as what is like it need not be like each other. One that shows something is at
    least a group by itself.
    """
    import networkx as nx

    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(kind for kind, its in signatures.items() if its)
    graph.add_edges_from((a, b) for a, b in combinations(graph, 2) if alike(signatures[a], signatures[b]))
    return sorted(sorted(group) for group in nx.find_cliques(graph))


def of_job(symptom: str) -> Signature:
    """Whether some steps are longer, or all, or none ends, is a matter of how much."""
    if symptom == STOPS:
        return frozenset(["job worse", STOPPED])
    return frozenset({"same": [], "wrong": ["job wrong"]}.get(symptom, ["job worse"]))


def _work(seen: Seen) -> float:
    view, table, column = _WORK
    return float(sum(row.get(column, 0) for row in seen.get(view, {}).get(table, ())))


def _of_table(ones: Iterable[Row], others: Iterable[Row], struck: Collection[str], share: float) -> Iterator[str]:
    its, twins = _by_key(ones), _by_key(others)
    for key in its.keys() | twins.keys():
        one, other = its.get(key, {}), twins.get(key, {})
        where = HERE if _is_at(one or other, struck) else ELSEWHERE
        if not one or not other:
            row = one or other
            yield f"{row.get('reason', _words(row.get('message', 'row')))} {'new' if one else 'gone'} {where}"
            continue
        for column in one.keys() | other.keys():
            if column in _TIMES or (column not in _KEYS and not _AGAIN.fullmatch(column)):
                how = _differs(column, one.get(column, 0), other.get(column, 0), share)
                if how:
                    yield f"{column} {how} {where}"


def _by_key(rows: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    """Lines of a log have nothing that tells which they are: they are what they say."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key: tuple[Any, ...] = tuple(str(row[k]) for k in _KEYS if k in row)
        if "message" in row:
            key = (row["level"], _words(row["message"]))
        found.setdefault(key, row)
    return found


def _is_at(row: Row, struck: Collection[str]) -> bool:
    names = {f"nic:{row['rank']}"} if "rank" in row else set()
    for key in _PORT:
        if key in row:
            names |= {f"port:{row[key]}", f"switch:{str(row[key]).partition(':')[0]}"}
    for key in _NODE:
        if key in row:
            names |= {f"switch:{row[key]}", f"port:{row[key]}:{row.get('port')}"}
    if who := row.get("who"):
        names.add(f"switch:{who}")
    if match := re.search(r"\(rank (\d+)\)$|^(?:rank|nic)(\d+)$", str(row.get("NIC", who or ""))):
        names.add(f"nic:{match[1] or match[2]}")
    return bool(names & set(struck))


def _differs(column: str, one: Any, other: Any, share: float) -> str:
    if not (_number(one) and _number(other)):
        said = _words(str(one))
        return "" if one == other else f"is {said}" if said != _words(str(other)) else "is another"
    usual = other * share if _TRAFFIC.fullmatch(column) else other
    if one == usual:
        return ""
    if one and not other:
        return "new"
    if abs(one - usual) <= CHANCE * math.sqrt(max(one, usual)) and column not in _TIMES:
        return ""
    if not one:
        return "gone"
    return "twice" if one >= 2 * usual else "half" if one <= usual / 2 else ""


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _words(text: str) -> str:
    """Without numbers, and the names of places, which have numbers."""
    return re.sub(r"\S*\d\S*", "N", text)
