"""`workers:` and `costs:` of the experiment file: the containers, and emulated time of what is done in them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from testbed.base.types import Model, Rate, Size, Time, default, mistake, mistakes
from testbed.experiment.blocks.cables import MAX_RATE, MAX_TIME
from testbed.machine.mounts import Bind, CannotBind
from workloads.base import named_file


class Workers(Model):
    cpus: float | None = Field(
        default=None, gt=0, le=4096, allow_inf_nan=False, description="CPUs a worker may use (null: no limit)"
    )
    memory: Size = default("1GiB", "memory a worker may use, and share with its NIC as much again", ge=16 << 20)
    ranks_per_process: Literal["auto"] | Annotated[int, Field(ge=1, le=256)] = Field(
        default="auto",
        description="ranks that share a worker process and its container (`auto`: up to 16 ranks none do, more are "
        "spread over two processes for each CPU of this machine)",
    )
    image: str | None = Field(
        default=None, description="root file system of the workers: an archive by `docker save` (null: this machine's)"
    )
    bind: list[str] = Field(
        default_factory=list, description="folders and files of this machine that workers see: PATH, or PATH:rw"
    )

    @field_validator("image")
    @classmethod
    def _readable(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        path = Path((info.context or {}).get("directory", "."), value).absolute()
        try:
            named_file.check(path)
        except named_file.Missing:
            raise mistake(f"there is no image archive {value!r}", "a path relative to the experiment file") from None
        except named_file.Unreadable as error:
            raise mistake(f"image archive {value!r} cannot be read: {error.what}", "docs/experiment.md") from None
        return str(path)

    @field_validator("bind")
    @classmethod
    def _visible(cls, value: list[str]) -> list[str]:
        found, seen = [], set()
        for n, text in enumerate(value):
            bind = Bind.of(text)
            try:
                bind.check()
            except CannotBind as error:
                found.append(((n,), error.what, error.hint))
            if bind.path in seen:
                found.append(((n,), f"{str(bind.path)!r} is bound twice", "name it once"))
            seen.add(bind.path)
        if found:
            raise mistakes(found)
        return value


class Costs(Model):
    post: Time = default("100ns", "host time to post one work request", le=MAX_TIME)
    reduce: Rate = default("800Gbps", "speed at which a host adds up received data", gt=0, le=MAX_RATE)
    reduce_by: Literal["host", "channel"] = Field(
        default="host",
        description="who adds up: the `host`, one reduction at a time, or each `channel` of an algorithm by itself, at "
        "`reduce` each, as a GPU's thread blocks do",
    )
    wake: Time = default("0ns", "host time to notice a completion", le=MAX_TIME)
    convert: Rate = default(
        "1600Gbps", "speed at which a host turns floating into fixed point, and back", gt=0, le=10**15
    )
