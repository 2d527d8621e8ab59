"""Where messages land at their receivers: places that one message after the other may use.

A message may land where another one did if its sender knows, when it begins, that the other has been received and used.
What a task knows follows from the graph: that what it waits for has ended, and all that those tasks knew.  Who receives
a message knows what its sender knew; and who ends a collective whose members meet knows what all of them knew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from workloads.tasks.check import Node, nodes_of
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
    for node, task in nodes_of(graph.tasks):
        if isinstance(task, Send):
            ways.setdefault((node[0], task.peer, task.group), []).append(node)
    sends = graph.links.sends
    left_out = any(task.every > 1 for _, task in nodes_of(graph.tasks))  # nobody waits for these then
    if left_out or len(sends) > MOST_FOLLOWED or all(len(nodes) < 2 for nodes in ways.values()):
        return {node: at for nodes in ways.values() for node, at in _one_after_the_other(graph, nodes)}
    bits = {send: 1 << k for k, send in enumerate(sends.values())}
    way_of = {node: way for way, nodes in ways.items() for node in nodes}
    used: dict[Way, list[list[int]]] = {way: [] for way in ways}  # places: at, bytes, the last message's bit
    at: dict[Node, int] = {}
    for node, known in _known(graph, bits, meets):
        own, nbytes = used[way_of[node]], aligned(_size(graph, node))
        free = next((place for place in own if place[2] & known and place[1] >= nbytes), None)
        if free is None:
            end = own[-1][0] + own[-1][1] if own else 0
            own.append(free := [end, nbytes, 0])
        at[node], free[2] = free[0], bits[node]
    return at


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
    waiting = Counter(other for others in links.before.values() for other in others)  # tasks that wait for each
    ended: dict[Node, Known] = {}
    sent: dict[Node, Known] = {}
    begun: dict[Node, Known] = {}

    def begins(node: Node) -> Known:
        known = 0
        for other in links.before[node]:
            known |= ended[other]
            waiting[other] -= 1
            if not waiting[other]:
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
        if waiting[node]:
            ended[node] = known
