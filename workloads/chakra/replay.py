"""Traces of all ranks as one graph of tasks.

As the usual feeder has it, a rank does one computation on its CPU, one on its GPU and one communication at a time, and
any number of receives.  So each of these is a stream, on which whatever is ready goes first (issue.py); a receive
shares one only with receives that it waits for anyway.  Collectives, and messages of one tag, match in an order in
which none comes before one that it waits for, of the others by recorded start, then by id.  Metadata and invalid nodes
take no time, and whoever waits for them waits for what they wait for.  So do collectives of one rank.  Those of no
bytes are barriers.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from workloads.base.vocabulary import DTYPES
from workloads.chakra import issue
from workloads.chakra.et import BadTrace, Node, Trace
from workloads.chakra.names import COLLECTIVES, ELEMENTS, MOST_MESSAGE, MOST_NS, OF_A_PART, OWN
from workloads.tasks.check import BadGraph
from workloads.tasks.graph import Graph, Settings
from workloads.tasks.task import Collective, Compute, Parts, Recv, Send, Task

WORLD = "world"
"""The group of all ranks: of nodes that name none, or 0."""
PASSED = frozenset({"invalid", "metadata"})
KNOWN = frozenset({"comp", "comm_send", "comm_recv", "comm_coll"})
MOST_SHOWN = 6
MOST_KEPT = 256 << 20
"""Bytes of what a rank's nodes wait for through others: a small file may ask for any amount."""


@dataclass(frozen=True)
class Roofline:
    """What a computation takes: by its operations, or its bytes."""

    flops: float
    bytes_per_s: float

    def ns(self, operations: float, nbytes: float) -> float:
        return max(operations / self.flops, nbytes / self.bytes_per_s) * 1e9


@dataclass(frozen=True)
class Reading:
    """How traces are read: times as recorded (None) or by a roofline; types of nodes that take no time, besides.

    `missing`: nodes may wait for nodes that are not there, as if those had ended (recorders leave many out), and for
    themselves.
    """

    time: Roofline | None = None
    skip: frozenset[str] = frozenset()
    missing: bool = False


def graph(
    traces: Mapping[int, Trace],
    groups: Mapping[str, Sequence[int]] | None = None,
    how: Reading | None = None,
    files: Mapping[int, str] | None = None,
) -> Graph:
    """The graph of rank -> trace; `files` are their names, for messages.  Raises BadTrace."""
    how, files = how or Reading(), files or {rank: f"rank {rank}" for rank in traces}
    _check_all(range(max(traces, default=0) + 1), traces)
    own = _own_groups(traces[0], files[0])
    all_groups: dict[str, tuple[tuple[int, ...], ...]] = own[0] if own else {}
    if own:
        _check_all(own[2], traces)
    for name, members in (groups or {}).items():
        if name == WORLD and sorted(members) != sorted(traces):
            raise BadTrace(f"the groups' file has a group {WORLD!r} that is not all ranks: here these are called so")
        if not own:
            all_groups[name] = (tuple(members),)
    tasks: dict[int, tuple[Task, ...]] = {}
    nodes: dict[int, dict[str, Node]] = {}
    for rank, trace in sorted(traces.items()):
        reader = _Rank(rank, trace, files[rank], all_groups, len(traces), how, written=own is not None)
        if own is None or rank in own[2] or trace.nodes:
            tasks[rank] = tuple(reader.tasks())
        nodes[rank] = reader.by_task
        all_groups |= reader.new_groups
    try:
        if own:
            return Graph(all_groups, tasks, own[1], own[3])
        return issue.in_order(all_groups, tasks, lambda rank, task: nodes[rank][task.id].order_key)
    except BadGraph as error:
        rank = -1 if error.rank is None else error.rank
        node = nodes.get(rank, {}).get(error.task or "")
        raise BadTrace(error.what, files.get(rank, ""), str(node) if node else "") from None


def _check_all(ranks: Iterable[int], traces: Mapping[int, Trace]) -> None:
    missing = sorted(set(ranks) - set(traces))
    if missing:
        raise BadTrace(f"there is no trace of rank {missing[0]}: there are {_some(sorted(traces))}")


def _own_groups(
    trace: Trace, file: str
) -> tuple[dict[str, tuple[tuple[int, ...], ...]], dict[str, Settings], list[int], frozenset[str]] | None:
    """Groups, settings, ranks and unordered streams of a graph that was written by record.py."""
    if OWN not in trace.attributes:
        return None
    try:
        header = json.loads(str(trace.attributes[OWN]))
        groups = {str(name): tuple(tuple(map(int, m)) for m in tuples) for name, tuples in header["groups"].items()}
        settings = {str(name): _settings(of) for name, of in header["settings"].items()}
        unordered = frozenset(_of({"stream": name}, "stream", str) for name in header.get("unordered", ()))
        return groups, settings, list(map(int, header["ranks"])), unordered
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise BadTrace(f"its attribute {OWN!r} is damaged", file, "metadata") from None


def _settings(written: Mapping[str, Any]) -> Settings:
    """Raises KeyError or TypeError."""
    algorithms, options = _of(written, "algorithms", dict), _of(written, "options", dict)
    for name in algorithms:
        _of(algorithms, name, str)
    return Settings(_of(written, "traffic_class", (int, NoneType)), algorithms, options)


def _of(mapping: Mapping[str, Any], key: str, kind: type | tuple[type, ...]) -> Any:
    """What is said there, if it is of that kind.  Raises KeyError or TypeError."""
    value = mapping[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{key} is {value!r:.40}")
    return value


def _parts(own: Mapping[str, Any]) -> Parts | None:
    """Raises TypeError or ValueError."""
    weights = _of({"parts": None, **own}, "parts", (list, NoneType))
    return weights and tuple(tuple(_of({"weight": n}, "weight", int) for n in row) for row in weights)


class _Rank:
    """One rank's nodes as tasks."""

    def __init__(
        self,
        rank: int,
        trace: Trace,
        file: str,
        groups: Mapping[str, tuple[tuple[int, ...], ...]],
        ranks: int,
        how: Reading,
        *,
        written: bool,
    ) -> None:
        self.rank, self.file, self.groups, self.ranks, self.how = rank, file, groups, ranks, how
        self.written = written
        self.nodes: dict[int, Node] = {}
        for node in trace.nodes:
            if node.id in self.nodes:
                raise self.bad(node, "another node of this trace has the same id")
            self.nodes[node.id] = node
        self.waits = {node.id: self._waits(node) for node in trace.nodes}
        self.by_task: dict[str, Node] = {}
        self.new_groups: dict[str, tuple[tuple[int, ...], ...]] = {}
        self._names: dict[int, str] = {}
        self._receives: list[tuple[str, int]] = []  # streams: name, the last receive's bit

    def bad(self, node: Node, what: str) -> BadTrace:
        return BadTrace(what, self.file, str(node))

    def _waits(self, node: Node) -> list[int]:
        waits = list(dict.fromkeys((*node.data_deps, *node.ctrl_deps)))
        known = [other for other in waits if other in self.nodes and other != node.id]
        if len(known) < len(waits) and (self.written or not self.how.missing):
            other = next(other for other in waits if other not in known)
            what = f"node {other}, which this trace does not have" if other != node.id else "itself"
            hint = "" if self.written else " (missing: ignore passes over that)"
            raise self.bad(node, f"it waits for {what}{hint}")
        return known

    def tasks(self) -> Iterator[Task]:
        """In the order in which they are issued.  Raises BadTrace."""
        if self.written:
            for node in self.nodes.values():
                task = self._checked(node, self._as_written(node))
                self.by_task[task.id] = node
                yield task
            return
        for_whom: dict[int, tuple[int, ...]] = {}  # node -> nodes with tasks that it waits for, through those without
        receives: dict[int, int] = {}  # node -> the receives that are behind it, as bits
        bits = kept_bytes = 0
        for node in self._order():
            through = dict.fromkeys(n for other in self.waits[node.id] for n in for_whom[other])
            behind = 0
            for other in self.waits[node.id]:
                behind |= receives[other]
            kept_bytes += 8 * len(through) + behind.bit_length() // 8
            if kept_bytes > MOST_KEPT:
                what = "nodes wait for too many others through nodes without tasks, or for too many receives"
                raise self.bad(node, f"{what}: that takes more than {MOST_KEPT >> 20} MiB")
            if self._passes(node):
                for_whom[node.id], receives[node.id] = tuple(through), behind
                continue
            stream = ""
            if node.type_name == "comm_recv":
                bits += 1
                stream = self._receive_stream(behind, 1 << bits)
                behind |= 1 << bits
            for_whom[node.id], receives[node.id] = (node.id,), behind
            task = self._checked(node, self._task(node, [self._names[n] for n in through], stream))
            self._names[node.id] = task.id
            self.by_task[task.id] = node
            yield task

    def _passes(self, node: Node) -> bool:
        """Whether nothing is done for it; a collective of one rank is over at once."""
        if node.type_name in PASSED or node.type_name in self.how.skip or str(node.type) in self.how.skip:
            return True
        return node.type_name == "comm_coll" and len(self._group(node)[1]) == 1

    def _order(self) -> list[Node]:
        """No node before one that it waits for; of those that could be next by recorded start, then by id."""
        open_waits = {number: len(waits) for number, waits in self.waits.items()}
        followers: dict[int, list[int]] = {}
        for number, waits in self.waits.items():
            for other in waits:
                followers.setdefault(other, []).append(number)
        ready = [self.nodes[number].order_key for number, count in open_waits.items() if not count]
        heapq.heapify(ready)
        order = []
        while ready:
            _, number = heapq.heappop(ready)
            order.append(self.nodes[number])
            for other in followers.get(number, ()):
                open_waits[other] -= 1
                if not open_waits[other]:
                    heapq.heappush(ready, self.nodes[other].order_key)
        if len(order) < len(self.nodes):
            raise self._circle({number for number, count in open_waits.items() if count})
        return order

    def _circle(self, stuck: set[int]) -> BadTrace:
        at, path = min(stuck), dict[int, int]()  # and its place in it
        while at not in path:
            path[at] = len(path)
            at = min(other for other in self.waits[at] if other in stuck)
        circle = [str(self.nodes[n]) for n in list(path)[path[at] :]]
        shown = (
            circle if len(circle) <= MOST_SHOWN else [*circle[: MOST_SHOWN - 1], f"{len(circle) - MOST_SHOWN + 1} more"]
        )
        what = "nodes wait for each other in a circle: " + ", which waits for ".join([*shown, circle[0]])
        return BadTrace(what, self.file)

    def _receive_stream(self, behind: int, bit: int) -> str:
        for k, (name, last) in enumerate(self._receives):
            if last & behind:
                self._receives[k] = name, bit
                return name
        name = f"receive {len(self._receives)}" if self._receives else "receive"
        self._receives.append((name, bit))
        return name

    # -- one node

    def _task(self, node: Node, after: Sequence[str], receive_stream: str) -> Task:
        type_name = node.type_name
        if type_name not in KNOWN:
            hint = f"skip: [{type_name}] passes over them, in no time"
            raise self.bad(node, f"it is of type {type_name}, which is not replayed ({hint})")
        name = f"{node.id} {node.name}".strip()[:80]
        common: dict[str, Any] = {"id": name, "after": tuple(after)}
        on_cpu = bool(node.attributes.get("is_cpu_op", False))
        if type_name == "comp":
            return Compute(**common, stream=issue.CPU if on_cpu else issue.GPU, duration_ns=self._time_ns(node, on_cpu))
        size = self._whole(node, "comm_size")
        if type_name == "comm_coll":
            return self._collective(node, common, size)
        sends = type_name == "comm_send"
        peer = self._whole(node, "comm_dst" if sends else "comm_src")
        own = self._whole(node, "comm_src" if sends else "comm_dst", self.rank)
        if own != self.rank:
            raise self.bad(node, f"it is of rank {own}, and this is the trace of rank {self.rank}")
        if peer >= self.ranks:
            raise self.bad(node, f"there is no rank {peer}: there are traces of {self.ranks}")
        tag = str(self._whole(node, "comm_tag", 0))
        if sends:
            return Send(**common, stream=issue.COMM, peer=peer, size_bytes=size, tag=tag)
        return Recv(**common, stream=receive_stream, peer=peer, size_bytes=size, tag=tag)

    def _time_ns(self, node: Node, on_cpu: bool) -> float:
        roof = self.how.time
        if roof is not None and not on_cpu:
            return roof.ns(self._whole(node, "num_ops"), self._whole(node, "tensor_size", 0))
        if not node.duration_us and node.attributes.get("num_ops"):
            raise self.bad(node, "it has operations, but no recorded time: give flops and memory under `time`")
        return float(node.duration_us * 1000)

    def _checked(self, node: Node, task: Task) -> Task:
        """A task that is not larger than tasks are."""
        if isinstance(task, Compute) and task.duration_ns > MOST_NS:
            raise self.bad(node, f"it takes more than {MOST_NS / 1e9:g} s")
        if isinstance(task, Send | Recv) and task.size_bytes > MOST_MESSAGE:
            raise self.bad(node, f"a message of {task.size_bytes} bytes, and at most {MOST_MESSAGE} can be sent")
        return task

    def _whole(self, node: Node, name: str, default: int | None = None) -> int:
        """An attribute that is a whole number, not below 0."""
        value = node.attributes.get(name, default)
        if value is None:
            raise self.bad(node, f"a {node.type_name} node has no {name}: nothing is guessed")
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.bad(node, f"its {name} is {value!r:.40}, and not a whole number")
        return value

    def _collective(self, node: Node, common: dict[str, Any], size: int) -> Collective:
        number = self._whole(node, "comm_type")
        if number not in COLLECTIVES:
            raise self.bad(node, f"there is no collective {number}: comm_type is 0 to {max(COLLECTIVES)}")
        collective = COLLECTIVES[number]
        group, members = self._group(node)
        whole = size * len(members) if collective in OF_A_PART else size
        if not whole or collective == "barrier":  # of no bytes it is one
            collective, whole = "barrier", 0
        dtype = next((d for d in ELEMENTS if whole % (DTYPES[d] * len(members)) == 0), ELEMENTS[-1])
        return Collective(
            **common, stream=issue.COMM, collective=collective, group=group, size_bytes=whole, dtype=dtype
        )

    def _group(self, node: Node) -> tuple[str, tuple[int, ...]]:
        name = node.attributes.get("pg_name", "")
        if not isinstance(name, str):
            raise self.bad(node, f"its pg_name is {name!r:.40}, and not a text")
        if name in ("", "0") and name not in self.groups:
            everybody = tuple(range(self.ranks))
            self.new_groups[WORLD] = (everybody,)
            return WORLD, everybody
        if name not in self.groups:
            known = _some(list(self.groups)) if self.groups else "none"
            raise self.bad(node, f"there is no group {name!r} (the groups' file has {known})")
        (members,) = self.groups[name]
        if max(members) >= self.ranks:
            raise self.bad(node, f"group {name!r} has rank {max(members)}, of which there is no trace")
        if self.rank not in members:
            raise self.bad(node, f"rank {self.rank} is not in group {name!r}")
        return name, members

    # -- what record.py has written

    def _as_written(self, node: Node) -> Task:
        if OWN not in node.attributes:
            hint = f"without {OWN!r} in the metadata, too, it is read as any other trace"
            raise self.bad(node, f"it has no attribute {OWN!r}, and other nodes have ({hint})")
        try:
            own: dict[str, Any] = dict(json.loads(str(node.attributes[OWN])))
            waits = [self.nodes[n].name for n in node.data_deps[: _of(own, "after", int)]]
            common: dict[str, Any] = {"id": node.name, "after": tuple(waits), "stream": _of(own, "stream", str)}
            common["kind"] = _of({"kind": "", **own}, "kind", str)
            common["not_before_ns"] = _of({"not_before_ns": 0.0, **own}, "not_before_ns", (int, float))
            type_name = node.type_name
            if type_name == "comp":
                duration = {"duration_ns": node.duration_us * 1000, **own}
                return Compute(**common, duration_ns=_of(duration, "duration_ns", (int, float)))
            size, group = self._whole(node, "comm_size"), _of(own, "group", str)
            if type_name == "comm_coll":
                members = next(m for m in self.groups[group] if self.rank in m)
                collective = _of(own, "collective", str)
                whole = size * len(members) if collective in OF_A_PART else size
                return Collective(
                    **common, collective=collective, group=group, dtype=_of(own, "dtype", str),
                    op=_of(own, "op", (str, NoneType)),
                    algorithm=_of({"algorithm": None, **own}, "algorithm", (str, NoneType)),
                    size_bytes=_of({"size_bytes": whole, **own}, "size_bytes", int),
                    parts=_parts(own),
                )  # fmt: skip
            ends: dict[str, Any] = {"size_bytes": size, "tag": _of(own, "tag", str), "group": group}
            if type_name == "comm_send":
                return Send(**common, **ends, peer=self._whole(node, "comm_dst"))
            if type_name == "comm_recv":
                return Recv(**common, **ends, peer=self._whole(node, "comm_src"))
        except (KeyError, TypeError, ValueError, StopIteration, RecursionError) as error:
            if isinstance(error, BadTrace):
                raise
        raise self.bad(node, f"its attribute {OWN!r} is damaged")


def _some(names: Sequence[Any]) -> str:
    shown = ", ".join(map(str, names[:MOST_SHOWN]))
    return shown + (f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else "")
