"""A bare fabric whose NICs send flows by themselves: no worker, no controller; fast enough for tables of cases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hardware import bounds, cc
from hardware.config import Hardware
from tests.parts.fabricd_fixture import DEFAULTS, FAST, BareFabric, bare_fabric, plain

_numbers = itertools.count(1)
DSCP = {str(d): 0 for d in range(64)} | {"26": 3, "28": 4, "48": 6} | {str(d): c for c, d in enumerate((0, 8, 16))}


def switch(
    *, headroom: int = 10**9, lossless: Sequence[int] = (3, 4), ecn: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """A switch's parameters for Hardware(switch=...), as the testbed writes them."""
    return {
        "alpha": 0.125, "reserve_bytes": 4000, "xon_offset_bytes": 3000, "headroom_bytes": headroom,
        "lossless": list(lossless), "dscp": DSCP, "ecn": ecn or {}, "strict": [6, 7], "pfc": True, **more,
    }  # fmt: skip


def nic(control: str = "none", *, rate_bps: float = 400e9, rtt_ns: float = 8000, **values: float) -> dict[str, Any]:
    """A NIC's parameters for Hardware(nic=...), with a congestion control: `NAME` or `NAME SET`."""
    name, _, named_set = control.partition(" ")
    settings = cc.CONTROLS[name].values(cc.Setting(rate_bps, rtt_ns, 4096), values, named_set or None)
    return {"cc": cc.CONTROLS[name].in_fabricd(settings), "lossless": [3, 4], "rx_buffer_bytes": 0}


@contextmanager
def star(
    hosts: int, hardware: Hardware = DEFAULTS, change: Callable[[dict[str, Any]], None] = lambda config: None
) -> Iterator[BareFabric]:
    with bare_fabric("star", {"hosts": hosts}, hardware, change=change, binary=plain(), sample=FAST) as f:
        f.fabricd.request("start", ranks=[])
        yield f


def send(f: BareFabric, flows: Sequence[tuple[int, int, int, float]]) -> list[float]:
    """Sends (from, to, bytes, start_ns) and returns each one's time in ns."""
    name = f"t{next(_numbers)}"
    f.fabricd.request("inject", fault=name, primitive="traffic", flows=[list(flow) for flow in flows])
    f.fabricd.request("quiesce", 120.0)
    results = f.fabricd.request("traffic_results", fault=name)["flows"]
    assert len(results) == len(flows) and all(r[4] is not None for r in results), results
    f.fabricd.request("heal", fault=name)
    return [r[4] - r[3] for r in results]


def port(f: BareFabric, node: str, number: int) -> dict[str, Any]:
    return next(p for p in f.counters()["ports"] if (p["node"], p["port"]) == (node, number))


def drops(f: BareFabric) -> dict[str, int]:
    found: dict[str, int] = {}
    for d in f.counters()["drops"]:
        found[d["reason"]] = found.get(d["reason"], 0) + d["count"]
    return found


def frame_bytes(payload: int = 4096) -> int:
    """A middle packet of a write, without FCS."""
    return payload + 14 + 20 + 8 + 12 + 4


__all__ = ["bounds", "drops", "frame_bytes", "nic", "port", "send", "star", "switch"]
