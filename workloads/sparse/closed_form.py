"""What a dense collective takes by the algorithms of block-sparse ones (docs/sparse.md derives it)."""

from __future__ import annotations

from topologies.graph.frames import ACK_BYTES
from workloads.sparse.sizes import MOST_BLOCKS, header_bytes
from workloads.times.messages import Costs, Path, received_ns

BLOCK_BYTES = 1024  # 256 elements of float32
FUSION = 4


def omnireduce_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """A dense all-reduce of float32, every rank worker and aggregator, with the default block and fusion.

    Each rank sends (n - 1)/n of its vector as a worker and the sums of its share to n - 1 workers: twice (n - 1)/n of
    the size, in messages of 4 KiB and a header, and as many acknowledgements.  Its host posts each message and adds up
    (n - 1)/n of the size.  The slower of link and host decides; a message's way there and back comes on top.
    """
    message = min(BLOCK_BYTES * FUSION, size_bytes) + header_bytes(FUSION)
    messages = -(-size_bytes // (BLOCK_BYTES * FUSION)) * (ranks - 1) / ranks
    link = 2 * messages * max(link.time_ns(costs.message_wire_bytes(message) + ACK_BYTES) for link in path.links)
    host = 2 * messages * costs.post_ns + costs.reduce_ns(size_bytes) * (ranks - 1) / ranks
    once = 2 * (costs.post_ns + received_ns(message, path, costs) + costs.wake_ns)
    return max(link, host) + once


def omniccl_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """A dense all-reduce of float32 with an aggregator behind every rank's NIC, and the default block and window.

    Posting and adding up are not one host's, and do not count.  Two limits: the cable, which carries what a rank writes
    to the others' complexes and what its own complex sends them, and before that a window of every complex, for sums
    begin to flow when it is full; and the host's side of the NIC, which carries the whole vector once each way, two
    windows of every complex at a time: the next ones wait for the sums of the first.
    """
    blocks = min(MOST_BLOCKS, -(-size_bytes // (BLOCK_BYTES * ranks)))
    message = min(BLOCK_BYTES * blocks, size_bytes) + header_bytes(blocks)
    acks = 1 + (costs.packets(message) - 1) // costs.ack_every
    frames = costs.message_wire_bytes(message) + acks * ACK_BYTES
    window = max(link.time_ns(frames) for link in path.links)
    windows = size_bytes / (BLOCK_BYTES * blocks)
    turns, together = windows / ranks, min(ranks, windows)
    there_and_back = 2 * (path.constant_ns + 3 * costs.pcie_latency_ns + costs.post_ns + costs.wake_ns)
    cable = (2 * windows + together) * (ranks - 1) / ranks * window + there_and_back
    host = (windows + together) * window + (turns / 2 + 1) * there_and_back
    return max(cable, host)
