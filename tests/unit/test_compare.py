"""Runs and sweeps against each other: keys, figures, intervals, counters, limits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scipy import stats

from results.compare.comparison import Comparison, compare
from results.compare.counters import names as counter_names
from results.compare.differences import ABSENT, differences
from results.compare.interval import FEWEST, interval
from results.compare.limit import Limit, LimitError
from results.figures.draws import around_mean, t95
from results.store.load import load
from testbed.base.errors import InputError
from testbed.commands.compare import command
from tests.parts.stored_runs import EXPERIMENT, experiment, operation, stored, stored_sweep

PORT = {"node": "sw0", "port": 1, "peer": "h0:1", "tx_frames": 10, "drops": 0, "queue_max_bytes": 100}


def one(folder: Path, at: str, time_ns: float = 100.0, **changes: Any) -> Path:
    return stored(folder / at, [operation(time_ns)], experiment(**changes), metrics_sha256=f"{time_ns}{changes}")


def ran(*args: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(command, list(map(str, args)))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


def test_the_key_that_differs_is_named(tmp_path: Path) -> None:
    a, b = one(tmp_path, "a"), one(tmp_path, "b", 200.0, fabric__cable__rate="100Gbps", name="other")
    assert compare([a, b]).differing == {"fabric.cable.rate": ["400Gbps", "100Gbps"]}


def test_keys_within_steps_and_keys_of_one_side_are_named_by_their_path() -> None:
    more = experiment(seed=2)
    more["workload"][0]["chunk"] = "64KiB"
    assert differences([EXPERIMENT, more]) == {"seed": [1, 2], "workload.0.chunk": [ABSENT, "64KiB"]}
    other = experiment(fabric__topology={"ring": {"nodes": 4}})
    kinds = [{"star": {"hosts": 4}}, {"ring": {"nodes": 4}}]
    assert differences([EXPERIMENT, other]) == {"fabric.topology": kinds}


def test_a_run_against_itself_and_against_its_twin(tmp_path: Path) -> None:
    a, twin = one(tmp_path, "a"), one(tmp_path, "b")
    assert compare([a, a]).same and compare([a, twin]).same
    assert "nothing differs" in ran(a, twin)[1]
    assert not compare([a, one(tmp_path, "c", 101.0)]).same


def test_ratios_are_of_the_means_over_iterations(tmp_path: Path) -> None:
    a = stored(tmp_path / "a", [operation(100), operation(300, iteration=1)])
    b = stored(tmp_path / "b", [operation(100), operation(100, iteration=1)], metrics_sha256="1")
    (time,) = (f for f in compare([a, b]).figures if f.name == "time_us_1048576")
    assert (time.mean(0), time.mean(1), time.ratio(1)) == (0.2, 0.1, 0.5)
    assert time.interval(1) is None  # one seed says nothing of the spread


def test_a_mean_over_other_sizes_is_not_compared(tmp_path: Path) -> None:
    a = stored(tmp_path / "a", [operation(100), operation(10, size=1024)])
    b = stored(tmp_path / "b", [operation(100)], metrics_sha256="1")
    names = [f.name for f in compare([a, b]).figures]
    assert "busbw_GBps" not in names and {"time_us_1048576", "time_us_1024"} < set(names)
    assert "left out: bus bandwidth (GB/s), a mean over sizes that differ" in ran(a, b)[1]


def test_points_of_sweeps_meet_by_their_values_and_seeds_are_draws(tmp_path: Path) -> None:
    seeds = range(1, 7)
    draws = {s: 100.0 + (s * 37) % 11 for s in seeds}
    points = [({"fabric__topology__star__hosts": h, "seed": s}, h * draws[s]) for h in (2, 4) for s in seeds]
    faster = [(at, time / 2) for at, time in points if at["fabric__topology__star__hosts"] == 4]
    a, b = stored_sweep(tmp_path / "a", points), stored_sweep(tmp_path / "b", faster, transport__cc="dcqcn")
    found = compare([a, b])
    assert found.differing == {"transport.cc": ["none", "dcqcn"]}
    assert [at for at, _ in found.points] == [{"fabric.topology.star.hosts": 4}]
    assert found.left_out == [(0, {"fabric.topology.star.hosts": 2})]
    (time,) = (f for f in found.figures if f.name == "time_us_1048576")
    spread = time.interval(1)
    assert time.ratio(1) == pytest.approx(0.5) and spread is not None and spread.stands_out
    assert spread.low == pytest.approx(0.5) == spread.high  # for every seed it is just half
    code, text = ran(a, b)
    assert code == 0 and "0.5*" in text and "only in A: hosts = 2" in text


def test_a_single_run_is_compared_with_the_point_that_it_names(tmp_path: Path) -> None:
    swept = stored_sweep(tmp_path / "a", [({"fabric__topology__star__hosts": h}, 100.0 * h) for h in (2, 4, 8)])
    (at, sides), *rest = compare([swept, one(tmp_path, "b", 100.0)]).points
    assert at == {"fabric.topology.star.hosts": 4} and not rest and [len(side) for side in sides] == [1, 1]


@pytest.mark.parametrize("paired", [False, True])
def test_intervals_of_ten_seeds_cover_the_truth_as_often_as_they_say(paired: bool) -> None:
    draw = np.random.default_rng(20)
    rounds, covered = 400, 0
    for _ in range(rounds):
        a = np.exp(draw.normal(0, 0.2, 10))
        noise = np.exp(draw.normal(0, 0.15, 10))
        b = 1.1 * (a * noise if paired else np.exp(draw.normal(0, 0.2, 10)) * noise)
        truth = 1.1 * float(np.exp(0.15**2 / 2))
        found = interval(list(a), list(b), paired=paired)
        assert found is not None
        covered += found.low <= truth <= found.high
    assert 0.917 * rounds <= covered <= 0.983 * rounds  # 95 %, three standard deviations of the count


def test_five_seeds_of_which_one_is_far_from_the_others_have_an_interval_that_is_right_and_finite() -> None:
    """One run in five has a timeout, and takes three times as long."""
    draw = np.random.default_rng(3)

    def times() -> list[float]:
        return list(draw.normal(100, 3, 5) * np.where(draw.random(5) < 0.2, 3, 1))

    rounds, covered, widest = 400, 0, 0.0
    for _ in range(rounds):
        found = interval(times(), [1.3 * time for time in times()], paired=False)
        assert found is not None
        covered += found.low <= 1.3 <= found.high
        widest = max(widest, found.high / found.low)
    assert covered >= 0.917 * rounds and widest < 12, "resampled, some are wider than ten powers of ten"


def test_students_t_is_that_of_scipy() -> None:
    for freedom in range(1, 200):
        assert t95(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=2e-3)
    low, high = around_mean([9.0, 10.0, 14.0]) or (0, 0)
    assert (low, high) == pytest.approx(stats.t.interval(0.95, 2, 11, stats.sem([9, 10, 14])), rel=1e-3)
    assert around_mean([9.0, 10.0]) is None and around_mean([0.0, 0.0, 3.0]) == (0.0, pytest.approx(5.303, abs=1e-3))


def test_intervals_of_figures_that_may_be_zero_are_of_the_difference() -> None:
    found = interval([0, 0, 1, 0, 2, 0, 1, 1], [9, 11, 10, 8, 12, 9, 10, 11], paired=False)
    assert found is not None and not found.ratio and found.stands_out and found.low < 9.375 < found.high
    same = interval([0.0] * 6, [0.0] * 6, paired=True)
    assert same is not None and (same.low, same.high, same.stands_out) == (0, 0, False)
    assert interval([1.0] * (FEWEST - 1), [2.0] * 9, paired=False) is None


def test_counters_that_moved_and_where(tmp_path: Path) -> None:
    drop = {"node": "sw0", "port": 2, "reason": "buffer", "count": 7}
    before = {"ports": [PORT, {**PORT, "port": 2}], "drops": []}
    after = {"ports": [PORT, {**PORT, "port": 2, "tx_frames": 30, "queue_max_bytes": 50}], "drops": [drop]}
    a = stored(tmp_path / "a", [operation(1)], frames=before)
    b = stored(tmp_path / "b", [operation(1)], frames=after, metrics_sha256="1")
    found = {f"{c.frame}.{c.name}": (c.values, c.place, c.there) for c in compare([a, b]).counters}
    assert found == {
        "drops.buffer": ((0, 7), "sw0:2", (0, 7)),
        "ports.tx_frames": ((20, 40), "sw0:2", (10, 30)),
        "ports.queue_max_bytes": ((100, 100), "sw0:2", (100, 50)),  # a watermark: the highest counts
    }


@pytest.mark.parametrize(
    ("limit", "code"),
    [("busbw < 0.98", 1), ("busbw<0.4", 0), ("time > 1.9", 1), ("time_us_1048576 >= 2", 1), ("time_us_1048576 > 2", 0),
     ("busbw != 1", 1), ("drops > 1", 0)],
)  # fmt: skip
def test_limits(tmp_path: Path, limit: str, code: int) -> None:
    a, b = one(tmp_path, "a"), one(tmp_path, "b", 200.0)
    done, text = ran(a, b, "--fail-if", limit)
    assert done == code and (f"failed: {limit}" in text) is bool(code)
    told = json.loads(ran(a, b, "--fail-if", limit, "--json")[1])
    assert bool(told["failed_if"]) is bool(code)


@pytest.mark.parametrize("limit", ["busbw", "busbw < fast", "busbw ~ 0.98", "busbw < nan", "", "a b < 1"])
def test_limits_that_cannot_be_read(limit: str) -> None:
    with pytest.raises(LimitError, match="is no limit"):
        Limit.parse(limit)


def test_a_figure_that_no_run_has_and_a_side_that_failed(tmp_path: Path) -> None:
    a = stored_sweep(tmp_path / "a", [({"seed": 1}, 100.0), ({"seed": 2}, 100.0)])
    failed = stored_sweep(tmp_path / "b", [({"seed": 1}, 100.0), ({"seed": 2}, "deadlock")])
    with pytest.raises(LimitError, match="no run has a figure called 'bubw'"):
        Limit.parse("bubw < 1").met(compare([a, a]))
    assert Limit.parse("busbw < 0.1").met(compare([a, failed])) == [f"{failed}: deadlock"]


@pytest.mark.parametrize(
    ("limit", "code"),
    [("nics.retransmitted > 1", 1), ("nics.retransmitted < 1", 0), ("nics.STOOD >= 1", 1), ("nics.STOOD > 1", 0),
     ("switches.frames_in != 1", 0), ("drops.lossy > 1", 0)],
)  # fmt: skip
def test_limits_of_counters(tmp_path: Path, limit: str, code: int) -> None:
    nic = {"nic": "h0", "rank": 0, "retransmitted": 4}
    a = stored(tmp_path / "a", [operation(1)], frames={"nics": [nic]})
    b = stored(tmp_path / "b", [operation(1)], frames={"nics": [{**nic, "retransmitted": 9}]}, metrics_sha256="1")
    stood = next(name for name in counter_names("nics") if name != "retransmitted")
    limit = limit.replace("STOOD", stood)
    assert ran(a, b, "--fail-if", limit)[0] == code


@pytest.mark.parametrize(
    ("name", "meant"),
    [("nics.retransmited", "nics.retransmitted"), ("nic.retransmitted", "nics.retransmitted"), ("ports.", ""),
     ("qps.cnps", ""), ("drops.headrom", "drops.headroom"), ("nics.engine_used_bytes", ""),
     ("accelerators.shared_used", "accelerators.shared_used_max")],
)  # fmt: skip
def test_a_counter_that_there_is_not(tmp_path: Path, name: str, meant: str) -> None:
    with pytest.raises(LimitError, match="there is no counter") as caught:
        Limit.parse(f"{name} > 1").met(compare([one(tmp_path, "a"), one(tmp_path, "b", 2.0)]))
    assert not meant or f"did you mean {meant}" in caught.value.hint


def test_a_mean_over_other_sizes_is_refused_with_the_reason(tmp_path: Path) -> None:
    a = stored(tmp_path / "a", [operation(100), operation(10, size=1024)])
    b = stored(tmp_path / "b", [operation(100)], metrics_sha256="1")
    with pytest.raises(LimitError, match="the sizes are not the same") as caught:
        Limit.parse("busbw < 1").met(compare([a, b]))
    assert caught.value.hint == "1 KiB, 1 MiB against 1 MiB; a figure of one size is time_us_1048576"
    assert Limit.parse("time_us_1048576 > 1").met(compare([a, b])) == []


def test_levels_are_no_counters(tmp_path: Path) -> None:
    frames = [
        {"nics": [{"nic": "h0", "rank": 0, "engine_used_bytes": n}],
         "switches": [{"switch": "sw0", "buffer_used_bytes": n}],
         "accelerators": [{"switch": "sw0", "shared_used": n, "slots_free": n}]}
        for n in (0, 5)
    ]  # fmt: skip
    a, b = (stored(tmp_path / f"r{k}", [operation(1)], frames=of, metrics_sha256=str(k)) for k, of in enumerate(frames))
    assert compare([a, b]).counters == []


NOISE = {s: 100.0 + (s * 37) % 11 for s in range(1, 8)}


def sides(folder: Path, factor: float, spread: float = 0.0) -> tuple[Path, Path]:
    """A sweep over seeds, and one whose times are `factor` of them, a little more or less by seed."""
    a = stored_sweep(folder / "a", [({"seed": s}, time) for s, time in NOISE.items()])
    points = [({"seed": s}, time * factor * (1 + spread * (-1) ** s)) for s, time in NOISE.items()]
    return a, stored_sweep(folder / "b", points)


@pytest.mark.parametrize(
    ("factor", "spread", "limit", "code"),
    [(1.5, 0.01, "time > 1", 1), (1.02, 0.05, "time > 1", 0), (1.5, 0.01, "time > 2", 0), (1.0, 0.0, "time >= 1", 0)],
)
def test_limits_of_significant_differences(tmp_path: Path, factor: float, spread: float, limit: str, code: int) -> None:
    a, b = sides(tmp_path, factor, spread)
    assert ran(a, b, "--fail-if", limit, "--significant")[0] == code
    if factor == 1.02:
        assert ran(a, b, "--fail-if", limit)[0] == 1


def test_what_is_significant_is_not_guessed(tmp_path: Path) -> None:
    a, b = one(tmp_path, "a"), one(tmp_path, "b", 200.0)
    assert "nobody can tell" in ran(a, b, "--fail-if", "time > 1", "--significant")[1]
    with pytest.raises(LimitError, match="counters have no interval"):
        Limit.parse("drops.lossy > 1", significant=True)
    with pytest.raises(InputError, match="there is none"):
        ran(a, b, "--significant")


def test_of_three_sides_nothing_to_nothing_is_one(tmp_path: Path) -> None:
    frames = [{"nics": [{"nic": "h0", "rank": 0, "retransmitted": n}]} for n in (0, 0, 5)]
    paths = [
        stored(tmp_path / f"r{k}", [operation(1)], frames=of, metrics_sha256=str(k)) for k, of in enumerate(frames)
    ]
    (told,) = Limit.parse("nics.retransmitted > 1").met(compare(paths))
    assert str(paths[2]) in told and "inf" in told
    assert "Infinity" not in ran(*paths, "--json")[1]


def test_sides_that_are_not_whole_pass_no_limit(tmp_path: Path) -> None:
    points = [({"seed": s}, 100.0) for s in (1, 2, 3)]
    a, b = stored_sweep(tmp_path / "a", points), stored_sweep(tmp_path / "b", points[:2])
    told = json.loads((b / "sweep.json").read_text())
    (b / "sweep.json").write_text(json.dumps({**told, "total": 3}))
    assert Limit.parse("busbw < 0.1").met(compare([a, b])) == [f"{b}: 2 of 3 points are done"]
    hosts = [({"fabric__topology__star__hosts": h}, 100.0) for h in (2, 4)]
    c, d = stored_sweep(tmp_path / "c", hosts), stored_sweep(tmp_path / "d", hosts[:1])
    assert "hosts = 4" in Limit.parse("busbw < 0.1").met(compare([c, d]))[0]
    assert Limit.parse("busbw < 0.1").met(compare([c, one(tmp_path, "e", 100.0)])) == []  # a run is one point


def test_counters_of_unequal_numbers_of_runs_are_not_compared(tmp_path: Path) -> None:
    a = stored_sweep(tmp_path / "a", [({"seed": s}, 100.0) for s in (1, 2, 3)])
    b = stored_sweep(tmp_path / "b", [({"seed": s}, 100.0) for s in (4, 5)])
    assert compare([a, b]).counters == [] and "different numbers of runs" in ran(a, b)[1]
    assert "different numbers" in Limit.parse("nics.retransmitted > 1").met(compare([a, b]))[0]


def test_the_same_seeds_are_pairs_and_others_are_left_out(tmp_path: Path) -> None:
    """At each seed that both have the time is the same: what one side alone has makes no difference."""
    slow = {s: 1000.0 * s for s in (11, 12, 13)}
    a = stored_sweep(tmp_path / "a", [({"seed": s}, time) for s, time in (NOISE | slow).items()])
    b = stored_sweep(tmp_path / "b", [({"seed": s}, time) for s, time in (NOISE | {21: 5.0}).items()])
    found = compare([a, b])
    (time,) = (f for f in found.figures if f.name == "time_us_1048576")
    assert (time.ratio(1), time.paired(1), time.dropped) == (1.0, True, ((11, 12, 13), (21,)))
    spread = time.interval(1)
    assert spread is not None and (spread.low, spread.high) == (1, 1)
    text = ran(a, b, "--all")[1]
    assert "left out of A: 11, 12, 13" in text and "left out of B: 21" in text and "95% confidence" in text
    assert [len(runs) for runs in found._runs[0]] == [len(NOISE)] * 2  # counters likewise
    told = json.loads(ran(a, b, "--json")[1])
    assert told["level"] == 0.95 and told["figures"][0]["dropped_seeds"] == [[11, 12, 13], [21]]


def test_a_total_that_a_seed_does_not_have_is_nothing_and_not_missing(tmp_path: Path) -> None:
    """Timeouts are told only where there were any: 0, 0, 3 against 4, 4, 4."""
    a, b = (stored_sweep(tmp_path / name, [({"seed": s}, 100.0) for s in (1, 2, 3)]) for name in "ab")
    for path, counts in ((a, [0, 0, 3]), (b, [4, 4, 4])):
        for folder, count in zip(sorted(path.glob("*/summary.json")), counts, strict=True):
            summary = json.loads(folder.read_text())
            folder.write_text(json.dumps({**summary, "counters": {"timeouts": count} if count else {}}))
    figures = {f.name: f for f in compare([a, b]).figures}
    assert (figures["timeouts"].values, figures["timeouts"].ratio(1)) == (((0, 0, 3), (4, 4, 4)), 4.0)
    assert figures["timeouts"].dropped == ((), ()) and "trimmed" not in figures


def test_a_seed_that_failed_on_one_side_is_left_out_on_the_other(tmp_path: Path) -> None:
    a = stored_sweep(tmp_path / "a", [({"seed": s}, "deadlock" if s == 2 else NOISE[s]) for s in NOISE])
    b = stored_sweep(tmp_path / "b", [({"seed": s}, "deadlock" if s == 4 else NOISE[s] / 2) for s in NOISE])
    (time,) = (f for f in compare([a, b]).figures if f.name == "time_us_1048576")
    found = time.interval(1)
    assert time.dropped == ((4,), (2,)) and found is not None
    assert found.low == pytest.approx(0.5) == found.high  # each pair is just half


def test_sides_without_a_seed_in_common_are_compared_by_all_of_theirs(tmp_path: Path) -> None:
    a = stored_sweep(tmp_path / "a", [({"seed": s}, time) for s, time in NOISE.items()])
    b = stored_sweep(tmp_path / "b", [({"seed": s + 10}, time / 2) for s, time in NOISE.items()])
    c = stored_sweep(tmp_path / "c", [({"seed": s}, time / 4) for s, time in NOISE.items() if s > 2])
    (time,) = (f for f in compare([a, b, c]).figures if f.name == "time_us_1048576")
    assert time.dropped == ((1, 2), (), ()) and [time.paired(n) for n in (1, 2)] == [False, True]
    assert time.ratio(2) == pytest.approx(0.25) and list(map(len, time.values)) == [5, 7, 5]
    found = time.interval(1)
    assert found is not None and found.low < found.high


def test_the_same_figures_from_other_keys(tmp_path: Path) -> None:
    a = stored(tmp_path / "a", [operation(1)])
    b = stored(tmp_path / "b", [operation(1)], experiment(transport__cc="dcqcn"))
    text = ran(a, b)[1]
    assert "transport.cc" in text and "the same to the byte" in text and "nothing differs" not in text
    empty = [stored_sweep(tmp_path / n, [({"seed": 1}, "deadlock")]) for n in "cd"]
    assert not compare(empty).same


def test_a_run_of_an_older_version_lacks_columns_and_still_compares(tmp_path: Path) -> None:
    a, b = one(tmp_path, "a"), one(tmp_path, "b", 200.0)
    path = a / "metrics" / "results.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["fallback", "slowdown", "tx_bytes"]), path)
    assert load(a).rows("results")[0]["fallback"] is None
    assert compare([a, b]).figures == compare([one(tmp_path, "c"), b]).figures


def test_a_run_of_an_older_schema_is_marked(tmp_path: Path) -> None:
    a, b = one(tmp_path, "a"), one(tmp_path, "b", 200.0)
    state = json.loads((a / "state.json").read_text())
    (a / "state.json").write_text(json.dumps({k: v for k, v in state.items() if k != "schema"}))
    first, second, *_ = ran(a, b)[1].splitlines()
    assert "of an older version" in first and "of an older version" not in second


@pytest.mark.parametrize("file", ["summary.json", "metrics/results.parquet", "experiment.yaml"])
def test_a_damaged_run_is_named(tmp_path: Path, file: str) -> None:
    a, b = one(tmp_path, "a"), one(tmp_path, "b")
    (b / file).write_bytes(b"\xff{half")
    with pytest.raises(Exception, match="damaged") as caught:
        ran(a, b)
    assert str(b / file) in caught.value.where  # type: ignore[attr-defined]


def test_three_sides(tmp_path: Path) -> None:
    found: Comparison = compare([one(tmp_path, name, time) for name, time in (("a", 100.0), ("b", 200.0), ("c", 50.0))])
    (time,) = (f for f in found.figures if f.name.startswith("time"))
    assert [time.ratio(n) for n in range(3)] == [1, 2, 0.5]
    assert "C/A" in ran(*(side.path for side in found.sides))[1]


def test_a_page_has_the_same_tables(tmp_path: Path) -> None:
    a, b = one(tmp_path, "a"), one(tmp_path, "b", 200.0, fabric__cable__rate="<100Gbps>")
    code, _ = ran(a, b, "-o", tmp_path / "c.html", "--fail-if", "busbw < 1")
    page = (tmp_path / "c.html").read_text()
    assert code == 1 and "Limits that are met" in page and "fabric.cable.rate" in page and "&lt;100Gbps&gt;" in page
    assert "time (us), 1 MiB" in page and "<script" not in page and not re.search(r'(src|href)="(?!data:)', page)
