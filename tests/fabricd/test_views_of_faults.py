"""What an operator sees of each mechanism: on a real fabric, in the columns of the tools that he knows.

Columns are those that sonic-utilities print (portstat, intfutil, lldpshow, ecnconfig, mmuconfig, pfcwd),
and mlnx_qos and lspci; what must be counted where follows from what a mechanism does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from hardware.config import Hardware
from testbed.faults import Injection
from testbed.live.look.look import Look, Sight
from testbed.live.views import VIEWS
from tests.parts.fabricd_fixture import BareFabric
from tests.parts.traffic_fabric import nic, send, star, switch

MARKS = {"3": {"kmin_bytes": 40_000, "kmax_bytes": 160_000, "pmax": 0.2}}
HARDWARE = Hardware(
    switch_buffer_bytes=2_000_000,
    timeout_ns=20_000,
    nic=nic("dcqcn"),
    switch=switch(headroom=50_000, ecn=MARKS, watchdog={"detect_ns": 20_000, "restore_ns": 50_000, "action": "drop"}),
)
PORTSTAT_E = ["IFACE", "STATE", "RX_ERR", "RX_DRP", "RX_OVR", "TX_ERR", "TX_DRP", "TX_OVR"]
LLDPSHOW = ["LocalPort", "RemoteDevice", "RemotePortID", "Capability", "RemotePortDescr"]
STUDENT = Sight(drops="wjh")


class Bare:
    """A bare fabric as something to look at."""

    experiment = {"fabric": {"nic": {"mtu": 4096}}}

    def __init__(self, f: BareFabric) -> None:
        self.f, self.fabric, self.faults = f, f.fabric, 0

    def counters(self) -> dict[str, Any]:
        return self.f.counters()

    def history(self) -> Sequence[tuple[float, dict[str, Any]]]:
        return ()

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        return self.f.fabricd.request(op, **arguments)

    def flows(self) -> list[dict[str, Any]]:
        return []

    def steps(self) -> Sequence[Any]:
        return ()

    def actions(self) -> Sequence[Any]:
        return ()

    def inject(self, **written: Any) -> None:
        self.faults += 1
        injection = Injection.of(written)
        now_ns = self.request("status")["time_ns"]
        for request in injection.requests(injection.place(self.fabric), f"f{self.faults}", now_ns=now_ns):
            self.request("inject", **request)

    def rows(self, words: str, table: int = 0, sight: Sight = STUDENT, **values: Any) -> list[dict[str, Any]]:
        return VIEWS[words].show(Look(self, self.counters(), sight=sight), **values)[table].rows

    def by(self, words: str, column: str, **more: Any) -> dict[str, dict[str, Any]]:
        return {row[column]: row for row in self.rows(words, **more)}


@pytest.fixture
def bare() -> Iterator[Bare]:
    with star(3, HARDWARE) as f:
        yield Bare(f)


def test_a_lossy_link_shows_errors_at_the_receiving_end_only(bare: Bare) -> None:
    bare.inject(fault="drop_first", on="cable:h0-sw0", n=3, direction="forward")
    send(bare.f, [(0, 1, 60_000, 0)])
    errors = bare.by("interfaces errors", "IFACE")
    assert [c for c in errors["sw0:1"] if c in PORTSTAT_E] == PORTSTAT_E
    bad = {c: errors["sw0:1"][c] for c in ("RX_ERR", "RX_CRC", "RX_SYMBOL", "FEC_UNCORR", "RX_DRP")}
    assert bad == {"RX_ERR": 3, "RX_CRC": 3, "RX_SYMBOL": 3, "FEC_UNCORR": 3, "RX_DRP": 0}
    others = [v for name, row in errors.items() if name != "sw0:1" for v in row.values() if isinstance(v, int)]
    assert set(others) == {0}
    assert bare.by("interfaces counters", "IFACE")["sw0:1"]["RX_ERR"] == 3
    (drop,) = bare.rows("drops")
    assert drop == {"node": "sw0", "port": 1, "reason": "crc", "count": 3, "headers": ""}
    assert {row["Drop/pkts"] for row in bare.rows("queue counters")} == {0}  # no queue has dropped them
    assert bare.rows("drops", sight=Sight(drops="all"))[0]["reason"] == "fault"
    assert bare.rows("drops", sight=Sight(drops="asic")) == []
    assert bare.by("interfaces errors", "IFACE", sight=Sight(drops="asic"))["sw0:1"]["RX_CRC"] == "N/A"


def test_a_nic_counts_the_errors_of_its_link_by_mlx5s_names(bare: Bare) -> None:
    bare.inject(fault="drop_first", on="cable:h1-sw0", n=2, direction="backward")
    send(bare.f, [(0, 1, 60_000, 0)])
    counted = {row["counter"]: row["value"] for row in bare.rows("ethtool", rank=1)}
    assert (counted["rx_crc_errors_phy"], counted["rx_symbol_err_phy"], counted["rx_discards_phy"]) == (2, 2, 0)
    assert {row["rank"]: row["rx_crc_errors_phy"] for row in bare.rows("nics")} == {0: 0, 1: 2, 2: 0}


def test_one_direction_that_is_dead_shows_in_no_counter_but_what_did_not_come_in(bare: Bare) -> None:
    bare.inject(**{"fault": "one_way", "on": "cable:h0-sw0", "direction": "forward", "for": "30us"})
    send(bare.f, [(0, 1, 8_000, 0)])
    assert bare.rows("drops") == []
    sent = bare.by("interfaces errors", "IFACE")
    assert {v for row in sent.values() for v in row.values() if isinstance(v, int)} == {0}
    ports = {(p["node"], p["port"]): p for p in bare.counters()["ports"]}
    assert ports["h0", 1]["tx_frames"] > ports["sw0", 1]["rx_frames"]
    assert bare.by("interfaces status", "Interface")["sw0:1"]["Oper"] == "up"


def test_who_hears_nothing_finds_no_neighbour(bare: Bare) -> None:
    found = bare.by("lldp neighbors", "LocalPort")
    assert list(found["sw0:1"]) == LLDPSHOW
    assert (found["sw0:1"]["RemoteDevice"], found["sw0:1"]["Capability"], found["h2:1"]["Capability"]) == (
        "h0",
        "O",
        "BR",
    )
    bare.inject(fault="one_way", on="cable:h0-sw0", direction="forward")
    bare.inject(fault="loss", on="cable:h1-sw0", rate=0.5)
    bare.inject(fault="cable_down", on="cable:h2-sw0")
    assert set(bare.by("lldp neighbors", "LocalPort")) == {"h0:1", "h1:1", "sw0:2"}


def test_swapped_plugs_are_discovered_as_they_are(bare: Bare) -> None:
    bare.inject(fault="miswired", on="nic:0", other=1)
    found = bare.by("lldp neighbors", "LocalPort")
    assert (found["h0:1"]["RemotePortDescr"], found["h1:1"]["RemotePortDescr"]) == ("sw0:2", "sw0:1")


def test_a_cut_cable_is_down_at_both_ends_and_logged_by_both(bare: Bare) -> None:
    bare.inject(**{"fault": "cable_down", "on": "cable:h0-sw0", "at": "2us", "for": "5us"})
    bare.inject(fault="cable_down", on="cable:h1-sw0")
    bare.inject(fault="reduced_rate", on="cable:h2-sw0", rate="100Gbps")
    bare.inject(fault="small_mtu", on="cable:h2-sw0", mtu=1500)
    status = bare.by("interfaces status", "Interface")
    assert [status[port]["Oper"] for port in ("h1:1", "sw0:2", "h2:1", "sw0:3")] == ["down", "down", "up", "up"]
    assert {(status[port]["Speed"], status[port]["MTU"]) for port in ("h2:1", "sw0:3")} == {("100G", 1500)}
    assert {status[port]["Admin"] for port in status} == {"up"}
    send(bare.f, [(2, 0, 1000, 20_000)])
    said = [(row["time_us"], row["message"]) for row in bare.rows("logging") if "sw0:1" in row["message"]]
    assert said == [
        ("2.000", "sw0:1 oper state set from up to down"), ("7.000", "sw0:1 oper state set from down to up"),
    ]  # fmt: skip
    assert not any("fault" in row["message"] for row in bare.rows("logging"))
    assert any("fault" in row["message"] for row in bare.rows("logging", sight=Sight()))
    assert {row["level"] for row in bare.rows("logging", level="warning")} == {"warning"}
    assert {row["counter"]: row["value"] for row in bare.rows("ethtool", rank=0)}["link_down_events_phy"] == 1


def test_what_a_cut_takes_is_counted_at_the_end_that_it_was_for(bare: Bare) -> None:
    bare.inject(**{"fault": "cable_down", "on": "cable:h0-sw0", "at": "1us", "for": "1us"})
    send(bare.f, [(0, 1, 600_000, 0), (1, 0, 600_000, 0)])
    port = next(p for p in bare.counters()["ports"] if (p["node"], p["port"]) == ("sw0", 1))
    row, nic0 = bare.by("interfaces errors", "IFACE")["sw0:1"], bare.rows("ethtool", rank=0)
    broken_off = next(s["cut_off"] for s in bare.counters()["shown"] if (s["node"], s["port"]) == ("sw0", 1))
    assert 0 < broken_off <= port["drops"]["cable"]
    assert (row["RX_ERR"], row["RX_DRP"], row["TX_DRP"]) == (broken_off, 0, port["drops"]["cable"] - broken_off)
    counted = {row["counter"]: row["value"] for row in nic0}
    assert counted["rx_discards_phy"] == 0, "which is for want of room in its buffer alone"
    assert counted["tx_discards_phy"] > 0
    assert counted["retransmitted"] > 0 and "roce_adp_retrans" not in counted


def test_what_an_operator_shuts_is_down_by_his_will_where_he_did_it(bare: Bare) -> None:
    values = {"primitive": "params", "cable": "h0-sw0", "values": {"up": False}}
    bare.request("inject", fault="o1", **values, operator=True, shut="sw0:1")
    status = bare.by("interfaces status", "Interface")
    assert [status[port]["Admin"] for port in ("sw0:1", "h0:1")] == ["down", "up"]
    assert [status[port]["Oper"] for port in ("sw0:1", "h0:1")] == ["down", "down"]


def test_a_storm_is_logged_and_the_watchdogs_drops_are_the_queues(bare: Bare) -> None:
    bare.inject(**{"fault": "pause_storm", "on": "nic:0", "for": "150us"})
    bare.request("inject", fault="t", primitive="traffic", flows=[[1, 0, 60_000, 0], [2, 1, 1000, 400_000]])
    bare.request("quiesce", timeout=60.0)
    said = [row["message"] for row in bare.rows("logging")]
    assert said == ["PFC Watchdog detected PFC storm on sw0:1, queue 3, action drop",
                    "PFC Watchdog storm restored on sw0:1, queue 3"]  # fmt: skip
    drops = bare.by("drops", "reason")["watchdog"]["count"]
    assert (
        next(r for r in bare.rows("queue counters") if (r["Port"], r["TxQ"]) == ("sw0:1", "UC3"))["Drop/pkts"] == drops
    )


def test_configuration_is_the_one_in_force_or_the_one_that_was_meant(bare: Bare) -> None:
    golden = Sight(config="golden")
    bare.inject(fault="ecn_thresholds", on="switch:sw0", kmin="1KB", kmax="4KB", pmax=1.0)
    bare.inject(fault="wrong_dscp_map", on="switch:sw0", dscp=26, to=0)
    bare.inject(fault="wrong_weights", on="switch:sw0", priority=3, weight=10)
    bare.inject(fault="short_watchdog", on="switch:sw0", detect="1us", restore="5us")
    bare.inject(fault="pfc_off", on="port:sw0:1", direction="send")
    bare.inject(fault="small_headroom", on="port:sw0:2", size="1KB")
    bare.inject(fault="small_buffer", on="switch:sw0", size="800KB")
    bare.inject(fault="slow_pcie", on="nic:1", rate="128Gbps")
    ecn = {"ecn": "ecn_all", "Queue": "UC3", "green_min_threshold": 1000, "green_max_threshold": 4000,
           "green_drop_probability": "100"}  # fmt: skip
    assert bare.rows("ecn config")[0] == {"Switch": "sw0", "Port": "all", **ecn}
    assert bare.rows("ecn config", sight=golden)[0]["green_min_threshold"] == 40_000
    dscp = {row["TC"]: row["DSCP"] for row in bare.rows("qos config")}
    assert (
        "26" not in dscp.get(3, "") and {r["TC"]: r["DSCP"] for r in bare.rows("qos config", sight=golden)}[3] == "26"
    )
    scheduler = {row["Queue"]: (row["type"], row["weight"]) for row in bare.rows("qos config", 1)}
    assert (scheduler["UC3"], scheduler["UC6"]) == (("DWRR", 10), ("STRICT", "N/A"))
    names = ["PORT", "ACTION", "DETECTION TIME", "RESTORATION TIME"]
    assert bare.rows("pfcwd config") == [dict(zip(names, ("sw0:*", "drop", "1us", "5us"), strict=True))]
    assert bare.rows("pfcwd config", sight=golden)[0]["DETECTION TIME"] == "20us"
    pfc = bare.by("pfc config", "Interface")
    assert pfc["sw0:1"] == {"Interface": "sw0:1", "Lossless priorities": "3,4", "Tx": "off", "Rx": "on"}
    assert bare.by("pfc config", "Interface", sight=golden)["sw0:1"]["Tx"] == "on"
    assert bare.rows("buffer config")[0]["size"] == 800_000
    xoff = bare.by("buffer config", "Port", table=1)
    assert (xoff["sw0:2"]["xoff"], xoff["sw0:3"]["xoff"]) == (1000, 50_000)
    (pcie,) = bare.rows("nic", 2, rank=1)
    assert pcie["LnkCap"] == "Speed 32GT/s, Width x16" and pcie["LnkSta"] == "Speed 32GT/s, Width x4 (downgraded)"
    assert bare.rows("nic", 2, rank=0)[0]["LnkSta"] == "Speed 32GT/s, Width x16"
    assert bare.rows("nic", 2, rank=1, sight=golden)[0]["LnkSta"] == "Speed 32GT/s, Width x16"
    assert bare.rows("nic", 1, rank=0)[0] == {"parameter": "congestion control", "value": "dcqcn"}


def test_a_meter_counts_what_it_drops_at_the_port_where_it_came_in(bare: Bare) -> None:
    bare.inject(fault="meter", on="switch:sw0", to=1, rate="20Gbps", burst="10KB")
    send(bare.f, [(0, 1, 60_000, 0)])
    meters = bare.by("meters", "In port")
    assert meters["sw0:1"]["Rate"] == "20Gbps" and meters["sw0:1"]["Band/pkts"] > 0 == meters["sw0:2"]["Band/pkts"]
    assert bare.by("drops", "reason")["meter"]["count"] == meters["sw0:1"]["Band/pkts"]
    assert "WRITE" in bare.by("drops", "reason")["meter"]["headers"]
    (hidden,) = bare.rows("meters", sight=Sight(drops="wjh", config="golden"))
    assert hidden["Band/pkts"] == meters["sw0:1"]["Band/pkts"] and "Rate" not in hidden


def test_traffic_is_told_by_who_sent_it(bare: Bare) -> None:
    send(bare.f, [(0, 1, 60_000, 0), (2, 1, 20_000, 0)])
    rows = [(row["rank"], row["peer"], row["tenant"]) for row in bare.rows("traffic") if row["tx_packets"]]
    assert rows == [(0, 1, "other"), (2, 1, "other")]


def test_no_view_says_that_a_fault_did_it(bare: Bare) -> None:
    bare.inject(fault="loss", on="cable:h0-sw0", rate=0.2)
    bare.inject(fault="drop_hash", on="cable:h2-sw0", share=0.5)
    send(bare.f, [(0, 1, 60_000, 0)])
    values = {"nic": {"rank": 0}, "ethtool": {"rank": 0}, "paths": {"rank": 0}, "credits": {"rank": 0}}
    look = Look(bare, bare.counters(), before=bare.counters(), sight=STUDENT)
    for words, view in VIEWS.items():
        if words in ("job", "cpu"):  # there is none on a bare fabric, and no container
            continue
        text = str(view.show(look, **values.get(words, {}))).lower()
        assert "fault" not in text.replace("default", "") and "inject" not in text, words
