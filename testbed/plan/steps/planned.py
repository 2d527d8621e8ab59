"""The plan: what is done in which step and by whom, and as plain data what workers and result files have of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from topologies.graph import endpoint
from workloads.base.vocabulary import AUTO, LIBRARY
from workloads.registry import any_of, find

WHY = ("algorithm", "chunk", "trees", "expected_ns", "at_least_ns", "left_out")
"""Of what is chosen: what people are told of it."""


def taken(chosen: Mapping[str, Any]) -> str:
    """An algorithm, and its pieces where `auto` has chosen them: `ring[chunk=64KiB]`."""
    expected: Mapping[str, float] = chosen["expected_ns"]
    return min(expected, key=lambda name: expected[name])


class Planned(ABC):
    """A step of the plan.  Endpoints are numbered: the ranks, then the compute complexes of their NICs."""

    chosen: Mapping[str, Mapping[str, Any]] = {}
    """Of `auto`: size -> algorithm, what its ranks are told, and what each candidate should take, or at least."""
    about_step: Mapping[str, Any] = {}
    """What its figures need to be judged by."""
    printed: Sequence[str] = ()
    """By a script, rank by rank, when it was run by itself."""

    @abstractmethod
    def told(self, own: Collection[int] | None = None) -> dict[str, Any]:
        """As workers read it (workloads/step.py); of tasks those of these endpoints."""

    @abstractmethod
    def ends(self, ranks: int) -> set[int]:
        """The endpoints that take part, of so many ranks."""

    @abstractmethod
    def described(self, ranks: int) -> dict[str, Any]:
        """As steps.json has it, and results.frames.metrics.result_rows takes it."""

    @abstractmethod
    def measurements(self, ranks: int) -> int:
        """How many results all workers print: one per rank and iteration, one from each end of a flow."""

    @property
    def about(self) -> Mapping[str, Any]:
        """Rank -> what is said of each of its tasks."""
        return {}

    @property
    def jobs(self) -> int:
        """How many groups of NICs or switches it asks for."""
        return 0

    def times(self, iterations: int, first: int | None = None) -> Self:
        """With so many iterations, without warmup; of tasks those from `first` on."""
        return self


@dataclass(frozen=True)
class PlannedFlow:
    """`traffic_class` and `dscp`: None for the transport's; `transport`: its number, None for the step's."""

    source: int
    target: int
    size_bytes: int
    start_ns: float
    traffic_class: int | None = None
    dscp: int | None = None
    transport: int | None = None

    def told(self) -> dict[str, Any]:
        marking = {"traffic_class": self.traffic_class, "dscp": self.dscp} if self.traffic_class is not None else {}
        marking |= {} if self.transport is None else {"transport": self.transport}
        ends = {"from": self.source, "to": self.target}
        return {**ends, "size_bytes": self.size_bytes, "start_ns": self.start_ns, **marking}


@dataclass(frozen=True)
class PlannedFlows(Planned):
    flows: Sequence[PlannedFlow]
    senders: Sequence[str] = ()  # what each of them is sent by, in words, where they differ

    def told(self, own: Collection[int] | None = None) -> dict[str, Any]:
        return {"kind": "flows", "flows": self._told, **({"watched": True} if self.senders else {})}

    @cached_property
    def _told(self) -> list[dict[str, Any]]:
        return [flow.told() for flow in self.flows]

    def ends(self, ranks: int) -> set[int]:
        return {end for flow in self.flows for end in (flow.source, flow.target)}

    def described(self, ranks: int) -> dict[str, Any]:
        names = {str(end): endpoint.name(end, ranks) for end in sorted(self.ends(ranks)) if end >= ranks}
        senders = {"senders": list(self.senders)} if self.senders else {}
        return {"kind": "flows", **({"names": names} if names else {}), **senders}

    def measurements(self, ranks: int) -> int:
        return 2 * len(self.flows)


@dataclass(frozen=True)
class PlannedCollective(Planned):
    """`ranks`: in the algorithm's order; None: all, in theirs.  `options`: keys that the algorithm heeds."""

    collective: str
    algorithm: str
    sizes: Sequence[int]
    dtype: str
    op: str | None
    iterations: int
    warmup: int
    ranks: Sequence[int] | None
    options: Mapping[str, Any]
    groups: Sequence[Mapping[str, Any]] = ()
    chosen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    helpers: Sequence[int] = ()
    ships: Callable[[Collection[int]], Mapping[str, Any]] | None = None  # what endpoints get of a user's algorithm

    _KEYS: ClassVar = ("collective", "algorithm", "sizes", "dtype", "op", "iterations", "warmup", "ranks")

    def told(self, own: Collection[int] | None = None) -> dict[str, Any]:
        some = {key: its for key in ("groups", "chosen", "helpers") if (its := getattr(self, key))}
        if self.ships and own is not None:
            some |= self.ships(own)
        return {"kind": "collective", **{key: getattr(self, key) for key in self._KEYS}, **self.options, **some}

    def ends(self, ranks: int) -> set[int]:
        return {*(range(ranks) if self.ranks is None else self.ranks), *self.helpers}

    def described(self, ranks: int) -> dict[str, Any]:
        entry = any_of(self.collective, self.algorithm)
        name = self.algorithm if self.algorithm in (AUTO, LIBRARY) else entry.name

        def of(taking_part: int) -> dict[str, Any]:
            workers = taking_part - (0 if entry.on_complexes else self.options.get("aggregators") or 0)
            return {"ranks": taking_part, "busbw_factor": entry.collective.busbw.of(workers)}

        return {
            **{"kind": "collective", "collective": self.collective, "algorithm": name, "dtype": self.dtype},
            "op": self.op if entry.ops else None,
            **of(len(self.ranks or range(ranks))),
            **({"chosen": self.chosen} if self.chosen else {}),
            **({"groups": [of(len(its["ranks"])) | _sender(its) for its in self.groups]} if self.groups else {}),
        }

    def measurements(self, ranks: int) -> int:
        return len(self.ranks or range(ranks)) * len(self.sizes) * self.iterations

    def times(self, iterations: int, first: int | None = None) -> Self:
        return replace(self, iterations=iterations, warmup=0)

    @property
    def jobs(self) -> int:
        ways = [{"algorithm": self.algorithm, **self.options}, *self.chosen.values()]
        taken = {(way["algorithm"], way.get("trees")): way for way in (ways[1:] or ways)}
        jobs = sum(find(self.collective, way["algorithm"]).jobs(way) for way in taken.values())
        return jobs * (len(self.groups) or 1)


def _sender(group: Mapping[str, Any]) -> dict[str, str]:
    return {"sender": group["sender"]} if "sender" in group else {}


@dataclass(frozen=True)
class PlannedTasks(Planned):
    """`program`: of all ranks, as workloads.tasks.program makes it of a graph.  `name`: for tables."""

    program: Mapping[str, Any]
    name: str
    iterations: int
    warmup: int
    about_step: Mapping[str, Any] = field(default_factory=dict)
    printed: Sequence[str] = ()
    first: int | None = None

    @property
    def ranks(self) -> Sequence[int]:
        its: Sequence[int] = self.program["ranks"]
        return its

    @property
    def about(self) -> Mapping[str, Any]:
        its: Mapping[str, Any] = self.program["about"]
        return its

    def told(self, own: Collection[int] | None = None) -> dict[str, Any]:
        repeats = {"iterations": self.iterations, "warmup": self.warmup}
        told = {**self.program, **repeats, **({} if self.first is None else {"first": self.first})}
        if own is None:
            return told
        tasks = {str(end): its for end in own if (its := told["tasks"].get(str(end))) is not None}
        return {**told, "tasks": tasks, "about": {}}

    def ends(self, ranks: int) -> set[int]:
        return set(self.ranks)

    def described(self, ranks: int) -> dict[str, Any]:
        """With the ways in which each group's collectives are done."""
        ways: dict[tuple[str, str, str], int] = {}
        for rank, orders in self.program["tasks"].items():
            for order in orders:
                if order["do"] == "collective":
                    way = self.program["ways"][order["way"]]
                    its = self.program["communicators"][order["communicator"]]
                    key = (its["group"], way["collective"], way["algorithm"])
                    ways[key] = ways.get(key, 0) + (int(rank) == its["ranks"][0])
        done = [{"group": g, "collective": c, "algorithm": a, "count": n} for (g, c, a), n in ways.items()]
        count = sum(map(len, self.program["tasks"].values()))
        described = {"kind": "tasks", "name": self.name, "ranks": len(self.ranks), "tasks": count, "ways": done}
        return {**described, **self.about_step}

    def measurements(self, ranks: int) -> int:
        return len(self.ranks) * self.iterations

    def times(self, iterations: int, first: int | None = None) -> Self:
        return replace(self, iterations=iterations, warmup=0, first=first)


@dataclass(frozen=True)
class PlannedProgram:
    """`role`: server, client, or rank of one that runs by itself; `server`: a client's, as a rank."""

    number: int
    rank: int
    role: str
    argv: Sequence[str]
    env: Mapping[str, str]
    server: int | None = None


@dataclass(frozen=True)
class PlannedPrograms(Planned):
    programs: Sequence[PlannedProgram]
    name: str
    after_ns: float
    timeout_ns: float
    may_fail: bool

    def told(self, own: Collection[int] | None = None) -> dict[str, Any]:
        """All programs, of those of others without what they run."""
        ours = [vars(one) if own is None or one.rank in own else _shown(one) for one in self.programs]
        limits = {key: getattr(self, key) for key in ("after_ns", "timeout_ns", "may_fail")}
        return {"kind": "program", "ranks": sorted(self.ends(0)), "processes": ours, **limits}

    def ends(self, ranks: int) -> set[int]:
        return {one.rank for one in self.programs}

    def described(self, ranks: int) -> dict[str, Any]:
        programs = [{**_shown(one), "argv": list(one.argv), "server": one.server} for one in self.programs]
        return {"kind": "program", "name": self.name, "ranks": len(self.ends(0)), "processes": programs}

    def measurements(self, ranks: int) -> int:
        return len(self.programs)


def _shown(program: PlannedProgram) -> dict[str, Any]:
    return {key: getattr(program, key) for key in ("number", "rank", "role")}


@dataclass(frozen=True)
class Plan:
    """What all workers share.  `costs`: of ranks, and of those on compute complexes, if there are any."""

    ranks: int
    seed: int
    costs: Mapping[str, float | None]
    complex_costs: Mapping[str, float | None] | None
    steps: Sequence[Planned]
    repeat: bool = False
    queue_pairs: Mapping[str, Any] = field(default_factory=dict)
    """Of each connection, where they are several: how many, and whether they share messages (Device)."""
    transports: Sequence[Mapping[str, Any]] = ()  # those that connections name, as fabricd takes them
    sends_by: Sequence[Mapping[str, Any]] = ()  # of each step, unless none says anything of it

    def told(self, own: Sequence[int] | None = None) -> dict[str, Any]:
        """As workers read it; that of endpoints that share a process (workloads/together.py), or of all."""
        steps = [step.told(own) for step in self.steps]
        if any(self.sends_by):
            steps = [told | ({"sends_by": by} if by else {}) for told, by in zip(steps, self.sends_by, strict=True)]
        whole = {"ranks": self.ranks, "seed": self.seed, "steps": steps, **({"repeat": True} if self.repeat else {})}
        whole |= {"queue_pairs": self.queue_pairs} if self.queue_pairs else {}
        if own is None:
            return whole
        each = [{"rank": end, "costs": self.costs if end < self.ranks else self.complex_costs} for end in own]
        return {**whole, **each[0], **({"together": each} if len(each) > 1 else {})}

    def described(self) -> list[dict[str, Any]]:
        """The steps, with their factors of bus bandwidth."""
        return [step.described(self.ranks) for step in self.steps]

    @property
    def endpoints(self) -> list[int]:
        """Those that run a worker: all ranks, then the compute complexes that a step asks for."""
        return sorted({*range(self.ranks), *self.taking_part})

    @property
    def taking_part(self) -> list[int]:
        """The endpoints that some step is for."""
        return sorted({end for step in self.steps for end in step.ends(self.ranks)})

    @property
    def measurements(self) -> int:
        """How many results the workers print in all."""
        return sum(step.measurements(self.ranks) for step in self.steps)

    def choices(self) -> list[dict[str, Any]]:
        """Events that say which algorithms were chosen, and what each candidate is expected to take."""
        return [
            {"event": "algorithm_chosen", "time_ns": 0, "step": number, "size_bytes": int(size)}
            | {key: chosen[key] for key in WHY if key in chosen}
            for number, step in enumerate(self.steps)
            for size, chosen in step.chosen.items()
        ]

    def repeated(self) -> Plan:
        """To be done over and over: each step once in a pass."""
        return replace(self, steps=[step.times(1) for step in self.steps], repeat=True)
