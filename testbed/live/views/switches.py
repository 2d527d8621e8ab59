"""What switches forward by, police and add up: flow tables, meters, groups, accelerators (ovs-ofctl)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from testbed.base.units import format_rate, format_size
from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views.view import View, counting
from testbed.words import kinds
from testbed.words.entry import Parameter

_QUALITY, _RANDOM = "QUALITY", "RANDOM"
_MODES = {"two_choices": _QUALITY, "shortest": _QUALITY, "random": _RANDOM}
"""SAI's adaptive routing and switching (saiars.h): how a port is chosen."""

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


def groups(look: Look, switch: str | None = None) -> list[Table]:
    """Each port of each set: weight, picks, and these over what its weight would have them be."""
    sets: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in look.counts.get("groups", ()):
        if switch in (None, row["switch"]):
            sets[row["switch"], row["set"]].append(row)
    places = {s.name: s.index for s in look.fabric.switches}
    rows: list[dict[str, Any]] = []
    for name, ports in sorted(sets, key=lambda key: (places[key[0]], key[1])):
        ways = sets[name, ports]
        weights, picks = (sum(way[key] for way in ways) for key in ("weight", "picks"))
        for way in ways:
            fair = picks * way["weight"] / weights
            rows.append({
                "Switch": name, "Mode": mode(look.parameters["switches"][name].get("adaptive")), "Set": ports,
                "Port": f"{name}:{way['port']}", "Weight": way["weight"], "Picks": way["picks"],
                "Spread": f"{way['picks'] / fair:.3f}" if fair else "",
            })  # fmt: skip
    return [Table("groups", "", rows, ("Weight",))]


def mode(adaptive: Mapping[str, Any] | None) -> str:
    """SAI's word for how a switch takes a port; it has none for one after the other."""
    if adaptive is None:
        return "FIXED"
    if adaptive["policy"] == "hash":
        return "HASH"
    each = "FLOWLET" if adaptive["flowlet_gap_ns"] else "PER_PACKET"
    name = adaptive["policy"]
    return f"{each}_{_MODES.get(name, name if '.' in name else name.upper())}"


VIEWS = (
    View(
        words="flows", about="Show the OpenFlow rules of a live fabric's switches, with what each has counted.",
        make=flows, parameters=(_SWITCH,), samples=("", "rail0"),
    ),
    counting(words="meters", about="Show what the switches of a live fabric police, and have dropped for it.",
             make=meters),
    counting(words="groups", about="Show of which ports adaptive switches of a live fabric took how many frames' way.",
             make=groups, parameters=(_SWITCH,), samples=("", "rail0")),
    counting(words="accelerators", about="Show the accelerators of a live fabric: slots, counters, status.",
             make=accelerators),
)  # fmt: skip
