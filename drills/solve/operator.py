"""An operator at a session: views as rows, actions, and the plan of the cabling (the topology of `Session.state`)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from drills.session import Answer, Session
from topologies.graph.fabric import Cable, Fabric

Row = Mapping[str, Any]
K = TypeVar("K", bound=Hashable)
RECENT_NS = 400_000.0
_DRAIN = re.compile(r"config route (un)?drain (\S+:\d+)")
STANDS = 3.0
"""The job stands if no step has ended for so many times the best."""
SLOW = 1.02


class Operator:
    def __init__(self, session: Session) -> None:
        self.session = session
        self._seen: dict[str, Mapping[str, Any]] = {}
        ticket = session.command("ticket")
        self.ticket: Mapping[str, Any] = ticket.data or {}
        self.time_ns = float(ticket.time_ns)
        self.from_ns = 0.0
        """Nothing before this is recent."""
        self.undrained: set[str] = set()
        """Ports that were drained, and may carry flows again."""

    @cached_property
    def plan(self) -> Fabric:
        return Fabric.from_dict(self.session.state()["topology"])

    @property
    def asked_to_mend(self) -> bool:
        return "fix" in (self.ticket.get("question") or ())

    # -- looking

    def tables(self, line: str) -> Mapping[str, Any]:
        """Those of a view; asked once at a time. A view that is refused is empty."""
        if line not in self._seen:
            answer = self.session.command(line)
            self._seen[line] = answer.data if answer.ok and isinstance(answer.data, Mapping) else {}
        return self._seen[line]

    def rows(self, line: str, table: str = "") -> Sequence[Row]:
        tables = self.tables(line)
        rows = tables.get(table) if table else next(iter(tables.values()), None)
        return rows if isinstance(rows, list) else []

    def recent(self, view: str, table: str = "", of_ns: float = RECENT_NS) -> Sequence[Row]:
        """What has changed of late, without old counters."""
        since = min(of_ns, max(1000.0, self.time_ns - max(1000.0, self.from_ns)))
        return self.rows(f"{view} --changed {since:.0f}ns", table)

    # -- acting

    def do(self, line: str) -> bool:
        """A line that takes time; whether it was carried out."""
        answer = self._act(line)
        drain = _DRAIN.fullmatch(line)
        if drain and answer.ok:
            (self.undrained.add if drain[1] else self.undrained.discard)(drain[2])
        return answer.ok

    def ask(self, line: str) -> Mapping[str, Any]:
        """A tool's tables; it takes time. A tool that is refused has none."""
        answer = self._act(line)
        return answer.data if answer.ok and isinstance(answer.data, Mapping) else {}

    def _act(self, line: str) -> Answer:
        answer = self.session.command(line)
        self._seen.clear()
        self.time_ns = float(answer.time_ns)
        return answer

    def carry_out(self, lines: Sequence[str]) -> bool:
        """Actions in order, up to one that is refused: a cable that cannot be drained is not replaced."""
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

    def rank(self, place: str) -> int | None:
        """Of a NIC, or of a port of it."""
        nic = self.plan.nic_by_name.get(node_of(place))
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

    def switch_of(self, rank: int) -> str:
        """The switch that a rank's NIC is plugged into."""
        return node_of(self.switch_end(self.nic_cable(rank)))

    def between_switches(self, cable: Cable) -> bool:
        return not {cable.a.node, cable.b.node} & set(self.plan.nic_by_name)

    def like(self, switch: str) -> list[str]:
        """The other switches of its kind."""
        return [one.name for one in self.plan.switches if one.name != switch and one.name[:2] == switch[:2]]


def node_of(port: str) -> str:
    return port.partition(":")[0]


def odd(rows: Iterable[Row], of: str, columns: Sequence[str]) -> list[tuple[Row, Row]]:
    """Rows whose columns differ from those of most rows with the same `of`: each with one of those."""

    def values(row: Row) -> tuple[str, ...]:
        return tuple(str(row.get(column)) for column in columns)

    groups: dict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.get(of) if of else None].append(row)
    differing = []
    for group in groups.values():
        usual, count = Counter(map(values, group)).most_common(1)[0]
        if count * 2 > len(group) or len(group) <= 2:
            example = next(row for row in group if values(row) == usual)
            differing += [(row, example) for row in group if values(row) != usual]
    return differing


def number(row: Row, key: str) -> float:
    value = row.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


def sums(rows: Iterable[Row], of: Callable[[Row], K], *columns: str) -> dict[K, float]:
    """The sum of these columns over the rows of each `of`."""
    totals: dict[K, float] = defaultdict(float)
    for row in rows:
        totals[of(row)] += sum(number(row, column) for column in columns)
    return dict(totals)


def by_rank(row: Row) -> int:
    return int(row["rank"])


def by_peer(row: Row) -> int:
    return int(row["peer"])


def by_port(row: Row) -> str:
    return str(row["Port"])
