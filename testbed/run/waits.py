"""For whom a run waits, told to the person who watches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from testbed.run.diagnosis import ranks

_STATES = {"R": "runnable", "S": "asleep", "D": "waits for a disk", "T": "stopped", "t": "in a debugger"}


def in_words(waits: Sequence[Mapping[str, Any]]) -> str:
    """For whom fabricd waits, in words, from its answer to `waits`."""
    absent = [w["rank"] for w in waits if w["who"] == "absent"]
    found = [f"{ranks(absent)} to start"] if absent else []
    for w in waits:
        process = f"process {w.get('pid')}, {_STATES.get(w.get('state', ''), 'gone')}"
        if w["who"] == "worker":
            found.append(f"rank {w['rank']} ({process})")
        elif w["who"] == "ovs":
            found.append("Open vSwitch")
        elif w["who"] != "absent":
            found.append(f"{'the testbed' if w['who'] == 'agent' else 'the controller'} ({process})")
    return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")
