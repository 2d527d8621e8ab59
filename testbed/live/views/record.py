"""What operators have done at the fabric: `testbed config`, by emulated time."""

from __future__ import annotations

from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views.view import View


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
        words="config log",
        about="Show what operators have done at a live fabric (testbed config), and whether it is still in force.",
        make=config_log,
    ),
)
