"""The step `train` of a workload: a training step of a model, by its plan of parallelism."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, model_validator

from testbed.base.errors import InputError
from testbed.base.types import Bandwidth, Flops, Model, Size, Time, default, folder_of, mistake, names, unknown
from testbed.cluster.gpu import GpuProfile, load_gpu
from testbed.cluster.source import FILE_OR_MAPPING
from testbed.experiment.blocks import known
from testbed.experiment.blocks.fabric import TrafficClass
from testbed.experiment.blocks.transport import Own

Count = Annotated[int, Field(ge=1, le=1 << 20)]
MOST_MICRO_BATCHES = 4096


class TrainModel(Model):
    preset: str | None = Field(
        default=None,
        description="a known model, of which the other keys change something (null: they say everything)",
        json_schema_extra=names(known.model_presets),
    )
    layers: Count | None = Field(default=None, description="layers (required without a preset, as the next three)")
    hidden: Count | None = Field(default=None, description="elements of a token's vector")
    heads: Count | None = Field(default=None, description="heads of attention")
    seq: Count | None = Field(default=None, description="tokens of a sequence")
    kv_heads: Count | None = Field(default=None, description="heads of keys and values (null: as `heads`)")
    head_dim: Count | None = Field(default=None, description="elements of a head (null: hidden / heads)")
    ffn: Count | None = Field(default=None, description="inner width of an MLP (null: 4 x hidden)")
    vocab: int | None = Field(
        default=None, ge=0, le=1 << 24, description="words: rows of the embedding and of the head (null: 0, neither)"
    )
    experts: int | None = Field(default=None, ge=0, le=4096, description="MLPs of a layer (null: 0, one)")
    top_k: Count | None = Field(default=None, description="experts that a token takes (null: 2)")
    gated: bool | None = Field(default=None, description="MLPs of three matrices, SwiGLU (null: false)")
    bias: bool | None = Field(default=None, description="matrices and norms have biases (null: false)")
    tied: bool | None = Field(default=None, description="the head uses the embedding's table (null: false)")
    positions: int | None = Field(default=None, ge=0, le=1 << 24, description="learned positions (null: 0)")
    dtype: str | None = Field(
        default=None, description="of parameters, gradients and activations (null: bfloat16)",
        json_schema_extra=names(lambda: [*known.float_types(), None]),
    )  # fmt: skip


def _profile(value: Any, info: ValidationInfo) -> Any:
    """A file's content where it is named."""
    if not isinstance(value, str):
        return value
    folder = folder_of(info)
    if folder is None:
        raise mistake("a file cannot be named here", "write what stands in it")
    try:
        return load_gpu(folder / value)
    except InputError as error:
        raise mistake(f"{error.where}: {error.what}", error.hint) from None


class Gpu(Model):
    preset: str | None = Field(
        default=None,
        description="a known GPU, of which the other keys change something",
        json_schema_extra=names(known.gpu_presets),
    )
    flops: Flops | None = Field(
        default=None, gt=0, description="FLOP/s of dense matrix multiplications (required without a preset)"
    )
    efficiency: float = Field(
        default=0.5, gt=0, le=1, allow_inf_nan=False, description="share of them that a multiplication reaches"
    )
    hbm: Bandwidth | None = Field(default=None, gt=0, description="rate of its memory (null: the preset's, or none)")
    memory: Size | None = Field(default=None, gt=0, description="its memory (null: the preset's, or no limit)")
    measured: Annotated[GpuProfile | None, BeforeValidator(_profile), WithJsonSchema(FILE_OR_MAPPING)] = Field(
        default=None,
        description="what its operations were measured to take, a file of `testbed calibrate --ops`: it goes before "
        "`efficiency` and `hbm` (null: the cluster's profile, or nothing)",
    )


class Batch(Model):
    micro: Count = Field(default=1, description="sequences of a micro-batch")
    count: int = Field(
        default=1, ge=1, le=MOST_MICRO_BATCHES,
        description="micro-batches that each pipeline takes in a step, one after the other",
    )  # fmt: skip
    global_: Count | None = Field(
        default=None, alias="global",
        description="sequences of a step, of all pipelines: `count` is global / (micro x data) (null: `count` says it)",
    )  # fmt: skip


class Parallel(Model):
    tensor: Count = Field(default=1, description="ranks that share every matrix")
    context: Count = Field(default=1, description="ranks that share a sequence (ring attention)")
    data: Count = Field(default=1, description="copies that take different micro-batches")
    pipeline: Count = Field(default=1, description="stages")
    expert: Count = Field(
        default=1, description="of the ranks of `context` and `data`, so many in a row share the experts"
    )
    sequence: bool = Field(default=False, description="the ranks of `tensor` share what lies between matrices, too")
    scatter_gather: bool = Field(
        default=False,
        description="each rank of `tensor` sends its part of what goes between stages, all of it is gathered there",
    )


class Interleaved(Model):
    interleaved: int = Field(ge=2, le=64, description="chunks of the model on each stage")


def _schedule(value: Any) -> Any:
    if value == "interleaved":
        raise mistake("interleaved in how many chunks?", "{interleaved: 2}: so many on each stage")
    if isinstance(value, str) and value not in known.schedules():
        raise mistake(*unknown("schedule", value, [*known.schedules(), "{interleaved: 2}"]))
    return value


class Gating(Model):
    zipf: float | None = Field(
        default=None, ge=0, le=10, allow_inf_nan=False, description="expert k gets 1/k^zipf (null: all as much)"
    )
    hot: float | None = Field(
        default=None, ge=0, le=1, allow_inf_nan=False,
        description="instead of `zipf`: the first expert's share, the others have as much as each other",
    )  # fmt: skip
    capacity: float | None = Field(
        default=None, gt=0, le=1000, allow_inf_nan=False,
        description="an expert takes so many times its even share of tokens, others are dropped (null: all)",
    )  # fmt: skip


class GroupOf(Model):
    """How a group of ranks does what it does together."""

    algorithm: str | None = Field(
        default=None,
        description="for all of its collectives that have it (null: as the experiment's `library` does; without one "
        "the fastest by closed form)",
        json_schema_extra=names(lambda: [*known.every_algorithm(), None]),
    )  # fmt: skip
    compression: Literal["bfp"] | None = Field(default=None, description="as of a collective")
    traffic_class: TrafficClass | None = Field(
        default=None, description="class of what its ranks send by themselves (null: that of transport.dscp)"
    )
    transport: Own | None = Field(
        default=None, description="what its ranks send by, as of the step, which it goes before"
    )


class Scale(Model):
    """A large model by small ones: fewer layers, which are alike; 1/s of all bytes, computations and latencies."""

    layers: list[Count] | None = Field(
        default=None,
        min_length=2,
        max_length=2,
        description="two numbers of layers, which are run; from them the model's follows (null: all layers)",
    )
    by: int = Field(
        default=1, ge=1, le=1024, description="bytes, computations and latencies are divided by this, packets are not"
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.layers is None and self.by == 1:
            raise mistake("nothing is scaled", "layers: [2, 4], by: 16, or both")
        return self


class Checkpoint(Model):
    """Where a checkpoint goes and how; and of which cluster failures, energy and cost are said."""

    to: list[Annotated[int, Field(ge=0)]] = Field(
        min_length=1, max_length=1 << 16, description="ranks that store and do not train: the fabric's last ones"
    )
    every: int = Field(ge=1, le=10**9, description="steps from one checkpoint to the next")
    mode: Literal["sync", "async"] = Field(
        default="sync", description="training waits until it is written, or only until it is copied"
    )
    disk: Bandwidth | None = Field(default=None, gt=0, description="rate of each storing rank's disk (null: any)")
    copy_rate: Bandwidth = default("50GBps", "of a copy into the host's memory (async)", gt=0)
    restart: Time = default("60s", "from a failure until ranks read the checkpoint", le=1e15)
    steps: int | None = Field(
        default=None, ge=1, le=10_000,
        description="run so many, after failures from the last checkpoint on (null: formulas say what they cost)",
    )  # fmt: skip
    failures: bool = Field(
        default=False, description="processes of ranks are killed, drawn from the seed, as often as `mtbf` says (steps)"
    )
    monitor: Time = default("100ms", "how often the launcher looks whether a rank has ended (steps)", gt=0, le=1e15)
    restarts: int = Field(default=100, ge=0, le=10_000, description="how often it starts the ranks again (steps)")
    mtbf: float = Field(
        default=50_000, gt=0, le=1e12, allow_inf_nan=False, description="hours of one GPU between two failures"
    )
    gpus: Count | None = Field(default=None, description="GPUs of the cluster (null: the plan's)")
    power: float = Field(default=1275, ge=0, le=1e6, allow_inf_nan=False, description="W a GPU, with its share of all")
    price: float = Field(default=2, ge=0, le=1e6, allow_inf_nan=False, description="money for a GPU and hour")


class Train(Model):
    model: TrainModel = Field(description="what is trained")
    gpu: Gpu = Field(description="what computes")
    batch: Batch = Field(default_factory=Batch, description="what a step takes in")
    parallel: Parallel = Field(
        default_factory=Parallel,
        description="ranks of each dimension; tensor x context x data x pipeline is all ranks of the fabric",
    )
    place: dict[Literal["tensor", "context", "data", "pipeline"], str] = Field(
        default_factory=dict,
        description="`{DIMENSION: AXIS}`: along which axis of the fabric a dimension lies (left out: Megatron's order)",
    )
    schedule: Annotated[str | Interleaved, BeforeValidator(_schedule)] = Field(
        default="1f1b",
        description="of the pipeline: `gpipe`, `1f1b`, `{interleaved: CHUNKS}`, `zero_bubble` (ZB-H1), "
        "`zb_v` (ZB-V) or `dualpipe`",
    )
    shard: Literal["none", "zero1", "zero2", "zero3", "fsdp"] = Field(
        default="none", description="what the ranks of data (and context) share of optimizer, gradients, parameters"
    )
    recompute: Literal["none", "selective", "full"] = Field(
        default="none", description="activations that are computed again: none, attention's scores, all of a layer"
    )
    buckets: Size = default("25MiB", "gradients go in buckets of this size", gt=0, le=1 << 34)
    first_bucket: Size | None = Field(
        default=None, gt=0, le=1 << 34, description="size of the first one; DistributedDataParallel's is 1 MiB "
        "(null: as the others)",
    )  # fmt: skip
    root_unit: bool = Field(
        default=False, description="fsdp: embedding and head are one unit, gathered once and kept until backward "
        "has ended",
    )  # fmt: skip
    gating: Gating = Field(default_factory=Gating, description="which experts tokens take")
    groups: dict[str, GroupOf] = Field(
        default_factory=dict,
        description="`{GROUP: ..}`: how tensor, context, data, pipeline, expert, expert_data or embedding communicate",
    )
    scale: Scale | None = Field(
        default=None,
        description="the model is too large to be run: its time from that of less of it (null: all)",
    )
    checkpoint: Checkpoint | None = Field(
        default=None, description="what checkpoints and failures cost: the step is run without, with, and read back"
    )
    iterations: int = Field(default=1, ge=1, le=10_000, description="measured repetitions")
    warmup: int = Field(default=0, ge=0, le=10_000, description="repetitions before those, not measured")

    @model_validator(mode="after")
    def _micro_batches(self) -> Self:
        """How many follow from a global batch, as of Megatron's `--global-batch-size`."""
        its, data = self.batch, self.parallel.data
        if its.global_ is None:
            return self
        count, over = divmod(its.global_, its.micro * data)
        share = f"micro {its.micro} x data {data}"
        if over:
            what = f"a global batch of {its.global_} sequences cannot be divided by {share}"
            raise mistake(what, f"a multiple of {its.micro * data}", ["batch", "global"])
        if count > MOST_MICRO_BATCHES:
            what = f"a global batch of {its.global_} sequences is {count} micro-batches of {share}"
            raise mistake(what, f"{MOST_MICRO_BATCHES} micro-batches at most", ["batch", "global"])
        if "count" in its.model_fields_set and its.count != count:
            what = f"{its.count} micro-batches of {share} are no global batch of {its.global_} sequences"
            raise mistake(what, f"leave count out: it is {count}", ["batch", "count"])
        self.__dict__["batch"] = its.model_copy(update={"count": count})  # frozen for others
        return self
