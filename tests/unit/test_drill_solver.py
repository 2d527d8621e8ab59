"""The solver and the baselines, on tables that a session would have shown: no fabric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from drills.check.players import correlation
from drills.check.rivals import _with, indistinct, signature
from drills.session import Answer
from drills.sheet import file
from drills.sheet.case import Case
from drills.solve.baselines import PLAYERS
from drills.solve.operator import odd
from drills.solve.solver import solve
from testbed.faults import CATALOGUE
from tests.recorded import NOW_NS, Recorded, crc, ecn_config, nics


def entries(leaf1: tuple[str, ...]) -> dict[str, Any]:
    rows = [{"switch": "leaf1", "priority": 100, "match": f"ip,nw_dst={to}", "actions": "output:1"} for to in leaf1]
    header = "10.0.0.4 > 10.0.1.1 UDP 1 > 4791 dscp 26 RoCE"
    drops = [{"node": "leaf1", "port": 6, "reason": "forwarding", "count": 9, "headers": header}]
    return {"flows": {"flows": rows}, "drops": {"drops": drops}}


SPINES = ("10.0.0.0/29",)
HOSTS = ("10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.1.4")
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({**ecn_config(), **nics(), **crc()}, "healthy"),
    "crc at both ends": (crc("leaf0:6", "spine1:1"), "loss@cable:leaf0-spine1"),
    "other thresholds": (ecn_config(leaf1=1000), "ecn_thresholds@switch:leaf1"),
    "one entry missing": (entries(SPINES + HOSTS[1:]), "missing_entry@switch:leaf1"),
    "some entries missing": (entries(SPINES + HOSTS[2:]), "partial_write@switch:leaf1"),
    "told not ready": (
        {
            **nics(rnr_nak_retry_err={0: 4, 2: 4}),
            "qps": {"qps": [{"rank": 0, "peer": 4, "retransmitted": 4}, {"rank": 2, "peer": 4, "retransmitted": 4}]},
        },
        "slow_receiver@nic:4",
    ),
    "slots have leaked": (
        {
            "accelerators": {
                "accelerators": [
                    {
                        "switch": name,
                        "status": "up",
                        "slots_free": 0 if name == "leaf1" else 64,
                        "unknown": 9 * (name == "leaf1"),
                    }
                    for name in ("leaf0", "leaf1", "spine0")
                ]
            }
        },
        "slots_leaked@switch:leaf1",
    ),
    "the connection is lost": (
        {"logging": {"log": [{"time_us": "300", "who": "controller", "level": "error", "message": "connection lost"}]}},
        "controller_dead@controller",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_solver_takes_it_for_what_it_is(name: str) -> None:
    shown, answer = CASES[name]
    assert solve(Recorded(shown)) == answer


def test_a_ring_without_a_dateline_is_freed_of_its_circle() -> None:
    flows = [{"switch": "sw0", "priority": 100, "match": "ip,nw_dst=10.0.0.1", "actions": "output:1"}]
    circle = "PFC deadlock: these wait for each other: sw2:3 queue 3, sw0:2 queue 3"
    log = [{"time_us": "300", "who": "fabric", "level": "error", "message": circle}]
    shown = {"flows": {"flows": flows}, "logging": {"log": log}}
    asked = Recorded(shown, ("healthy", "where", "what", "fix"))
    asked.fabric = Case.of(file.load("pfc/credit-loop"), "7Q4", False).experiment.build_fabric()
    assert solve(asked) == "dateline_off@all"
    assert [line.split()[1:3] for line in asked.done] == [["route", "dateline"], ["pfcwd", "sw2"], ["pfcwd", "sw2"]]


def test_it_mends_only_if_asked() -> None:
    shown = ecn_config(leaf1=1000)
    assert not (asked_not := Recorded(shown)).done and solve(asked_not) and not asked_not.done
    asked = Recorded(shown, ("healthy", "where", "what", "fix"))
    solve(asked)
    assert asked.done == ["config ecn leaf1 --kmin 40000B --kmax 160000B --pmax 0.2"]


def test_a_good_cable_is_led_around_before_it_is_changed() -> None:
    asked = Recorded(crc("leaf0:6", "spine1:1"), ("healthy", "where", "what", "fix"))
    solve(asked)
    assert [line.split()[1:3] for line in asked.done] == [
        ["route", "drain"],
        ["cable", "replace"],
        ["route", "undrain"],
    ]


class Refusing(Recorded):
    """What is asked for with these words is refused."""

    def __init__(self, shown: Mapping[str, Any], *refused: str) -> None:
        super().__init__(shown, ("healthy", "where", "what", "fix"))
        self.refused = refused

    def command(self, line: str) -> Answer:
        told = super().command(line)
        return Answer(False, NOW_NS, "no") if any(word in line for word in self.refused) else told


GAVE_UP = {"qps": {"qps": [{"rank": 0, "peer": 4, "retransmitted": 0, "state": "error"}]}}


def test_nobody_begins_the_job_anew_after_a_mend_that_was_refused() -> None:
    shown = {**ecn_config(leaf1=1000), **GAVE_UP}
    solve(mended := Refusing(shown))
    solve(refused := Refusing(shown, "config ecn"))
    assert mended.done[-1] == "config job restart"
    assert [line.split()[1] for line in refused.done] == ["ecn"]


@pytest.mark.parametrize("refused", ["interface speed", "route drain"])
def test_a_drained_cable_is_used_again_though_its_speed_cannot_be_set_at_first(refused: str) -> None:
    ends = [("leaf0:5", "spine0:1"), ("leaf0:6", "spine1:1"), ("leaf1:5", "spine0:2"), ("leaf1:6", "spine1:2")]
    rows = [
        {"Interface": i, "Peer": p, "Oper": "up", "Speed": "50G" if (i, p) == ends[0] else "100G", "MTU": 9216}
        for i, p in ends
    ]

    class Once(Refusing):
        def command(self, line: str) -> Answer:
            told = super().command(line)
            if not told.ok and line.startswith("config "):
                self.refused = ()
            return told

    desk = Once({"interfaces status": {"status": rows}}, f"config {refused}")
    assert solve(desk) == "reduced_rate@cable:leaf0-spine0"
    assert [line.split()[2] for line in desk.done][-2:] == ["speed", "undrain"]


def test_who_knows_little_says_little() -> None:
    well, ill = Recorded(CASES["nothing"][0]), Recorded(crc("leaf0:6", "spine1:1"))
    assert PLAYERS["healthy"](ill) == "healthy"
    assert PLAYERS["loudest"](ill) == "loss@cable:leaf0-spine1" and PLAYERS["loudest"](well) == "healthy"
    assert PLAYERS["thresholds"](well) == "healthy"
    assert "@" in PLAYERS["random"](ill)


def logged(message: str) -> dict[str, Any]:
    row = {"time_us": 1.0, "who": "controller", "level": "error", "message": message}
    return {"logging": {"logging": [row]}}


@pytest.mark.parametrize(
    ("shown", "alert"),
    [
        (logged("connection lost"), "controller_dead@controller"),
        (logged("spine0 refused 2 flow mods: TABLE_FULL(1)"), "table_full@switch:spine0"),
        (logged("PFC deadlock: these wait for each other: leaf0:1 queue 3"), "dateline_off@all"),
        ({"nics": {"nics": [{"rank": 2, "duplicate_request": 5}, {"rank": 5, "duplicate_request": 9}]}},
         "duplication@cable:h5-leaf1"),
        ({"nics": {"nics": [{"rank": 2, "duplicate_request": 5, "out_of_sequence": 1}]}}, "loss@cable:h2-leaf0"),
        ({**logged("PFC deadlock: these wait"), **crc("leaf0:6", "spine1:1")}, "dateline_off@all"),
        (logged("leaf1:6 down: rerouted"), "healthy"),
        ({"nics": {"nics": [{"rank": 2, "rp_cnp_handled": 5}]}}, "healthy"),
    ],
)  # fmt: skip
def test_an_alert_is_one_counter_or_one_message(shown: Mapping[str, Any], alert: str) -> None:
    assert PLAYERS["thresholds"](Recorded(shown)) == alert


def test_who_looks_for_traces_sees_what_is_said_of_one_class_and_no_lists() -> None:
    class Leaking(Recorded):
        said = ""

        def command(self, line: str) -> Answer:
            return Answer(True, NOW_NS, self.said) if line == "status" else super().command(line)

    session = Leaking({})
    assert PLAYERS["traces"](session) == "healthy"
    session.said = " ".join(CATALOGUE)
    assert PLAYERS["traces"](session) == "healthy"
    session.said = '{"delay": 500, "log": "put in burst_loss, cable leaf1-spine0"}'
    assert PLAYERS["traces"](session) == "burst_loss@cable:leaf1-spine0"


def test_what_is_odd_is_what_most_are_not() -> None:
    rows = [{"s": n, "v": v} for n, v in enumerate((1, 1, 2, 1))]
    assert [row["s"] for row, _ in odd(rows, "", ("v",))] == [2]
    assert not odd([{"s": 0, "v": 1}, {"s": 1, "v": 1}], "", ("v",))


def test_classes_that_change_the_same_columns_are_a_family() -> None:
    well = {"nics": {"nics": [{"rank": 0, "a": 0, "b": 0}]}}
    one = signature({"nics": {"nics": [{"rank": 0, "a": 3, "b": 0}]}}, well)
    other = signature({"nics": {"nics": [{"rank": 0, "a": 9, "b": 0}]}}, well)
    third = signature({"nics": {"nics": [{"rank": 0, "a": 0, "b": 1}]}}, well)
    nothing = signature(well, well)
    assert indistinct({"x": one, "y": other, "z": third, "n": nothing, "m": nothing}) == [frozenset("xy")]


def entry(match: str, actions: str = "output:1", packets: int = 0, switch: str = "leaf0") -> dict[str, Any]:
    return {"switch": switch, "table": 0, "priority": 100, "match": match,
            "packets": packets, "bytes": 64 * packets, "actions": actions}  # fmt: skip


@pytest.mark.parametrize(
    ("entries", "columns"),
    [
        ([entry("a", packets=7), entry("b")], set()),
        ([entry("b"), entry("a")], set()),
        ([entry("a")], {"gone"}),
        ([], {"gone"}),
        ([entry("a"), entry("b"), entry("c")], {"new"}),
        ([entry("a"), entry("b"), entry("b", switch="leaf1")], {"new"}),
        ([entry("a"), entry("b", "drop")], {"actions"}),
        ([entry("a", "drop"), entry("c")], {"actions", "new", "gone"}),
    ],
)
def test_flow_entries_are_compared_but_not_what_they_have_counted(
    entries: list[dict[str, Any]], columns: set[str]
) -> None:
    well = {"flows": {"flows": [entry("a"), entry("b")]}}
    assert signature({"flows": {"flows": entries}}, well) == {f"flows.flows.{c}" for c in columns}


@pytest.mark.parametrize(("kind", "rate"), [("loss", 0.02), ("duplication", CATALOGUE["duplication"].example["rate"])])
def test_a_place_is_struck_as_the_drill_does_it_else_as_the_example(kind: str, rate: float) -> None:
    struck = _with(file.load("lost/dirty-optics"), kind, "cable:leaf0-spine0")
    assert struck.faults == [{"fault": kind, "on": "cable:leaf0-spine0", "rate": rate}]


def test_whether_harder_drills_are_worth_less() -> None:
    levels = [0.5, 0.5, 2.3, 8]
    assert correlation(levels, [90.0, 90.0, 50.0, 10.0]) == pytest.approx(-1.0)
    assert correlation(levels, [10.0, 10.0, 50.0, 90.0]) == pytest.approx(1.0)
    assert correlation(levels, [5.0, 5.0, 5.0, 5.0]) is None and correlation([], []) is None
