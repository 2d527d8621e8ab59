"""`library:` of the experiment file: the collective library in whose manner steps are carried out that name no way."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from testbed.base import units
from testbed.base.types import Model, Size, mistake, mistakes, names, unknown
from workloads.base.vocabulary import LIBRARY


def _algorithms() -> list[str]:
    from workloads.library.settings import ALGORITHMS

    return [*ALGORITHMS, "p2p"]


def _protocols() -> list[str]:
    from workloads.library.settings import PROTOCOLS

    return list(PROTOCOLS)


def _generations() -> list[str]:
    from workloads.library.servers import GPUS

    return list(GPUS)


def _hosts() -> list[str]:
    from workloads.library.servers import HOSTS

    return list(HOSTS)


class Taken(Model):
    """A line of a table: what is taken for sizes up to one."""

    collective: str = Field(description="of which collective")
    up_to: Size | None = Field(default=None, description="for sizes up to this one (null: for all that are larger)")
    algorithm: str = Field(description="algorithm, as NCCL's log names it", json_schema_extra=names(_algorithms))
    protocol: str = Field(default="simple", description="protocol", json_schema_extra=names(_protocols))
    channels: int = Field(default=16, ge=1, le=64, description="channels")

    @field_validator("algorithm")
    @classmethod
    def _known_algorithm(cls, value: str) -> str:
        return _among("algorithm", value, _algorithms())

    @field_validator("protocol")
    @classmethod
    def _known_protocol(cls, value: str) -> str:
        return _among("protocol", value, _protocols())


class Library(Model):
    """A library, what it finds, what it is told, and what its parts take."""

    name: Literal["nccl"] = Field(default="nccl", description="the library")
    version: Annotated[str, Field(pattern=r"^\d{1,2}\.\d{1,3}(\.\d{1,3})?$")] = Field(
        default="2.30.7", description="whose constants its tuner has (2.21 to 2.30)"
    )
    gpu: str = Field(
        default="hopper", description="generation of the GPUs, which tuner and channels go by",
        json_schema_extra=names(_generations),
    )  # fmt: skip
    host: str = Field(
        default="intel", description="make of the hosts' CPUs, which the tuner goes by", json_schema_extra=names(_hosts)
    )
    channels: int | None = Field(default=None, ge=1, le=64, description="channels (null: as the library makes them)")
    choice: Literal["tuner", "table"] = Field(
        default="tuner", description="what is taken for a size: by the library's `tuner`, or as `table` says"
    )
    table: list[Taken] = Field(
        default_factory=list, max_length=1000, description="choice: table: the first line that fits a size is taken"
    )
    env: dict[str, str | int] = Field(
        default_factory=dict, description="NCCL_* variables that change how a collective is carried out"
    )
    costs: dict[str, Any] = Field(
        default_factory=dict,
        description="what its parts take, by the names of docs/collective-library.md: rates, times (left out: priors "
        "made of NCCL's own constants)",
    )

    @field_validator("gpu")
    @classmethod
    def _known_gpu(cls, value: str) -> str:
        return _among("generation of GPUs", value, _generations())

    @field_validator("host")
    @classmethod
    def _known_host(cls, value: str) -> str:
        return _among("make of hosts", value, _hosts())

    @field_validator("env")
    @classmethod
    def _readable(cls, value: dict[str, str | int]) -> dict[str, str | int]:
        from workloads.library.settings import Settings, WrongSetting

        try:
            Settings.of(value)
        except WrongSetting as wrong:
            raise mistake(wrong.what, wrong.hint, [wrong.variable]) from None
        return value

    @field_validator("costs")
    @classmethod
    def _quantities(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        from workloads.library.costs import PARAMETERS

        found = []
        for name, quantity in value.items():
            if name not in PARAMETERS:
                found.append(((name,), *unknown("cost", name, list(PARAMETERS))))
                continue
            try:
                number = _number(name, quantity)
            except units.UnitError as error:
                found.append(((name,), error.what, error.hint))
                continue
            if number <= 0 and PARAMETERS[name].unit == "bps":
                found.append(((name,), f"{quantity} is no rate", "more than 0"))
        if found:
            raise mistakes(found)
        return value

    @model_validator(mode="after")
    def _a_table_where_it_is_asked_for(self) -> Self:
        if (self.choice == "table") != bool(self.table):
            raise mistake("choice: table goes by `table`, and only that", "both, or neither", ["choice"])
        return self

    def numbers(self) -> dict[str, float]:
        """Costs that are told: bit/s and ns."""
        return {name: _number(name, quantity) for name, quantity in self.costs.items()}


def _number(name: str, quantity: Any) -> float:
    from workloads.library.costs import PARAMETERS

    return float(units.parse_rate(quantity) if PARAMETERS[name].unit == "bps" else units.parse_time(quantity))


def _among(kind: str, value: str, known: list[str]) -> str:
    if value not in known:
        raise mistake(*unknown(kind, value, known))
    return value


def by_library(value: Any) -> Any:
    """An experiment as it is written, in which collectives that name no algorithm are the library's, if it has one."""
    from workloads.registry import by_library as can

    steps = value.get("workload") if isinstance(value, dict) and value.get("library") is not None else None
    if not isinstance(steps, list):
        return value

    def its(step: Any) -> bool:
        return isinstance(step, dict) and "algorithm" not in step and step.get("collective") in can()

    return {**value, "workload": [{**step, "algorithm": LIBRARY} if its(step) else step for step in steps]}
