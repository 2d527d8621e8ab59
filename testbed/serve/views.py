"""The views of a live fabric by their words, for pages: which there are, and their tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from testbed.base.errors import InputError
from testbed.fabric.lab import Lab
from testbed.live.views import VIEWS, Snapshot, Table

Counters = Mapping[str, Any]


def known() -> list[dict[str, str]]:
    return [{"words": name} for name in VIEWS]


def tables(words: str, lab: Lab, now: Counters, before: Counters | None, then: Counters | None) -> list[Table]:
    """Of one view: rates since `before`, counts since `then`. Raises InputError."""
    if words not in VIEWS:
        raise InputError("there is no such view", "view", f"there are: {', '.join(VIEWS)}")
    mtu = int(json.loads((lab.dir / "experiment.json").read_text())["fabric"]["nic"]["mtu"])
    return VIEWS[words](Snapshot(now, before, then, mtu))
