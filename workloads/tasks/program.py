"""From a graph to each rank's orders: a step of the plan, as plain data.

All that needs more than one rank's tasks is worked out here: which connections there are, which of a group's
collectives may use one memory after the other, where every message lands.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from workloads.base.entry import Algorithm
from workloads.collectives.manner import Manner
from workloads.tasks.check import BadGraph, Instance, Members, Node, nodes_of, order_of
from workloads.tasks.graph import Graph, Settings
from workloads.tasks.places import places
from workloads.tasks.task import Collective, Compute, Recv, Send, Task

MOST_STREAMS = 256  # of a rank, on which something is computed
MOST_TAGS = 1 << 16  # of a step
CHANNELS = 16  # tags of a group that hosts serve, at least
MOST_INSTANCES = 1 << 18  # of a group

Way = Mapping[str, Any]
"""How a collective is carried out: `collective`, `algorithm`, `ranks` in its order, and what the algorithm heeds."""


def compiled(
    graph: Graph,
    way: Callable[[Collective, Members], Way],
    entry: Callable[[str, str], Algorithm],
    marking: Callable[[Settings], dict[str, Any]],
    *,
    iterations: int = 1,
    warmup: int = 0,
) -> dict[str, Any]:
    """The step.  `way` says how a group's members do a collective, `marking` how what a group sends is marked and
    sent: `dscp`, `traffic_class` and perhaps `transport`.

    Raises BadGraph for what is too much.
    """
    return _Compiler(graph, way, entry, marking).step() | {"iterations": iterations, "warmup": warmup}


class _Compiler:
    def __init__(
        self,
        graph: Graph,
        way: Callable[[Collective, Members], Way],
        entry: Callable[[str, str], Algorithm],
        marking: Callable[[Settings], dict[str, Any]],
    ) -> None:
        self.graph, self.way, self.entry, self.marking = graph, way, entry, marking
        self.tags = 0
        self.ways: dict[str, int] = {}
        self.communicators: dict[tuple[str, Members], dict[str, Any]] = {}
        self.requests: dict[str, dict[str, Any]] = {}
        self.lanes: dict[str, dict[str, Any]] = {}
        self.orders: dict[Node, dict[str, Any]] = {}

    def step(self) -> dict[str, Any]:
        tasks = self.graph.tasks
        self._collectives()
        self._check_turns()
        self._messages()
        for rank, listed in tasks.items():
            streams = self._streams(rank, listed)
            for number, task in enumerate(listed):
                order = self.orders.setdefault((rank, number), {})
                order |= {"id": task.id, "stream": streams[task.stream], "kind": task.kind}
                order["before"] = [n for _, n in self.graph.links.before[rank, number]]
                order |= {"not_before_ns": task.not_before_ns} if task.not_before_ns else {}
                order |= {"every": task.every} if task.every > 1 else {}
                order |= {"in_turn": True} if task.stream in self.graph.unordered else {}
                if isinstance(task, Compute):
                    order |= {"do": "compute", "ns": task.duration_ns}
        return {
            "kind": "tasks",
            "ranks": sorted(rank for rank, listed in tasks.items() if listed),
            "ways": [json.loads(key) for key in self.ways],
            "communicators": list(self.communicators.values()),
            "requests": list(self.requests.values()),
            "lanes": list(self.lanes.values()),
            "tasks": {str(r): [self.orders[r, n] for n in range(len(own))] for r, own in tasks.items() if own},
            "about": {str(r): [_about(task) for task in own] for r, own in tasks.items() if own},
        }

    def _streams(self, rank: int, tasks: tuple[Task, ...]) -> dict[str, int]:
        names = list(dict.fromkeys(t.stream for t in tasks))
        if len(names) > MOST_STREAMS:
            raise BadGraph(f"{len(names)} streams, at most {MOST_STREAMS}", rank)
        return {name: number for number, name in enumerate(names)}

    def _take_tags(self, count: int) -> int:
        first = self.tags
        self.tags += count
        if self.tags > MOST_TAGS:
            raise BadGraph("groups have more connections than a step may have")
        return first

    def _marking(self, group: str) -> dict[str, Any]:
        return self.marking(self.graph.settings.get(group, Settings()))

    def _collectives(self) -> None:
        """In an order that all ranks have in common: they connect in it."""
        by_members: dict[tuple[str, Members], dict[Instance, None]] = {}
        for instance in self.graph.links.instances.values():
            by_members.setdefault((instance.group, instance.members), {})[instance] = None
        for (group, members), instances in sorted(by_members.items(), key=lambda item: item[0]):
            self._communicator(group, members, sorted(instances, key=lambda i: i.number))

    def _communicator(self, group: str, members: Members, instances: list[Instance]) -> None:
        if len(instances) > MOST_INSTANCES:
            raise BadGraph(f"group {group!r}: {len(instances)} collectives, at most {MOST_INSTANCES}")
        number = len(self.communicators)
        communicator = {"group": group, "ranks": list(members), "tag": -1, **self._marking(group)}
        self.communicators[group, members] = communicator
        by_hosts: list[tuple[Instance, Algorithm]] = []
        channels: list[int] = []
        for instance in instances:
            rank, at = next(iter(instance.nodes.values()))
            task = self.graph.tasks[rank][at]
            assert isinstance(task, Collective)
            if task.every > 1:
                raise BadGraph("a collective is done in every iteration", rank, task.id)
            way = self.way(task, members)
            entry = self.entry(way["collective"], way["algorithm"])
            if entry.waits:
                raise BadGraph(f"{entry} cannot be one of several tasks: it needs its ranks for itself", rank, task.id)
            order = {"do": "collective", "communicator": number, "way": self._way(way), "number": instance.number}
            order |= {"size_bytes": task.size_bytes, "dtype": task.dtype, "op": task.op or _op(entry)}
            if entry.schedule:
                by_hosts.append((instance, entry))
                if entry.by_library:
                    channels.append(Manner(**way["library"]).tags(len(members)))
            else:
                order["request"] = self._request(order, members, entry, instance)
            for node in instance.nodes.values():
                self.orders[node] = dict(order)
        if by_hosts:
            communicator["channels"] = max([CHANNELS, *channels])
            communicator["tag"] = self._take_tags(communicator["channels"])
            self._slots(by_hosts)

    def _way(self, way: Way) -> int:
        return self.ways.setdefault(json.dumps(way, sort_keys=True), len(self.ways))

    def _request(self, order: Mapping[str, Any], members: Members, entry: Algorithm, instance: Instance) -> int:
        """Which part carries it out: one request at a time each, but parameters stay where they are."""
        keeps = entry.collective.name == "optimizer_step"
        kind = {k: order[k] for k in ("communicator", "way", "dtype", "op")} | {"of": instance.number if keeps else -1}
        key = json.dumps(kind, sort_keys=True)
        if key not in self.requests:
            number, tag = len(self.requests), self._take_tags(2 * len(members) + 2)
            self.requests[key] = {**kind, "number": number, "tag": tag, "most": 0}
        request = self.requests[key]
        request["most"] = max(request["most"], order["size_bytes"])
        return int(request["number"])

    def _check_turns(self) -> None:
        """Requests of a part go out in the order of the lists: no task may wait for one that comes after it there."""
        links = self.graph.links
        before = dict(links.before)
        last: dict[tuple[int, int], Node] = {}
        for node, _ in nodes_of(self.graph.tasks):
            request = self.orders.get(node, {}).get("request")
            if request is not None:
                if (node[0], request) in last:
                    before[node] = (*before[node], last[node[0], request])
                last[node[0], request] = node
        if before != links.before:
            order_of(self.graph.tasks, before, links.instances, links.sends)

    def _slots(self, instances: list[tuple[Instance, Algorithm]]) -> None:
        """Memory of each collective: its own, or two that take turns.

        On one stream of collectives whose members meet, whoever begins one knows that all have begun the one before,
        and so have ended the one before that.
        """
        by_streams: dict[tuple[str, ...], list[tuple[Instance, Algorithm]]] = {}
        for instance, entry in instances:
            streams = tuple(self.graph.tasks[rank][n].stream for rank, n in sorted(instance.nodes.values()))
            by_streams.setdefault(streams, []).append((instance, entry))
        first = 0
        for theirs in by_streams.values():
            slots = min(2, len(theirs)) if all(entry.collective.meets for _, entry in theirs) else len(theirs)
            for k, (instance, _) in enumerate(theirs):
                for node in instance.nodes.values():
                    self.orders[node] |= {"slot": first + k % slots}
            first += slots

    def _messages(self) -> None:
        """Every message has a number on its way from rank to rank, and a place at its receiver."""
        count: Counter[tuple[int, int, str]] = Counter()
        ways = [json.loads(key) for key in self.ways]
        meeting = [self.entry(way["collective"], way["algorithm"]).collective.meets for way in ways]
        at = places(self.graph, lambda node: meeting[self.orders[node]["way"]])
        for node, task in nodes_of(self.graph.tasks):
            if isinstance(task, Send):
                if task.group not in self.lanes:
                    lane = {"number": len(self.lanes), "tag": self._take_tags(1), **self._marking(task.group)}
                    self.lanes[task.group] = lane
                way, lane = (node[0], task.peer, task.group), self.lanes[task.group]
                self.orders[node] = {
                    **{"do": "send", "peer": task.peer, "lane": lane["number"], "size_bytes": task.size_bytes},
                    **{"number": count[way], "at": at[node]},
                }
                count[way] += 1
        for receive, send in self.graph.links.sends.items():
            self.orders[receive] = {**self.orders[send], "do": "recv", "peer": send[0]}


def _op(entry: Algorithm) -> str | None:
    """What reduces where nothing is said: the sum, if it can."""
    if not entry.ops:
        return None
    return "sum" if "sum" in entry.ops and entry.collective.name != "optimizer_step" else entry.ops[0]


def _about(task: Task) -> dict[str, Any]:
    """What the timeline says of a task."""
    row: dict[str, Any] = {"stream": task.stream, "task": task.id, "kind": task.kind, "size_bytes": None}
    row |= {"operation": type(task).__name__.lower(), "group": None, "peer": None, "tag": None}
    match task:
        case Collective():
            row |= {"operation": task.collective, "group": task.group, "size_bytes": task.size_bytes}
        case Send() | Recv():
            row |= {"group": task.group or None, "peer": task.peer, "tag": task.tag, "size_bytes": task.size_bytes}
    return row
