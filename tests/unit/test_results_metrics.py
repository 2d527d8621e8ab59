"""Metrics: collective time, bandwidths, and the hash that says whether two runs agree."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.frames.metrics import (
    counter_rows,
    counter_totals,
    metrics_sha256,
    nanoseconds,
    picoseconds,
    rank_rows,
    result_rows,
)
from tests.parts.fake_lab import counters
from tests.parts.measurements import flow, line, step

picos = st.integers(min_value=0, max_value=10**15)


@given(picos)
def test_picoseconds_survive_the_way_through_float_nanoseconds(ps: int) -> None:
    assert picoseconds(nanoseconds(ps)) == ps
    assert len(repr(nanoseconds(ps)).partition(".")[2]) <= 3


@given(st.lists(st.tuples(picos, st.integers(1, 10**12)), min_size=2, max_size=16), st.randoms())
def test_a_collective_lasts_from_the_first_call_to_the_last_return(
    spans: list[tuple[int, int]], order: random.Random
) -> None:
    lines = [line(rank, start / 1000, (start + length) / 1000) for rank, (start, length) in enumerate(spans)]
    order.shuffle(lines)
    (row,) = result_rows(rank_rows(lines), [step(len(spans))])
    expected = max(s + length for s, length in spans) - min(s for s, _ in spans)
    assert picoseconds(row["time_ns"]) == expected
    assert abs(row["algbw_Bps"] * expected / 1e12 - (1 << 20)) < 1e-6
    assert abs(row["busbw_Bps"] / row["algbw_Bps"] - 2 * (len(spans) - 1) / len(spans)) < 1e-12


def test_bandwidths_are_those_of_nccl_tests() -> None:
    lines = [line(rank, 0, 1e6, size_bytes=10**9) for rank in range(4)]
    factors = {"all_reduce": 1.5, "reduce_scatter": 0.75, "all_gather": 0.75}
    for collective, factor in factors.items():
        (row,) = result_rows(rank_rows(lines), [step(4, collective)])
        assert (row["algbw_Bps"], row["busbw_Bps"]) == (1e12, factor * 1e12)


def test_an_operation_that_not_all_ranks_finished_is_no_result() -> None:
    lines = [line(0, 0, 10), line(1, 0, 10), line(0, 20, 30, iteration=1)]
    assert [r["iteration"] for r in result_rows(rank_rows(lines), [step(2)])] == [0]
    assert result_rows(rank_rows([flow(1, 0, 10)]), [{"kind": "flows"}]) == []


def test_a_size_named_twice_gives_two_results() -> None:
    lines = [line(0, 0, 10), line(1, 0, 10), line(0, 20, 50), line(1, 20, 50)]
    assert [r["time_ns"] for r in result_rows(rank_rows(lines), [step(2)])] == [10, 30]


def test_a_flow_lasts_until_its_senders_last_completion_and_its_receiver_says_what_is_wrong() -> None:
    (row,) = result_rows(rank_rows([flow(0, 100, 190_000, wrong=3), flow(1, 100, 200_100)]), [{"kind": "flows"}])
    assert (row["flow"], row["collective"], row["algorithm"], row["ranks"]) == ("1->0", None, "write", 2)
    assert (row["time_ns"], row["wrong"]) == (200_000, 3)
    assert row["algbw_Bps"] == row["busbw_Bps"] == 5e10


def test_what_takes_no_time_has_no_bandwidth() -> None:
    (row,) = result_rows(rank_rows([line(0, 5, 5)]), [step(1)])
    assert (row["time_ns"], row["algbw_Bps"], row["busbw_Bps"]) == (0, None, None)


def test_results_come_in_the_order_of_emulated_time() -> None:
    lines = [line(r, t, t + 1, size_bytes=s) for t, s in ((300, 8), (100, 64), (200, 16)) for r in (1, 0)]
    assert [r["size_bytes"] for r in result_rows(rank_rows(lines), [step(2)])] == [64, 16, 8]
    assert [r["rank"] for r in rank_rows(lines)] == [0, 1] * 3


def sha(lines: list[dict[str, Any]], counted: dict[str, Any]) -> str:
    ranks = rank_rows(lines)
    return metrics_sha256(result_rows(ranks, [step(2)]), ranks, counted)


def test_the_hash_heeds_what_was_measured_and_nothing_else() -> None:
    lines = [line(0, 0, 10), line(1, 0, 10.5)]
    reference = sha(lines, counters())
    assert sha(lines[::-1], counters()) == reference, "order of arrival"
    assert sha([line(0, 0.0, 10.0), lines[1]], counters()) == reference, "5 and 5.0"
    assert sha(lines, counters(fidelity={"fences": 99}, time_ns=7)) == reference, "the machine"
    two = [{"switch": name, "frames_in": 1} for name in ("sw0", "sw1")]
    assert sha(lines, counters(switches=two)) == sha(lines, counters(switches=two[::-1])), "order of counters"
    assert sha([line(0, 0, 10), line(1, 0, 10.501)], counters()) != reference, "a picosecond"
    assert sha(lines, counters(nics=[{"nic": "h0", "rank": 0, "retransmitted": 3}])) != reference, "a counter"
    assert sha(lines, counters(drops=[{"node": "sw0", "port": 1, "reason": "tail", "count": 1}])) != reference, "a drop"


def test_totals_add_up_drops_by_reason_and_what_was_sent_again() -> None:
    drops = [
        {"node": "sw0", "port": p, "reason": r, "count": c, "headers": ""}
        for p, r, c in ((1, "tail", 3), (2, "tail", 4), (2, "cable", 1))
    ]
    assert counter_totals(counters(drops=drops)) == {
        "drops": {"cable": 1, "tail": 7},
        "ecn_marked": 0,
        "pause_rx": 0,
        "retransmitted": 2,
    }
    assert counter_totals({})["drops"] == {}


def test_a_ports_drops_are_summed_in_its_row() -> None:
    (port,) = counter_rows({"ports": [{"node": "sw0", "port": 1, "drops": {"tail": 2, "cable": 3}}]})["ports"]
    assert port["drops"] == 5


@given(st.lists(st.tuples(picos, st.integers(0, 10**12)), min_size=2, max_size=16), st.randoms())
def test_host_time_and_bytes_are_means_over_the_ranks_in_whatever_order(
    taken: list[tuple[int, int]], order: random.Random
) -> None:
    lines = [line(k, 0, 1, host_ns=ps / 1000, sent_bytes=sent) for k, (ps, sent) in enumerate(taken)]
    order.shuffle(lines)
    (row,) = result_rows(rank_rows(lines), [step(len(taken))])
    assert row["host_ns"] == sum(ps for ps, _ in taken) / (1000 * len(taken))
    assert row["sent_bytes"] == sum(sent for _, sent in taken) / len(taken)
    del lines[0]["host_ns"]
    assert result_rows(rank_rows(lines), [step(len(taken))])[0]["host_ns"] is None


def test_ports_have_rates_and_shares_of_their_cables() -> None:
    """100 frames of 1,000 bytes with FCS in 2 us: 50 GB/s; with 20 bytes of gap each 408 of 1,000 Gb/s."""
    port = {"node": "sw0", "port": 1, "tx_frames": 100, "tx_bytes": 100_000, "rx_frames": 0, "rx_bytes": 0}
    links = [{"node": "sw0", "port": 1, "rate_bps": 10**12}]
    counted = {"ports": [port, {**port, "port": 2}], "links": links, "time_ns": 2000.0}
    one, without = counter_rows(counted)["ports"]
    assert (one["rate_bps"], one["tx_Bps"], one["rx_Bps"]) == (10**12, 50e9, 0)
    assert (one["tx_util"], one["rx_util"]) == (pytest.approx(0.408), 0)
    assert without["rate_bps"] is None and without["tx_Bps"] == 50e9 and "tx_util" not in without
    assert "tx_Bps" not in counter_rows({"ports": [port]})["ports"][0]
