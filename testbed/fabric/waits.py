"""Which processes a fabric waits for, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_STATES = {"R": "runnable", "S": "asleep", "D": "waits for a disk", "T": "stopped", "t": "in a debugger"}


def ranks(numbers: Sequence[int]) -> str:
    """`ranks 3, 4, 5`."""
    shown = ", ".join(str(r) for r in numbers[:8]) + (", .." if len(numbers) > 8 else "")
    return f"rank{'s' if len(numbers) > 1 else ''} {shown}"


def in_words(waits: Sequence[Mapping[str, Any]]) -> str:
    """For whom fabricd waits, in words, from its answer to `waits`."""
    absent = [w["rank"] for w in waits if w["who"] == "absent"]
    shown = [f"{ranks(absent)} to start"] if absent else []
    for w in waits:
        process = f"process {w.get('pid')}, {_STATES.get(w.get('state', ''), 'gone')}"
        if w["who"] == "worker":
            shown.append(f"rank {w['rank']} ({process})")
        elif w["who"] == "ovs":
            shown.append("Open vSwitch")
        elif w["who"] != "absent":
            shown.append(f"{'the testbed' if w['who'] == 'agent' else 'the controller'} ({process})")
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")
