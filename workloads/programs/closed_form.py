"""What programs take on an idle fabric, by arithmetic (docs/smartnic-programs.md derives it).

Without `message` cores and engines cost nothing: what is left is the network's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from topologies.graph.frames import ACK_BYTES, IMM_BYTES, RETH_BYTES, wire_bytes
from workloads.programs.block import HEADER_BYTES
from workloads.programs.costs import MessageCosts, Work, batch_ns
from workloads.programs.message import Shape
from workloads.programs.share import shared
from workloads.times.messages import Costs, Path, received_ns


def _message(size_bytes: int, message: Mapping[str, Any] | None) -> tuple[Shape, MessageCosts, float]:
    if message is None:
        return Shape(size_bytes, 1, 1), MessageCosts(Work(), Work()), 0.0
    shape = Shape(size_bytes, message["nesting"], message["fields"])
    return shape, MessageCosts.of(message), float(message["handler"])


def rpc_by_hosts_ns(
    ranks: int, size_bytes: int, path: Path, costs: Costs, message: Mapping[str, Any] | None = None
) -> float:
    """A call: serialized, sent, an object made of it, served, and the same back."""
    shape, work, handler_ns = _message(size_bytes, message)
    one_way = costs.post_ns + received_ns(shape.wire_bytes(), path, costs) + costs.wake_ns
    return 2 * (2 * work.host.ns(shape) + one_way) + handler_ns


def rpc_by_nics_ns(
    ranks: int,
    size_bytes: int,
    path: Path,
    costs: Costs,
    message: Mapping[str, Any] | None = None,
    inside: tuple[Path, Path] | None = None,
    complex_post_ns: float = 0.0,
    complex_wake_ns: float = 0.0,
) -> float:
    """A call by NICs: `path` is from complex to complex, `inside` from a host to its complex, and back."""
    shape, work, handler_ns = _message(size_bytes, message)
    into, out = inside or (path, path)
    objects = received_ns(shape.object_bytes, into, costs), received_ns(shape.object_bytes, out, costs)
    network = sum(objects) + received_ns(shape.wire_bytes(), path, costs)
    complexes = 2 * (complex_wake_ns + work.nic.ns(shape) + complex_post_ns)
    one_way = work.gather_ns(shape) + costs.post_ns + complexes + network
    return 2 * (one_way + costs.wake_ns) + handler_ns


def block_write_by_hosts_ns(
    ranks: int, size_bytes: int, path: Path, costs: Costs, storage: Mapping[str, Any] | None = None
) -> float:
    """The least that writes take by a host: its cable, its cores that compress, or the one that handles headers.

    Without waking: a core that is busy finds many messages each time.
    """
    if storage is None:
        return size_bytes * 8e9 / _line_bps(path)
    block_ns, cores = (1 + storage["replicas"]) * costs.post_ns + storage["header"], storage["host"]
    compressing = size_bytes * 8e9 / cores["compress"] / cores["cores"]
    posting = size_bytes / storage["block"] * block_ns
    return float(max(_cable_ns(size_bytes, path, costs, storage), compressing, posting))


def block_write_by_nics_ns(
    ranks: int,
    size_bytes: int,
    path: Path,
    costs: Costs,
    storage: Mapping[str, Any] | None = None,
    complex_post_ns: float = 0.0,
) -> float:
    """The same by a NIC: its cable, its engine, its complex that posts, or the host's core that handles headers."""
    if storage is None:
        return size_bytes * 8e9 / _line_bps(path)
    engine, blocks = storage["nic"], size_bytes / storage["block"]
    compressing = size_bytes * 8e9 / engine["compress"] / engine["cores"]
    posting = blocks * max((2 + storage["replicas"]) * complex_post_ns, storage["header"] + costs.post_ns)
    return float(max(_cable_ns(size_bytes, path, costs, storage), compressing, posting))


def _line_bps(path: Path) -> float:
    return min(link.rate_bps for link in path.links)


def _cable_ns(size_bytes: int, path: Path, costs: Costs, storage: Mapping[str, Any]) -> float:
    """Of the middle tier: every block comes in once, and goes out compressed for each replica.  Each message of the one
    way has an acknowledgement the other, by the program and by the transport."""
    block, replicas, ratio = storage["block"], storage["replicas"], storage["ratio"]
    small = wire_bytes(8, RETH_BYTES + IMM_BYTES)
    into = costs.message_wire_bytes(HEADER_BYTES + block) + replicas * (small + ACK_BYTES) + ACK_BYTES
    out = replicas * (costs.message_wire_bytes(int(HEADER_BYTES + block / ratio)) + ACK_BYTES) + small + ACK_BYTES
    return float(size_bytes / block * max(into, out) * 8e9 / _line_bps(path))


def _feed_ns(
    ranks: int, size_bytes: int, path: Path, costs: Costs, feed: Mapping[str, Any] | None = None, *, by_hosts: bool
) -> float:
    """The least that it takes: each server's core (by NICs it only hands a batch over), or the busiest accelerator."""
    if feed is None:
        return size_bytes * 8e9 / _line_bps(path)
    servers, batches = ranks - len(feed["compute"]), size_bytes // feed["batch"]
    each_ns = batch_ns(feed, costs.post_ns, moves=by_hosts)
    batch_to = shared(feed["schedule"], feed["compute"], each_ns / servers, batches)
    busiest = max(batch_to.count(a) * compute for a, compute in enumerate(feed["compute"]))
    return float(max(-(-batches // servers) * each_ns, busiest))


feed_by_hosts_ns = partial(_feed_ns, by_hosts=True)
feed_by_nics_ns = partial(_feed_ns, by_hosts=False)
