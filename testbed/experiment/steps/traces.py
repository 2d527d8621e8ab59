"""The steps `chakra`, `aicb` and `torch` of a workload: graphs of tasks that follow from files from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from testbed.base.types import Bandwidth, Flops, Model, mistake
from testbed.experiment.blocks.fabric import TrafficClass
from testbed.experiment.steps.graphs import GraphStep, collectives, named
from testbed.experiment.steps.step import Blocks, Found, Step, absolute, below, no_dscp, rank_out_of_range
from testbed.experiment.steps.train import Gpu
from testbed.experiment.steps.training import Mistakes, gpu_of
from topologies.graph.fabric import Fabric
from workloads.base import named_file
from workloads.chakra import aicb, files
from workloads.chakra.et import NODE_TYPES, BadTrace
from workloads.chakra.replay import Reading, Roofline
from workloads.tasks.graph import Graph, Settings

WITHOUT_TASKS = (*NODE_TYPES.values(),)

Repeats = Annotated[int, Field(ge=1, le=10**6)]


class OwnTime(Model):
    """A roofline: a computation takes what its operations or its bytes take, whichever is longer."""

    flops: Flops = Field(gt=0, description="operations per second (`num_ops` of a node)")
    memory: Bandwidth = Field(gt=0, description="bytes per second (`tensor_size` of a node)")


class FromFile(GraphStep):
    """What both have."""

    algorithm: dict[str, str] = Field(
        default_factory=dict, description="`{COLLECTIVE: ALGORITHM}` (left out: the fastest by its expected time)"
    )
    iterations: Repeats = Field(default=1, description="measured repetitions")
    warmup: int = Field(default=0, ge=0, le=10**6, description="repetitions before those, not measured")

    def mistakes(self, blocks: Blocks, fabric: Fabric) -> Iterator[Found]:
        yield from below(("algorithm",), named(self.algorithm))
        try:
            graph = self.graph(fabric.ranks)
        except BadTrace as bad:
            of_groups = bad.file and bad.file == getattr(self, "groups", None)
            yield ("groups" if of_groups else self.kind,), str(bad), "docs/chakra.md says what is read"
            return
        for name, its in graph.settings.items():
            if problem := no_dscp(its.traffic_class, blocks.fabric):
                yield (self.kind,), f"group {name!r} of the trace: {problem[0]}", problem[1]
        said: set[str] = set()
        for task, _, what, hint in collectives(graph, fabric):
            if what not in said:
                yield (self.kind,), f"task {task.id!r}: {what}", hint
            said.add(what)

    def _set(self, graph: Graph) -> Graph:
        """With the algorithms that the file of the experiment names."""
        if not self.algorithm:
            return graph
        settings = {}
        for name in graph.groups:
            its = graph.settings.get(name, Settings())
            settings[name] = Settings(its.traffic_class, {**its.algorithms, **self.algorithm}, its.options)
        return replace(graph, settings=settings)


class ChakraStep(FromFile):
    kind: ClassVar[str] = "chakra"
    title: ClassVar[str] = "a trace of Chakra"

    chakra: str = Field(
        description="folder of traces NAME.RANK.et, or their beginning (`traces/gpt`), from this file's folder on"
    )
    groups: str | None = Field(
        default=None,
        description="JSON file `{GROUP: [RANKS]}` (null: nodes name no groups, or the trace is one of ours)",
    )
    time: Literal["recorded"] | OwnTime = Field(
        default="recorded", description="what computations take: as recorded, or `{flops: .., memory: ..}`"
    )
    skip: list[str | int] = Field(
        default_factory=list, max_length=100, description="types of nodes that take no time, such as `mem_load`, or 12"
    )
    missing: Literal["refuse", "ignore"] = Field(
        default="refuse",
        description="nodes that wait for some that are not there, or for themselves: an error, or passed over",
    )

    @field_validator("chakra", "groups")
    @classmethod
    def _from_the_files_folder(cls, value: str | None, info: ValidationInfo) -> str | None:
        return value if value is None else absolute(value, info)

    @field_validator("skip")
    @classmethod
    def _known_types(cls, value: list[str | int]) -> list[str | int]:
        for k, one in enumerate(value):
            if isinstance(one, str) and one not in WITHOUT_TASKS:
                raise mistake(f"there is no type of nodes {one!r:.40}", f"a number, or {', '.join(WITHOUT_TASKS)}", [k])
        return value

    @cached_property
    def _graph(self) -> Graph:
        time = None if self.time == "recorded" else Roofline(self.time.flops, self.time.memory)
        how = Reading(time, frozenset(map(str, self.skip)), self.missing == "ignore")
        return files.load(Path(self.chakra), Path(self.groups) if self.groups else None, how)

    def graph(self, ranks: int) -> Graph:
        most = max(self._graph.tasks, default=-1)
        if most >= ranks:
            raise BadTrace(f"there are traces of ranks 0 to {most}, and this fabric has {ranks} ranks", self.chakra)
        if not any(self._graph.tasks.values()):
            raise BadTrace("there is nothing to do in it: no node becomes a task", self.chakra)
        return self._set(self._graph)


class AicbStep(FromFile):
    kind: ClassVar[str] = "aicb"
    title: ClassVar[str] = "a workload of AICB"

    aicb: str = Field(description="a text workload of AICB (SimAI's), from this file's folder on")

    @field_validator("aicb")
    @classmethod
    def _from_the_files_folder(cls, value: str, info: ValidationInfo) -> str:
        return absolute(value, info)

    def graph(self, ranks: int) -> Graph:
        graph = aicb.load(Path(self.aicb), ranks)
        if not any(graph.tasks.values()):
            raise BadTrace("there is nothing to do in it: no layer computes, or communicates with others", self.aicb)
        return self._set(graph)


class TorchStep(Step):
    kind: ClassVar[str] = "torch"
    title: ClassVar[str] = "a script of PyTorch"
    unpredictable: ClassVar[str] = "what the script does is known when it has been run"

    torch: str = Field(description="a script of PyTorch (DDP, FSDP2), from this file's folder on; it runs in its own")
    ranks: list[int] | None = Field(
        default=None, min_length=1, description="rank of the fabric for each of the script's (null: all)"
    )
    args: list[str | int | float] = Field(default_factory=list, max_length=1000, description="arguments of the script")
    gpu: Gpu = Field(description="what computes: its time follows from FLOPs and bytes")
    algorithm: dict[str, str] = Field(
        default_factory=dict, description="`{COLLECTIVE: ALGORITHM}` (left out: the fastest by its expected time)"
    )
    traffic_class: TrafficClass | None = Field(
        default=None, description="class of what its collectives send (null: that of transport.dscp)"
    )

    @field_validator("torch")
    @classmethod
    def _from_the_files_folder(cls, value: str, info: ValidationInfo) -> str:
        return absolute(value, info)

    def mistakes(self, blocks: Blocks, fabric: Fabric) -> Iterator[Found]:
        """All that show before the script is run."""
        yield from below(("algorithm",), named(self.algorithm))
        if problem := no_dscp(self.traffic_class, blocks.fabric):
            yield ("traffic_class",), *problem
        try:
            named_file.check(self.torch)
        except named_file.Missing:
            yield ("torch",), f"there is no file {self.torch}", "a path from the experiment file's folder on"
        except named_file.Unreadable as error:
            yield ("torch",), f"{self.torch} cannot be read: {error.what}", "a script of Python"
        for k, rank in enumerate(self.ranks or ()):
            if problem := rank_out_of_range(rank, fabric.ranks):
                yield ("ranks", k), *problem
            elif rank in (self.ranks or ())[:k]:
                yield ("ranks", k), f"rank {rank} stands twice", "each of the script's ranks has one of its own"
        try:
            gpu_of(self.gpu, "float32", any_type=True)
        except Mistakes as wrong:
            yield from wrong.found
