"""Who steers: the controller as its switches see it (connected, answering, refused), and what operators have done.

A controller that stands still keeps its connections, so `Connected` alone says little: an echo does not come back.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views.view import View

ROLE = "equal"
"""Of OpenFlow's roles the one that a controller has that asks for none: it is the only one."""


def controller(look: Look) -> list[Table]:
    """A row for each switch, and one for the controller itself."""
    there = look.source.request("status")["controllers"]
    answers = any(one["echoes"] for one in there)
    reaction_ns = look.parameters["control"]["reaction_ns"]
    virtual = look.now["fidelity"]["clock"] == "virtual"
    said = [e for e in look.log if e["event"] == "note" and e["who"] == "controller"]
    flows = Counter(flow["switch"] for flow in look.source.flows())
    errors = {name: [e for e in said if _refused(name, e)] for name in look.fabric.switch_by_name}
    rows: list[dict[str, Any]] = [
        {
            "Switch": name,
            "Connected": "yes" if there else "no",
            "Role": ROLE if there else "-",
            "Echo": "answered" if answers else "no answer",
            "Flows": flows[name],
            "Errors": len(of),
            "Last error": f"{of[-1]['time_ns'] / 1000:.3f} us: {of[-1]['text']}" if of else "-",
        }
        for name, of in errors.items()
    ]
    own = {
        "Controller": "running" if answers else "no answer" if there else "gone",
        "Reaction (us)": round(reaction_ns / 1000, 3) if virtual and answers else None,
        "Unanswered": look.now["fidelity"]["controller_timeouts"],
        "Last said": f"{said[-1]['time_ns'] / 1000:.3f} us: {said[-1]['text']}" if said else "-",
    }
    # a row with nothing but zeros says that all is well, so none of these columns counts
    named = ("Reaction (us)", "Unanswered")
    return [Table("switches", "", rows, named=("Flows", "Errors")), Table("controller", "", [own], named=named)]


def _refused(switch: str, event: Any) -> bool:
    return bool(event["level"] == "error" and event["text"].startswith(f"{switch} refused"))


def config_log(look: Look) -> list[Table]:
    rows = [
        {
            "No": done.number,
            "Time (us)": round(done.time_ns / 1000, 3),
            "Took (us)": round(done.cost_ns / 1000, 3),
            "Action": done.line,
            "State": done.state,
        }
        for done in look.source.actions()
    ]
    return [Table("config_log", "", rows, named=("No", "Time (us)", "Took (us)"))]


VIEWS = (
    View(
        words="controller",
        about="Show the controller of a live fabric as its switches see it: connected, answering, errors.",
        make=controller,
    ),
    View(
        words="config log",
        about="Show what operators have done at a live fabric (testbed config), and whether it is still in force.",
        make=config_log,
    ),
)
