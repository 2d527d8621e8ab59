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
        return shape.leaves * self.field_ns + shape.levels * self.level_ns + self.copied_ns(shape.size_bytes)

    def copied_ns(self, nbytes: int) -> float:
        return nbytes * 8e9 / self.copy_bps if self.copy_bps else 0.0


@dataclass(frozen=True)
class MessageCosts:
    """Of serializing a message, or of making an object of it: the same."""

    host: Work
    nic: Work

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> MessageCosts:
        host, nic = (Work(message[at]["field"], message[at]["level"], message[at]["copy"]) for at in ("host", "nic"))
        return cls(host, nic)

    def gather_ns(self, shape: Shape) -> float:
        """A host copies its object into one piece, header and slots too: no field is looked at."""
        return self.host.copied_ns(shape.object_bytes)


def moving_ns(feed: Mapping[str, Any]) -> float:
    """A core moves a preprocessed batch: it keeps the books and copies, beside posting."""
    return float(feed["manage"] + feed["batch"] * 8e9 / feed["copy"])


def batch_ns(feed: Mapping[str, Any], post_ns: float, *, moves: bool) -> float:
    """A core preprocesses a batch and posts it: to its complex, or, if it moves it itself, to an accelerator."""
    return float(feed["preprocess"] + post_ns + (moving_ns(feed) if moves else 0.0))
