"""What the solver makes of two faults at once, and of looks that tell less: on tables, without a fabric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from drills.session import Answer
from drills.sheet import file
from drills.sheet.case import Case
from drills.solve.operator import Operator
from drills.solve.routing import nowhere
from drills.solve.solver import solve
from tests.recorded import FIX, NOW_NS, Recorded, crc, ecn_config, nics

SLOW = [
    {"step": "0..3", "began_us": 1.0, "time_us": 60.0, "vs_best": "1.00x", "wrong": 0},
    {"step": "4", "began_us": 600.0, "time_us": 90.0, "vs_best": "1.50x", "wrong": 0},
]


def classes(**sent: str) -> list[dict[str, Any]]:
    """`leaf0_5="UC3"`: that port has sent in that class."""
    return [
        {"Port": port.replace("_", ":"), "TxQ": queue, "Counter/pkts": 300}
        for port, queues in sent.items()
        for queue in queues.split()
    ]


def arrived(*ports: str) -> dict[str, Any]:
    """Where frames have come in that are in class 0."""
    return {"priority-group watermark": {"shared": [{"Port": port, "PG0": 22340, "PG3": 22340} for port in ports]}}


def headroom(port: str, **paused: int) -> dict[str, Any]:
    node, _, number = port.partition(":")
    tx = [{"Port Tx": name.replace("_", ":"), "PFC3": n} for name, n in paused.items()]
    drops = [{"node": node, "port": int(number), "reason": "headroom", "count": 21}]
    return {"drops": {"drops": drops}, "pfc": {"rx": [], "tx": tx}}


def spoilt(*ranks: int) -> dict[str, Any]:
    """ICRC errors at these NICs, counted only; rank 1 has sent again to rank 2, and rank 3 to rank 4."""
    again = [{"rank": 1, "peer": 2, "retransmitted": 40}, {"rank": 3, "peer": 4, "retransmitted": 40}]
    drops = [{"node": f"h{rank}", "port": 1, "reason": "icrc", "count": 17} for rank in ranks]
    return {"drops": {"drops": drops}, "qps": {"qps": again}}


FOUR = ("leaf0", "leaf1", "spine0", "spine1")
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "class 0 begins at a cable that is used one way": (
        {
            "queue counters": {"counters": classes(leaf0_5="UC3", spine0_2="UC0", leaf1_1="UC0", leaf1_6="UC3")},
            **arrived("spine0:1", "leaf1:5"),
        },
        "dscp_remarked@cable:leaf0-spine0",
    ),
    "class 0 begins at a switch, whatever comes in": (
        {
            "queue counters": {"counters": classes(leaf0_5="UC3", leaf1_5="UC3", spine0_1="UC0 UC3", spine0_2="UC0")},
            **arrived("spine0:1", "spine0:2", "leaf0:5", "leaf1:5"),
        },
        "healthy",
    ),
    "class 0 begins at a leaf, of what its hosts send, too": (
        {
            "queue counters": {"counters": classes(leaf0_5="UC3", spine0_2="UC3", leaf1_1="UC0 UC3")},
            **arrived("leaf1:1", "leaf1:5"),
        },
        "healthy",
    ),
    "a switch that takes it for class 0 says so": (
        {
            **{"qos config": {"dscp": [{"Switch": s, "DSCP": "26", "TC": "0" if s == "leaf1" else "3"} for s in FOUR]}},
            "queue counters": {"counters": classes(leaf0_5="UC3", spine0_2="UC3", leaf1_1="UC0 UC3")},
            **arrived("leaf1:5"),
        },
        "wrong_dscp_map@switch:leaf1",
    ),
    "headroom runs over, and the port pauses nobody": (headroom("leaf0:1", leaf0_2=20), "pfc_off@port:leaf0:1"),
    "headroom runs over in spite of pauses": (headroom("leaf0:1", leaf0_1=20), "pfc_off@nic:0"),
    "ICRC errors without headers": (spoilt(2), "corruption@cable:h2-leaf0"),
    "what was dropped has come once": (
        {
            **nics(duplicate_request={1: 4}, tx_packets_phy={0: 300}),
            "interfaces counters": {
                "counters": [{"IFACE": "leaf0:1", "RX_OK": 300, "RX_ERR": 0, "RX_DRP": 21, "TX_OK": 0}]
            },
        },
        "healthy",
    ),
    "what was not sent has come": (
        {
            **nics(duplicate_request={1: 4}, tx_packets_phy={0: 300}),
            "interfaces counters": {
                "counters": [{"IFACE": "leaf0:1", "RX_OK": 321, "RX_ERR": 0, "RX_DRP": 0, "TX_OK": 0}]
            },
        },
        "duplication@cable:h0-leaf0",
    ),
    "all are paused but one, and that is all": (
        {"job": {"job": SLOW}, **nics(rx_prio3_pause={rank: 20 for rank in range(8) if rank != 3})},
        "healthy",
    ),
    "two faults that have nothing to do with each other": (
        {**crc("leaf0:6", "spine1:1"), **spoilt(2)},
        "loss@cable:leaf0-spine1 corruption@cable:h2-leaf0",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_solver_takes_it_for_what_it_is(name: str) -> None:
    shown, answer = CASES[name]
    assert solve(Recorded(shown)) == answer


def test_of_a_flow_that_crosses_switches_their_cables_are_tried_before_a_nic_is_named() -> None:
    """Rank 3's frames reach rank 4 by cables between switches; none of those mends it here."""
    asked = Recorded({**spoilt(4), **nics(rx_icrc_encapsulated={4: 1}), **carried("leaf0:5")})
    assert solve(asked) == "corruption@cable:h4-leaf1"
    assert "config cable replace leaf0-spine0" in asked.done
    near = Recorded({**spoilt(2), **nics(rx_icrc_encapsulated={2: 17}), **carried("leaf0:5")})
    assert solve(near) == "corruption@cable:h2-leaf0"
    assert not near.done


def carried(port: str) -> dict[str, Any]:
    return {"interfaces counters": {"counters": [{"IFACE": port, "RX_OK": 0, "TX_OK": 400}]}}


def test_what_is_in_another_class_overtakes_and_no_cable_is_tried_for_it() -> None:
    shown, answer = CASES["class 0 begins at a cable that is used one way"]
    gaps = nics(out_of_sequence={4: 17}, tx_packets_phy={})
    assert solve(asked := Recorded({**shown, **gaps, **carried("leaf0:5")})) == answer
    assert not asked.done


def test_headroom_is_mended_at_both_ends() -> None:
    solve(asked := Recorded(headroom("leaf0:1", leaf0_2=20), FIX))
    assert asked.done == ["config pfc leaf0:1 on", "config nic pfc 0 on"]


def test_a_switch_that_copies_less_than_its_like_is_found_without_headers() -> None:
    every = [{"switch": s, "priority": 100, "match": "ip,nw_dst=10.0.0.0/8", "actions": "output:1"} for s in LEAVES]
    group = [{"switch": "leaf1", "priority": 100, "match": "ip,nw_dst=239.0.0.1", "actions": "output:1,output:2"}]
    lost = [{"node": "leaf0", "port": 1, "reason": "forwarding", "count": 9}]
    shown = {"flows": {"flows": every + group}, "drops": {"drops": lost}}
    assert solve(Recorded(shown)) == "missing_group@switch:leaf0"
    assert [found.mend for found in nowhere(Operator(Recorded(shown)))] == [("flow resync leaf0",)]


LEAVES = ("leaf0", "leaf1")


class Mended(Recorded):
    """What is seen after the first action; the job is as slow as before it, until there is another."""

    def __init__(self, shown: Mapping[str, Any], behind: Mapping[str, Any], question: tuple[str, ...] = FIX) -> None:
        super().__init__({"job": {"job": SLOW}, **shown}, question)
        self.behind = behind

    def command(self, line: str) -> Answer:
        told = super().command(line)
        if line.startswith("config ") and self.done == [line]:
            self.shown = {"job": {"job": SLOW}, **self.behind}
        elif line.startswith("config "):
            self.shown = {"job": {"job": [{**step, "time_us": 60.0} for step in SLOW]}}
        return told


def test_what_was_behind_a_fault_is_looked_for_when_it_is_mended() -> None:
    held = nics(rx_prio3_pause={rank: 20 for rank in range(8) if rank != 3})
    asked = Mended(ecn_config(leaf1=1000), {**ecn_config(), **held})
    assert solve(asked) == "ecn_thresholds@switch:leaf1 slow_pcie@nic:3"
    assert asked.done[1:] == ["config nic pcie retrain 3"]


def test_what_is_odd_at_a_place_that_has_been_mended_is_no_second_fault() -> None:
    """Once at the switch whose thresholds were wrong, once at the other."""
    pauses = {"pfc": {"rx": [], "tx": [{"Port Tx": "leaf1:1", "PFC3": 300}, {"Port Tx": "leaf0:1", "PFC3": 3}]}}
    assert solve(Mended(ecn_config(leaf1=1000), {**ecn_config(), **pauses})) == "ecn_thresholds@switch:leaf1"
    other = solve(Mended(ecn_config(leaf0=1000), {**ecn_config(), **pauses}))
    assert other == "ecn_thresholds@switch:leaf0 small_buffer@switch:leaf1"


def test_a_job_that_stands_after_a_repair_is_not_taken_for_a_worker_that_stands_still() -> None:
    long_ago = {"job": {"job": [{**step, "began_us": 1.0} for step in SLOW]}}
    quiet = {"qps": {"qps": [{"rank": rank, "peer": 0, "tx_bytes": 9 * rank} for rank in range(8)]}}
    assert solve(Recorded({**long_ago, **quiet})) == "worker_frozen@nic:0"
    asked = Mended(ecn_config(leaf1=1000), {**ecn_config(), **long_ago, **quiet})
    assert solve(asked) == "ecn_thresholds@switch:leaf1"


def test_who_is_not_asked_to_mend_does_not_look_behind() -> None:
    asked = Mended(ecn_config(leaf1=1000), {}, ("healthy", "where", "what"))
    assert solve(asked) == "ecn_thresholds@switch:leaf1"
    assert not asked.done


def test_a_switch_is_led_around_last_for_without_it_there_is_no_way_around_a_cable() -> None:
    from drills.solve.diagnosis import Diagnosis
    from drills.solve.operator import Operator
    from drills.solve.solver import mend

    asked = Recorded({}, FIX)
    switch = Diagnosis("silent_corruption", "switch:spine1", ("route drain spine1",))
    cable = Diagnosis("loss", "cable:leaf0-spine0", ("route drain leaf0:5", "cable replace leaf0-spine0"))
    assert mend(Operator(asked), [switch, cable])
    assert asked.done[-1] == "config route drain spine1"


def test_counters_of_before_a_repair_are_not_recent() -> None:
    from drills.solve.operator import Operator

    asked: list[str] = []

    class Noting(Recorded):
        def command(self, line: str) -> Answer:
            asked.append(line)
            return super().command(line)

    desk = Operator(Noting({}))
    desk.from_ns = NOW_NS - 30_000
    desk.recent("show nics")
    assert asked[-1] == "show nics --changed 30000ns"


def test_frames_that_a_nic_has_sent_in_vain_are_lost_in_the_switch_beside_it() -> None:
    """A job that stands, and of 500 frames of rank 4 that switch has counted 400: no NIC is a switch."""
    from drills.solve.lost import vanished
    from drills.solve.operator import Operator

    stuck = {"job": [{"step": "0..3", "began_us": 1.0, "time_us": 90.0, "vs_best": "1.00x", "wrong": 0}]}
    shown = {
        "job": stuck,
        **nics(tx_packets_phy={4: 500}, local_ack_timeout_err={4: 1}),
        "interfaces counters": {"counters": [{"IFACE": "leaf1:1", "RX_OK": 400}]},
    }
    (found,) = vanished(Operator(Recorded(shown)))
    assert (found.kind, found.place) == ("drop_hash", "switch:leaf1")


def test_its_fabric_is_the_one_that_places_are_named_of() -> None:
    fabric = Case.of(file.load("lost/dirty-optics"), "7Q4", False).experiment.build_fabric()
    assert {"leaf0-spine0", "leaf0-spine1", "h0-leaf0"} <= {cable.name for cable in fabric.cables}
