"""Faults of cables under credits."""

from __future__ import annotations

from typing import Any, ClassVar

from testbed.faults.loss import ShareOfFrames


class CreditLeak(ShareOfFrames):
    name: ClassVar[str] = "credit_leak"
    summary: ClassVar[str] = "a cable's far end does not count some frames' credits, which so never come back"
    shows: ClassVar[str] = (
        "`testbed show cables credits`: less is left than there is room while nothing is under way, waits; nothing is "
        "dropped. A resync finds them (`credits_found`); without one the cable gets slower until it stands still"
    )
    example: ClassVar[dict[str, Any]] = {"on": "cable:h0-leaf0", "rate": 0.01}
    on: ClassVar[tuple[str, ...]] = ("cable", "port", "nic", "switch", "all")
    effect: ClassVar[str] = "leak_credits"
    cable_credits: ClassVar[bool | None] = True


FAULTS = (CreditLeak,)
