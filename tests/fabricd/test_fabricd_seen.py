"""What fabricd tells those who look at a fabric: parameters in force and meant, the log, what a loss is called."""

from __future__ import annotations

from typing import Any

import pytest

from hardware.client import FabricdError
from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, bare_fabric
from tests.parts.traffic_fabric import nic, port, send, switch


def inject(f: BareFabric, name: str, **request: Any) -> None:
    f.fabricd.request("inject", fault=name, **request)


def test_a_loss_is_counted_where_the_frame_should_have_come_in_by_what_it_is_called() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        drop = {"primitive": "frames", "effect": "drop", "match": {"classes": [3]}}
        inject(f, "a", **drop, ports=["h0:1"], select={"first": 2}, shown="crc")
        inject(f, "b", **drop, ports=["sw0:2"], select={"first": 3})
        f.fabricd.request("start", ranks=[])
        send(f, [(0, 1, 40_000, 0)])
        assert port(f, "sw0", 1)["drops"] == {"fault": 2} and port(f, "h1", 1)["drops"] == {"fault": 3}
        crc, silent = f.counters()["shown"]
        size = port(f, "sw0", 1)["priorities"]
        assert crc == {"node": "sw0", "port": 1, "crc": 2} | {k: v for k, v in size.items() if k.startswith("drop")}
        assert silent["silent"] == silent["drops_prio3"] == 3 and (silent["node"], silent["port"]) == ("h1", 1)
        with pytest.raises(FabricdError, match="silent, crc, acl or meter"):
            inject(f, "c", **drop, ports=["h0:1"], shown="smoke")


def test_parameters_are_those_in_force_and_those_that_were_meant() -> None:
    hardware = Hardware(switch_buffer_bytes=1_000_000, switch=switch(headroom=100_000), nic=nic(rate_bps=333e9))
    config: dict[str, Any] = {}
    with bare_fabric("star", {"hosts": 2}, hardware, change=config.update) as f:

        def parameters(**which: bool) -> dict[str, Any]:
            return f.fabricd.request("parameters", **which)

        before = parameters()
        assert before | {"id": 0} == parameters(meant=True) | {"id": 0}
        given = {k: v for k, v in config["switches"][0].items() if k in before["switches"]["sw0"]}
        told = before["switches"]["sw0"]
        for key in ("buffer_bytes", "lossless", "alpha", "reserve_bytes"):
            assert told[key] == pytest.approx(given[key], abs=1 / 1024) if key == "alpha" else told[key] == given[key]
        inject(f, "a", primitive="params", switch="sw0", values={"ecn": {"3": {"kmin_bytes": 5, "kmax_bytes": 9}}})
        inject(f, "b", primitive="params", port="sw0:1", values={"pfc_tx": False, "headroom_bytes": 7})
        inject(f, "c", primitive="params", nic=1, values={"pcie_rate_bps": 64e9, "cc": {"algorithm": "dcqcn"}})
        inject(f, "d", primitive="params", cable="h0-sw0", values={"up": False, "rate_bps": 1e11, "mtu": 1500})
        now = parameters()
        ecn = now["switches"]["sw0"]["ecn"]["3"]
        assert (ecn["kmin_bytes"], ecn["kmax_bytes"]) == (5, 9)
        assert now["ports"]["sw0:1"]["pfc_tx"] is False and now["ports"]["sw0:1"]["headroom_bytes"] == 7
        assert now["nics"][1]["pcie_rate_bps"] == 64e9 and now["nics"][1]["cc"]["algorithm"] == "dcqcn"
        cable = now["cables"]["h0-sw0"]
        assert (cable["up"], cable["rate_bps"], cable["mtu"]) == (False, 1e11, 1500)
        assert parameters(meant=True) | {"id": 0} == before | {"id": 0}


def test_the_log_keeps_links_with_their_times_and_begins_where_it_is_asked_to() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        request = {"primitive": "params", "cable": "h0-sw0", "values": {"up": False}}
        inject(f, "cut", **request, at_ns=2000, for_ns=3000)
        f.fabricd.request("start", ranks=[])
        send(f, [(1, 0, 1000, 20_000)])
        links = [e for e in f.fabricd.request("log")["events"] if e["event"] == "link"]
        seen = {(e["time_ns"], e["node"], e["port"], e["up"]) for e in links}
        ends = [("h0", 1), ("sw0", 1)]
        assert seen == {(2000, *end, False) for end in ends} | {(5000, *end, True) for end in ends}
        every = f.fabricd.request("log")["events"]
        assert f.fabricd.request("log", **{"from": 2})["events"] == every[2:]
        with pytest.raises(FabricdError, match="a number of events"):
            f.fabricd.request("log", **{"from": -1})


def test_a_line_of_somebodys_log_is_kept_with_the_emulated_time() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        f.fabricd.request("note", who="controller", level="error", text="leaf0: OFPFMFC_TABLE_FULL")
        note = {
            "event": "note",
            "who": "controller",
            "level": "error",
            "text": "leaf0: OFPFMFC_TABLE_FULL",
            "time_ns": 0,
        }
        assert note in f.fabricd.request("log")["events"]
        with pytest.raises(FabricdError, match="level"):
            f.fabricd.request("note", who="me", level="loud", text="x")
