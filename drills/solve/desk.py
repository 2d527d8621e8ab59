"""What an operator has before him: the views of a session as rows, and the plan of the fabric.

He goes by `Session.command`. The plan of the cabling, by which he knows what should be plugged in where, is the
topology of `Session.state`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from drills.session import Session
from topologies.graph.fabric import Cable, Fabric

Row = Mapping[str, Any]
RECENT_NS = 400_000.0
_LED = re.compile(r"config route (un)?drain (\S+:\d+)")
STANDS = 3.0
"""No step has ended for so many times the best: the job stands."""
SLOW = 1.02


class Desk:
    def __init__(self, session: Session) -> None:
        self.session = session
        self._seen: dict[str, Mapping[str, Any]] = {}
        told = session.command("ticket")
        self.ticket: Mapping[str, Any] = told.data or {}
        self.time_ns = float(told.time_ns)
        self.from_ns = 0.0
        """What was before is not recent, whatever is asked for."""
        self.back: set[str] = set()
        """Ports to which flows may come back that had been led around them."""

    @cached_property
    def plan(self) -> Fabric:
        return Fabric.from_dict(self.session.state()["topology"])

    @property
    def asked_to_mend(self) -> bool:
        return "fix" in (self.ticket.get("question") or ())

    # -- looking

    def tables(self, line: str) -> Mapping[str, Any]:
        """What a line that only looks has brought; asked once at a hold. A view that is refused is empty."""
        if line not in self._seen:
            answer = self.session.command(line)
            self._seen[line] = answer.data if answer.ok and isinstance(answer.data, Mapping) else {}
        return self._seen[line]

    def rows(self, line: str, table: str = "") -> Sequence[Row]:
        tables = self.tables(line)
        found = tables.get(table) if table else next(iter(tables.values()), None)
        return found if isinstance(found, list) else []

    def recent(self, view: str, table: str = "", of_ns: float = RECENT_NS) -> Sequence[Row]:
        """What has changed of late: counters of last year stay out."""
        since = min(of_ns, max(1000.0, self.time_ns - max(1000.0, self.from_ns)))
        return self.rows(f"{view} --changed {since:.0f}ns", table)

    # -- acting

    def do(self, line: str) -> bool:
        """A line that takes time; whether it went through."""
        answer = self.session.command(line)
        self._seen.clear()
        self.time_ns = float(answer.time_ns)
        led = _LED.fullmatch(line)
        if led and answer.ok:
            (self.back.add if led[1] else self.back.discard)(led[2])
        return answer.ok

    def ask(self, line: str) -> Mapping[str, Any]:
        """A tool's tables; it takes time. What is refused is empty."""
        answer = self.session.command(line)
        self._seen.clear()
        self.time_ns = float(answer.time_ns)
        return answer.data if answer.ok and isinstance(answer.data, Mapping) else {}

    def carry_out(self, lines: Sequence[str]) -> bool:
        """Actions, one after the other, up to one that is refused: a cable that cannot be drained is not changed."""
        return all(self.do(f"config {line}") for line in lines)

    def pass_(self, ns: float) -> bool:
        return self.do(f"advance {ns:.0f}ns")

    # -- the job

    @property
    def steps(self) -> Sequence[Row]:
        return self.rows("show job")

    @property
    def best_us(self) -> float:
        return min((float(row["time_us"]) for row in self.steps), default=0.0)

    @property
    def last_end_us(self) -> float:
        last = self.rows("show job --last 1")
        return float(last[-1]["began_us"]) + float(last[-1]["time_us"]) if last else 0.0

    @property
    def stands(self) -> bool:
        last = self.rows("show job --last 1")
        usual = max([1.5 * float(row["time_us"]) for row in last] + [STANDS * self.best_us, 1.0])
        return self.time_ns / 1000 - self.last_end_us > usual

    @property
    def slow(self) -> bool:
        """Whether the job is not as it was."""
        return self.stands or any(float(row["time_us"]) > SLOW * self.best_us for row in self.steps[1:])

    # -- the plan

    def cable(self, port: str) -> Cable | None:
        """The cable that should be in a port, `leaf0:3`."""
        node, _, number = port.partition(":")
        return self.plan.cable_at.get((node, int(number))) if number.isdecimal() else None

    def peer(self, port: str) -> str:
        cable = self.cable(port)
        if cable is None:
            return ""
        end = cable.b if f"{cable.a.node}:{cable.a.port}" == port else cable.a
        return f"{end.node}:{end.port}"

    def rank(self, node: str) -> int | None:
        nic = self.plan.nic_by_name.get(node)
        return None if nic is None else nic.rank

    def rank_of_ip(self, ip: str) -> int | None:
        return next((nic.rank for nic in self.plan.nics if str(nic.ip) == ip), None)

    def nic_cable(self, rank: int) -> Cable:
        name = self.plan.nics[rank].name
        return next(c for c in self.plan.cables if name in (c.a.node, c.b.node))

    def switch_end(self, cable: Cable) -> str:
        """The port of a cable at a switch, as actions take it."""
        end = cable.b if cable.a.node in self.plan.nic_by_name else cable.a
        return f"{end.node}:{end.port}"

    def apart(self, one: int, other: int) -> bool:
        """Whether two ranks are at different switches."""
        ends = [self.switch_end(self.nic_cable(rank)).partition(":")[0] for rank in (one, other)]
        return ends[0] != ends[1]

    def between_switches(self, cable: Cable) -> bool:
        return not {cable.a.node, cable.b.node} & set(self.plan.nic_by_name)


def odd(rows: Iterable[Row], of: str, values: Sequence[str]) -> list[tuple[Row, Row]]:
    """Rows whose values are not those of most that are like them (`of`): each with what is usual."""
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.get(of) if of else None, []).append(row)
    found = []
    for group in groups.values():
        usual, count = Counter(tuple(str(row.get(v)) for v in values) for row in group).most_common(1)[0]
        if count * 2 <= len(group) and len(group) > 2:
            continue
        example = next(row for row in group if tuple(str(row.get(v)) for v in values) == usual)
        found += [(row, example) for row in group if tuple(str(row.get(v)) for v in values) != usual]
    return found


def number(row: Row, key: str) -> float:
    value = row.get(key)
    return float(value) if isinstance(value, int | float) else 0.0
