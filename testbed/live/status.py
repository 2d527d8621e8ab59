"""The status of a live fabric: its time, its fidelity, its controller, its faults, its job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hardware.client import FabricdError
from results.figures.fidelity import Fidelity
from testbed.base.errors import UserError
from testbed.fabric.controller import CONTROLLER_PORT
from testbed.fabric.inventory import row
from testbed.fabric.lab import Lab
from testbed.fabric.parts import failed, parts, stopped_programs, trouble, why_dead
from testbed.live import jobs
from testbed.machine.ownership import Record
from testbed.machine.processes import STOPPED, wait_for

_ANSWER_S = 2.0  # for a controller to answer a ping


def status(record: Record) -> dict[str, Any]:
    """The status, as `testbed status --json` prints it. Raises UserError.

    Of a fabric that is dead, or cannot go on: why, without a question to who could not answer.
    """
    about = row(record)
    if over := _over(record):
        return about | over
    lab = None
    try:
        lab = Lab.attach(record.id)
        return about | _of(lab, record)
    except (FabricdError, UserError) as error:  # it may have ended meanwhile
        shown_error = failed(error, record.dir) if isinstance(error, FabricdError) else error
        if over := _over(Record.read(record.dir)):
            return row(record) | over
        raise shown_error from None
    finally:
        if lab:
            lab.close()


def _over(record: Record) -> dict[str, Any]:
    """What is left to be said of one that is dead or cannot go on."""
    if record.state == "dead":
        state, why, hint = "dead", why_dead(record), f"testbed clean {record.id}"
    elif reason := trouble(record):
        state, why, hint = "broken", reason.what, reason.hint
    else:
        return {}
    fidelity = Fidelity("invalid", [why])
    return {"state": state, "why": why, "hint": hint, "fidelity": fidelity.to_dict(), "troubles": _troubles(record)}


def _troubles(record: Record) -> list[dict[str, Any]]:
    """The processes that do not run: they stand still, or have ended."""
    hindered = [part for part in parts(record) if part.state != "running"]
    return [part.to_dict() | {"text": part.text} for part in (*hindered, *stopped_programs(record))]


def _of(lab: Lab, record: Record) -> dict[str, Any]:
    from testbed.experiment import loads
    from testbed.inject.live import listed
    from testbed.live.verdict import judged

    experiment = loads((lab.dir / "experiment.json").read_text())
    counters = lab.fabricd.request("counters")
    clock = lab.fabricd.request("status")
    job = jobs.running(record)
    return {
        "time_ns": clock["time_ns"],
        "running": clock["running"],
        "fidelity": judged(experiment, counters["fidelity"], None).to_dict(),
        "controller": _controller(lab, experiment.control.library),
        "faults": listed(lab.id),
        "job": jobs.describe(job) if job else None,
        "held": record.keeper is not None,
        "troubles": _troubles(record),
        "lost": [{"rank": w["rank"], "reason": w["reason"]} for w in clock["workers"] if w["state"] == "lost"],
    }


def _controller(lab: Lab, library: str) -> dict[str, Any]:
    """The controller's process, its connections to switches, and whether it answers: us, and its switches' echoes."""
    lab.fabricd.request("waits")  # has fabricd ping it
    seen: list[dict[str, Any]] = []

    def answers() -> bool:
        seen[:] = lab.fabricd.request("status")["controllers"]
        return bool(seen) and all(c["answers"] for c in seen)

    runs = lab.record.processes["controller"].state() not in ("", *STOPPED)
    answered = wait_for(answers, _ANSWER_S, pause=0.02) if runs else answers()
    return {
        "library": library,
        "pid": lab.controller.pid,
        "alive": lab.controller.poll() is None,
        "answers": answered and all(c["echoes"] for c in seen),
        "heard_s": round(seen[0]["heard_s"], 3) if seen else None,
        "connected": connections(lab.controller.pid),
        "switches": len(lab.fabric.switches),
    }


def connections(pid: int) -> int:
    """Open OpenFlow connections of a controller, one a switch, from the kernel's table: Open vSwitch reports late."""
    local = f":{CONTROLLER_PORT:04X}"
    try:
        lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return 0
    return sum((fields := line.split())[1].endswith(local) and fields[3] == "01" for line in lines)
