"""What cores and engines take for the work of programs: stated by the step, times and rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workloads.programs.message import Shape


@dataclass(frozen=True)
class Work:
    """On a message: for each of its fields and levels, and for its bytes."""

    field_ns: float = 0.0
    level_ns: float = 0.0
    copy_bps: float | None = None

    def ns(self, shape: Shape) -> float:
        copied = shape.size_bytes * 8e9 / self.copy_bps if self.copy_bps else 0.0
        return shape.leaves * self.field_ns + shape.levels * self.level_ns + copied


@dataclass(frozen=True)
class MessageCosts:
    """Of serializing a message, or of making an object of it: the same."""

    host: Work
    nic: Work

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> MessageCosts:
        host, nic = (Work(message[at]["field"], message[at]["level"], message[at]["copy"]) for at in ("host", "nic"))
        return cls(host, nic)

    @property
    def gather(self) -> Work:
        """A host that copies its object into one piece: no field is looked at."""
        return Work(copy_bps=self.host.copy_bps)
