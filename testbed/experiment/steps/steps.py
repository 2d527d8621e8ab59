"""The steps of a workload: a collective, flows, a load of drawn flows, tasks, or what becomes tasks."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from testbed.base.types import Model, Time, names
from testbed.experiment.blocks import known
from testbed.experiment.blocks.layout import Endpoint
from testbed.experiment.steps.flows import BufferSize, FlowsStep, LoadStep
from testbed.experiment.steps.programs import Feed, Message, Storage
from testbed.experiment.steps.serve import ServeStep
from testbed.experiment.steps.tasks import TasksStep
from testbed.experiment.steps.traces import AicbStep, ChakraStep, TorchStep
from testbed.experiment.steps.train import TrainStep

Part = Annotated[int, Field(ge=0, le=1 << 20)]


class CollectiveStep(Model):
    kind: ClassVar[Literal["collective"]] = "collective"
    collective: str = Field(description="what the ranks do together", json_schema_extra=names(known.collectives))
    algorithm: str = Field(
        default_factory=str,
        description="how they do it (the first that the collective has); `auto`: the fastest by its expected time",
        json_schema_extra=names(known.every_algorithm),
    )
    sizes: list[BufferSize] = Field(
        default_factory=list,
        max_length=1000,
        description="each is measured: bytes in the sense of nccl-tests (see below; a barrier has none)",
    )
    dtype: str = Field(default="float32", description="type of an element", json_schema_extra=names(known.dtypes))
    op: str | None = Field(
        default=None,
        description="how elements are combined (left out: `sum`, or nothing to combine)",
        json_schema_extra=names(lambda: [*known.ops(), None]),
    )
    iterations: int = Field(default=1, ge=1, le=10**6, description="measured repetitions of each size")
    warmup: int = Field(default=0, ge=0, le=10**6, description="repetitions before those, not measured")
    ranks: list[Endpoint] | None = Field(
        default=None,
        description="the ranks that take part, in ring order (null: all, so that ring neighbours are near); of a "
        "ping_pong also compute complexes of their NICs, `nic:RANK.complex`",
    )
    groups: list[list[int]] | None = Field(
        default=None, min_length=1, max_length=64,
        description="instead of `ranks`: several groups, each does the same by itself, all at the same time",
    )  # fmt: skip
    chunk: BufferSize | None = Field(
        default=None, gt=0, description="pieces that the hosts' algorithms are pipelined by (null: the algorithm's own)"
    )
    senders: int | None = Field(
        default=None,
        ge=1,
        description="how many of the ranks send, the first ones (null: half)",
        json_schema_extra=known.heeded("senders"),
    )
    skew: float | None = Field(
        default=None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="how unequal the parts are, from 0 (equal) to 1 (Zipf's law; the default)",
        json_schema_extra=known.heeded("skew"),
    )
    parts: list[list[Part]] | None = Field(
        default=None, min_length=1, max_length=4096,
        description="instead of `skew`: weights of the parts, for each sender one for each receiver "
        "(n2m: for each receiver one for each sender); the largest row is `size` (null: by `skew`)",
        json_schema_extra=known.heeded("parts"),
    )  # fmt: skip

    density: float | None = Field(
        default=None, ge=0, le=1, allow_inf_nan=False,
        description="share of a rank's blocks that are not zero (1)",
        json_schema_extra=known.heeded("density"),
    )  # fmt: skip
    overlap: float | None = Field(
        default=None, ge=0, le=1, allow_inf_nan=False,
        description="share of those blocks that is the same at all ranks (0)",
        json_schema_extra=known.heeded("overlap"),
    )  # fmt: skip
    block: int | None = Field(
        default=None, ge=1, le=1 << 20, description="elements of a block (256)", json_schema_extra=known.heeded("block")
    )
    fusion: int | None = Field(
        default=None,
        ge=1,
        le=32,
        description="blocks in a message, at most (4)",
        json_schema_extra=known.heeded("fusion"),
    )
    slots: int | None = Field(
        default=None, ge=1, le=65535,
        description="omnireduce: messages under way at a time, for each rank (256); "
        "in_network: slots that it asks for, in_network_best_effort: blocks under way, at most "
        "(null: rate x round trip)",
    )  # fmt: skip
    spot: int | None = Field(
        default=None,
        ge=1,
        le=1 << 16,
        description="blocks of a window, for which a spot has room (null: 256, or what the cache allows)",
        json_schema_extra=known.heeded("spot"),
    )
    aggregators: int | None = Field(
        default=None, ge=1,
        description="omnireduce: this number of ranks, the last ones, only aggregate (null: every rank has a share); "
        "omniccl: this number of compute complexes, the first ones, aggregate (null: all)",
    )  # fmt: skip
    timeout: Annotated[Time, Field(gt=0, le=1e9)] | None = Field(
        default=None,
        description="contribute again after this long without a result "
        "(null: slots x the time of a frame + round trip)",
        json_schema_extra=known.heeded("timeout"),
    )
    chains: int | None = Field(
        default=None,
        ge=1,
        description="how many ranks send at a time (null: all)",
        json_schema_extra=known.heeded("chains"),
    )
    cutoff: Annotated[Time, Field(gt=0, le=1e9)] | None = Field(
        default=None,
        description="data this much overdue is fetched from the ring neighbour (20us)",
        json_schema_extra=known.heeded("cutoff"),
    )

    compression: Literal["bfp"] | None = Field(
        default=None,
        description="block floating point on the cables, 16 float32 in 17 bytes (null: as they are)",
        json_schema_extra=known.heeded("compression"),
    )
    optimizer: Literal["sgd", "adam"] | None = Field(
        default=None, description="SGD with momentum 0.9, or Adam (sgd)", json_schema_extra=known.heeded("optimizer")
    )
    message: Message | None = Field(
        default=None,
        description="the calls' messages, and what they cost (docs/smartnic-programs.md)",
        json_schema_extra=known.heeded("message"),
    )
    storage: Storage | None = Field(
        default=None,
        description="blocks, replicas, and what the middle tier takes (docs/smartnic-programs.md)",
        json_schema_extra=known.heeded("storage"),
    )
    feed: Feed | None = Field(
        default=None,
        description="batches, what servers and accelerators take for one, and who gets it (docs/smartnic-programs.md)",
        json_schema_extra=known.heeded("feed"),
    )

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_collective(cls, value: Any) -> Any:
        if not isinstance(value, dict) or value.get("collective") not in known.collectives():
            return value
        filled = {"algorithm": known.algorithms(value["collective"])[0], **value}
        if filled["algorithm"] in known.choices(value["collective"]):
            entry = known.entry(value["collective"], filled["algorithm"])
            filled.setdefault("op", entry.ops[0] if entry.ops else None)
            filled |= {key: default for key, default in entry.defaults.items() if filled.get(key) is None}
            if not entry.collective.sized:
                filled.setdefault("sizes", ["0B"])
        return filled


_KINDS: dict[str, type[Model]] = {
    "flows": FlowsStep,
    "load": LoadStep,
    "tasks": TasksStep,
    "train": TrainStep,
    "serve": ServeStep,
    "chakra": ChakraStep,
    "aicb": AicbStep,
    "torch": TorchStep,
}
"""Of steps that are known by a key."""


def _step_kind(value: Any) -> str:
    for kind, step in _KINDS.items():
        if isinstance(value, step) or (isinstance(value, dict) and kind in value):
            return f"<{kind}>"
    return "<collective>"


Step = Annotated[
    Annotated[CollectiveStep, Tag("<collective>")]
    | Annotated[FlowsStep, Tag("<flows>")]
    | Annotated[LoadStep, Tag("<load>")]
    | Annotated[TasksStep, Tag("<tasks>")]
    | Annotated[TrainStep, Tag("<train>")]
    | Annotated[ServeStep, Tag("<serve>")]
    | Annotated[ChakraStep, Tag("<chakra>")]
    | Annotated[AicbStep, Tag("<aicb>")]
    | Annotated[TorchStep, Tag("<torch>")],
    Discriminator(_step_kind),
]
