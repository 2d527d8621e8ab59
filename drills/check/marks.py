"""Marks: how a world differs from its healthy twin. A mark is a view, a column, how it differs, and where.

How much a column differs depends on a fault's parameters. So a mark of a number is only new, gone, at least twice or at
most half of the twin's, that of a word is the word; each either where the fault is or elsewhere. Counters of the job's
own traffic are compared for the same work done, else all of them would be half where the job is slower.

Marks of degree (twice, half, the deepest queue, how much slower the job is) change with the rate of a fault, so classes
may be alike although some of these differ; all other marks must be the same.
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
"""Classes that share so many of their marks of degree may be alike."""
CHANCE = 3.0
"""Standard deviations of a count up to which a difference is chance."""

STOPPED = "job stopped"

_PORT = ("IFACE", "Interface", "Port", "Port Rx", "Port Tx", "PORT", "LocalPort")
_NODE = ("Switch", "switch", "node")
_KEYS = (*_PORT, *_NODE, "port", "rank", "peer", "qp", "NIC", "TxQ", "Queue", "TC", "reason", "table", "priority",
         "match", "tenant", "Pool", "parameter")  # fmt: skip
"""Columns that say which row it is."""
_AGAIN = re.compile(
    r"STATE|step|.*(_BPS|_UTIL|_Gbps|_us|Time.*|Took.*|Last said|Unanswered|headers|vs_best|window_bytes|waits_for)"
)
"""They repeat other columns, or are times or rates."""
_TIMES = ("host_us", "compute_us")
"""Of a rank's step: its own time; waiting shows in the job."""
_TRAFFIC = re.compile(r".*(bytes|pkts|packets|_OK|_phy|prio\d)")
"""They count what the job sends."""
_WATERMARK = re.compile(r"(UC|PG)\d")
_WORK = ("nics", "nics", "tx_vport_rdma_unicast_bytes")
_REPEATED = ("job", "queue counters", "queue watermark", "priority-group watermark")
"""Views whose tables others show, too; the job is compared as a whole (symptom.py)."""


def marks(ill: Seen, well: Seen, struck: Collection[str]) -> Signature:
    """`struck`: the names of the place (`port:leaf0:1`, `nic:3`, `switch:leaf0`)."""
    share = _work(ill) / (_work(well) or 1) or 1.0
    return frozenset(
        f"{view}.{table}.{mark}"
        for view, tables in ill.items()
        if view not in _REPEATED
        for table, rows in tables.items()
        for mark in _of_table(rows, well.get(view, {}).get(table, []), struck, share)
    )


def degree(mark: str) -> bool:
    """Whether it is a mark of degree."""
    column, _, how = mark.rpartition(" ")[0].rpartition(".")[2].rpartition(" ")
    return how in ("twice", "half") or _WATERMARK.fullmatch(column) is not None or mark == STOPPED


def alike(one: Signature, other: Signature) -> bool:
    """Whether they cannot be told apart without knowing how strong the fault is. What has no marks is like no other."""
    if not one or not other or {m for m in one if not degree(m)} != {m for m in other if not degree(m)}:
        return False
    more, less = ({m for m in marks_ if degree(m)} for marks_ in (one, other))
    return len(more & less) >= LIKE * len(more | less)


def groups(signatures: Mapping[str, Signature]) -> list[list[str]]:
    """The largest sets of classes that are all alike: two classes are alike if and only if some group has both.

    A class with marks is in one or several groups; `alike` is not transitive.
    """
    import networkx as nx

    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(kind for kind, signature in signatures.items() if signature)
    graph.add_edges_from((a, b) for a, b in combinations(graph, 2) if alike(signatures[a], signatures[b]))
    return sorted(sorted(group) for group in nx.find_cliques(graph))


def of_job(symptom: str) -> Signature:
    """Whether some steps are longer, or all, or none ends, is a mark of degree."""
    if symptom == STOPS:
        return frozenset(["job worse", STOPPED])
    return frozenset({"same": [], "wrong": ["job wrong"]}.get(symptom, ["job worse"]))


def _work(seen: Seen) -> float:
    view, table, column = _WORK
    return float(sum(row.get(column, 0) for row in seen.get(view, {}).get(table, ())))


def _of_table(ones: Iterable[Row], others: Iterable[Row], struck: Collection[str], share: float) -> Iterator[str]:
    rows, twins = _by_key(ones), _by_key(others)
    for key in rows.keys() | twins.keys():
        one, other = rows.get(key, {}), twins.get(key, {})
        where = HERE if _is_at(one or other, struck) else ELSEWHERE
        if not one or not other:
            row = one or other
            yield f"{row.get('reason', _words(row.get('message', 'row')))} {'new' if one else 'gone'} {where}"
            continue
        for column in one.keys() | other.keys():
            compared = column in _TIMES or (column not in _KEYS and not _AGAIN.fullmatch(column))
            if compared and (how := _differs(column, one.get(column, 0), other.get(column, 0), share)):
                yield f"{column} {how} {where}"


def _by_key(rows: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    """The key of a log's line is its message."""
    keyed: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key: tuple[Any, ...] = tuple(str(row[k]) for k in _KEYS if k in row)
        if "message" in row:
            key = (row["level"], _words(row["message"]))
        keyed.setdefault(key, row)
    return keyed


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
        words = _words(str(one))
        return "" if one == other else f"is {words}" if words != _words(str(other)) else "is another"
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
    """Without numbers and names of places, which have numbers."""
    return re.sub(r"\S*\d\S*", "N", text)
