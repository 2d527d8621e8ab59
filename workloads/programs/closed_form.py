"""What programs take on an idle fabric, by arithmetic (docs/smartnic-programs.md derives it).

Without `message` cores and engines cost nothing: what is left is the network's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.programs.costs import MessageCosts, Work
from workloads.programs.message import Shape
from workloads.times.messages import Costs, Path, received_ns


def _known(size_bytes: int, message: Mapping[str, Any] | None) -> tuple[Shape, MessageCosts, float]:
    if message is None:
        return Shape(size_bytes, 1, 1), MessageCosts(Work(), Work()), 0.0
    shape = Shape(size_bytes, message["nesting"], message["fields"])
    return shape, MessageCosts.of(message), float(message["handler"])


def rpc_by_hosts_ns(
    ranks: int, size_bytes: int, path: Path, costs: Costs, message: Mapping[str, Any] | None = None
) -> float:
    """A call: serialized, sent, an object made of it, served, and the same back."""
    shape, work, handler_ns = _known(size_bytes, message)
    way = costs.post_ns + received_ns(shape.wire_bytes(), path, costs) + costs.wake_ns
    return 2 * (2 * work.host.ns(shape) + way) + handler_ns


def rpc_by_nics_ns(
    ranks: int,
    size_bytes: int,
    path: Path,
    costs: Costs,
    message: Mapping[str, Any] | None = None,
    inside: tuple[Path, Path] | None = None,
    complex_post_ns: float = 0.0,
) -> float:
    """A call by NICs: `path` is from complex to complex, `inside` from a host to its complex, and back."""
    shape, work, handler_ns = _known(size_bytes, message)
    into, out = inside or (path, path)
    objects = received_ns(shape.object_bytes, into, costs), received_ns(shape.object_bytes, out, costs)
    there = sum(objects) + received_ns(shape.wire_bytes(), path, costs)
    way = work.gather.ns(shape) + costs.post_ns + 2 * (work.nic.ns(shape) + complex_post_ns) + there
    return 2 * (way + costs.wake_ns) + handler_ns
