"""A step of tasks: what each rank computes, sends and does with its groups, side by side on streams.

This is the plain form of all that becomes a graph of tasks (workloads/tasks/).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, model_validator

from testbed.base.types import Model, Size, Time, default, mistake, names
from testbed.experiment.blocks import known
from testbed.experiment.blocks.fabric import TrafficClass
from testbed.experiment.blocks.transport import Own
from testbed.experiment.steps.graphs import GraphStep, algorithm_of, collectives, distinct, heeds, named
from testbed.experiment.steps.step import Blocks, Found, Path, below, no_dscp, of_groups, rank_out_of_range, under
from topologies.graph.fabric import Fabric
from workloads.tasks import task as plain
from workloads.tasks.check import BadGraph
from workloads.tasks.graph import Graph, Settings

if TYPE_CHECKING:
    from testbed.experiment.blocks.fabric import FabricSpec

DOES = ("compute", "collective", "send", "recv")
MOST_BYTES = 1 << 31  # of a message, as in reliable connections
LONGEST = 10.0**13


class TaskGroup(Model):
    """What holds for all that a group does."""

    ranks: list[list[int]] = Field(
        min_length=1, max_length=4096, description="lists of ranks that share none: each is a group by itself"
    )
    traffic_class: TrafficClass | None = Field(
        default=None, description="class of what its ranks send by themselves (null: that of transport.dscp)"
    )
    algorithm: dict[str, str] = Field(
        default_factory=dict, description="`{COLLECTIVE: ALGORITHM}` (left out: the fastest by its expected time)"
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="keys of a collective step that its algorithms heed, such as `chunk`"
    )
    transport: Own | None = Field(
        default=None, description="what its ranks send by, as of the step, which it goes before"
    )


class Task(Model):
    """One task of each of its ranks."""

    id: str = Field(min_length=1, max_length=200, description="unique among the tasks of a rank")
    ranks: list[int] | None = Field(
        default=None, min_length=1, description="ranks that have it (null: the group's, or all for a compute)"
    )
    stream: str = Field(
        default=plain.MAIN, min_length=1, max_length=200, description="tasks of a stream run one by one"
    )
    after: list[str] = Field(default_factory=list, description="ids of the same rank's tasks that must have ended")
    not_before: Annotated[Time, Field(le=LONGEST)] = default(
        "0ns", "earliest start after the iteration's begin, such as a request's arrival"
    )
    kind: str = Field(default="", max_length=200, description="what it is for: tables and pictures group by it")
    compute: Annotated[Time, Field(le=LONGEST)] | None = Field(
        default=None, description="a computation: its time on the rank's accelerator"
    )
    collective: str | None = Field(
        default=None, description="what it does with its group", json_schema_extra=names(known.collectives)
    )
    group: str | None = Field(
        default=None, description="of a collective: one of `groups`; of a message: whose class it has"
    )
    size: Annotated[Size, Field(le=16 << 30)] | None = Field(
        default=None, description="of a collective: bytes in the sense of nccl-tests"
    )
    algorithm: str | None = Field(default=None, description="of a collective (null: what the group says)")
    dtype: str = Field(default="float32", description="type of an element", json_schema_extra=names(known.dtypes))
    op: str | None = Field(default=None, description="how elements are combined (null: `sum`, if anything is)")
    parts: list[list[Annotated[int, Field(ge=0, le=1 << 20)]]] | None = Field(
        default=None, min_length=1, max_length=4096,
        description="of a collective with unequal parts: its weights (null: what the group's options say)",
    )  # fmt: skip
    send: Annotated[Size, Field(le=MOST_BYTES)] | None = Field(
        default=None, description="a message of this size to rank `to`; it does not wait for the receiver"
    )
    to: int | None = Field(default=None, description="of a send")
    recv: Annotated[Size, Field(le=MOST_BYTES)] | None = Field(
        default=None, description="a message of this size from rank `from`"
    )
    from_: int | None = Field(default=None, alias="from", description="of a recv")
    tag: str = Field(default="", max_length=200, description="a recv gets the messages of its tag, in order")

    @model_validator(mode="after")
    def _does_one_thing(self) -> Task:
        does = [key for key in DOES if getattr(self, key) is not None]
        if len(does) != 1:
            what = f"a task does one of {', '.join(DOES)}" + (f", not {' and '.join(does)}" if does else "")
            raise mistake(what, "make several tasks of it" if does else "compute: 100us")
        (it,) = does
        keys = {
            "collective": ("group", "size", "algorithm", "op", "parts"),
            "send": ("to", "group"),
            "recv": ("from_", "group"),
        }
        for key in ("group", "size", "algorithm", "op", "parts", "to", "from_"):
            if getattr(self, key) is not None and key not in keys.get(it, ()):
                named = key.rstrip("_")
                raise mistake(f"a {it} has no {named}", f"leave {named} out", [named])
        for key in {"collective": ("group",), "send": ("to", "ranks"), "recv": ("from_", "ranks")}.get(it, ()):
            if getattr(self, key) is None:
                raise mistake(f"a {it} needs {key.rstrip('_')}", f"{key.rstrip('_')}: ..")
        return self

    @property
    def does(self) -> str:
        return next(key for key in DOES if getattr(self, key) is not None)

    def task(self) -> plain.Task:
        """As the graph has it."""
        of: dict[str, Any] = {"id": self.id, "stream": self.stream, "after": tuple(self.after), "kind": self.kind}
        of["not_before_ns"] = self.not_before
        if self.compute is not None:
            return plain.Compute(**of, duration_ns=self.compute)
        if self.send is not None and self.to is not None:
            return plain.Send(**of, peer=self.to, size_bytes=self.send, tag=self.tag, group=self.group or "")
        if self.recv is not None and self.from_ is not None:
            return plain.Recv(**of, peer=self.from_, size_bytes=self.recv, tag=self.tag, group=self.group or "")
        assert self.collective is not None and self.group is not None
        return plain.Collective(
            **of,
            collective=self.collective,
            group=self.group,
            size_bytes=self.size or 0,
            algorithm=self.algorithm,
            dtype=self.dtype,
            op=self.op,
            parts=tuple(tuple(row) for row in self.parts) if self.parts else None,
        )


def _short(value: Any) -> Any:
    """`[[0, 1], [2, 3]]` is a group that says nothing more."""
    return {"ranks": value} if isinstance(value, list) else value


class Tasks(Model):
    groups: dict[str, TaskGroup] = Field(
        default_factory=dict,
        description="`{NAME: [[0, 1], [2, 3]]}`, or `{NAME: {ranks: [[0, 1], [2, 3]], ..}}`; those of two names may "
        "overlap",
    )
    tasks: list[Task] = Field(
        alias="list", min_length=1, max_length=100_000, description="tasks, in the order in which a rank issues its own"
    )
    iterations: int = Field(default=1, ge=1, le=10**6, description="measured repetitions")
    warmup: int = Field(default=0, ge=0, le=10**6, description="repetitions before those, not measured")

    @model_validator(mode="before")
    @classmethod
    def _short_groups(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(groups := value.get("groups"), dict):
            return {**value, "groups": {name: _short(group) for name, group in groups.items()}}
        return value

    def ranks_of(self, task: Task, ranks: int) -> list[int]:
        """Who has a task, on a fabric of so many ranks."""
        if task.ranks is not None:
            return task.ranks
        if task.group in self.groups:
            return [rank for members in self.groups[task.group].ranks for rank in members]
        return list(range(ranks))

    def graph(self, ranks: int) -> Graph:
        """The graph on a fabric of so many ranks.  Raises BadGraph."""
        tasks: dict[int, list[plain.Task]] = {}
        for one in self.tasks:
            for rank in self.ranks_of(one, ranks):
                tasks.setdefault(rank, []).append(one.task())
        groups = {name: tuple(tuple(members) for members in group.ranks) for name, group in self.groups.items()}
        settings = {
            name: Settings(group.traffic_class, dict(group.algorithm), dict(group.options), group.transport)
            for name, group in self.groups.items()
        }
        return Graph(groups, {rank: tuple(its) for rank, its in sorted(tasks.items())}, settings)

    def place_of(self, rank: int | None, id: str | None, ranks: int) -> Path:
        """Where the task stands that a graph's error names."""
        for i, one in enumerate(self.tasks):
            if one.id == id and (rank is None or rank in self.ranks_of(one, ranks)):
                return ("list", i)
        return ()


class TasksStep(GraphStep):
    kind: ClassVar[str] = "tasks"
    title: ClassVar[str] = "tasks"
    tables: ClassVar[Mapping[str, str]] = {"A group of tasks": "TaskGroup", "A task": "Task"}

    tasks: Tasks = Field(description="a graph of tasks, on streams of each rank")

    def own_transports(self) -> Iterator[tuple[Path, tuple[Own | None, ...]]]:
        yield from super().own_transports()
        yield from of_groups((self.kind,), self.transport, self.tasks.groups)

    @classmethod
    def written_algorithms(cls, written: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
        for group in under(tasks := under(written, "tasks"), "groups").values():
            yield from under(group, "algorithm").items()
        listed = tasks.get("list")
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, dict):
                yield one.get("collective"), one.get("algorithm")

    def mistakes(self, blocks: Blocks, fabric: Fabric) -> Iterator[Found]:
        """A graph is only made of tasks whose ranks there are."""
        told = self.tasks
        found = [*_ranks(told, fabric.ranks), *_classes(told, blocks.fabric), *_algorithms(told)]
        if not found:
            found = [*_graph(told, fabric.ranks)]
        if not found:
            found = [*_collectives(told, fabric)]
        yield from below(("tasks",), iter(found))

    def graph(self, ranks: int) -> Graph:
        return self.tasks.graph(ranks)

    @property
    def repeats(self) -> tuple[int, int]:
        return self.tasks.iterations, self.tasks.warmup

    def place_of_group(self, name: str) -> Path:
        return (self.kind, "groups", name)


def _ranks(told: Tasks, ranks: int) -> Iterator[Found]:
    for name, group in told.groups.items():
        for i, members in enumerate(group.ranks):
            for rank in members:
                if problem := rank_out_of_range(rank, ranks):
                    yield ("groups", name, i), *problem
    for i, one in enumerate(told.tasks):
        for key, several in (("ranks", one.ranks or ()), ("to", (one.to,)), ("from", (one.from_,))):
            for other in several:
                if other is not None and (problem := rank_out_of_range(other, ranks)):
                    yield ("list", i, key), *problem
        if one.ranks and len(set(one.ranks)) < len(one.ranks):
            yield ("list", i, "ranks"), "a rank stands twice", "each rank has a task once"


def _classes(told: Tasks, spec: FabricSpec) -> Iterator[Found]:
    for name, group in told.groups.items():
        if problem := no_dscp(group.traffic_class, spec):
            yield ("groups", name, "traffic_class"), *problem


def _algorithms(told: Tasks) -> Iterator[Found]:
    for name, group in told.groups.items():
        for path, what, hint in named(group.algorithm):
            yield ("groups", name, "algorithm", *path), what, hint


def _graph(told: Tasks, ranks: int) -> Iterator[Found]:
    try:
        told.graph(ranks)
    except BadGraph as bad:
        place = told.place_of(bad.rank, bad.task, ranks)
        yield place, str(bad), "docs/tasks.md says what a graph is"


def _collectives(told: Tasks, fabric: Fabric) -> Iterator[Found]:
    graph = told.graph(fabric.ranks)
    place = {one.task(): i for i, one in reversed(list(enumerate(told.tasks))) if one.collective is not None}
    for task, path, what, hint in collectives(graph, fabric):
        yield _place(place[task], told.tasks[place[task]], path), what, hint
    yield from _unheeded(told, graph)


def _unheeded(told: Tasks, graph: Graph) -> Iterator[Found]:
    """Options of groups that none of their collectives heeds."""
    heeded: dict[str, set[str]] = {}
    for task in distinct(graph):
        heeded.setdefault(task.group, set()).update(heeds(task.collective, algorithm_of(graph, task)))
    for name, group in told.groups.items():
        for key in group.options:
            if name in heeded and key not in heeded[name]:
                its = ", ".join(sorted(heeded[name])) or "nothing"
                yield ("groups", name, "options", key), f"none of its collectives heeds {key}", f"they heed {its}"


def _place(i: int, one: Task, path: Path) -> Path:
    """Where in the file the mistake stands that a collective step would have at `path`."""
    assert one.group is not None
    match path:
        case ("ranks", *_):
            return ("groups", one.group)
        case ("groups", int(number), *_):
            return ("groups", one.group, "ranks", number)
        case ("sizes", *_):
            return ("list", i, "size") if one.size is not None else ("list", i)
        case ("algorithm",) if one.algorithm is None:
            return ("groups", one.group)
        case (str(key), *_) if getattr(one, key, None) is not None:
            return ("list", i, key)
        case (str(key), *_) if key not in type(one).model_fields:
            return ("groups", one.group, "options", key)
    return ("list", i)
