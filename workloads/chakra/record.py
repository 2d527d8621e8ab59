"""A graph of tasks as traces: one for each rank, which other readers of Chakra understand, too.

A task is a node that waits for the tasks that it names and, unless its stream is unordered, for the one before it
there.  What Chakra has no word for (streams, algorithms, times below a microsecond) stands in one attribute, which
others pass over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workloads.chakra import et
from workloads.chakra.et import TYPE_OF, Node, Trace, Value
from workloads.chakra.names import NUMBER_OF, OF_A_PART, OWN
from workloads.tasks.graph import Graph
from workloads.tasks.task import Collective, Compute, Recv, Send, Task


def record(graph: Graph) -> dict[int, Trace]:
    """Rank -> its trace."""
    numbers = _numbers(graph)
    header = {
        "groups": {name: [list(members) for members in tuples] for name, tuples in graph.groups.items()},
        "settings": {name: asdict(of) for name, of in graph.settings.items()},
        "ranks": sorted(graph.tasks),
    } | ({"unordered": sorted(graph.unordered)} if graph.unordered else {})
    own = json.dumps(header, separators=(",", ":"))
    every = range(max(graph.tasks, default=-1) + 1)  # who reads traces wants one of each rank
    return {rank: Trace(_nodes(graph, rank, numbers), attributes={OWN: own}) for rank in every}


def groups(graph: Graph) -> dict[str, list[int]]:
    """The groups' file: number -> ranks.  0 is everybody to other readers, so these begin at 1."""
    return {str(number): list(members) for (_, members), number in _numbers(graph).items()}


def write(graph: Graph, folder: Path, name: str = "trace") -> list[Path]:
    """Writes NAME.RANK.et and NAME.json, the groups, into a folder, which is made; returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for rank, trace in record(graph).items():
        written.append(folder / f"{name}.{rank}.et")
        et.write(written[-1], trace)
    written.append(folder / f"{name}.json")
    written[-1].write_text(json.dumps(groups(graph), indent=1) + "\n")
    return written


def _numbers(graph: Graph) -> dict[tuple[str, tuple[int, ...]], int]:
    every = [(name, tuple(members)) for name, tuples in graph.groups.items() for members in tuples]
    return {one: number for number, one in enumerate(every, 1)}


def _nodes(graph: Graph, rank: int, numbers: Mapping[tuple[str, tuple[int, ...]], int]) -> list[Node]:
    nodes: list[Node] = []
    ids: dict[str, int] = {}
    last: dict[str, int] = {}
    tasks = graph.tasks.get(rank, ())
    for number, task in enumerate(tasks, 1):  # node 0 would be an empty message, where files end
        ids[task.id] = number
    for number, task in enumerate(tasks, 1):
        waits = [ids[name] for name in task.after]
        before = last.get(task.stream) if task.stream not in graph.unordered else None
        node = Node(number, task.id, data_deps=[*waits, *([before] if before and before not in waits else [])])
        last[task.stream] = number
        own: dict[str, Any] = {"stream": task.stream, "after": len(waits)}
        own |= {"kind": task.kind} if task.kind else {}
        own |= {"not_before_ns": task.not_before_ns} if task.not_before_ns else {}
        own |= _attributes(graph, rank, task, node, numbers)
        node.attributes[OWN] = json.dumps(own, separators=(",", ":"))
        nodes.append(node)
    return nodes


def _attributes(
    graph: Graph, rank: int, task: Task, node: Node, numbers: Mapping[tuple[str, tuple[int, ...]], int]
) -> dict[str, Any]:
    """Fills in a node; returns what Chakra has no word for."""
    attributes: dict[str, Value] = {"is_cpu_op": False}
    node.attributes = attributes
    match task:
        case Compute():
            node.type = TYPE_OF["comp"]
            node.duration_us = round(task.duration_ns / 1000)
            return {} if node.duration_us * 1000 == task.duration_ns else {"duration_ns": task.duration_ns}
        case Collective():
            node.type = TYPE_OF["comm_coll"]
            members = graph.members(rank, task)
            if task.collective in NUMBER_OF:
                attributes["comm_type"] = NUMBER_OF[task.collective]
            size = task.size_bytes // len(members) if task.collective in OF_A_PART else task.size_bytes
            attributes["comm_size"] = size
            attributes["pg_name"] = str(numbers[task.group, tuple(members)])
            own: dict[str, Any] = {
                "group": task.group,
                "collective": task.collective,
                "dtype": task.dtype,
                "op": task.op,
            }
            own |= {"algorithm": task.algorithm} if task.algorithm else {}
            own |= {"parts": task.parts} if task.parts else {}
            whole = size * len(members) if task.collective in OF_A_PART else size
            return own if whole == task.size_bytes else own | {"size_bytes": task.size_bytes}
        case Send() | Recv():
            sends = isinstance(task, Send)
            node.type = TYPE_OF["comm_send" if sends else "comm_recv"]
            attributes["comm_src"], attributes["comm_dst"] = (rank, task.peer) if sends else (task.peer, rank)
            attributes["comm_size"] = task.size_bytes
            attributes["comm_tag"] = _tag(graph, rank, task)
            return {"tag": task.tag, "group": task.group}
    raise TypeError(f"{type(task).__name__} is no kind of task")


def _tag(graph: Graph, rank: int, task: Send | Recv) -> int:
    """A number for a tag: its place among those that the sender has for this receiver."""
    sender, receiver = (rank, task.peer) if isinstance(task, Send) else (task.peer, rank)
    tags = dict.fromkeys(t.tag for t in graph.tasks[sender] if isinstance(t, Send) and t.peer == receiver)
    return list(tags).index(task.tag)
