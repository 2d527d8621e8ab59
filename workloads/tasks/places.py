"""Where messages land at their receivers: places that one message after the other may use.

A message may land where another one did if its sender knows, when it begins, that the other's receiver is through with
it.  What a task knows follows from the graph: what it waits for has ended, and whatever those knew; who has received a
message knows what its sender knew when it sent; and nobody is through with a collective whose members meet before all
have begun it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from workloads.tasks.check import Node
from workloads.tasks.graph import Graph
from workloads.tasks.task import Send

ALIGN = 64  # bytes at which pieces of memory begin
MOST_FOLLOWED = 1 << 15  # messages; more than that land in places of their own

Way = tuple[int, int, str]
"""From rank to rank, and of which group: messages of a way share memory."""

Known = int
"""A set of messages as bits: those of which somebody knows that they have been received."""


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def places(graph: Graph, meets: Callable[[Node], bool]) -> dict[Node, int]:
    """At which byte of its way's memory each message of a graph lands, by its Send.

    `meets` says of a collective's task whether nobody is through with it before all have begun.
    """
    ways: dict[Way, list[Node]] = {}
    for rank, its in graph.tasks.items():
        for number, task in enumerate(its):
            if isinstance(task, Send):
                ways.setdefault((rank, task.peer, task.group), []).append((rank, number))
    sends = graph.links.sends
    left_out = any(task.every > 1 for its in graph.tasks.values() for task in its)  # nobody waits for these then
    if left_out or len(sends) > MOST_FOLLOWED or all(len(its) < 2 for its in ways.values()):
        return {node: at for its in ways.values() for node, at in _one_after_the_other(graph, its)}
    bits = {send: 1 << k for k, send in enumerate(sends.values())}
    way_of = {node: way for way, its in ways.items() for node in its}
    taken: dict[Way, list[list[int]]] = {way: [] for way in ways}  # places: at, bytes, the last message's bit
    found: dict[Node, int] = {}
    for node, known in _known(graph, bits, meets):
        there, nbytes = taken[way_of[node]], aligned(_size(graph, node))
        free = next((place for place in there if place[2] & known and place[1] >= nbytes), None)
        if free is None:
            end = there[-1][0] + there[-1][1] if there else 0
            there.append(free := [end, nbytes, 0])
        found[node], free[2] = free[0], bits[node]
    return found


def _size(graph: Graph, node: Node) -> int:
    task = graph.tasks[node[0]][node[1]]
    assert isinstance(task, Send)
    return task.size_bytes


def _one_after_the_other(graph: Graph, nodes: list[Node]) -> Iterator[tuple[Node, int]]:
    at = 0
    for node in nodes:
        yield node, at
        at += aligned(_size(graph, node))


def _known(graph: Graph, bits: dict[Node, int], meets: Callable[[Node], bool]) -> Iterator[tuple[Node, Known]]:
    """Every Send, with what its sender knows when it begins; each behind those of which it knows."""
    links = graph.links
    asked = dict.fromkeys(links.order, 0)  # by how many tasks that wait for it
    for others in links.before.values():
        for other in others:
            asked[other] += 1
    ended: dict[Node, Known] = {}
    sent: dict[Node, Known] = {}
    begun: dict[Node, Known] = {}

    def begins(node: Node) -> Known:
        known = 0
        for other in links.before[node]:
            known |= ended[other]
            asked[other] -= 1
            if not asked[other]:
                del ended[other]
        return known

    for node in links.order:
        if node in links.instances:
            if node not in begun:  # its members stand side by side
                begun = {other: begins(other) for other in links.instances[node].nodes.values()}
            known = begun[node]
            if meets(node):
                for others_knew in begun.values():
                    known |= others_knew
        else:
            known = begins(node)
        if node in bits:
            yield node, known
            sent[node] = known
        elif node in links.sends:
            send = links.sends[node]
            known |= bits[send] | sent.pop(send)
        if asked[node]:
            ended[node] = known
