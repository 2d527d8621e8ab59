"""What is said to the person while a run goes on: what is done, what is being done, what has happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from testbed.base.units import format_size

CONTROLLER_DIED = "the controller died during the run; forwarding went on with the rules that were in"


def done(line: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> str:
    """What a line of measurement says is done."""
    if line["kind"] == "tasks":
        return f"{steps[line['step']]['name']}, iteration {line['iteration'] + 1}"
    if line["kind"] == "program":
        return f"{steps[line['step']]['name']} of rank {line['rank']}"
    what = line["collective"] if line["kind"] == "collective" else f"flow {line['from']}->{line['to']}"
    return f"{what} {format_size(line['size_bytes'])}"


def doing(line: Mapping[str, Any]) -> str:
    """How far something is that takes long."""
    if "collective" in line:
        return f"{line['collective']} {format_size(line['size_bytes'])}: {line['done']} of {line['of']}"
    if "flow" not in line and "iteration" in line:
        return f"tasks of rank {line['rank']}: {line['done']} of {line['of']}"
    return f"flows from and to rank {line['rank']}: {line['done']} of {line['of']} messages"


def noteworthy(event: Mapping[str, Any]) -> str:
    """A note for the user on an event that matters at once, else empty."""
    kind = event["event"]
    if kind == "controller_died":
        return f"{CONTROLLER_DIED}; see logs/controller.log"
    if kind == "controller_timeout":
        return f"the {event['who']} does not answer: {event['reason']}"
    if kind.endswith("_stopped"):
        name, pid = kind.removesuffix("_stopped"), event["pid"]
        return f"{name} (process {pid}) is stopped; kill -CONT {pid} lets it go on"
    return f"{kind.removesuffix('_died')} has ended" if kind.endswith("_died") else ""
