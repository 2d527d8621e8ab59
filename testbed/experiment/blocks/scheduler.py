"""`fabric.switch.scheduler` of the experiment file: how classes share a port."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from testbed.base.types import Model, Size, mistake

TrafficClass = Annotated[int, Field(ge=0, le=7)]


def number_keys(value: Any) -> Any:
    """Keys of a mapping are numbers, also where they are written in quotes (as JSON must)."""
    if not isinstance(value, dict):
        return value
    return {int(k) if isinstance(k, str) and k.isdecimal() else k: v for k, v in value.items()}


Weights = Annotated[dict[TrafficClass, Annotated[int, Field(ge=1, le=100)]], BeforeValidator(number_keys)]


def _share(value: Any) -> Any:
    """`50%`, of a port's rate."""
    number = value[:-1].strip() if isinstance(value, str) and value.strip().endswith("%") else ""
    try:
        share = float(number) / 100
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise mistake(f"{value!r:.40} is no share", "write a percentage, above 0% to 100%, such as 50%")
    return share


Share = Annotated[
    float,
    BeforeValidator(_share),
    PlainSerializer(lambda share: f"{share * 100:.12g}%", return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9.]+%$"}),
]


class Shaper(Model):
    min: Share | None = Field(default=None, description="share of its port that a class has in any case (null: none)")
    max: Share | None = Field(default=None, description="share of its port that a class has at most (null: all)")
    burst: Size | None = Field(
        default=None, description="what it may catch up on when it has had less (null: two of the longest frames)"
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min is None and self.max is None:
            raise mistake("neither min nor max is given", "give one of them, or leave the class out")
        if self.min and self.max and self.min > self.max:
            raise mistake("min is larger than max", "what a class has in any case is within what it may have", ["min"])
        return self


Shapers = Annotated[dict[TrafficClass, Shaper], BeforeValidator(number_keys)]


class Scheduler(Model):
    strict: list[TrafficClass] = Field(
        default=[6, 7], description="classes that go first, the highest before the others"
    )
    weights: Weights = Field(
        default=dict.fromkeys(range(6), 1), description="shares of the other classes (deficit round robin)"
    )
    shapers: Shapers = Field(
        default_factory=dict, description="what classes have of a port in any case, and at most: `{3: {max: 50%}}`"
    )

    @model_validator(mode="after")
    def _no_more_than_all(self) -> Self:
        if sum(shaper.min or 0.0 for shaper in self.shapers.values()) > 1 + 1e-9:
            raise mistake("what classes have in any case is more than 100% together", "less", ["shapers"])
        return self
