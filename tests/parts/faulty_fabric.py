"""A live fabric with controller, whose NICs send a fixed set of flows by themselves, to show faults and their healing.

The same flows on an untouched fabric always give the same times and the same counts, so a fabric where every fault has
been healed must give them again.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from testbed.experiment import loads
from testbed.fabric.lab import Lab
from testbed.faults import Injection
from testbed.inject.agent import Agent

CLOS = """
name: faulty
fabric:
  topology: {clos: {leaves: 2, spines: SPINES, hosts_per_leaf: 3}}
  switch: {buffer: 1200KB, ecn: {kmin: 60KB, kmax: 60KB}}
transport: {cc: CC}
"""
UNIT = 16 * 4096  # what one acknowledgement covers: a flow of whole ones leaves a queue pair as it was
FLOWS = [
    (1, 0, 5 * UNIT, 0), (3, 0, 5 * UNIT, 0), (4, 0, 5 * UNIT, 500), (0, 3, 3 * UNIT, 0), (2, 5, 3 * UNIT, 0),
    (5, 2, 3 * UNIT, 1000), (4, 1, 3 * UNIT, 0),
]  # fmt: skip
DRAINED_NS = 500_000.0  # until everything of the flows before has gone over PCIe
_PRIORITY = re.compile(r"(.+)_prio\d(_.+)?")


@dataclass
class Outcome:
    """Of one set of flows: time of each in ns (None: it failed), counts by name, drops by (node, port, reason)."""

    times: list[float | None]
    counts: Counter[str]
    drops: Counter[tuple[str, int, str]]
    events: list[dict[str, Any]] = field(default_factory=list)
    ports: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def reasons(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for (_, _, reason), n in self.drops.items():
            found[reason] += n
        return found

    def figures(self) -> tuple[Any, ...]:
        """All figures except events, which a fault may leave behind on purpose."""
        return self.times, dict(+self.counts), dict(+self.drops), {k: dict(+v) for k, v in self.ports.items() if +v}


class FaultyFabric:
    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.fabricd = lab.fabricd
        self._number = itertools.count(1)
        self.agent = Agent(lab, lambda rank: None)
        self.fabricd.subscribe(acts="agent")
        self.fabricd.request("start", ranks=[])
        self.events: list[dict[str, Any]] = []

    def now_ns(self) -> float:
        return float(self.fabricd.request("status")["time_ns"])

    def inject(self, written: dict[str, Any]) -> list[str]:
        injection = Injection.of(written)
        name = f"f{next(self._number)}"
        place = injection.place(self.lab.fabric)
        for request in injection.requests(place, name, now_ns=self.now_ns()):
            self.fabricd.request("inject", **request)
        self.rest()
        return [f["fault"] for f in self.fabricd.request("faults")["faults"] if f["fault"].split(".")[0] == name]

    def heal(self, names: Sequence[str]) -> None:
        for name in names:
            self.fabricd.request("heal", fault=name)
        self.rest()

    def hits(self, names: Sequence[str]) -> int:
        return sum(f["hits"] for f in self.fabricd.request("counters")["faults"] if f["fault"] in names)

    def rest(self) -> None:
        """Nothing is under way any more; what faults ask of an agent is done."""
        wanted = self.fabricd.ask("quiesce")
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline, "the fabric does not come to rest"
            self.fabricd._receive(0.2)
            new = list(self.fabricd._events)
            self.fabricd._events.clear()
            self.events += new
            for event in new:
                if event["event"] == "act" and event["to"] == "agent":
                    self.agent.act(event)
            while self.fabricd._answers:
                if self.fabricd._answers.popleft().get("id") == wanted:
                    return

    def measure(self, flows: Sequence[tuple[int, int, int, float]] = FLOWS) -> Outcome:
        before, seen, name = self._counters(), len(self.events), f"m{next(self._number)}"
        later = [[source, to, size, start + DRAINED_NS] for source, to, size, start in flows]
        self.fabricd.request("inject", fault=name, primitive="traffic", flows=later)
        self.rest()
        results = self.fabricd.request("traffic_results", fault=name)["flows"]
        self.fabricd.request("heal", fault=name)
        self.rest()
        after = self._counters()
        assert len(results) == len(flows)
        return Outcome(
            [None if r[4] is None else round(r[4] - r[3], 3) for r in results],
            after[0] - before[0],
            after[1] - before[1],
            self.events[seen:],
            {p: after[2][p] - before[2][p] for p in after[2]},
        )

    def _counters(self) -> tuple[Counter[str], Counter[tuple[str, int, str]], dict[str, Counter[str]]]:
        counters = self.fabricd.request("counters")
        counts: Counter[str] = Counter()
        ports: dict[str, Counter[str]] = {}
        for nic in counters["nics"]:
            for key, value in nic.items():
                if key not in ("nic", "rank"):
                    counts[key] += value
                    counts[f"{key}@{nic['rank']}"] += value
        for port in counters["ports"]:
            own = ports.setdefault(f"{port['node']}:{port['port']}", Counter())
            for key, value in port["priorities"].items():
                if "_max" in key or "duration" in key:
                    continue
                own[key] += value
                match = _PRIORITY.fullmatch(key)
                assert match is not None
                counts[f"{match[1]}{match[2] or ''}"] += value
        drops = Counter({(d["node"], d["port"], d["reason"]): d["count"] for d in counters["drops"]})
        return counts, drops, ports


@contextmanager
def faulty_fabric(spines: int = 1, cc: str = "none", more: str = "") -> Iterator[FaultyFabric]:
    experiment = loads(CLOS.replace("SPINES", str(spines)).replace("CC", cc) + more)
    with Lab.up(experiment) as lab:
        yield FaultyFabric(lab)
