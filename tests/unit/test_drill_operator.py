"""An operator at a session: what he asks, what he takes for recent, slow, or standing, what he knows of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from drills.session import Answer
from drills.solve.corruption import checksums
from drills.solve.host import late_buffers, rate
from drills.solve.lost import damaged, missing
from drills.solve.operator import Operator, odd, sums
from drills.solve.settings import numbers
from drills.solve.solver import WATCHED_NS, _later
from drills.solve.trials import used
from tests.recorded import NOW_NS, Recorded, crc, nics


class Noting(Recorded):
    """It keeps every line; lines with these words are refused."""

    def __init__(self, shown: dict[str, Any], *refused: str) -> None:
        super().__init__(shown)
        self.lines: list[str] = []
        self.refused = refused

    def command(self, line: str) -> Answer:
        self.lines.append(line)
        if any(word in line for word in self.refused):
            return Answer(False, NOW_NS, "no", {"t": [{"a": 1}]})
        return super().command(line)


def step(began_us: float, time_us: float) -> dict[str, Any]:
    return {"step": "0", "began_us": began_us, "time_us": time_us, "vs_best": "", "wrong": 0}


@pytest.mark.parametrize(
    ("of_ns", "from_ns", "since"),
    [
        (400_000.0, 0.0, 400_000),
        (1_200_000.0, 0.0, NOW_NS - 1000),  # counters of the first microsecond are there to be compared with
        (400_000.0, NOW_NS - 30_000.0, 30_000),
        (400_000.0, NOW_NS - 500.0, 1000),  # at least a microsecond
    ],
)
def test_recent_is_what_has_changed_of_late_but_not_before_a_repair(of_ns: float, from_ns: float, since: int) -> None:
    desk = Operator(session := Noting({}))
    desk.from_ns = from_ns
    desk.recent("show nics", of_ns=of_ns)
    assert session.lines[-1] == f"show nics --changed {since}ns"


def test_recent_is_400_us_if_nothing_is_said() -> None:
    Operator(session := Noting({})).recent("show nics")
    assert session.lines[-1] == "show nics --changed 400000ns"


def test_he_looks_once_until_time_passes() -> None:
    desk = Operator(session := Noting(nics()))
    assert len(desk.rows("show nics")) == len(desk.rows("show nics", "nics")) == 8
    assert session.lines.count("show nics") == 1 and desk.rows("show nics", "no such table") == []
    desk.pass_(1000)
    desk.rows("show nics")
    assert session.lines.count("show nics") == 2 and session.lines[-2] == "advance 1000ns"


def test_what_is_refused_shows_nothing() -> None:
    desk = Operator(Noting({}, "probe", "show pfc", "drain"))
    assert desk.ask("probe mesh") == {} and desk.rows("show pfc") == []
    assert not desk.do("config route undrain leaf0:5") and desk.undrained == set()


def test_ports_that_were_drained_and_are_not_any_more_may_carry_flows_again() -> None:
    desk = Operator(Noting({}))
    desk.carry_out(["route drain leaf0:5", "route undrain leaf0:5", "route undrain leaf0:6", "route undrain spine0"])
    assert desk.undrained == {"leaf0:5", "leaf0:6"}
    desk.do("config route drain leaf0:6")
    assert desk.undrained == {"leaf0:5"}


def test_actions_end_with_the_first_that_is_refused() -> None:
    desk = Operator(session := Noting({}, "drain"))
    assert not desk.carry_out(["route drain leaf0:5", "cable replace leaf0-spine0"])
    assert session.lines[-1] == "config route drain leaf0:5"


@pytest.mark.parametrize(
    ("steps", "stands"),
    [
        ([step(1, 60), step(430, 90)], False),  # 180 us since it ended: three times the best
        ([step(1, 60), step(429, 90)], True),
        ([step(1, 60), step(420, 112)], False),  # 168 us: one and a half times the last
        ([step(1, 60), step(300, 150)], True),
        ([], True),  # not a step in all this time
    ],
)
def test_a_job_stands_if_no_step_ends_for_far_too_long(steps: Sequence[dict[str, Any]], stands: bool) -> None:
    assert Operator(Recorded({"job": {"job": steps}})).stands is stands


@pytest.mark.parametrize(("last_us", "slow"), [(61.2, False), (61.3, True)])
def test_a_job_is_slow_from_two_percent_on(last_us: float, slow: bool) -> None:
    desk = Operator(Recorded({"job": {"job": [step(1, 60), step(600, last_us)]}}))
    assert desk.slow is slow and desk.best_us == 60


def test_the_plan_says_what_is_plugged_in_where() -> None:
    desk = Operator(Recorded({}))
    assert (desk.peer("leaf0:5"), desk.peer("spine0:1"), desk.peer("leaf0:9"), desk.peer("leaf0")) == (
        "spine0:1", "leaf0:5", "", ""
    )  # fmt: skip
    assert (desk.rank("h3"), desk.rank("h3:1"), desk.rank("leaf0:1"), desk.rank_of_ip("10.0.1.1")) == (3, 3, None, 4)
    assert desk.rank_of_ip("10.9.9.9") is None
    assert (desk.nic_cable(5).name, desk.switch_of(5)) == ("h5-leaf1", "leaf1")
    uplink = desk.plan.cable_by_name["leaf0-spine0"]
    assert desk.between_switches(uplink) and not desk.between_switches(desk.nic_cable(5))
    assert desk.switch_end(uplink) == "leaf0:5" and desk.switch_end(desk.nic_cable(5)) == "leaf1:2"
    assert (desk.like("leaf0"), desk.like("spine1")) == (["leaf1"], ["spine0"])


def test_rows_that_differ_from_most_are_told_beside_one_of_those() -> None:
    rows = [{"of": "a", "v": v, "n": n} for n, v in enumerate((1, 1, 2))] + [{"of": "b", "v": 2, "n": 9}]
    assert [(row["n"], usual["n"]) for row, usual in odd(rows, "of", ("v",))] == [(2, 0)]
    assert [row["n"] for row, _ in odd(rows[:2] + [{"v": 3, "n": 7}], "", ("v",))] == [7]
    # of two that differ the first is usual; of four of which two differ nobody knows
    assert [row["n"] for row, _ in odd([{"v": 1, "n": 0}, {"v": 2, "n": 1}], "", ("v",))] == [1]
    assert odd([{"v": v} for v in (1, 1, 2, 2)], "", ("v",)) == []


def test_sums_are_over_columns_of_numbers() -> None:
    rows = [{"k": 1, "a": 2, "b": 3.5}, {"k": 1, "a": "N/A"}, {"k": 2, "b": 1}]
    assert sums(rows, lambda row: row["k"], "a", "b") == {1: 5.5, 2: 1}


def test_ranges_and_speeds_as_views_write_them() -> None:
    assert list(numbers("0-2,26,x")) == [0, 1, 2, 26]
    assert [rate(text) for text in ("400G", "1.6T", "50M", "N/A")] == [400e9, 1.6e12, 50e6, 0.0]


def test_cables_of_the_job_are_those_that_carry_more_than_a_tenth_of_the_busiest() -> None:
    rows = [{"IFACE": port, "TX_OK": n} for port, n in (("leaf0:5", 500), ("spine0:1", 500), ("leaf0:6", 101),
                                                      ("leaf1:5", 100), ("leaf0:1", 9999))]  # fmt: skip
    desk = Operator(Recorded({"interfaces counters": {"counters": rows}}))
    assert [cable.name for cable in used(desk)] == ["leaf0-spine0", "leaf0-spine1"]


def test_who_is_told_to_wait_tells_of_the_receiver_that_is_sent_to_again_most() -> None:
    again = [{"rank": 0, "peer": 4, "retransmitted": 4}, {"rank": 0, "peer": 5, "retransmitted": 5},
             {"rank": 1, "peer": 6, "retransmitted": 99}]  # fmt: skip
    told = {**nics(rnr_nak_retry_err={0: 4}), "qps": {"qps": again}}
    assert [str(one) for one in late_buffers(Operator(Recorded(told)))] == ["slow_receiver@nic:5"]
    none = {**told, "qps": {"qps": [{**row, "retransmitted": 0} for row in again]}}
    assert late_buffers(Operator(Recorded(none))) == []


def test_what_a_nic_has_sent_and_its_switch_has_not_counted_is_missing() -> None:
    """Frames in error are counted; those that a switch has dropped only if they are asked for."""
    counters = [{"IFACE": "leaf0:1", "RX_OK": 90, "RX_ERR": 3, "RX_DRP": 5, "TX_OK": 70}]
    told = {**nics(tx_packets_phy={0: 100}, rx_packets_phy={0: 60}, rx_crc_errors_phy={0: 4}),
            "interfaces counters": {"counters": counters}}  # fmt: skip
    desk = Operator(Recorded(told))
    assert {port: n for port, n in missing(desk).items() if n} == {"h0:1": 2, "leaf0:1": 6}
    assert missing(desk, dropped=False)["h0:1"] == 7
    assert missing(Operator(Recorded(nics(tx_packets_phy={0: 100})))) == {}


def test_before_he_says_that_nothing_is_wrong_he_lets_the_job_go_on() -> None:
    """Five steps of 90 us: longer than 400 us."""
    desk = Operator(session := Noting({}))
    _later(desk)
    assert session.lines[1:3] == ["show job", "advance 450000ns"] and WATCHED_NS == 400_000
    quick = Operator(session := Noting({"job": {"job": [step(600, 60)]}}))
    _later(quick)
    assert session.lines[2] == "advance 400000ns"
    refused = Operator(Noting(crc("leaf0:5"), "advance"))
    assert _later(refused) == []


def test_a_pair_that_alone_has_spoilt_packets_is_looked_at_for_longer() -> None:
    """Eight times 25 us, unless three receivers have been seen before."""
    drop = {"node": "h2", "port": 1, "reason": "icrc", "count": 1, "headers": "10.0.0.1 > 10.0.0.3 UDP"}
    (found,) = checksums(Operator(session := Noting({"drops": {"drops": [drop]}})))
    assert session.lines.count("advance 25000ns") == 8 and found.place in ("cable:h0-leaf0", "cable:h2-leaf0")
    drops = [{**drop, "node": f"h{k}", "headers": f"10.0.0.1 > 10.0.0.{k + 1} UDP"} for k in (1, 2, 3)]
    (found,) = checksums(Operator(session := Noting({"drops": {"drops": drops}})))
    assert found.place == "cable:h0-leaf0" and not any("advance" in line for line in session.lines)


def test_a_damaged_cable_is_changed_where_there_is_another_way() -> None:
    (found,) = damaged(Operator(Recorded(crc("leaf0:6", "spine1:1"))))
    assert found.mend == ("route drain leaf0:6", "cable replace leaf0-spine1", "route undrain leaf0:6")
    (at_a_nic,) = damaged(Operator(Recorded(crc("leaf0:1"))))
    assert at_a_nic.mend == ()
