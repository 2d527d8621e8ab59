"""Checks of steps that are programs of SmartNICs: what each of their keys alone does not show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from testbed.experiment.steps.programs import MOST_BLOCKS, MOST_LEAVES

if TYPE_CHECKING:
    from testbed.experiment.steps.steps import CollectiveStep

Found = tuple[tuple[str | int, ...], str, str]  # path, what, hint


def mistakes(step: CollectiveStep, ranks: int) -> Iterator[Found]:
    """What is wrong with a program's step; `ranks`: how many the fabric has."""
    yield from _message(step)
    there = ranks if step.ranks is None else len(step.ranks)
    yield from _storage(step, there)
    yield from _feed(step, there)


def _feed(step: CollectiveStep, ranks: int) -> Iterator[Found]:
    """Servers and accelerators, and whole batches."""
    if (feed := step.feed) is None:
        return
    if len(feed.compute) >= ranks:
        what = f"{len(feed.compute)} accelerators of {ranks} ranks leave no server"
        yield ("feed", "compute"), what, f"1 to {ranks - 1} times"
    yield from _whole(step.sizes, feed.batch, "batches")


def _storage(step: CollectiveStep, ranks: int) -> Iterator[Found]:
    """Blocks of writers, through a middle tier, to servers."""
    if (storage := step.storage) is None:
        return
    if storage.replicas > storage.servers:
        what = f"{storage.replicas} replicas on {storage.servers} storage servers"
        yield ("storage", "replicas"), what, f"1 to {storage.servers}, or more servers"
    if storage.servers > ranks - 2:
        what = f"{storage.servers} storage servers of {ranks} ranks leave no writer beside the middle tier"
        yield ("storage", "servers"), what, f"1 to {ranks - 2}" if ranks > 2 else "more ranks"
    yield from _whole(step.sizes, storage.block, "blocks")


def _whole(sizes: list[int], piece: int, name: str) -> Iterator[Found]:
    """Sizes are so many pieces."""
    for i, size in enumerate(sizes):
        count, odd = divmod(size, piece)
        if odd or count > MOST_BLOCKS:
            what = f"{size} bytes are {size / piece:g} {name}"
            yield ("sizes", i), what, f"a multiple of {piece}B, at most {MOST_BLOCKS} {name}"


def _message(step: CollectiveStep) -> Iterator[Found]:
    """Fields have room in a message."""
    if (message := step.message) is not None:
        leaves = message.nesting * message.fields
        if leaves > MOST_LEAVES:
            yield ("message", "fields"), f"{leaves} fields in a message", f"nesting x fields: at most {MOST_LEAVES}"
        least = 8 * message.nesting * (message.fields // 2)
        for i, size in enumerate(step.sizes):
            if size < least:
                integers = least // 8
                yield ("sizes", i), f"{integers} integers are {least} bytes, more than {size}", f"at least {least}B"
