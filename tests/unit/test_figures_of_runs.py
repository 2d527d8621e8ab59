"""The figures that a run leaves behind: each by its definition, on rows that are made up."""

from __future__ import annotations

from typing import Any

import pytest

from results.figures.checkpoints import account
from results.figures.keys import differ, hashable, raw, value_at, within
from results.figures.scaled import Scaled
from results.figures.serving import served
from results.figures.summary import figure_label, of_steps, summarize
from results.figures.timeline import steps
from results.figures.values import amount, distinct, full, number, percentile, size_label

# --- flows


def flow(start_ns: float, time_ns: float, rate: float, slowdown: float | None) -> dict[str, Any]:
    return {"flow": "f", "size_bytes": 1000, "start_ns": start_ns, "time_ns": time_ns, "algbw_Bps": rate,
            "slowdown": slowdown}  # fmt: skip


def test_flows_are_summed_up_from_the_first_ones_start_to_the_last_ones_end() -> None:
    """Of 5 and 9 us, the first from 2 us on, the second from 4 us on; one has no ideal time, one no rate."""
    rows = [flow(2000, 5000, 3e9, 2.0), flow(4000, 9000, 1e9, 4.0), flow(4000, 5000, 0, None)]
    found = summarize(rows, {"drops": {"tail": 2, "crc": 3}, "ecn_marked": 5, "pause_rx": 7, "retransmitted": 11})
    assert found == {
        "flows": 3, "last_us": 11.0, "time_p50_us": 5.0, "time_p99_us": pytest.approx(8.92), "slowdown_p50": 3.0,
        "slowdown_p99": pytest.approx(3.98), "jain": pytest.approx((3 + 1) ** 2 / (2 * (9 + 1))),
        "goodput_Gbps": pytest.approx(3000 * 8 / 11_000), "drops": 5, "ecn_marked": 5, "pause_rx": 7,
        "retransmitted": 11,
    }  # fmt: skip
    assert summarize([], {}) == {"drops": 0, "ecn_marked": 0, "pause_rx": 0, "retransmitted": 0}


def test_programs_are_summed_up_by_the_size_of_a_message() -> None:
    """Two that move 8 bytes in 1 and 3 us, at 2 and 1 GB/s; one that says its whole time alone, and failed."""
    said = {"program": "ib_write_lat", "algorithm": "ib_write_lat", "size_bytes": 8, "code": 0}
    rows = [said | {"time_ns": 1000.0, "algbw_Bps": 2e9}, said | {"time_ns": 3000.0, "algbw_Bps": 1e9}]
    assert summarize(rows, {}).items() >= {"time_us_8": 2.0, "rate_GBps_8": 3.0, "programs_failed": 0}.items()
    other = {"program": "mine", "algorithm": "mine", "size_bytes": 0, "time_ns": 7000.0, "code": 3}
    found = summarize([*rows, other], {})
    assert (found["time_us_8_ib_write_lat"], found["program_us_mine"], found["programs_failed"]) == (2.0, 7.0, 1)


@pytest.mark.parametrize(("share", "value"), [(0.0, 10), (0.25, 15), (0.5, 20), (0.9, 36), (1.0, 40)])
def test_percentiles_are_linear_between_the_two_nearest_ranks(share: float, value: float) -> None:
    assert percentile([40, 10, 20], share) == pytest.approx(value)


# --- steps of tasks


def row(rank: int, task: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    return {
        "step": 0, "iteration": 0, "rank": rank, "task": task, "kind": "forward", "stream": task,
        "operation": "compute", "group": "", "size_bytes": 0, "start_ns": start, "end_ns": end,
    } | more  # fmt: skip


def test_means_over_iterations_are_in_the_units_in_which_they_are_shown() -> None:
    """Two iterations of 100 and 300 ns, in which rank 1 computes for half as long as rank 0."""
    rows = [
        row(rank, "f", start, start + took // (1 + rank), iteration=k)
        for k, (start, took) in enumerate([(0, 100), (500, 300)])
        for rank in (0, 1)
    ]
    found = of_steps(rows, [{"tokens": 40, "ideal_ns": 50, "memory": {"peak": 2_500_000_000}}])
    assert found == {
        "step_us": pytest.approx(0.2), "compute_us": pytest.approx(0.15), "exposed_us": 0, "bubble_us":
        pytest.approx(0.05), "mfu": pytest.approx((50 / 100 + 50 / 300) / 2), "tokens_per_s":
        pytest.approx((40e9 / 100 + 40e9 / 300) / 2), "memory_GB": 2.5,
    }  # fmt: skip
    two = of_steps([*rows, *({**one, "step": 1} for one in rows)], [{}, {}])
    assert {"step_us_0", "step_us_1"} <= two.keys()


def test_a_checkpoints_account_is_in_the_summary_and_in_json() -> None:
    told = {"mode": "sync", "every": 4, "bytes": 8, "copy_ns": 0.0, "restart_ns": 20.0, "mtbf_ns": 80_000.0, "gpus": 8,
            "power_w": 1000.0, "price": 2.0}  # fmt: skip
    rows = [
        row(0, "f", 0, 100), row(0, "f", 0, 100, step=1), row(0, "c", 100, 150, step=1, kind="checkpoint"),
        row(0, "r", 0, 30, step=2, kind="checkpoint"),
    ]  # fmt: skip
    its = account(told, [[one] for one in steps(rows)])
    found = of_steps(rows, [{"checkpoint": told}, {}, {}])
    assert (found["checkpoint_us"], found["goodput"], found["best_steps"]) == (0.05, its.goodput, its.best_steps)
    shown = its.row()
    assert (shown["mode"], shown["every"], shown["pause_ns"], shown["goodput"]) == ("sync", 4, 50, its.goodput)


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (Scaled((4,), 16, 2e6, 0.0123, 0.5, 1234.0), "4 layers, from 1/16 of bytes, computations and latencies: "),
        (
            Scaled((1, 2, 4), 16, 2e6, 0.0123, 0.5, 1234.0),
            "4 layers, from 1 and 2, and 1/16 of bytes, computations and latencies: ",
        ),
        (Scaled((1, 2, 4), 1, 2e6, 0.0123, 0.5, 1234.0), "4 layers, from 1 and 2: "),
    ],
)
def test_a_scaled_step_says_what_it_follows_from(of: Scaled, text: str) -> None:
    assert f"{of}" == f"{text}2.0000 ms, within 1.23 %; MFU 50.0 %, 1234 tokens/s"
    its = of.row()
    assert (its["layers"], its["by"], its["from_layers"]) == (4, of.by, [1, 2] if len(of.layers) > 1 else None)
    assert "memory_bytes" not in its
    assert Scaled((4,), 1, 1.0, 0.0, 0.0, 0.0, 7).row()["memory_bytes"] == 7


# --- serving


def test_a_shared_step_has_the_time_of_its_tokens_when_those_who_answer_have_them() -> None:
    """Three tokens in 300 ns from the first start on; rank 1 answers nobody."""
    rows = [row(0, "d0.end", 100, 400), row(1, "d0.end", 100, 900)]
    (one,) = steps(rows)
    serving = {"kind": "decode", "answers": [0], "output": 3, "gpus": 2, "cost": None}
    assert served(one, {"tokens": 12, "serving": serving}) == {
        "between_tokens_ns": 100.0, "batch_ns": None, "tokens_per_s_gpu": pytest.approx(12e9 / 800 / 2),
        "tokens_per_cost": None,
    }  # fmt: skip
    assert served(one, {"tokens": 12}) == {}


def two_pools(cache_ns: float, begin: float) -> dict[str, Any]:
    """Rank 0 reads two prompts at once, rank 1 generates; the second one's cache is there then, and it joins later."""
    rows = [
        row(0, "p0.begin", 0, 1), row(0, "p0.end", 1, 10),
        row(1, "cache0.0", 10, 12, operation="recv", kind="cache", peer=0, size_bytes=8, tag="cache0"),
        row(1, "cache1.0", 10, cache_ns, operation="recv", kind="cache", peer=0, size_bytes=8, tag="cache1"),
        row(1, "d0.begin", begin, begin + 1), row(1, "d0.end", begin + 1, 30),
        row(1, "d1.begin", 30, 31), row(1, "d1.end", 31, 50),
    ]  # fmt: skip
    prefill = {"name": "p", "ranks": [0], "end": "p{}.end", "reads": True, "answers": False, "where": {},
               "iterations": [([0, 1], [0, 1], [])]}  # fmt: skip
    decode = {"name": "d", "ranks": [1], "end": "d{}.end", "reads": False, "answers": True, "where": {"0": 1},
              "iterations": [([0], [0], []), ([0, 1], [1], [])]}  # fmt: skip
    serving = {"kind": "requests", "gpus": 2, "cost": 3.0, "requests": [(0.0, 8, 3), (0.0, 8, 2)],
               "pools": [prefill, decode]}  # fmt: skip
    (one,) = steps(rows)
    return served(one, {"tokens": 5, "serving": serving})


@pytest.mark.parametrize(
    ("cache_ns", "begin", "otherwise"),
    [
        (25, 12, 0),  # behind the first iteration's begin
        (12, 12, 1),  # in time for it
        (31, 12, 1),  # too late for the second one, which followed at once
    ],
)
def test_a_request_whose_cache_came_sooner_or_later_would_have_joined_otherwise(
    cache_ns: float, begin: float, otherwise: int
) -> None:
    assert two_pools(cache_ns, begin)["otherwise"] == otherwise


def test_first_tokens_come_from_the_pool_that_reads() -> None:
    """At 10 ns; then at 30 and 50 of the first, at 50 of the second."""
    found = two_pools(25, 12)
    assert (found["first_token_p50_ns"], found["latency_p50_ns"]) == (10.0, 50.0)
    assert found["between_tokens_ns"] == pytest.approx((20 + 20 + 40) / 3)
    assert found["tokens_per_s_gpu"] == pytest.approx(5e9 / 50 / 2)
    assert found["tokens_per_cost"] == pytest.approx(5e9 / 50 * 3600 / 3)


# --- keys and values


def test_experiments_differ_down_to_mappings_with_other_keys() -> None:
    one: dict[str, Any] = {"fabric": {"topology": {"star": {"hosts": 2}}, "cable": {"rate": "1Gbps"}}, "seed": 1}
    other = {"fabric": {"topology": {"ring": {"nodes": 2}}, "cable": {"rate": "2Gbps"}}, "seed": 1, "name": "x"}
    assert list(differ([one, other])) == ["fabric.topology", "fabric.cable.rate", "name"]
    assert list(differ([one, one])) == []


def test_a_path_leads_through_mappings_and_lists() -> None:
    experiment = {"workload": [{"sizes": ["1KB", "2KB"]}], "seed": 3}
    paths = ["workload.0.sizes.1", "seed", "seed, other", "workload.1", "workload.x", "seed.deeper", "no"]
    assert [value_at(experiment, path) for path in paths] == ["2KB", 3, 3, None, None, None, None]
    assert [within(key, "fabric.cable") for key in ("fabric.cable", "fabric.cable.rate", "fabric.cables")] == [
        True, True, False
    ]  # fmt: skip
    for value in ({"b": 1, "a": [2]}, ["x"], "x", "", 3, None):
        assert raw(hashable(value)) == value
    assert hashable({"b": 1, "a": 2}) == hashable({"a": 2, "b": 1})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([{"fault": "loss", "on": "all"}, {"fault": "delay", "on": "nic:1"}], "loss, delay 0.on=all 1.on=nic:1"),
        ({"a": {"b": {"c": 1, "d": 0.5}}}, "a b.c=1 b.d=0.5"),
        ({"rate": None, "on": True}, "rate=none on=true"),
        ({"star": None}, "star"),
        ([1, 2], "1x2"),
        (["a", 1], '["a", 1]'),
        (1e9, "1e+09"),
        (65536.0, "65536"),
        ({}, "none"),
    ],
)
def test_all_of_a_value_is_in_a_table(value: Any, text: str) -> None:
    assert full(value) == text


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("400G", (400e9, "bps")), ("2k", None), ("2kbps", (2000.0, "bps")), ("2KiB", (2048.0, "B")),
        ("1.5MiB", (1.5 * (1 << 20), "B")), ("1.5e2 us", (150_000.0, "ns")), ("3B", (3.0, "B")), ("2Kibps", None),
        (7, (7.0, "")), (True, None),
    ],
)  # fmt: skip
def test_amounts_are_in_base_units(value: Any, found: tuple[float, str] | None) -> None:
    assert amount(value) == found


@pytest.mark.parametrize(
    ("size", "label"),
    [(1023, "1023 B"), (1024, "1 KiB"), (1280, "1.25 KiB"), (1300, "1.27 KiB"), (1 << 20, "1 MiB"), (1 << 30, "1 GiB")],
)
def test_sizes_have_the_largest_unit_that_fits(size: int, label: str) -> None:
    assert size_label(size) == label


@pytest.mark.parametrize(
    ("value", "text"),
    [(9999999.0, "9999999"), (1e7, "1e+07"), (-9999999.0, "-9999999"), (0.001, "0.001"), (1.5, "1.5")],
)
def test_numbers_have_no_power_of_ten_where_they_need_none(value: float, text: str) -> None:
    assert number(value) == text


def test_a_label_has_at_most_sixty_characters() -> None:
    long = [{"x": {"k": "a" * n}} for n in (56, 57)]
    assert distinct([long[0], "y"])[0] == "x" and distinct([*long])[0] == "x k=" + "a" * 56
    assert distinct(long)[1] == "x k=" + "a" * 54 + ".."


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("time_us_other_ring", "time (us), other, ring"),
        ("first_token_p99_us", "time to first token, 99th percentile (us)"),
        ("goodput_2", "share of the time that is work, step 2"), ("other_2", "other_2"),
    ],
)  # fmt: skip
def test_a_figures_name_says_what_it_is(name: str, label: str) -> None:
    assert figure_label(name) == label
