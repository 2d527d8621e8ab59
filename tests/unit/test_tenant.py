"""A run on a live fabric: its figures are of what happened since it began, and it says what else was in force."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hardware.client import FabricdError
from testbed.faults import Injection
from testbed.live.in_force import InForce
from testbed.live.tenant import Tenant
from testbed.operate.record import FILE, Done
from tests.parts.fake_lab import FIDELITY, FakeLab, counters
from topologies import build

BEGAN_NS = 1_000_000.0
ABOUT = Injection.of({"fault": "loss", "on": "cable:h0-sw0", "rate": 0.01})
OPERATORS = {"fault": "config9.1", "on": True, "request": {"operator": True}}
UNDO = ({"op": "x"},)


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    made = FakeLab(build("star", {"hosts": 2}), tmp_path, lambda rank: "")
    made.id = "3f2a"  # type: ignore[attr-defined]
    made.fabricd.answers["status"] = {"time_ns": BEGAN_NS}
    return made


def has(lab: FakeLab, *faults: dict[str, Any], counted: tuple[str, ...] = ()) -> None:
    lab.fabricd.answers["faults"] = {"faults": faults}
    lab.fabricd.answers["counters"] = counters(faults=[{"fault": name, "primitive": "frames"} for name in counted])


def fault(name: str, on: bool = True, **request: Any) -> dict[str, Any]:
    return {"fault": name, "on": on, "request": {"about": ABOUT.written(), **request}}


def did(lab: FakeLab, *actions: Done) -> None:
    (lab.dir / FILE).write_text("".join(json.dumps(asdict(one)) + "\n" for one in actions))


def told(lab: FakeLab, began: InForce, *ours: str) -> dict[str, dict[str, Any]]:
    found = began.told(ours)
    assert found["fabric"] == "3f2a"
    assert all(one["line"] in (ABOUT.line(), None) for one in found["in_force"] if one["what"] == "fault")
    return {one["id"]: {k: v for k, v in one.items() if k not in ("what", "id", "line")} for one in found["in_force"]}


def test_faults_of_others_are_named_with_when_they_were_there(lab: Any) -> None:
    """Neither the run's own, nor one that had struck for the last time before, nor what an operator has set."""
    spent = fault("f4", on=False, at_ns=0, for_ns=1000)
    has(lab, fault("f1"), fault("f5", on=False, at_ns=BEGAN_NS + 9000), spent, OPERATORS, counted=("f0", "f1", "f4"))
    began = InForce(lab, BEGAN_NS, counters(faults=[{"fault": name} for name in ("f0", "f1", "f4")]))
    ours, later = fault("f2", at_ns=BEGAN_NS), fault("f3", at_ns=BEGAN_NS + 5000)
    has(lab, fault("f1"), ours, later, spent, OPERATORS, counted=("f0", "f1", "f2", "f3", "f6", "config9.1"))
    assert told(lab, began, "f2") == {
        "f1": {"from_us": None, "off": False, "gone": False},
        "f5": {"from_us": None, "off": True, "gone": True},
        "f3": {"from_us": 5.0, "gone": False},
        "f6": {"primitive": "frames"},
    }


def test_of_a_fabric_that_is_gone_what_was_there_is_said(lab: Any) -> None:
    has(lab, fault("f1"))
    began = InForce(lab, BEGAN_NS, counters())
    lab.fabricd.answers["faults"] = FabricdError("fabricd is gone")
    assert told(lab, began) == {"f1": {"from_us": None, "off": False, "gone": False}}


def test_actions_that_stand_or_came_since_are_named(lab: Any) -> None:
    """Not what was taken back before, nor what was done and leaves nothing behind."""
    taken_back = (Done(1, "ecn clear", 10.0, 0.0, undo=UNDO), Done(1, "", 20.0, 0.0, rollback=True))
    here = (*taken_back, Done(2, "job restart", 30.0, 0.0), Done(3, "pfc off sw0:1", 40.0, 0.0, undo=UNDO))
    has(lab)
    did(lab, *here)
    began = InForce(lab, BEGAN_NS, counters())
    did(lab, *here, Done(4, "job restart", BEGAN_NS + 2500, 0.0), Done(3, "", BEGAN_NS + 7000, 0.0, rollback=True))
    assert told(lab, began) == {
        "3": {"from_us": None, "gone": True, "until_us": 7.0},
        "4": {"from_us": 2.5, "gone": False},
    }


def test_a_verdict_is_of_what_happened_since_the_run_began(lab: Any) -> None:
    """Counts and examples are; at which dilation it runs, and how late it is, stand as they are."""
    example = {"what": "late", "switch": "sw0"}
    before = {**FIDELITY, "clock": "real", "dilation": 500, "flagged": 3, "flagged_examples": [example]}
    tenant = Tenant(lab, began_ns=4000.0, before=counters(fidelity=before, time_ns=4000.0, deadlocks=1))
    after = {**before, "frame_hops": 1600, "flagged": 5, "flagged_examples": [example, {**example, "switch": "sw1"}]}
    seen = tenant.counters(counters(fidelity={**after, "netdev_drops": 2}, time_ns=9000.0, deadlocks=3))
    assert seen["fidelity"] == {
        **{"clock": "real", "dilation": 500, "frame_hops": 600, "flagged": 2, "fences": 0, "lateness_ns": {}},
        **{"flagged_examples": [{"what": "late", "switch": "sw1"}], "netdev_drops": 2},
    }
    assert (seen["time_ns"], seen["deadlocks"]) == (5000.0, 2)
