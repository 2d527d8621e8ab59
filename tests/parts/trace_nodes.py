"""Nodes of traces for tests, and the traces of a small pipeline."""

from __future__ import annotations

from typing import Any

from workloads.chakra.et import Node


def comp(number: int, us: int, *waits: int, cpu: bool = False, start: int = 0, **more: Any) -> Node:
    return Node(number, f"c{number}", 4, data_deps=list(waits), start_us=start, duration_us=us,
                attributes={"is_cpu_op": cpu, **more})  # fmt: skip


def coll(number: int, *waits: int, **attributes: Any) -> Node:
    return Node(
        number, f"n{number}", 7, ctrl_deps=list(waits), attributes={"comm_type": 0, "comm_size": 1024} | attributes
    )


def two_stages() -> list[list[Node]]:
    """Two stages of a pipeline, twice, with ids as ASTRA-sim's generator gives them: messages come behind everything.

    A forward pass takes 10 us, a backward pass 20; the last stage does both at once.  Both copies sum at the end.
    """

    def receive(number: int, of: int, tag: int) -> Node:
        return Node(number, f"r{tag}", 6, attributes={"comm_src": of, "comm_size": 4096, "comm_tag": tag})

    def send(number: int, to: int, tag: int, after: int) -> Node:
        return Node(
            number, f"s{tag}", 5, data_deps=[after], attributes={"comm_dst": to, "comm_size": 4096, "comm_tag": tag}
        )

    ranks = []
    for rank in range(4):
        peer, group = (rank + 2) % 4, str(1 + rank // 2)
        if rank < 2:
            nodes = [comp(1, 10), comp(2, 20, 6), comp(3, 10), comp(4, 20, 7), coll(5, 2, 4, pg_name=group)]
            nodes += [receive(6, peer, 2), receive(7, peer, 3), send(8, peer, 0, 1), send(9, peer, 1, 3)]
        else:
            nodes = [receive(1, peer, 0), receive(2, peer, 1), comp(3, 30, 1), comp(4, 30, 2)]
            nodes += [coll(5, 3, 4, pg_name=group), send(6, peer, 2, 3), send(7, peer, 3, 4)]
        ranks.append(nodes)
    return ranks


TWO_STAGES = {"1": [0, 1], "2": [2, 3]}
