"""What a program of a SmartNIC is told: keys of its step, beside those of every collective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from testbed.base.types import Model, Rate, Size, Time
from testbed.base.types import default as written
from testbed.experiment.steps.step import Found
from workloads.programs.figures import FEED, MESSAGE, STORAGE, Figure

MAX_TIME = 10.0**12
MAX_RATE = 10**15
MOST_LEAVES = 1 << 14
MOST_BLOCKS = 10_000


def _of(figure: Figure, description: str, **bounds: Any) -> Any:
    """A field whose default is a figure with a source."""
    return written(str(figure.value), description, **bounds)


class HostMessageCosts(Model):
    """A core of a host."""

    field: Time = _of(MESSAGE["host.field"], "for each field", le=MAX_TIME)
    level: Time = _of(MESSAGE["host.level"], "for each message in a message", le=MAX_TIME)
    copy_: Rate = Field(
        default=MESSAGE["host.copy"].value, alias="copy", validate_default=True, gt=0, le=MAX_RATE,
        description="its bytes",
    )  # fmt: skip


class NicMessageCosts(Model):
    """The serializer of a compute complex."""

    field: Time = _of(MESSAGE["nic.field"], "for each field", le=MAX_TIME)
    level: Time = _of(MESSAGE["nic.level"], "for each message in a message", le=MAX_TIME)
    copy_: Rate = Field(
        default=MESSAGE["nic.copy"].value, alias="copy", validate_default=True, gt=0, le=MAX_RATE,
        description="its bytes",
    )  # fmt: skip


class Message(Model):
    """Remote procedure calls: their messages, and what these cost."""

    nesting: int = Field(default=1, ge=1, le=64, description="messages in each other")
    fields: int = Field(default=8, ge=1, le=1024, description="scalar fields of each of them")
    requests: int = Field(default=1, ge=1, le=10_000, description="calls of each caller: the time is that of all")
    outstanding: int = Field(default=1, ge=1, le=256, description="calls of a caller that are under way at a time")
    handler: Time = written("1us", "time of the server's core for what is called", le=MAX_TIME)
    batch: bool = Field(default=True, description="nic: an object crosses PCIe in one piece (false: field by field)")
    host: HostMessageCosts = Field(
        default_factory=HostMessageCosts, description="to serialize a message or make an object of it: a host's core"
    )
    nic: NicMessageCosts = Field(default_factory=NicMessageCosts, description="the same: the complex of a NIC")

    def mistakes(self, sizes: Sequence[int], ranks: int) -> Iterator[Found]:
        """Fields have room in a message."""
        leaves = self.nesting * self.fields
        if leaves > MOST_LEAVES:
            yield ("message", "fields"), f"{leaves} fields in a message", f"nesting x fields: at most {MOST_LEAVES}"
        least = 8 * self.nesting * (self.fields // 2)
        for i, size in enumerate(sizes):
            if size < least:
                integers = least // 8
                yield ("sizes", i), f"{integers} integers are {least} bytes, more than {size}", f"at least {least}B"


class HostCores(Model):
    cores: int = Field(
        default=int(STORAGE["host.cores"].value), ge=1, le=256, description="that compress, beside the one for headers"
    )
    compress: Rate = _of(STORAGE["host.compress"], "of one of them", gt=0, le=MAX_RATE)


class NicEngines(Model):
    cores: int = Field(default=int(STORAGE["nic.cores"].value), ge=1, le=256, description="engines that compress")
    compress: Rate = _of(STORAGE["nic.compress"], "of one of them", gt=0, le=MAX_RATE)


class Storage(Model):
    """Writes to a block storage through a middle tier."""

    block: Size = written("4KiB", "bytes of a block", ge=512, le=1 << 20)
    servers: int = Field(default=1, ge=1, le=64, description="storage servers: so many of the ranks, the last ones")
    replicas: int = Field(default=1, ge=1, le=64, description="storage servers that get each block")
    outstanding: int = Field(default=16, ge=1, le=256, description="blocks of a writer that are under way at a time")
    ratio: float = Field(
        default=float(STORAGE["ratio"].value), ge=1, le=64, allow_inf_nan=False,
        description="by which blocks compress, about",
    )  # fmt: skip
    header: Time = _of(STORAGE["header"], "time of the middle tier's host for a header", le=MAX_TIME)
    host: HostCores = Field(default_factory=HostCores, description="the middle tier's host")
    nic: NicEngines = Field(default_factory=NicEngines, description="the complex of its NIC")

    def mistakes(self, sizes: Sequence[int], ranks: int) -> Iterator[Found]:
        """Blocks of writers, through a middle tier, to servers."""
        if self.replicas > self.servers:
            what = f"{self.replicas} replicas on {self.servers} storage servers"
            yield ("storage", "replicas"), what, f"1 to {self.servers}, or more servers"
        if self.servers > ranks - 2:
            what = f"{self.servers} storage servers of {ranks} ranks leave no writer beside the middle tier"
            yield ("storage", "servers"), what, f"1 to {ranks - 2}" if ranks > 2 else "more ranks"
        yield from _whole(sizes, self.block, "blocks")


class Feed(Model):
    """Preprocessed data for accelerators."""

    batch: Size = written("256KiB", "bytes of a batch, preprocessed", ge=8, le=1 << 30)
    preprocess: Time = _of(FEED["preprocess"], "time of a server's core for a batch", gt=0, le=MAX_TIME)
    manage: Time = _of(FEED["manage"], "host: time of that core to move one, beside copying and posting", le=MAX_TIME)
    copy_: Rate = Field(
        default=FEED["copy"].value, alias="copy", validate_default=True, gt=0, le=MAX_RATE,
        description="host: it copies a batch into memory that its NIC may read",
    )  # fmt: skip
    compute: list[Annotated[Time, Field(gt=0, le=MAX_TIME)]] = Field(
        default=["40us"], validate_default=True, min_length=1, max_length=256,
        description="time of each accelerator for a batch: so many of the ranks are accelerators, the last ones",
    )  # fmt: skip
    buffers: int = Field(default=2, ge=1, le=64, description="batches of a server that an accelerator has room for")
    schedule: Literal["naive", "aware"] = Field(
        default="naive",
        description="who gets a batch: all accelerators in turn, or those that it takes, by their times",
    )

    def mistakes(self, sizes: Sequence[int], ranks: int) -> Iterator[Found]:
        """Servers and accelerators, and whole batches."""
        if len(self.compute) >= ranks:
            what = f"{len(self.compute)} accelerators of {ranks} ranks leave no server"
            yield ("feed", "compute"), what, f"1 to {ranks - 1} times"
        yield from _whole(sizes, self.batch, "batches")


def _whole(sizes: Sequence[int], piece: int, name: str) -> Iterator[Found]:
    """Sizes are so many pieces."""
    for i, size in enumerate(sizes):
        count, odd = divmod(size, piece)
        if odd or count > MOST_BLOCKS:
            what = f"{size} bytes are {size / piece:g} {name}"
            yield ("sizes", i), what, f"a multiple of {piece}B, at most {MOST_BLOCKS} {name}"
