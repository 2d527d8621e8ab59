"""How switches are configured: marking, pausing, buffers, classes, watchdog (SONiC's ecnconfig, pfc, mmuconfig, pfcwd).

In force, or as it was meant to be, by `Sight.config`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from testbed.base.units import format_time
from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views.view import View
from testbed.words import kinds
from testbed.words.entry import Parameter

_SWITCH = Parameter("switch", kinds.SWITCH, "Only this one (default: all).", option=True)
_SET = ("Switch", "TC", "Weight")


def _switches(look: Look, switch: str | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    every = look.parameters["switches"].items()
    return ((name, of) for name, of in every if switch in (None, name))


def _ports(look: Look, switch: str | None) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Cabled ports: node, name, parameters."""
    cabled = {f"{end.node}:{end.port}": end.node for c in look.fabric.cables for end in (c.a, c.b)}
    of = look.parameters["ports"]
    return ((node, port, of[port]) for port, node in cabled.items() if port in of and switch in (None, node))


def ecn(look: Look, switch: str | None = None) -> list[Table]:
    """As `show ecn`: thresholds in bytes, the probability at the upper one in percent."""
    rows = [
        {"Switch": name, "Port": "all", **_marking(c, of)}
        for name, switch_of in _switches(look, switch) for c, of in switch_of["ecn"].items()
    ]  # fmt: skip
    own = [
        {"Switch": node, "Port": port, **_marking(c, of)}
        for node, port, p in _ports(look, switch) for c, of in (p["port_ecn"] or {}).items()
    ]  # fmt: skip
    off = [{"Switch": name, "Port": "all", "ecn": "ecn_none"} for name, of in _switches(look, switch) if not of["ecn"]]
    return [Table("ecn", "", sorted([*rows, *own, *off], key=lambda r: (r["Switch"], r["Port"])), (*_SET,))]


def _marking(priority: str, of: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "ecn": "ecn_all", "Queue": f"UC{priority}", "green_min_threshold": of["kmin_bytes"],
        "green_max_threshold": of["kmax_bytes"], "green_drop_probability": f"{100 * of['pmax']:g}",
    }  # fmt: skip


def pfc(look: Look, switch: str | None = None) -> list[Table]:
    """As `show pfc priority`: which priorities a port pauses, and whether it sends pauses and heeds them."""
    lossless = {name: of["lossless"] for name, of in look.parameters["switches"].items()}
    lossless |= {nic.name: look.parameters["nics"][nic.rank]["lossless"] for nic in look.fabric.nics}
    rows = [
        {
            "Interface": port, "Lossless priorities": ",".join(map(str, lossless[node])) or "N/A",
            "Tx": _on(of["pfc_tx"]), "Rx": _on(of["pfc_rx"]),
        }
        for node, port, of in _ports(look, switch)
    ]  # fmt: skip
    return [Table("pfc", "", rows)]


def _on(value: bool) -> str:
    return "on" if value else "off"


def buffer(look: Look, switch: str | None = None) -> list[Table]:
    """As `show buffer configuration`: the pool of each switch, and what a port's priority groups may take of it."""
    pools, profiles = [], []
    headroom = [(node, port, of["headroom_bytes"]) for node, port, of in _ports(look, switch)]
    for name, of in _switches(look, switch):
        classes = len(of["lossless"])
        pools.append({
            "Switch": name, "Pool": "ingress_lossless_pool", "mode": "dynamic", "size": of["buffer_bytes"],
            "xoff": classes * sum(size for node, _, size in headroom if node == name),
        })  # fmt: skip
        profiles += [
            {
                "Port": port, "Profile": "pg_lossless" if classes else "pg_lossy", "alpha": f"{of['alpha']:g}",
                "size": of["reserve_bytes"], "xoff": size, "xon_offset": of["xon_offset_bytes"],
            }
            for node, port, size in headroom if node == name
        ]  # fmt: skip
    return [Table("pools", "", pools), Table("profiles", "Priority groups (bytes)", profiles)]


def trimming(look: Look, switch: str | None = None) -> list[Table]:
    """As `show switch-trimming global`; which classes, SONiC has in buffer profiles."""
    rows = []
    for name, parameters in look.parameters["switches"].items():
        if switch not in (None, name):
            continue
        found = parameters.get("trimming")
        values = (found["bytes"], found["dscp"], found["queue"]) if found else ("N/A",) * 3
        rows.append({
            "Switch": name, "packet_discard_action": "trim" if found else "drop",
            "Queues": ",".join(f"UC{c}" for c in found["classes"]) if found else "N/A",
            **dict(zip(("size", "dscp_value", "queue_index"), values, strict=True)),
        })  # fmt: skip
    return [Table("switch-trimming", "", rows, ("size", "dscp_value", "queue_index"))]


def qos(look: Look, switch: str | None = None) -> list[Table]:
    """As SONiC's DSCP_TO_TC_MAP and SCHEDULER: which DSCPs go into which class, and how the classes share a port."""
    maps, schedulers = [], []
    shaped = any(of.get("shapers") for _, of in _switches(look, switch))
    for name, of in _switches(look, switch):
        for c in range(8):
            codes = [int(code) for code, to in of["dscp"].items() if to == c]
            if codes:
                maps.append({"Switch": name, "TC": c, "DSCP": _ranges(codes)})
            strict = c in of["strict"]
            kind = {"type": "STRICT", "weight": "N/A"} if strict else {"type": "DWRR", "weight": of["weights"][str(c)]}
            if shaped:
                kind |= {k: _percent(of.get("shapers", {}).get(str(c), {}).get(k)) for k in ("min", "max")}
            schedulers.append({"Switch": name, "Queue": f"UC{c}", **kind})
    return [Table("dscp", "", maps, ("TC",)), Table("scheduler", "Schedulers", schedulers)]


def _percent(share: float | None) -> str:
    return f"{share * 100:g}%" if share else "N/A"


def _ranges(numbers: list[int]) -> str:
    """`0-25,27`."""
    found = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        same = [n for _, n in run]
        found.append(str(same[0]) if len(same) == 1 else f"{same[0]}-{same[-1]}")
    return ",".join(found)


def pfcwd(look: Look, switch: str | None = None) -> list[Table]:
    """As `show pfcwd config`, for all ports of a switch at once."""
    rows = []
    for name, of in _switches(look, switch):
        w = of["watchdog"]
        times = (format_time(w["detect_ns"]), format_time(w["restore_ns"])) if w else ("N/A", "N/A")
        action = w["action"] if w else "off"
        names = ("DETECTION TIME", "RESTORATION TIME")
        rows.append({"PORT": f"{name}:*", "ACTION": action, **dict(zip(names, times, strict=True))})
    return [Table("pfcwd", "", rows)]


VIEWS = (
    View(
        words="switch-trimming global", about="Show what switches of a live fabric trim, to what, and where it goes.",
        make=trimming, parameters=(_SWITCH,), samples=("", "--switch rail0"),
    ),
    *(
        View(words=f"{what} config", about=about, make=make, parameters=(_SWITCH,), samples=("", "--switch rail0"))
        for what, about, make in (
            ("ecn", "Show from which queue lengths on a live fabric's switches mark.", ecn),
            ("pfc", "Show which priorities a live fabric's ports pause, and whether they send and heed pauses.", pfc),
            ("buffer", "Show the buffers of a live fabric's switches, and the headroom of their ports.", buffer),
            ("qos", "Show which DSCPs go into which class, and how classes share a port of a live fabric.", qos),
            ("pfcwd", "Show when the PFC watchdog of a live fabric's switches steps in, and what it does.", pfcwd),
        )
    ),
)  # fmt: skip
