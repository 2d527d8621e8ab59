"""What switches forward by, police and add up: flow tables, meters, accelerators (ovs-ofctl)."""

from __future__ import annotations

from typing import Any

from testbed.base.units import format_rate, format_size
from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views.view import View, counting
from testbed.words import kinds
from testbed.words.entry import Parameter

_SWITCH = Parameter("switch", kinds.SWITCH, "Only this one (default: all).")


def flows(look: Look, switch: str | None = None) -> list[Table]:
    """As `ovs-ofctl dump-flows`, with how many went by the fast path; not of a fabric that stands still, whose views
    are the same however quick the machine is (OfWorld.flows)."""
    return [of_flows(look.source.flows(), switch)]


def of_flows(rows: list[dict[str, Any]], switch: str | None = None) -> Table:
    """The rules of a live fabric, or of a stored run, as one table; of one switch, or all."""
    return Table("flows", "", [row for row in rows if switch in (None, row["switch"])], ("table", "priority"))


def meters(look: Look) -> list[Table]:
    """As `ovs-ofctl dump-meters` and `meter-stats`: bands that drop, and how many frames they have dropped."""
    rows: list[dict[str, Any]] = []
    for fault in look.faults:
        meter = fault["request"].get("select", {}).get("meter")
        meant = look.sight.config == "true" or fault["request"].get("operator")
        if not meter or not fault["on"] or not meant:
            continue
        for port in fault["request"]["ports"]:
            end = _other_end(look, port)
            rows.append({
                "Switch": end.partition(":")[0], "In port": end, "Meter": len(rows) + 1, "Band": "drop",
                "Rate": format_rate(int(meter["rate_bps"])), "Burst": format_size(int(meter["burst_bytes"])),
                "Band/pkts": _metered(look, end),
            })  # fmt: skip
    if not rows:  # none is known of, and yet something polices
        rows = [
            {"Switch": node, "In port": f"{node}:{port}", "Band": "drop", "Band/pkts": row["meter"]}
            for (node, port), row in look.shown.items() if row.get("meter") and look.sight.drops != "asic"
        ]  # fmt: skip
    return [Table("meters", "", rows, ("Meter",))]


def _other_end(look: Look, port: str) -> str:
    node, _, number = port.rpartition(":")
    end = look.fabric.cable_at[node, int(number)].other(node)
    return f"{end.node}:{end.port}"


def _metered(look: Look, port: str) -> int:
    node, _, number = port.rpartition(":")
    return int(look.shown.get((node, int(number)), {}).get("meter", 0))


def accelerators(look: Look) -> list[Table]:
    """Slots and counters of the aggregation units, and whether they answer."""
    down = {name for name, of in look.parameters["switches"].items() if of["accelerator_down"]}
    rows: list[dict[str, Any]] = [
        {"switch": a["switch"], "status": "down" if a["switch"] in down else "up"}
        | {k: v for k, v in a.items() if k not in ("switch", "ip")}
        for a in look.counts["accelerators"]
    ]
    named = ("slots", "slots_free", "slots_used_max", "elements", "fan_in", "shared_slots", "shared_used")
    return [Table("accelerators", "", rows, named)]


VIEWS = (
    View(
        words="flows", about="Show the OpenFlow rules of a live fabric's switches, with what each has counted.",
        make=flows, parameters=(_SWITCH,), samples=("", "rail0"),
    ),
    counting(words="meters", about="Show what the switches of a live fabric police, and have dropped for it.",
             make=meters),
    counting(words="accelerators", about="Show the accelerators of a live fabric: slots, counters, status.",
             make=accelerators),
)  # fmt: skip
