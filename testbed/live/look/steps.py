"""The steps of a job that is repeated: one pass through its workload each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RankStep:
    """One rank's part of a step. Of `end_ns - start_ns` its host was at work for `host_ns` (posts, reductions, waking
    up) and its compute tasks for `compute_ns`; for `wait_ns` it waited for the network and for other ranks. `wrong` are
    elements of results. `fallback` says why an offload's work was done by the hosts.
    """

    host_ns: float
    wait_ns: float
    wrong: int
    start_ns: float
    end_ns: float
    compute_ns: float = 0.0
    fallback: str = ""

    @property
    def busy_ns(self) -> float:
        """Its host's and its compute tasks' time."""
        return self.host_ns + self.compute_ns


@dataclass(frozen=True)
class Step:
    """One pass of the job through its workload, from its first rank's start to its last rank's end."""

    number: int
    start_ns: float
    end_ns: float
    ranks: Mapping[int, RankStep]

    @property
    def time_ns(self) -> float:
        return round(self.end_ns - self.start_ns, 3)

    @property
    def wrong(self) -> int:
        return sum(rank.wrong for rank in self.ranks.values())

    @property
    def last(self) -> int:
        return max(self.ranks, key=lambda rank: (self.ranks[rank].end_ns, -rank))

    @property
    def busiest(self) -> int:
        """The rank that host and compute tasks kept busy for longest: the others wait for it."""
        return max(self.ranks, key=lambda rank: (self.ranks[rank].busy_ns, -rank))

    def to_dict(self) -> dict[str, Any]:
        ranks = {str(rank): vars(part) for rank, part in self.ranks.items()}
        return {"number": self.number, "start_ns": self.start_ns, "end_ns": self.end_ns, "ranks": ranks}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Step:
        ranks = {int(rank): RankStep(**part) for rank, part in fields["ranks"].items()}
        return cls(fields["number"], fields["start_ns"], fields["end_ns"], ranks)
