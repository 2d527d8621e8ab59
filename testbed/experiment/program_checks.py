"""Checks of steps that are programs of SmartNICs: what each of their keys alone does not show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from testbed.experiment.steps.programs import MOST_LEAVES

if TYPE_CHECKING:
    from testbed.experiment.steps.steps import CollectiveStep

Found = tuple[tuple[str | int, ...], str, str]  # path, what, hint


def mistakes(step: CollectiveStep) -> Iterator[Found]:
    """What is wrong with a program's step that each of its keys alone does not show."""
    if (message := step.message) is not None:
        leaves = message.nesting * message.fields
        if leaves > MOST_LEAVES:
            yield ("message", "fields"), f"{leaves} fields in a message", f"nesting x fields: at most {MOST_LEAVES}"
        least = 8 * message.nesting * (message.fields // 2)
        for i, size in enumerate(step.sizes):
            if size < least:
                integers = least // 8
                yield ("sizes", i), f"{integers} integers are {least} bytes, more than {size}", f"at least {least}B"
