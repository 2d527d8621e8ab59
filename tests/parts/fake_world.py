"""A world without a fabric: its job's steps take what the faults that are in it make them take."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from drills.sheet.case import Case
from testbed.faults import Injection

HEALTHY_NS, FAULTY_NS = 40_000, 60_000


@dataclass(frozen=True)
class FakeRank:
    wrong: int = 0


@dataclass(frozen=True)
class FakeStep:
    number: int
    start_ns: float
    end_ns: float
    ranks: dict[int, FakeRank]


@dataclass
class FakeWorld:
    """Steps follow each other, with a gap between two; one that begins while a fault is in takes longer."""

    case: Case
    faulty_ns: int = FAULTY_NS
    gap_ns: int = 0
    time_ns: int = 0
    faults: dict[str, float] = field(default_factory=dict)
    closed: bool = False
    told: list[str] = field(default_factory=list)  # all that was done to it
    _all: list[FakeStep] = field(default_factory=list)
    _kept: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    @property
    def fabric(self) -> Any:
        return self.case.experiment.build_fabric()

    @property
    def experiment(self) -> Any:
        return self.case.experiment

    @property
    def steps(self) -> list[FakeStep]:
        return [step for step in self._all if step.end_ns <= self.time_ns]

    def advance(self, ns: int) -> None:
        goal = self.time_ns + ns
        while self.time_ns < goal:
            end = self._all[-1].end_ns if self._all else -self.gap_ns
            if end <= self.time_ns:
                start = end + self.gap_ns
                sick = any(at <= start for at in self.faults.values())
                took = self.faulty_ns if sick else HEALTHY_NS
                self._all.append(FakeStep(len(self._all), start, start + took, {0: FakeRank()}))
            self.time_ns = int(min(goal, self._all[-1].end_ns))
        self._kept.append((self.time_ns, self.counters()))

    def until(self, condition: str | Callable[[Any], bool], limit_ns: int) -> bool:
        assert callable(condition)
        end = self.time_ns + limit_ns
        while not condition(self):
            if self.time_ns >= end:
                return False
            self.advance(min(5_000, end - self.time_ns))
        return True

    def counters(self) -> dict[str, Any]:
        frames = self.time_ns // 100
        ports = [
            {
                "node": end.node, "port": end.port, "link": "up", "tx_bytes": 1000 * frames, "tx_packets": frames,
                "rx_packets": frames, "drops": {}, "priorities": {}, "rate_bps": 4e11,
            }
            for cable in self.fabric.cables for end in (cable.a, cable.b)
        ]  # fmt: skip
        return {"time_ns": self.time_ns, "ports": ports, "nics": [], "drops": [], "switches": [], "qps": []}

    def history(self) -> list[tuple[int, dict[str, Any]]]:
        return self._kept

    def put_in(self, injection: Injection, name: str | None = None) -> str:
        assert name is not None
        self.told.append(f"{self.time_ns} {injection.fault.name} {injection.on}")
        if injection.fault.name != "noisy_neighbour":
            self.faults[name] = self.time_ns + injection.at
        return name

    def take_out(self, name: str) -> None:
        self.told.append(f"{self.time_ns} out {name}")
        del self.faults[name]

    def settle(self) -> None:
        pass

    @property
    def lab(self) -> Any:
        return None

    def digest(self) -> str:
        return hashlib.sha256(f"{self.time_ns} {self.faults} {self.steps}".encode()).hexdigest()

    def close(self) -> None:
        assert not self.closed
        self.closed = True
