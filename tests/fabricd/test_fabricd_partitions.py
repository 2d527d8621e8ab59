"""A divided fabric has the figures of an undivided one, whatever its partitions and the order in which they run.

All other tests of this folder divide their fabrics, too, each in an order of its own (tests/parts/fabricd_fixture.py):
what they expect was written down for undivided ones. Here windows are shown to run, next to everything that ends one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from hardware.client import FabricdError
from hardware.config import Hardware
from tests.parts.fabricd_fixture import FAST, BareFabric, bare_fabric
from tests.parts.scripted_ranks import NOT_EMULATED, drive, exchange
from tests.parts.traffic_fabric import bounds, nic, switch

CLOS = {"leaves": 4, "spines": 2, "hosts_per_leaf": 2}
ECN = {"3": {"kmin_bytes": 20_000, "kmax_bytes": 80_000, "pmax": 0.5}}
LOSSLESS = switch(headroom=bounds.headroom_bytes(400e9, 500, 4096), ecn=ECN)
PAUSED = Hardware(switch=LOSSLESS, nic=nic("dcqcn"), switch_buffer_bytes=600_000)
LOSSY = Hardware(
    switch=switch(headroom=0, lossless=[]),
    nic={**nic(), "lossless": [], "recovery": "selective_repeat"},
    timeout_ns=40_000,
)
CREDITS = {"credits": {"room_bytes": 40_960, "classes": [3], "resync_ns": 5000}, "retry": {"buffer_bytes": 65_536}}


def counted(f: BareFabric) -> Any:
    counters = f.counters()
    for key in (*NOT_EMULATED, "partitions"):
        counters["fidelity"].pop(key, None)
    counters.pop("id")
    return counters, [
        e for e in f.fabricd.request("log")["events"] if e["event"] != "worker_done"
    ]  # which it hears in wall time


def flows(f: BareFabric, count: int, size: int) -> Any:
    """From everybody to the next `count`, and to rank 0 over all of it; with the times at which each ended."""
    n = len(f.fabric.nics)
    pairs = [(a, (a + 1 + k) % n, size, 100.0 * k) for k in range(count) for a in range(n)]
    pairs += [(a, 0, 4 * size, 3000.0) for a in range(1, n)]
    f.fabricd.request("inject", fault="t", primitive="traffic", flows=[list(p) for p in pairs])
    f.fabricd.request("quiesce", 60.0)
    return f.fabricd.request("traffic_results", fault="t")["flows"]


def paused(f: BareFabric) -> Any:
    """An incast that pauses, marks and is sampled: each edge of a pause, each queue, in the order of time."""
    path = f.directory / "samples"
    f.fabricd.request("sample", path=str(path), period_ns=700)
    f.fabricd.request("start", ranks=[])
    ended = flows(f, 2, 50_000)
    f.fabricd.request("sample_stop")
    assert any(p["priorities"].get("rx_prio3_pause") for p in f.counters()["ports"])
    return ended, path.read_bytes().hex()


def lost(f: BareFabric) -> Any:
    """Losses, frames that come late, a cable that is cut and comes back, and a request while the clock stands still."""
    bad: dict[str, Any] = {"primitive": "frames", "ports": ["spine0:1", "spine0:2"]}
    f.fabricd.request("inject", fault="loss", effect="drop", shown="crc", **bad, select={"share": 0.03})
    late: dict[str, Any] = {"delay_ns": 0, "jitter_ns": 3000, "reorder": True, "select": {"share": 0.2}}
    f.fabricd.request("inject", fault="late", effect="delay", **bad, **late)
    down: dict[str, Any] = {"primitive": "params", "cable": "leaf2-spine0", "values": {"up": False}}
    f.fabricd.request("inject", fault="cut", at_ns=6000, for_ns=9000, **down)
    slow: dict[str, Any] = {
        "primitive": "params",
        "cable": "leaf1-spine0",
        "values": {"rate_bps": 50e9, "delay_ns": 40},
    }
    f.fabricd.request("inject", fault="slow", at_ns=4000, for_ns=5000, **slow)
    f.fabricd.request("run_until", time_ns=8000)
    f.fabricd.request("start", ranks=[])
    f.fabricd.request("inject", fault="early", primitive="traffic", flows=[[a, 7 - a, 60_000, 0] for a in range(8)])
    f.events("held")
    f.fabricd.request("heal", fault="slow")
    f.fabricd.request("run_until")
    f.fabricd.request("quiesce", 60.0)  # so that what follows begins when all is over, however slow we are
    return flows(f, 3, 20_000)


def asked(f: BareFabric) -> Any:
    """Workers that connect, wait for each other, post and wait for part of what is under way."""
    return json.loads(drive(f, exchange(len(f.fabric.nics), 4, 20_000, 1)))[1]


def with_credits(f: BareFabric) -> Any:
    """Cables with credits and retries: notes in both directions, and looks at those that wait."""
    f.fabricd.request("start", ranks=[])
    damaged: dict[str, Any] = {
        "primitive": "frames",
        "ports": ["leaf1:3"],
        "effect": "corrupt",
        "select": {"every": 40},
    }
    f.fabricd.request("inject", fault="d", **damaged)
    return flows(f, 2, 50_000)


CASES: dict[str, tuple[str, dict[str, int], Hardware, Callable[[BareFabric], Any], dict[str, Any]]] = {
    "paused": ("clos", CLOS, PAUSED, paused, {}),
    "lost": ("clos", CLOS, LOSSY, lost, {}),
    "cut through": ("clos", CLOS, Hardware(cut_through=True), lost, {}),
    "asked": ("clos", CLOS, Hardware(), asked, {}),
    "rails": ("rail", {"servers": 4, "gpus": 2, "spines": 1}, Hardware(), asked, {}),
    "credits": ("clos", CLOS, PAUSED, with_credits, CREDITS),
}


def figures(case: str, partitions: int, order: int) -> Any:
    kind, params, hardware, script, cables = CASES[case]

    def change(config: dict[str, Any]) -> None:
        config["clock"] |= {"partitions": partitions, "partition_order": order}
        for cable in config["cables"]:
            cable |= cables

    with bare_fabric(kind, params, hardware, change=change, sample=FAST) as f:
        seen = script(f)
        ran = f.counters()["fidelity"]
        assert ran.get("windows", 0) > 20 if partitions > 1 else "windows" not in ran, ran
        return seen, *counted(f)


@pytest.mark.parametrize("case", CASES)
def test_no_figure_depends_on_partitions(case: str) -> None:
    undivided = figures(case, 1, 0)
    for partitions, order in ((2, 0), (64, 7)):
        assert figures(case, partitions, order) == undivided


@pytest.mark.parametrize("value", [0, 65, "all"])
def test_partitions_are_from_1_to_64(value: Any) -> None:
    said = "partitions: a number from 1 to 64"
    with pytest.raises(FabricdError, match=said), bare_fabric("star", {"hosts": 2}, change=_with(value)):
        pass


def _with(value: Any) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        config["clock"]["partitions"] = value

    return change
