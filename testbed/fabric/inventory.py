"""The fabrics on this machine, alive and dead, as `testbed status --all` shows them."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.fabric.parts import trouble
from testbed.machine import ownership
from testbed.machine.ownership import Record
from topologies import KINDS, in_words


def topology_text(kind: str, params: dict[str, Any]) -> str:
    """`rail servers=4 gpus=2`: the parameters that are not at their defaults."""
    default = {p.name: p.default for p in KINDS[kind].parameters()}
    chosen = {key: value for key, value in in_words(kind, params).items() if value != default.get(key)}
    return " ".join([kind, *(f"{key}={_plain(value)}" for key, value in chosen.items())])


def _plain(value: Any) -> str:
    if value is True:
        return "true"
    return "x".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def clock_text(clock: dict[str, Any]) -> str:
    """`virtual` or `real, 10000 times slower`"""
    if clock["mode"] == "virtual":
        return "virtual"
    return f"real, {clock['dilation']} times slower"


def inventory() -> list[dict[str, Any]]:
    """One row per fabric: id, state, name, topology, clock, ranks, owner, age.

    The state is alive, starting, broken (its owner lives, and a part of it has ended or stands still), or dead.
    """
    return [row(record) for record in ownership.fabrics()]


def row(record: Record) -> dict[str, Any]:
    state, fabric = _json(record.dir / "lab.json"), _json(record.dir / "fabric.json")
    controller = record.processes.get("controller")
    life = record.state
    if life == "alive":
        life = "starting" if not state else "broken" if trouble(record) else life
    return {
        "id": record.id,
        "state": life,
        "standing": record.standing,
        "name": state.get("name", ""),
        "topology": topology_text(fabric["kind"], fabric["params"]) if fabric else "",
        "clock": clock_text(state["clock"]) if state else "",
        "ranks": len(fabric.get("nics", ())) - len(fabric.get("complexes", ())),
        "switches": len(fabric.get("switches", ())),
        "owner": record.owner.pid if record.owner else 0,
        "owner_name": _program(record),
        "controller_alive": not record.in_our_namespace or bool(controller and controller.alive()),
        "age_s": _age(record.dir),
    }


def _json(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        return dict(json.loads(path.read_text()))
    return {}


def _program(record: Record) -> str:
    with suppress(OSError):
        if record.owner and record.in_our_namespace and record.owner.alive():
            return Path(f"/proc/{record.owner.pid}/comm").read_text().strip()
    return ""


def _age(directory: Path) -> float:
    with suppress(OSError):
        return round(time.time() - (directory / "fabric.json").stat().st_mtime, 1)
    return 0.0
