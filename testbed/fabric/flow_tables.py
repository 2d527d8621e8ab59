"""The flow tables of a live fabric's switches: each rule with what it has counted, on the fast path too."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from controllers.openflow import vswitchd
from hardware.patience import Patience
from testbed.base.errors import MachineError
from testbed.fabric.ovs import OpenVSwitch

TRAILER_BYTES = 16
"""What fabricd puts behind each frame that it hands to Open vSwitch, which counts it."""
DEFAULT_PRIORITY = 32768
OWN_TABLE = 254
"""Open vSwitch's own rules stand there."""
_RULE = re.compile(
    r"(?:table_id=(?P<table>\d+), )?duration=[^,]+, n_packets=(?P<packets>\d+), n_bytes=(?P<bytes>\d+), "
    r"(?:(?:idle_timeout|hard_timeout|importance)=\d+, ?)*"
    r"(?:priority=(?P<priority>\d+),?)?(?P<match>.*?),?\s?actions=(?P<actions>.*)"
)
_FAST = re.compile(r"(?P<table>\d+)\. (?:(?P<match>.*), )?priority (?P<priority>\d+)(?:, cookie 0x[0-9a-f]+)?")


def flows(ovs: OpenVSwitch, bridges: Mapping[str, str], fast: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each rule, as in the frame `flows` (results/frames/columns.py). Raises MachineError.

    `bridges` by the switches' names; `fast` is what fabricd reports of the fast path.
    """
    try:
        # what its cache has counted is the rules' only then
        vswitchd.commands(ovs.control, [("revalidator/purge",)], _patience)
        said = vswitchd.commands(ovs.control, [("bridge/dump-flows", name) for name in bridges.values()], _patience)
    except vswitchd.CommandFailed as refused:
        raise MachineError(f"Open vSwitch does not list its flows: {refused}", where=str(ovs.log)) from None
    return rows(dict(zip(bridges, said, strict=True)), fast)


def _patience(pid: int) -> vswitchd.GivenUp:
    """With ovs-vswitchd, which a busy machine may keep from its turn."""
    return Patience(pid).look


def rows(dumps: Mapping[str, str], fast: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """From what `bridge/dump-flows` prints of each switch, and what fabricd reports of the fast path."""
    carried = {}
    for rule in fast:
        if match := _FAST.fullmatch(rule["rule"]):
            key = (rule["switch"], int(match["table"]), int(match["priority"]), match["match"] or "")
            carried[key] = rule
    rules = []
    for switch, dump in dumps.items():
        for line in dump.splitlines():
            if not (match := _RULE.fullmatch(line.strip())) or int(match["table"] or 0) == OWN_TABLE:
                continue
            table, priority = int(match["table"] or 0), int(match["priority"] or DEFAULT_PRIORITY)
            by_fast = carried.get((switch, table, priority, match["match"]), {"packets": 0, "bytes": 0})
            slow = int(match["packets"])
            rules.append(
                {
                    "switch": switch,
                    "table": table,
                    "priority": priority,
                    "match": match["match"],
                    "packets": slow + by_fast["packets"],
                    "bytes": int(match["bytes"]) - TRAILER_BYTES * slow + by_fast["bytes"],
                    "fast_packets": by_fast["packets"],
                    "actions": match["actions"],
                }
            )
    return sorted(rules, key=lambda r: (r["switch"], r["table"], -r["priority"], r["match"]))
