"""Where steps begin and end, on all ranks at once: what ranks do with each other is done within one step.

Each rank has marks of its own: where its model is first called, where its optimizer's steps end.  A pipeline's ranks
do not come there together: the second one receives before it first calls its model.  So a message is of the step in
which it is sent, a collective of the step in which the last rank starts it; and where a rank has already used, before
its mark, what is sent or started behind the other's, its step ends earlier: before whatever uses it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from workloads.tasks.check import BadGraph

Row = Mapping[str, Any]
Node = tuple[int, int]  # rank (its number in the script), number of the row
GroupOf = Callable[[int, Row], object]
"""Rank and row of a collective -> the same for all ranks of its group, and no other's."""


class BadScript(BadGraph):
    """What the ranks of a script do does not fit together; `line`: where in the script, if that is known."""

    def __init__(self, what: str, rank: int, line: int | None, hint: str = "") -> None:
        super().__init__(what, rank)
        self.line, self.hint = line, hint


@dataclass(frozen=True)
class Parts:
    """`rows[rank][k]`: what the rank does in the part k, with the rows' numbers.

    With `steps` of them, the parts 1 to `steps` each end with a step of the optimizer; part 0 is what comes before.
    """

    rows: Sequence[Sequence[Sequence[tuple[int, Row]]]]
    steps: int


def parts(recordings: Sequence[Sequence[Row]], ranks: Sequence[int], group_of: GroupOf) -> Parts:
    """`recordings[i]` are the rows of the script's rank i, which errors call `ranks[i]`.  Raises BadScript."""
    cuts, steps = _marks(recordings, ranks)
    together = [*_messages(recordings, ranks), *_collectives(recordings, group_of)]
    _agree(cuts, [own.waits for own in together], [_used(rows) for rows in recordings])
    moved = {node: max(_part(cuts, decides) for decides in own.decide) for own in together for node in own.nodes}
    split = []
    for rank, rows in enumerate(recordings):
        own: list[list[tuple[int, Row]]] = [[] for _ in range(len(cuts[rank]) + 1)]
        for number, row in enumerate(rows):
            if row["do"] not in ("step", "called"):
                own[moved.get((rank, number), _part(cuts, (rank, number)))].append((number, row))
        split.append(own)
    return Parts(split, steps)


def _marks(recordings: Sequence[Sequence[Row]], ranks: Sequence[int]) -> tuple[list[list[int]], int]:
    """Of each rank the rows with which its parts begin, by its own marks; and how many steps there are."""
    called = [next((n for n, row in enumerate(rows) if row["do"] == "called"), None) for rows in recordings]
    steps = [[n for n, row in enumerate(rows) if row["do"] == "step"] for rows in recordings]
    for rank, own in zip(ranks, steps, strict=True):
        if len(own) != len(steps[0]):
            what = f"its optimizer does {len(own)} steps, and that of rank {ranks[0]} does {len(steps[0])}"
            hint = "a step is one of all ranks: have each rank of the script do as many"
            raise BadScript(what, rank, None, hint)
    if all(own is None for own in called) and not steps[0]:
        return [[] for _ in recordings], 0
    # a rank that calls no model does not say where its setup ends
    return [[min([first or 0, *own[:1]]), *own] for first, own in zip(called, steps, strict=True)], len(steps[0])


@dataclass(frozen=True)
class _Together:
    """Rows that have to be in one part: the latest of those of `decide`.  `waits`: (row, for which other it waits)."""

    nodes: tuple[Node, ...]
    decide: tuple[Node, ...]
    waits: tuple[tuple[Node, Node], ...]


def _messages(recordings: Sequence[Sequence[Row]], ranks: Sequence[int]) -> Iterator[_Together]:
    """Every receive with its send: by sender, receiver and tag, in order."""
    sent: dict[tuple[int, int, str], deque[int]] = {}
    for rank, rows in enumerate(recordings):
        for number, row in enumerate(rows):
            if row["do"] == "send":
                sent.setdefault((rank, row["peer"], row["tag"]), deque()).append(number)
    for rank, rows in enumerate(recordings):
        for number, row in enumerate(rows):
            if row["do"] == "recv":
                waiting = sent.get((row["peer"], rank, row["tag"]))
                if not waiting:
                    what = f"it receives from rank {ranks[row['peer']]} what that does not send"
                    raise BadScript(what, ranks[rank], row.get("line"))
                send = row["peer"], waiting.popleft()
                yield _Together((send, (rank, number)), (send,), (((rank, number), send),))
    for (rank, peer, _), numbers in sent.items():
        for number in numbers:
            what = f"it sends to rank {ranks[peer]} what that does not receive"
            raise BadScript(what, ranks[rank], recordings[rank][number].get("line"))


def _collectives(recordings: Sequence[Sequence[Row]], group_of: GroupOf) -> Iterator[_Together]:
    """What the ranks of a group do together: the k-th of each."""
    instances: dict[tuple[object, int], list[Node]] = {}
    for rank, rows in enumerate(recordings):
        count: Counter[object] = Counter()
        for number, row in enumerate(rows):
            if row["do"] == "collective":
                group = group_of(rank, row)
                instances.setdefault((group, count[group]), []).append((rank, number))
                count[group] += 1
    for nodes in instances.values():
        yield _Together(tuple(nodes), tuple(nodes), tuple((one, other) for one in nodes for other in nodes))


def _used(rows: Sequence[Row]) -> list[int]:
    """Of each row the first one that waits for it, or for a later one on its stream."""
    first = [len(rows)] * len(rows)
    for number, row in enumerate(rows):
        for before in row.get("after", ()):
            first[before] = min(first[before], number)
    streams: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        if row["do"] in ("recv", "collective"):
            streams.setdefault(row["stream"], []).append(number)
    for numbers in streams.values():
        earliest_from = list(accumulate((first[n] for n in reversed(numbers)), min))
        for number, earliest in zip(reversed(numbers), earliest_from, strict=True):
            first[number] = earliest
    return first


def _agree(cuts: list[list[int]], waits: Sequence[Sequence[tuple[Node, Node]]], used: Sequence[Sequence[int]]) -> None:
    """Moves cuts to where nothing before one waits for what is behind one: no further than need be."""
    pairs = [pair for part in waits for pair in part]
    moved = True
    while moved:
        moved = False
        for (rank, number), other in pairs:
            user = used[rank][number]
            part, needed = _part(cuts, (rank, user)), _part(cuts, other)
            if part < needed:
                cuts[rank][part:needed] = [user] * (needed - part)
                moved = True


def _part(cuts: Sequence[Sequence[int]], node: Node) -> int:
    rank, number = node
    return bisect_right(cuts[rank], number)
