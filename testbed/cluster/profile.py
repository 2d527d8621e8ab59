"""The file of a cluster's profile, as a typed model.

Rates are written as `392Gbps`, times as `1.2us`; a cost's name says which. A cost that the logs have not told has the
library's own constant, and an interval as wide as one knows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from testbed.base.model_file import FileKind, model_of, text_of
from testbed.base.types import Model, Rate, mistakes, unknown
from testbed.base.units import UnitError, format_rate, format_time, parse_rate, parse_time
from testbed.cluster.gpu import GpuProfile
from testbed.cluster.regions import REGIONS
from testbed.cluster.source import SourceOf
from workloads.library.costs import PARAMETERS
from workloads.library.servers import GPUS, HOSTS

if TYPE_CHECKING:
    import numpy as np

PROFILE = FileKind(
    "a cluster profile",
    "ready ones are in hardware/profiles/",
    "`testbed calibrate LOG..` writes one; docs/calibrate.md",
)
Z90 = 1.6449
"""Half of an interval that holds 90 % of a normal distribution, in standard deviations."""
DIGITS = 4
MOST_GPUS = 1024
"""Of a server, and NICs."""


class HardwareOf(Model):
    gpu: Literal[GPUS] = Field(description="generation of the GPUs")  # type: ignore[valid-type]
    gpus: int = Field(ge=1, le=MOST_GPUS, description="of a server")
    nics: int = Field(ge=1, le=MOST_GPUS, description="of a server")
    nic: Rate = Field(gt=0, description="line rate of a NIC")
    host: Literal[HOSTS] = Field(default="intel", description="kind of the servers' CPUs")  # type: ignore[valid-type]
    nvlink: bool = Field(default=True, description="GPUs of a server are in one scale-up domain")
    assumed: list[str] = Field(default_factory=list, description="keys that no log says")


class Chosen(Model):
    collective: str = Field(max_length=40)
    size: int = Field(ge=1, description="bytes from which on it was chosen")
    algorithm: str = Field(max_length=40)
    protocol: str = Field(max_length=40)
    channels: int = Field(ge=1, le=1024)
    ranks: int = Field(ge=1, description="among which")


class LibraryOf(Model):
    name: Literal["nccl"] = "nccl"
    version: str = Field(default="2.30.7", pattern=r"^\d{1,3}\.\d{1,3}\.\d{1,3}$")
    env: dict[str, str] = Field(default_factory=dict, description="NCCL_* settings under which it was measured")
    choice: Literal["tuner"] | list[Chosen] = Field(
        default="tuner", description="algorithms as the tuner takes them, or as the logs say that they were taken"
    )


class Cost(Model):
    value: str
    interval: list[str] = Field(min_length=2, max_length=2, description="that holds it with 90 %")
    told: bool = Field(description="whether the logs have told it")


class RangeOf(Model):
    nodes: list[int] = Field(min_length=2, max_length=2)
    gpus: list[int] = Field(min_length=2, max_length=2)
    sizes: list[int] = Field(min_length=2, max_length=2)
    collectives: list[str] = Field(min_length=1, max_length=20)


class Profile(Model):
    cluster: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="its name")
    about: str = Field(default="", max_length=2000, description="where the logs are from")
    source: list[SourceOf] = Field(default_factory=list, max_length=10_000, description="logs that it follows from")
    left_out: dict[str, int] = Field(default_factory=dict, description="rows that were not used, and why")
    hardware: HardwareOf
    library: LibraryOf = Field(default_factory=LibraryOf)
    costs: dict[str, Cost] = Field(description="constants of the library's model")
    correlation: dict[str, list[float]] = Field(
        default_factory=dict, description="of the costs' logarithms: each with those before it and itself"
    )
    scatter: dict[str, float] = Field(description="of measured times around the model, by size")
    range: RangeOf = Field(description="what was measured")
    compute: GpuProfile | None = Field(default=None, description="what its GPUs' operations take")
    held_out: dict[str, str] = Field(default_factory=dict, description="errors on rows that were held back")

    @model_validator(mode="after")
    def _costs_are_parameters(self) -> Self:
        found: list[tuple[tuple[str | int, ...], str, str]] = []
        for name, cost in self.costs.items():
            if name not in PARAMETERS:
                found.append((("costs", name), *unknown("cost", name, list(PARAMETERS))))
                continue
            for text in (cost.value, *cost.interval):
                try:
                    if not quantity(name, text) > 0:
                        raise UnitError(f"{text!r} is nothing", "more than 0")
                except UnitError as error:
                    found.append((("costs", name), error.what, error.hint))
        for name in self.scatter:
            if name not in REGIONS:
                found.append((("scatter", name), *unknown("region", name, list(REGIONS))))
        if missing := set(REGIONS) - set(self.scatter):
            found.append((("scatter",), f"{', '.join(sorted(missing))} is missing", f"{', '.join(REGIONS)}"))
        for n, name in enumerate(self.correlation, 1):
            row = self.correlation[name]
            if name not in self.costs or len(row) != n or not all(-1 <= value <= 1 for value in row):
                found.append((("correlation", name), "not a row of correlations", "as `testbed calibrate` wrote it"))
        if found:
            raise mistakes(found)
        return self

    def values(self) -> dict[str, float]:
        """Of the costs, in bit/s and ns."""
        return {name: quantity(name, cost.value) for name, cost in self.costs.items()}

    def covariance(self) -> tuple[list[str], np.ndarray]:
        """Of the logarithms of the costs."""
        import numpy as np  # slow to import, and no experiment without a cluster needs it

        names = list(self.costs)
        sd = np.array([_sd(name, cost) for name, cost in self.costs.items()])
        correlation = np.eye(len(names))
        order = [names.index(name) for name in self.correlation]
        for row, values in zip(order, self.correlation.values(), strict=True):
            for column, value in zip(order, values, strict=False):
                correlation[row, column] = correlation[column, row] = 1.0 if row == column else value
        return names, correlation * np.outer(sd, sd)


def quantity(name: str, text: str) -> float:
    """A cost's value.  Raises UnitError."""
    return float(parse_rate(text) if PARAMETERS[name].unit == "bps" else parse_time(text))


def written(name: str, value: float) -> str:
    """With as many digits as are worth it."""
    rounded = float(f"{value:.{DIGITS}g}")
    return format_rate(int(rounded)) if PARAMETERS[name].unit == "bps" else format_time(rounded)


def _sd(name: str, cost: Cost) -> float:
    low, high = (quantity(name, text) for text in cost.interval)
    return max(log(high / low), 0.0) / (2 * Z90)


def load(path: str | Path) -> Profile:
    """Raises InputError."""
    profile, _, _ = model_of(Profile, text_of(path, PROFILE), str(path), PROFILE, Path(path).parent)
    return profile


def dump(profile: Profile) -> dict[str, Any]:
    """Plain data, without what is empty."""
    data: Mapping[str, Any] = profile.model_dump(mode="json")
    return {key: value for key, value in data.items() if value not in ({}, [], "", None)}
