"""The verdict on a run: every cause, on both sides of its limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from results.figures.fidelity import Fidelity, StealMeter, real_clock, silent, smallest_hop_ns, virtual_clock
from results.figures.report import report

HOPS = 100_000
LATE = {"what": "late copy", "switch": "leaf0", "port": 3, "time_ns": 5.0, "headers": "10.0.0.1 > 10.0.0.2"}


@pytest.mark.parametrize(
    ("seen", "verdict", "says"),
    [
        ({}, "exact", ""),
        ({"flagged": 1, "flagged_examples": [LATE]}, "doubtful", "late copy on leaf0 port 3"),
        ({"flagged": 100}, "doubtful", "100 of 100000"),
        ({"flagged": 101}, "invalid", "101 of 100000"),
        ({"controller_timeouts": 1}, "doubtful", "depends on the machine see logs/controller.log"),
        ({"rules_unconfirmed": 1}, "doubtful", "forgotten old rules"),
        ({"tables_changed": 1}, "doubtful", "changed 1 time(s)"),
        ({"fast_stale": 2}, "doubtful", "2 time(s) Open vSwitch"),
        ({"tables_changed": 0, "fast_stale": 0, "fast_hops": 9, "fast_checked": 3}, "exact", ""),
        ({"unmodelled_losses": 1}, "doubtful", "lost in Open vSwitch"),
        ({"unmodelled_losses": 101}, "invalid", "lost in Open vSwitch"),
        ({"forwarding_drops": 5}, "exact", ""),  # a missing flow is the experiment's, not the emulation's
    ],
)
def test_virtual_clock(seen: dict[str, Any], verdict: str, says: str) -> None:
    judged = virtual_clock({"frame_hops": HOPS, **seen})
    assert judged.verdict == verdict
    assert bool(judged.reasons) == (verdict != "exact")
    assert says in " ".join([*judged.reasons, *judged.advice])


@pytest.mark.parametrize(
    ("seen", "steal", "verdict"),
    [
        ({"p99": 10_000}, 0.0, "good"),  # 1 % of 1000 ns x dilation 1000
        ({"p99": 10_001}, 0.0, "doubtful"),
        ({"p99": 50_000}, 0.0, "doubtful"),
        ({"p99": 50_001}, 0.0, "invalid"),
        ({"p99": None}, 0.0, "good"),
        ({"p99": 0}, None, "good"),
        ({"p99": 0}, 0.01, "good"),
        ({"p99": 0}, 0.02, "doubtful"),
        ({"p99": 0}, 0.2, "invalid"),
        ({"p99": 0, "unmodelled_losses": 1}, 0.0, "doubtful"),
        ({"p99": 0, "unmodelled_losses": 101}, 0.0, "invalid"),
        ({"p99": 0, "netdev_drops": 1}, 0.0, "doubtful"),
        ({"p99": 20_000, "unmodelled_losses": 101}, 0.0, "invalid"),  # the worst counts
    ],
)
def test_real_clock(seen: dict[str, Any], steal: float | None, verdict: str) -> None:
    seen = {"frame_hops": HOPS, "lateness_ns": {"p99": seen.pop("p99")}, **seen}
    judged = real_clock(seen, smallest_hop_ns=1000, dilation=1000, steal=steal)
    assert judged.verdict == verdict
    assert judged.reasons, "a real clock's lateness is always stated"
    assert bool(judged.advice) == (verdict != "good")


@pytest.mark.parametrize(
    ("p99_ns", "said"),
    [(999, "999 ns"), (1000, "1 us"), (1500, "1.5 us"), (1e6, "1 ms"), (2.5e9, "2.5 s")],
)
def test_times_on_the_wall_have_the_largest_unit_that_fits(p99_ns: float, said: str) -> None:
    (reason,) = real_clock({"lateness_ns": {"p99": p99_ns}}, smallest_hop_ns=10**6, dilation=10**6, steal=None).reasons
    assert f"at most {said} late" in reason and reason.endswith("of the smallest hop (1e+03 s of wall time)")


def test_without_a_cable_no_share_is_known() -> None:
    assert smallest_hop_ns([], 4096) == 0.0
    judged = real_clock({}, smallest_hop_ns=0.0, dilation=10, steal=None)
    assert judged.verdict == "good" and "at most 0 ns late, 0.00%" in judged.reasons[0]


@pytest.mark.parametrize("what", ["flagged", "unmodelled_losses"])
def test_of_no_frame_hop_one_is_more_than_a_few(what: str) -> None:
    assert virtual_clock({what: 1}).verdict == "invalid"


def test_each_advice_is_given_once() -> None:
    judged = virtual_clock({"frame_hops": HOPS, "controller_timeouts": 1, "tables_changed": 1, "flagged": 1})
    silent(judged, {"event": "controller_timeout", "who": "agent", "reason": "none"})
    assert len(judged.reasons) == 4 and judged.advice.count("see logs/controller.log") == 1
    assert judged.to_dict() == {"verdict": "doubtful", "reasons": judged.reasons, "advice": judged.advice}


def test_the_dilation_advised_would_be_enough() -> None:
    seen = {"frame_hops": HOPS, "lateness_ns": {"p99": 120_000}}
    judged = real_clock(seen, smallest_hop_ns=1000, dilation=1000, steal=0)
    assert "dilation: 100000" in judged.advice[0]
    assert real_clock(seen, smallest_hop_ns=1000, dilation=100_000, steal=0).verdict == "good"


def test_the_smallest_hop_is_the_fastest_cables_frame_and_delay() -> None:
    wire_bits = 8 * (4096 + 14 + 20 + 8 + 12 + 4 + 4 + 20)
    assert smallest_hop_ns([(400e9, 500), (100e9, 0)], 4096) == pytest.approx(wire_bits / 100)
    assert smallest_hop_ns([(400e9, 500)], 4096) == pytest.approx(wire_bits / 400 + 500)


def test_a_verdict_never_gets_better() -> None:
    judged = Fidelity("good")
    judged.worsen("invalid", "a")
    judged.worsen("doubtful", "b")
    assert (judged.verdict, judged.reasons) == ("invalid", ["a", "b"])


def test_steal_is_the_share_of_jiffies_since(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 100 800 0 0 0 50 7 0\ncpu0 1 2 3\n")
    meter = StealMeter(stat)
    stat.write_text("cpu  150 0 150 1000 0 0 0 150 7 0\n")
    assert meter.share() == pytest.approx(100 / 400)
    stat.write_text("nonsense\n")
    assert meter.share() is None
    assert StealMeter(tmp_path / "missing").share() is None


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (
            {"event": "controller_timeout", "who": "agent", "reason": "no answer in 5 s"},
            "agent did not answer: no answer",
        ),
        ({"event": "controller_stopped", "pid": 77}, "controller was stopped (process 77)"),
        ({"event": "holder_died"}, "namespaces ended"),
        ({"event": "holder_stopped"}, "namespaces was stopped"),
    ],
)
def test_who_did_not_answer_makes_a_run_doubtful(event: dict[str, Any], says: str) -> None:
    judged = Fidelity("exact")
    silent(judged, {"event": "worker_lost", "rank": 1})
    assert judged.verdict == "exact"
    silent(judged, event)
    assert judged.verdict == "doubtful" and says in judged.reasons[0]


@pytest.mark.parametrize("verdict", ["invalid", "doubtful"])
def test_a_report_warns_of_invalid_figures_where_they_are(verdict: str) -> None:
    """Why it warns comes before the first figure."""
    row = {
        "collective": None, "flow": "0->1", "algorithm": "write", "ranks": 2, "size_bytes": 4096, "iteration": 0,
        "time_ns": 7000.0, "algbw_Bps": 1e9, "busbw_Bps": 1e9, "wrong": 0,
    }  # fmt: skip
    text = report(
        name="x", error=None, clock="real", fidelity={"verdict": verdict, "reasons": ["it was late"], "advice": []},
        results=[row, row | {"flow": None, "algorithm": "a script"}], tables={"drops": [], "ports": []}, events=[],
        hops={}, environment={}, metrics_sha256="0",
    )  # fmt: skip
    before, _, figures = text.partition("## Results")[2].partition("|")
    assert ("invalid" in before and "it was late" in before) == (verdict == "invalid")
    assert "| flow 0->1 " in figures and "| tasks " in figures
