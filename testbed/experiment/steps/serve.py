"""The step `serve` of a workload: a model that answers, on pools of GPUs for its parts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from testbed.base.types import Model, Time
from testbed.experiment.steps.step import absolute
from testbed.experiment.steps.train import Count, Gpu, TrainModel
from workloads.serving.requests import MOST_REQUESTS, MOST_TOKENS

MOST_MICRO_BATCHES = 64


class PoolOf(Model):
    """GPUs that do one part of the work."""

    ranks: list[int] = Field(min_length=1, max_length=4096, description="its ranks; a list alone says only these")
    gpu: Gpu | None = Field(default=None, description="what computes there (null: the step's `gpu`)")
    layer: Annotated[Time, Field(gt=0, le=1e12)] | None = Field(
        default=None,
        description="what a layer of a micro-batch takes on a rank, as measured elsewhere (null: by model and GPU); "
        "experts: on one with the mean share of tokens",
    )
    cost: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="of a GPU for an hour, in any unit (null: not said)"
    )


def _short(value: Any) -> Any:
    """`[0, 1]` is a pool that says nothing more."""
    return {"ranks": value} if isinstance(value, list) else value


Pool = Annotated[PoolOf, BeforeValidator(_short)]


class GatingOf(Model):
    zipf: float | None = Field(
        default=None, ge=0, le=10, allow_inf_nan=False, description="the k-th expert gets 1/k^zipf (null: all as much)"
    )
    hot: float | None = Field(
        default=None, ge=0, le=1, allow_inf_nan=False,
        description="instead of `zipf`: one expert's share, the others have as much as each other",
    )  # fmt: skip
    draw: bool = Field(
        default=False, description="each token draws its experts by these shares (false: they get them exactly)"
    )


def _uniform(value: Any) -> Any:
    return {} if value == "uniform" else value


def _listed(value: Any) -> Any:
    """`2` is `[2]`."""
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


MicroBatches = Annotated[int, Field(ge=1, le=MOST_MICRO_BATCHES)]


def _range(value: Any) -> Any:
    """`512` is `[512, 512]`."""
    return [value, value] if isinstance(value, int) and not isinstance(value, bool) else value


Tokens = Annotated[
    list[Annotated[int, Field(ge=1, le=MOST_TOKENS)]], Field(min_length=2, max_length=2), BeforeValidator(_range)
]


class RequestsOf(Model):
    """Requests that come by themselves."""

    rate: float | None = Field(
        default=None, gt=0, le=1e12, allow_inf_nan=False,
        description="so many come in a second of emulated time, on average (a Poisson process)",
    )  # fmt: skip
    count: int = Field(default=32, ge=1, le=MOST_REQUESTS, description="how many come")
    prompt: Tokens = Field(default=[512, 512], description="tokens that each brings: a number, or `[LEAST, MOST]`")
    output: Tokens = Field(default=[32, 32], description="tokens that each gets, likewise")
    trace: str | None = Field(
        default=None,
        description="instead of all these: a CSV file `arrival,prompt,output` from this file's folder on; an arrival "
        "is in seconds, or `250us`",
    )

    @field_validator("trace")
    @classmethod
    def _from_the_files_folder(cls, value: str | None, info: ValidationInfo) -> str | None:
        return value if value is None else absolute(value, info)


class Serve(Model):
    model: TrainModel = Field(description="what answers; `seq` is the default of `context`")
    gpu: Gpu | None = Field(default=None, description="what computes, in pools that do not say it (null: they all do)")
    attention: Pool | None = Field(default=None, description="ranks that have the sequences; with `experts`")
    experts: Pool | None = Field(default=None, description="ranks that have the experts, as many each")
    prefill: Pool | None = Field(
        default=None,
        description="ranks that read prompts, and share every matrix; with `requests`, and `decode` or the two above",
    )
    decode: Pool | None = Field(
        default=None, description="ranks that generate tokens, and share every matrix; without `prefill` they do both"
    )
    requests: RequestsOf | None = Field(
        default=None, description="what comes by itself (null: `tokens` sequences are at work)"
    )
    sequences: Count = Field(
        default=64, description="requests that a pool works on at a time, at most; all micro-batches together"
    )
    prompt_tokens: Count = Field(
        default=8192, description="tokens of prompts that it, or a micro-batch, reads in one iteration, at most"
    )
    tokens: Count = Field(default=1, description="sequences of a micro-batch, on each attention rank; of decode: all")
    context: int | None = Field(
        default=None, ge=0, le=1 << 24, description="tokens that each sequence has already (null: the model's `seq`)"
    )
    output: Count = Field(default=1, description="tokens that each sequence gets, one after the other")
    micro_batches: Annotated[list[MicroBatches], BeforeValidator(_listed)] = Field(
        default=[1], min_length=1, max_length=MOST_MICRO_BATCHES,
        description="that go to and fro between attention and experts; of a list each is run",
    )  # fmt: skip
    gating: Annotated[GatingOf, BeforeValidator(_uniform)] = Field(
        default_factory=GatingOf, description="which experts tokens take; `uniform`: all as much"
    )
    exchange: Literal["m2n", "all_to_all_v", "all_to_all"] = Field(
        default="m2n", description="how tokens get to their experts and back"
    )
    algorithm: dict[str, str] = Field(
        default_factory=dict, description="`{COLLECTIVE: ALGORITHM}` (left out: the fastest by its expected time)"
    )
    iterations: int = Field(default=1, ge=1, le=10_000, description="measured repetitions")
    warmup: int = Field(default=0, ge=0, le=10_000, description="repetitions before those, not measured")
