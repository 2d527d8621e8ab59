"""Steps of flows: RDMA writes from rank to rank, written one by one, in a file, or drawn from a seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError, ValidationInfo, model_validator

from testbed.base.explain import explain
from testbed.base.types import Model, Size, Time, default, mistake, mistakes
from testbed.experiment.blocks.fabric import TrafficClass
from testbed.experiment.blocks.layout import Endpoint
from testbed.experiment.blocks.transport import Own
from testbed.experiment.steps.step import Blocks, Found, Path, Step, absolute, below, no_dscp, rank_out_of_range
from testbed.experiment.steps.written import MOST_FLOWS, MOST_TOLD, Row, flows_of, sizes_of
from topologies.graph import endpoint
from workloads.traffic import MOST_ENTRIES, BadTable, Sizes, checked, sizes_named, table_sizes

if TYPE_CHECKING:
    from testbed.experiment.blocks.fabric import FabricSpec
    from topologies.graph.fabric import Fabric

MAX_TIME = 10.0**13
MOST_SIZE = 16 << 30
BufferSize = Annotated[Size, Field(le=MOST_SIZE)]


class Flow(Model):
    from_: Endpoint = Field(alias="from", description="rank that writes, or the compute complex of a rank's NIC")
    to: Endpoint = Field(description="rank whose memory is written, or such a complex")
    size: BufferSize = Field(gt=0, description="payload")
    start: Time = default("0ns", "when it starts, in emulated time of the step", le=MAX_TIME)
    traffic_class: TrafficClass | None = Field(
        default=None, alias="class", description="class that it is sent in (null: that of transport.dscp)"
    )
    transport: Own | None = Field(default=None, description="what it is sent by, as of the step, which it goes before")
    _place: str = PrivateAttr(default="")

    @property
    def place(self) -> str:
        """`FILE:LINE`, if it is from a file of flows."""
        return self._place


def _of_row(row: Row, error: ValidationError) -> Iterator[Found]:
    for path, what, hint in explain(error, Flow, lambda path: row.get(str(path[0])) if path else row):
        yield (), f"{row.place}: column {path[0] if path else '?'}: {what}", hint


def _read_flows(value: Any, info: ValidationInfo) -> Any:
    """A file's, each checked as if it stood in the experiment."""
    if not isinstance(value, str):
        return value
    made, found = [], list[Found]()
    for row in flows_of(FilePath(absolute(value, info))):
        try:
            made.append(Flow.model_validate(dict(row), context=info.context))
            made[-1]._place = row.place
        except ValidationError as error:
            found += _of_row(row, error)
            if len(found) >= MOST_TOLD:
                break
    if found:
        raise mistakes(found[:MOST_TOLD])
    return made


class FlowsStep(Step):
    kind: ClassVar[str] = "flows"
    title: ClassVar[str] = "flows"
    tables: ClassVar[Mapping[str, str]] = {"A flow": "Flow"}
    unpredictable: ClassVar[str] = (
        "flows that share cables share them by their congestion control: how they do is what a run shows"
    )

    flows: Annotated[list[Flow], BeforeValidator(_read_flows, json_schema_input_type=list[Flow] | str)] = Field(
        min_length=1, max_length=MOST_FLOWS,
        description="RDMA writes from rank to rank; or a file of them, a line each: start, from, to, size, class, "
        "transport",
    )  # fmt: skip

    def own_transports(self) -> Iterator[tuple[Path, tuple[Own | None, ...]]]:
        yield from super().own_transports()
        for i, flow in enumerate(self.flows):
            if flow.transport:
                yield ("flows", i, "transport"), (self.transport, flow.transport)

    def mistakes(self, blocks: Blocks, fabric: Fabric) -> Iterator[Found]:
        for i, flow in enumerate(self.flows):
            for key, what, hint in _of_flow(flow, blocks.fabric, fabric):
                if flow.place:
                    yield ("flows",), f"{flow.place}: column {key}: {what}", hint
                else:
                    yield ("flows", i, key), what, hint


def _read_sizes(value: Any, info: ValidationInfo) -> Any:
    """A file's; and whether it is a distribution."""
    if isinstance(value, str):
        return sizes_of(FilePath(absolute(value, info)))
    if isinstance(value, list) and all(isinstance(one, list) and len(one) == 2 for one in value):
        with suppress(TypeError):  # no numbers: that is said by itself
            try:
                checked(value)
            except BadTable as error:
                raise mistake(error.what, error.hint, [error.entry]) from None
    return value


class Load(Model):
    pattern: Literal["random", "permutation", "incast", "burst"] = Field(
        default="random",
        description="who sends to whom: any to any other, each to one other, all to one, or all to one at once",
    )
    to: int = Field(default=0, ge=0, description="the one receiver of incast and burst")
    senders: list[int] | None = Field(default=None, min_length=1, description="ranks that take part (null: all)")
    distribution: Literal["fixed", "uniform", "web_search", "hadoop", "ali_storage", "google_rpc"] = Field(
        default="fixed", description="sizes of the flows: all `size`, evenly up to twice that, or as measured"
    )
    sizes: Annotated[
        list[Annotated[list[float], Field(min_length=2, max_length=2)]] | None,
        BeforeValidator(_read_sizes, json_schema_input_type=list[list[float]] | str | None),
    ] = Field(
        default=None, min_length=2, max_length=MOST_ENTRIES,
        description="a distribution of your own: a file, or `[[BYTES, PERCENT], ..]` (null: `distribution`)",
    )  # fmt: skip
    size: BufferSize = default("1MB", "payload of a flow (fixed), or its mean (uniform)", gt=0)
    most: BufferSize | None = Field(
        default=None, gt=0, description="larger flows of a measured distribution, or of `sizes`, are cut to this"
    )
    load: float = Field(
        default=0.5, gt=0, le=1, allow_inf_nan=False,
        description="share of its line rate that each sender offers; incast: of the receiver's, all senders together",
    )  # fmt: skip
    flows: int = Field(default=100, ge=1, le=100_000, description="how many (burst: from each sender)")

    @model_validator(mode="after")
    def _one_distribution(self) -> Self:
        if self.sizes is None:
            return self
        if self.distribution != "fixed":
            raise mistake("sizes are either of `distribution` or of `sizes`", "leave one of them out", ["sizes"])
        largest = min(self.sizes[-1][0], self.most or math.inf)
        if largest > MOST_SIZE:
            raise mistake(f"flows of {largest:.0f} bytes are too large", "most: 16GiB cuts them", ["sizes"])
        return self

    def drawn_sizes(self) -> Sizes:
        """The distribution that is asked for."""
        if self.sizes is not None:
            return table_sizes("own", checked(self.sizes), self.most)
        return sizes_named(self.distribution, self.size, self.most)

    def mistakes(self, ranks: int) -> Iterator[Found]:
        """What is wrong with it on a fabric of so many ranks."""
        to_one = self.pattern in ("incast", "burst")
        for rank in self.senders or []:
            if problem := rank_out_of_range(rank, ranks):
                yield ("senders",), *problem
        if to_one and (problem := rank_out_of_range(self.to, ranks)):
            yield ("to",), *problem
        others = set(self.senders if self.senders is not None else range(ranks)) - ({self.to} if to_one else set())
        if len(others) < (1 if to_one else 2):
            yield (), f"{self.pattern} needs more ranks than that", f"this fabric has ranks 0 to {ranks - 1}"


class LoadStep(Step):
    kind: ClassVar[str] = "load"
    title: ClassVar[str] = "a load"
    unpredictable: ClassVar[str] = (
        "its flows come at drawn times and share cables and buffers: how they do is what a run shows"
    )

    load: Load = Field(description="flows drawn from the seed: arrivals are a Poisson process")

    def mistakes(self, blocks: Blocks, fabric: Fabric) -> Iterator[Found]:
        yield from below(("load",), self.load.mistakes(fabric.ranks))

    @property
    def offered(self) -> float:
        return 1.0 if self.load.pattern == "burst" else self.load.load


def end_name(end: int) -> str:
    """A rank or a compute complex, in words."""
    return str(end) if isinstance(end, endpoint.OfNic) else f"rank {end}"


def _of_flow(flow: Flow, spec: FabricSpec, fabric: Fabric) -> Iterator[tuple[str, str, str]]:
    for key, rank in (("from", flow.from_), ("to", flow.to)):
        if problem := endpoint.missing(rank, fabric):
            yield key, *problem
    if flow.from_ == flow.to:
        yield "to", f"a flow from {end_name(flow.to)} to itself", "name two different ranks"
    if problem := no_dscp(flow.traffic_class, spec):
        yield "class", *problem
