"""Is a graph of tasks one that can be carried out?  Who does what with whom, and who waits for whom.

`Links` has both, for all that walk over a graph.  A task is a node here: (rank, number in the rank's list).  Whatever
is wrong is said with the rank and the task's id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from workloads.base.vocabulary import DTYPES, OPS, combines
from workloads.tasks.task import Collective, Compute, Recv, Send, Task, words

Node = tuple[int, int]  # rank, number of the task in its list
Members = tuple[int, ...]
Groups = Mapping[str, Sequence[Members]]
Tasks = Mapping[int, Sequence[Task]]


class BadGraph(ValueError):
    """A graph that cannot be carried out: `rank` and `task` (its id) say where, if it is one task's fault."""

    def __init__(self, what: str, rank: int | None = None, task: str | None = None) -> None:
        where = "" if rank is None else f"rank {rank}, task {task!r}: " if task is not None else f"rank {rank}: "
        super().__init__(where + what)
        self.what, self.rank, self.task = what, rank, task


@dataclass(frozen=True)
class Instance:
    """One collective that its members do together: the `number`-th of theirs."""

    group: str
    members: Members
    number: int
    nodes: Mapping[int, Node] = field(hash=False, compare=False)  # rank -> its task

    @property
    def name(self) -> str:
        """The same at all members, and no other's."""
        return f"{self.group}[{','.join(map(str, self.members))}]#{self.number}"


@dataclass(frozen=True)
class Links:
    """What follows from a graph: what each task waits for, and with whom it is done."""

    before: Mapping[Node, tuple[Node, ...]]  # of the same rank: they must have ended before a task starts
    instances: Mapping[Node, Instance]  # of each collective
    sends: Mapping[Node, Node]  # of each Recv
    order: tuple[Node, ...]  # all tasks, each behind whatever its end waits for


def nodes_of(tasks: Tasks) -> Iterator[tuple[Node, Task]]:
    """All tasks, rank by rank."""
    for rank, listed in tasks.items():
        for number, task in enumerate(listed):
            yield (rank, number), task


def links(groups: Groups, tasks: Tasks, unordered: AbstractSet[str] = frozenset()) -> Links:
    """Checks a graph, of which some streams are unordered, and says what follows from it.  Raises BadGraph."""
    _check_groups(groups)
    before: dict[Node, tuple[Node, ...]] = {}
    for rank, listed in tasks.items():
        if rank < 0:
            raise BadGraph(f"there is no rank {rank}")
        before |= _check_rank(rank, listed, groups, unordered)
    instances = dict(instances_of(groups, tasks))
    sends = messages_of(tasks)
    return Links(before, instances, sends, order_of(tasks, before, instances, sends))


def _check_groups(groups: Groups) -> None:
    for name, tuples in groups.items():
        seen: set[int] = set()
        for members in tuples:
            if not members:
                raise BadGraph(f"group {name!r}: a tuple of no ranks")
            for rank in members:
                if rank < 0:
                    raise BadGraph(f"group {name!r}: there is no rank {rank}")
                if rank in seen:
                    what = f"group {name!r}: rank {rank} stands in it twice; groups of one name share no rank "
                    raise BadGraph(what + "(give groups that overlap names of their own)")
                seen.add(rank)


def _check_rank(
    rank: int, tasks: Sequence[Task], groups: Groups, unordered: AbstractSet[str]
) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    """What each task of a rank waits for there."""
    numbers: dict[str, int] = {}
    for number, task in enumerate(tasks):
        if not task.id:
            raise BadGraph(f"task {number} has an empty id", rank)
        if task.id in numbers:
            raise BadGraph("another task of this rank has the same id", rank, task.id)
        if not task.stream:
            raise BadGraph("its stream has an empty name", rank, task.id)
        numbers[task.id] = number
        _check_task(rank, task, groups)
    last: dict[str, list[int]] = {}  # of each stream: whom the next one waits for
    for number, task in enumerate(tasks):
        waits: list[int] = []
        if task.stream in unordered and not isinstance(task, Collective):
            last.setdefault(task.stream, []).append(number)
        else:
            waits += last.get(task.stream, ())
            last[task.stream] = [number]
        for name in task.after:
            if name == task.id:
                raise BadGraph("it waits for itself", rank, task.id)
            if name not in numbers:
                raise BadGraph(f"it waits for {name!r}, which this rank has no task of", rank, task.id)
            waits.append(numbers[name])
        yield (rank, number), tuple((rank, other) for other in dict.fromkeys(waits))


def _check_task(rank: int, task: Task, groups: Groups) -> None:
    def bad(what: str) -> BadGraph:
        return BadGraph(what, rank, task.id)

    if not 0 <= task.not_before_ns < float("inf"):
        raise bad(f"it cannot begin {task.not_before_ns} ns after the iteration's begin")
    match task:
        case Compute():
            if not 0 <= task.duration_ns < float("inf"):
                raise bad(f"a duration of {task.duration_ns} ns")
        case Collective():
            if task.group not in groups:
                raise bad(f"there is no group {task.group!r} (there is {', '.join(groups) or 'none'})")
            if not any(rank in members for members in groups[task.group]):
                raise bad(f"rank {rank} is not in group {task.group!r}")
            if task.size_bytes < 0:
                raise bad(f"a size of {task.size_bytes} bytes")
            if task.dtype not in DTYPES:
                raise bad(f"there is no element type {task.dtype!r} (there is {', '.join(DTYPES)})")
            if task.op is not None and task.op not in OPS:
                raise bad(f"there is no reduction {task.op!r} (there is {', '.join(OPS)})")
            if not combines(task.op, task.dtype):
                raise bad(f"{task.op} combines the bits of integers, not {task.dtype}")
        case Send() | Recv():
            if task.size_bytes < 0:
                raise bad(f"a size of {task.size_bytes} bytes")
            if task.peer == rank:
                raise bad("a message of a rank to itself")
            if task.peer < 0:
                raise bad(f"there is no rank {task.peer}")
            if task.group and task.group not in groups:
                raise bad(f"there is no group {task.group!r} (there is {', '.join(groups) or 'none'})")
        case _:
            raise bad(f"{type(task).__name__} is no kind of task")


def instances_of(groups: Groups, tasks: Tasks) -> Iterator[tuple[Node, Instance]]:
    """Every collective with those of the other members: matched by their order in the lists."""
    issued: dict[tuple[str, int], list[int]] = {}  # (group, rank) -> numbers of its collectives
    for (rank, number), task in nodes_of(tasks):
        if isinstance(task, Collective):
            issued.setdefault((task.group, rank), []).append(number)
    for group, tuples in groups.items():
        for members in tuples:
            lists = {rank: issued.get((group, rank), []) for rank in members}
            longest = max(members, key=lambda rank: len(lists[rank]))
            for k, number in enumerate(lists[longest]):
                first = tasks[longest][number]
                assert isinstance(first, Collective)
                nodes: dict[int, Node] = {}
                for rank in members:
                    if k >= len(lists[rank]):
                        what = f"rank {rank} of that group has no {_ordinal(k)} collective on it to match"
                        raise BadGraph(f"{words(first)}: {what}", longest, first.id)
                    _same(longest, first, rank, tasks[rank][lists[rank][k]], k)
                    nodes[rank] = (rank, lists[rank][k])
                instance = Instance(group, tuple(members), k, nodes)
                for node in nodes.values():
                    yield node, instance


def _same(rank: int, task: Collective, other_rank: int, other: Task, k: int) -> None:
    assert isinstance(other, Collective)
    for key in ("collective", "size_bytes", "algorithm", "dtype", "op", "parts"):
        here, there = getattr(task, key), getattr(other, key)
        if here != there:
            what = f"the {_ordinal(k)} collective on group {task.group!r} has {key} {here!r} here, and {there!r} at "
            what += f"rank {other_rank} (task {other.id!r}): members of a group do the same, in the same order"
            raise BadGraph(what, rank, task.id)


def _ordinal(k: int) -> str:
    n = k + 1
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def messages_of(tasks: Tasks) -> dict[Node, Node]:
    """Every Recv with its Send: by sender, receiver and tag, in order."""
    sent: dict[tuple[int, int, str], deque[Node]] = {}
    for node, task in nodes_of(tasks):
        if isinstance(task, Send):
            sent.setdefault((node[0], task.peer, task.tag), deque()).append(node)
    matched: dict[Node, Node] = {}
    for node, task in nodes_of(tasks):
        if not isinstance(task, Recv):
            continue
        rank, waiting = node[0], sent.get((task.peer, node[0], task.tag))
        if not waiting:
            raise BadGraph(f"{words(task)}, which sends no such message", rank, task.id)
        matched[node] = waiting.popleft()
        send = tasks[task.peer][matched[node][1]]
        assert isinstance(send, Send)
        if send.size_bytes != task.size_bytes:
            what = f"{words(task)}: {task.size_bytes} bytes here, {send.size_bytes} in its task {send.id!r}"
            raise BadGraph(what, rank, task.id)
    for waiting in sent.values():
        for rank, number in waiting:
            raise BadGraph(f"{words(tasks[rank][number])}, which does not receive it", rank, tasks[rank][number].id)
    return matched


def order_of(
    tasks: Tasks,
    before: Mapping[Node, tuple[Node, ...]],
    instances: Mapping[Node, Instance],
    sends: Mapping[Node, Node],
    key: Callable[[Node], Any] | None = None,
) -> tuple[Node, ...]:
    """All tasks, each behind those that its end waits for.  Raises BadGraph if some wait in a circle.

    Of those that are ready, the one with the least `key` is next; of equals the one that has been ready for longest.
    A collective ends when all its members have started it: so its tasks stand side by side, behind what each of them
    waits for.
    """
    first = {node: min(i.nodes.values()) for node, i in instances.items()}  # one node stands for all of an instance

    def stands_for(node: Node) -> Node:
        return first.get(node, node)

    waits: dict[Node, set[Node]] = {}
    for node, others in before.items():
        waits.setdefault(stands_for(node), set()).update(stands_for(other) for other in others)
    for receive, send in sends.items():
        waits[receive].add(send)
    followers: dict[Node, list[Node]] = {}
    for node, awaited in waits.items():
        for other in awaited:
            followers.setdefault(other, []).append(node)
    left = {node: len(awaited) for node, awaited in waits.items()}
    numbers = count()
    ready = [(key(node) if key else 0, next(numbers), node) for node in sorted(left) if not left[node]]
    heapify(ready)
    order: list[Node] = []
    while ready:
        *_, node = heappop(ready)
        order.extend(instances[node].nodes.values() if node in instances else [node])
        for follower in followers.get(node, ()):
            left[follower] -= 1
            if not left[follower]:
                heappush(ready, (key(follower) if key else 0, next(numbers), follower))
    if len(order) < len(before):
        raise _circle(tasks, waits, {node for node, count in left.items() if count})
    return tuple(order)


def _circle(tasks: Tasks, waits: Mapping[Node, set[Node]], stuck: set[Node]) -> BadGraph:
    """Names tasks that wait for each other."""
    at = min(stuck)
    path: dict[Node, int] = {}  # and its place in it
    while at not in path:
        path[at] = len(path)
        at = min(other for other in waits[at] if other in stuck)
    circle = list(path)[path[at] :]
    names = [f"task {tasks[r][n].id!r} of rank {r} ({words(tasks[r][n])})" for r, n in circle]
    shown = names if len(names) <= 6 else [*names[:5], f"{len(names) - 5} more"]
    what = "tasks wait for each other in a circle: " + ", which waits for ".join([*shown, names[0]])
    rank, number = circle[0]
    return BadGraph(what, rank, tasks[rank][number].id)
