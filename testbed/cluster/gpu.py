"""The file of a GPU whose operations were measured: by kind a rate, and the time before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from testbed.base.model_file import FileKind, model_of, text_of
from testbed.base.types import Model, Time, mistakes, unknown
from testbed.base.units import UnitError, parse_bandwidth, parse_flops
from testbed.cluster.source import SourceOf
from workloads.steps.plan.gpu import KINDS, MEMORY, Measured

GPU = FileKind(
    "a GPU's profile", "`testbed calibrate --ops FILE` writes one", "`testbed calibrate --ops FILE --out gpu.yaml`"
)


class KindOf(Model):
    rate: str = Field(description="of large ones: FLOP/s, or bytes per second of what is bound by memory")
    start: Time = Field(ge=0, description="before one begins")
    interval: list[str] = Field(min_length=2, max_length=2, description="of the rate, that holds it with 90 %")
    rows: int = Field(ge=1, description="operations that it follows from")
    error: float = Field(ge=0, description="of these, in the middle, as a share")


class GpuProfile(Model):
    gpu: str = Field(max_length=200, description="its name")
    about: str = Field(default="", max_length=2000, description="software and date")
    source: list[SourceOf] = Field(default_factory=list, max_length=100)
    kinds: dict[str, KindOf] = Field(description="`matrix.bfloat16`, `attention.bfloat16`, .. and `memory`")

    @model_validator(mode="after")
    def _of_known_kinds(self) -> Self:
        found: list[tuple[tuple[str | int, ...], str, str]] = []
        for name, its in self.kinds.items():
            kind = name.split(".")[0]
            if kind not in KINDS:
                found.append((("kinds", name), *unknown("kind of operation", kind, list(KINDS))))
                continue
            for text in (its.rate, *its.interval):
                try:
                    if not _rate(kind, text) > 0:
                        raise UnitError(f"{text!r} is no rate", "more than 0")
                except UnitError as error:
                    found.append((("kinds", name, "rate"), error.what, error.hint))
        if found:
            raise mistakes(found)
        return self

    def measured(self, dtype: str) -> dict[str, Measured]:
        """By kind, of elements of a type."""
        found = {}
        for name, its in self.kinds.items():
            kind, _, of = name.partition(".")
            if not of or of == dtype:
                found[kind] = Measured(_rate(kind, its.rate), its.start)
        return found


def _rate(kind: str, text: str) -> float:
    return float(parse_bandwidth(text) if kind == MEMORY else parse_flops(text))


def load_gpu(path: str | Path) -> GpuProfile:
    """Raises InputError."""
    profile, _, _ = model_of(GpuProfile, text_of(path, GPU), str(path), GPU, Path(path).parent)
    return profile


def written_gpu(profile: GpuProfile) -> dict[str, Any]:
    """Plain data, without what is empty."""
    return {key: value for key, value in profile.model_dump(mode="json").items() if value not in ([], "")}
