"""What pictures show: the drawn data, their ticks, limits and names. Figures are worked out here by hand."""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from results.figures.summary import figure_label
from results.figures.values import amount, amounts, distinct, full
from results.pictures.drawing import MOST_SERIES, SURE, Across, PlotError, Series, draw, new_figure, save
from results.pictures.drawn import write
from results.pictures.plots import PLOTS
from results.pictures.rates import of_pairs
from results.pictures.styles import STYLES, styled
from results.pictures.sweep_plot import sweep
from testbed.base.units import RATE, SIZE, TIME
from testbed.commands import plot

QPS = [(1, 16, 0), (2, 16, 0)]


def a_run(
    results: list[dict[str, Any]] | None = None, scale_up: Any = (), again: Any = (), **series: list[dict[str, Any]]
) -> Any:
    """A run of a 400 Gb/s fabric, sampled each microsecond, that has these series.

    `again`: (rank, number of its queue pair) and what it sent again, of so many packets.
    """
    columns = ["kind", "end_ns", "size_bytes", "slowdown"]
    return SimpleNamespace(
        name="some", results=pd.DataFrame(results or [], columns=columns), fastest_bps=400e9, thresholds={"ecn": [
            {"node": "sw0", "port": port, "priority": 3, "kmin_bytes": 50_000 * port, "kmax_bytes": 200_000}
            for port in (1, 2)
        ]}, experiment={"measure": {"sample": "1us"}, "fabric": {"nic": {"mtu": 4096}}},
        switches=pd.DataFrame({"switch": ["sw0"]}),
        qps=pd.DataFrame(
            [(*pair, "scale_up", 0, 1) for pair in scale_up] + [(*pair, "network", *n) for pair, n in again],
            columns=["rank", "qp", "path", "retransmitted", "tx_packets"],
        ),
        series=lambda name: pd.DataFrame(series[name]),
    )  # fmt: skip


def sent(*counts: tuple[float, int], qp: int = 0) -> list[dict[str, Any]]:
    rank, number, peer = QPS[qp]
    return [{"time_ns": t, "rank": rank, "qp": number, "peer": peer, "bytes": n} for t, n in counts]


def steps(line: Any) -> list[tuple[float, float]]:
    return list(zip(line.get_xdata(), line.get_ydata(), strict=True))


def legend(figure: Any) -> list[str]:
    return [text.get_text() for one in figure.legends for text in one.get_texts()]


def ticks(axis: Any) -> list[str]:
    return [t.get_text() for t in axis.get_ticklabels()]


def strip(axes: Any, k: int) -> dict[float, float]:
    """Time (us) -> rate as a share of the strip's height, from its polygon."""
    ups = {round(float(x), 6): float(y) for x, y in axes.collections[k].get_paths()[0].vertices}
    return {x: round((k + 0.45 - y) / 0.85, 6) for x, y in ups.items()}


def test_a_rate_is_what_was_sent_in_each_window_and_never_more_than_the_cable_carries() -> None:
    """The last sample is where sampling ends, off the grid; and what is quiet for long is not smeared over it."""
    whole = 100_000  # in 2 us: 400 Gb/s
    counts = [(2000.0, whole), (10_000.0, whole), (12_000.0, 2 * whole), (12_345.0, 2 * whole + 5_000)]
    run = a_run(qp_sent=sent(*counts))
    found = of_pairs(run)
    assert found is not None and found.edges.tolist() == [0, 2e3, 4e3, 6e3, 8e3, 10e3, 12e3, 14e3]
    assert (found.rates[1, 16, 0] / 1e9).tolist() == [400, 0, 0, 0, 0, 400, 20]
    axes, _ = PLOTS["rate"].draw(run).axes
    assert "2 us" in axes.get_title(loc="right") and "400 Gb/s high" in axes.get_title(loc="right")
    assert strip(axes, 0)[4] == 0 and max(strip(axes, 0).values()) == 1


def test_pairs_that_send_alike_are_all_seen_and_the_slowest_is_first() -> None:
    """Equal lines hide each other: each pair has a strip of its own.  One that sends half again is half as fast."""
    alike = sent((2000.0, 100_000), (4000.0, 200_000), qp=0) + sent((2000.0, 100_000), (4000.0, 200_000), qp=1)
    (axes, _) = PLOTS["rate"].draw(a_run(qp_sent=alike)).axes
    assert ticks(axes.yaxis) == ["rank 1 to 0, QP 16", "rank 2 to 0, QP 16"]
    assert [max(strip(axes, k).values()) for k in (0, 1)] == [1, 1]
    (axes, _) = PLOTS["rate"].draw(a_run(qp_sent=alike, again=[((2, 16), (25, 50))])).axes
    assert ticks(axes.yaxis) == ["rank 2 to 0, QP 16 (25 packets sent again)", "rank 1 to 0, QP 16"]


def test_of_many_pairs_there_is_a_map_with_a_row_for_each() -> None:
    rows = [{"time_ns": t, "rank": r, "qp": 16, "peer": 0, "bytes": t * (r + 1)} for r in range(40) for t in (2e3, 4e3)]
    axes = PLOTS["rate"].draw(a_run(qp_sent=rows)).axes[0]
    assert [text.partition(",")[0] for text in ticks(axes.yaxis)] == [f"rank {r} to 0" for r in range(40)]
    assert axes.images[0].get_array().shape[0] == 40


def test_fairness_counts_those_that_have_to_wait() -> None:
    first = sent((2000.0, 100_000), (4000.0, 200_000), (6000.0, 300_000), qp=0)
    second = sent((2000.0, 100_000), (4000.0, 100_000), (6000.0, 200_000), qp=1)
    _, fair = PLOTS["rate"].draw(a_run(qp_sent=first + second)).axes
    assert [y for _, y in steps(fair.get_lines()[0])][:3] == [1, 0.5, 1]


def test_what_stays_in_a_server_is_left_out_unless_there_is_nothing_else() -> None:
    both = sent((2000.0, 900_000), qp=0) + sent((2000.0, 100_000), qp=1)
    figure = PLOTS["rate"].draw(a_run(scale_up=[(1, 16)], qp_sent=both))
    assert ticks(figure.axes[0].yaxis) == ["rank 2 to 0, QP 16"]
    assert "without 1 over the scale-up domains" in figure.axes[0].get_title(loc="right")
    figure = PLOTS["rate"].draw(a_run(scale_up=[(1, 16)], qp_sent=sent((2000.0, 900_000), qp=0)))
    assert ticks(figure.axes[0].yaxis) == ["rank 1 to 0, QP 16 (scale-up)"]
    assert "without" not in figure.axes[0].get_title(loc="right")


def test_the_hops_of_a_collective_have_no_fairness() -> None:
    done = [{"kind": "collective", "end_ns": 2000.0}]
    (axes,) = PLOTS["rate"].draw(a_run(results=done, qp_sent=sent((2000.0, 100_000)))).axes
    assert axes.get_xlabel() == "emulated time (us)"


def test_a_window_says_why_it_is_longer_than_the_samples() -> None:
    def told(end_ns: float) -> str:
        return (
            PLOTS["rate"]
            .draw(a_run(qp_sent=sent((end_ns, 100_000))))
            .axes[0]
            .get_title(loc="right")
            .partition("\npayload, ")[2]
        )

    assert told(10_000.0) == "each step: the mean over 2 us, in which a cable carries 20 frames"
    assert told(1e6) == "each step: the mean over 5 us, 200 in all"


def depths(port: int, *values: tuple[float, int]) -> list[dict[str, Any]]:
    return [{"time_ns": t, "node": "sw0", "port": port, "priority": 3, "bytes": n} for t, n in values]


def test_queues_begin_empty_and_have_their_ecn_thresholds_as_lines() -> None:
    run = a_run(queue_depth=depths(1, (3000.0, 70_000), (5000.0, 0)) + depths(2, (4000.0, 10_000)))
    figure = PLOTS["queue"].draw(run)
    first, second, *thresholds = figure.axes[0].get_lines()
    assert steps(first) == [(0, 0), (3, 70), (5, 0), (5, 0)]
    assert steps(second)[-1] == (5, 10)
    assert {line.get_label(): line.get_ydata()[0] for line in thresholds} == {
        "ECN Kmin 50 KB": 50, "ECN Kmin 100 KB": 100, "ECN Kmax 200 KB": 200,
    }  # fmt: skip
    assert legend(figure)[:2] == ["sw0:1 class 3", "sw0:2 class 3"]
    figure = PLOTS["queue"].draw(a_run(queue_depth=depths(1, (3000.0, 20_000))))
    assert figure.axes[0].get_title(loc="right") == "above the picture: ECN Kmax 200 KB"
    assert figure.axes[0].get_ylim()[1] < 60
    only_nics = [{**row, "node": "h0"} for row in depths(1, (1.0, 1))]
    with pytest.raises(PlotError, match="no queue of a switch"):
        PLOTS["queue"].draw(a_run(queue_depth=only_nics))


def paused(node: str, *edges: tuple[float, int]) -> list[dict[str, Any]]:
    return [{"time_ns": t, "node": node, "port": 1, "by": "sw0", "by_port": 2, "priority": 3, "on": on}
            for t, on in edges]  # fmt: skip


def test_pauses_stand_in_the_order_of_names_and_there_are_never_too_many() -> None:
    figure = PLOTS["pauses"].draw(a_run(pauses=paused("h10", (1000, 1), (3000, 0)) + paused("h2", (2000, 1))))
    (axes,) = figure.axes
    assert ticks(axes.yaxis) == ["h2:1 by sw0", "h10:1 by sw0"] and legend(figure) == ["class 3"]
    assert [p.get_extents().x0 for p in axes.collections[1].get_paths()] == [1]
    many = [row for n in range(100) for row in paused(f"h{n}", (0, 1), (1000 + n, 0))]
    (axes,) = PLOTS["pauses"].draw(a_run(pauses=many)).axes
    names = ticks(axes.yaxis)
    assert (len(names), names[0], names[-1]) == (40, "h60:1 by sw0", "h99:1 by sw0")


def test_bins_of_sizes_are_not_joined_and_begin_at_zero() -> None:
    flows = [{"kind": "flow", "end_ns": 1e3, "size_bytes": s, "slowdown": d} for s, d in ((5e3, 1), (5e3, 3), (2e6, 4))]
    figure = PLOTS["fct"].draw(a_run(results=flows))
    (axes,) = figure.axes
    median = next(line for line in axes.get_lines() if line.get_label() == "median")
    assert steps(median) == [(0, 2), (1, 4)] and median.get_linestyle() == "None"
    assert ticks(axes.xaxis) == ["below 10 KB\n2 flows", "1 MB to 10 MB\n1 flow"]
    assert axes.get_ylim()[0] == 0


# --- sweeps ----------------------------------------------------------------


def one(figures: list[Any]) -> Any:
    (figure,) = figures
    return figure


def points(key: str, *values: Any, of: dict[str, list[Any]] | None = None) -> list[dict[str, Any]]:
    """A point for each value, whose goodput is 100, 200, ..; an error where `of` has one."""
    return [{key: v, "goodput_Gbps": 100.0 * (k + 1)} for k, v in enumerate(values)]


def test_ticks_are_the_swept_values() -> None:
    (axes,) = one(sweep("s", ["hosts"], points("hosts", 3, 9, 33), ["goodput_Gbps"])).axes
    assert (list(axes.get_xticks()), ticks(axes.xaxis)) == ([3, 9, 33], ["3", "9", "33"])
    assert (axes.get_xscale(), axes.get_ylim()[0], axes.get_ylabel()) == ("log", 0, "goodput (Gb/s)")
    (axes,) = one(sweep("s", ["cable.rate"], points("cable.rate", "400Gbps", "100Gbps"), ["goodput_Gbps"])).axes
    assert steps(axes.get_lines()[0]) == [(1e11, 200), (4e11, 100)]  # in the order of the axis
    assert ticks(axes.xaxis) == ["100Gbps", "400Gbps"]


@pytest.mark.parametrize("values", [(False, True), ("none", {"dcqcn": {}}), ([], [{"fault": "loss", "on": "all"}])])
def test_categories_are_bars_from_zero(values: tuple[Any, ...]) -> None:
    (axes,) = one(sweep("s", ["what"], points("what", *values), ["goodput_Gbps"])).axes
    assert not axes.get_lines()
    assert [(bar.get_y(), bar.get_height()) for bar in axes.patches] == [(0, 100), (0, 200)]
    assert axes.get_ylim()[0] == 0 and len(ticks(axes.xaxis)) == 2


def test_a_failed_point_is_a_gap_and_a_cross() -> None:
    made = points("hosts", 2, 3, 4)
    made[1] = {"hosts": 3, "error": "deadlock"}
    figure = one(sweep("s", ["hosts"], made, ["goodput_Gbps"]))
    (axes,) = figure.axes
    line, cross = axes.get_lines()
    assert [(x, y) for x, y in steps(line) if not math.isnan(y)] == [(2, 100), (4, 300)]
    assert math.isnan(steps(line)[1][1])
    assert (list(cross.get_xdata()), cross.get_label()) == ([3], "failed")
    assert [t.get_text() for t in axes.texts] == ["deadlock"]


def test_the_other_keys_have_a_line_each_and_one_legend_below_all_panels() -> None:
    made = [
        {"hosts": h, "transport.cc": cc, "goodput_Gbps": 1.0, "drops": 0} for h in (2, 4) for cc in ("none", "hpcc")
    ]
    figure = one(sweep("s", ["hosts", "transport.cc"], made, ["goodput_Gbps", "drops"]))
    assert legend(figure) == ["cc none", "cc hpcc"]
    assert all(axes.get_legend() is None for axes in figure.axes)
    first, second = figure.axes[0].get_lines()
    assert first.get_linewidth() > second.get_linewidth()  # they coincide, and both are seen
    figure.draw_without_rendering()
    below = figure.legends[0].get_window_extent().y1
    assert all(below < axes.get_window_extent().y0 for axes in figure.axes)


def test_seeds_of_a_sweep_are_averaged_over_and_how_sure_that_is_goes_with_the_values(tmp_path: Path) -> None:
    made = [{"hosts": h, "seed": s, "f": 10.0 * h + s} for h in (2, 4) for s in (1, 2, 3)]
    figure = one(sweep("s", ["seed", "hosts"], made, ["f"]))
    (line,) = figure.axes[0].get_lines()
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([2, 4], [22, 42]) and SURE in figure.get_suptitle()
    (path,) = write([figure], [tmp_path / "s.svg"])
    half = 4.303 / 3**0.5  # Student's t of two degrees of freedom; the standard deviation is 1
    rows = {(row["series"], float(row["x"])): float(row["y"]) for row in csv.DictReader(path.open())}
    assert rows[": 95 % from", 2.0] == pytest.approx(22 - half) and rows[": 95 % to", 4.0] == pytest.approx(42 + half)
    made[0] = {"hosts": 2, "seed": 1, "error": "deadlock"}
    figure = one(sweep("s", ["hosts", "seed"], made, ["f"]))
    assert list(figure.axes[0].get_lines()[0].get_ydata()) == [22.5, 42] and "failed" in legend(figure)
    assert SURE not in one(sweep("s", ["seed"], made[3:], ["f"])).get_suptitle()


def test_what_one_picture_has_no_room_for_is_in_further_ones() -> None:
    made = [{"hosts": 2, "name": str(k), **{f"f{n}": float(k) for n in range(14)}} for k in range(MOST_SERIES + 1)]
    made[-1] = {"hosts": 2, "name": str(MOST_SERIES), "error": "deadlock"}
    figures = sweep("s", ["hosts", "name"], made, [f"f{n}" for n in range(14)])
    assert [len(figure.axes) for figure in figures] == [12, 2, 12, 2]
    assert [len(legend(figure)) for figure in figures] == [MOST_SERIES, MOST_SERIES, 2, 2]
    assert "failed" in legend(figures[2]) and "failed" not in legend(figures[0])


def test_labels_that_would_touch_are_left_out_and_ticks_are_not() -> None:
    _, (axes,) = new_figure("some")
    sizes = [1024 << k for k in range(40)]
    Across(sizes).set_ticks(axes)
    shown = [t for t in ticks(axes.xaxis) if t]
    assert len(axes.get_xticks()) == 40 and 3 < len(shown) < 20
    assert (shown[0], shown[-1]) == ("1024", "5.6295e+14")


def test_labels_of_many_categories_do_not_cross() -> None:
    figure, (axes,) = new_figure("some")
    Across([{"torus": {"dims": [n, n], "direct": d}} for n in range(2, 8) for d in (True, False)]).set_ticks(axes)
    figure.draw_without_rendering()
    assert len({t.get_rotation() for t in axes.get_xticklabels()}) == 1
    assert not any("\n" in text for text in ticks(axes.xaxis))
    apart = math.sin(math.radians(axes.get_xticklabels()[0].get_rotation())) * axes.get_window_extent().width / 12
    assert apart > 8 * figure.dpi / 72  # lines of 8 points


# --- values ----------------------------------------------------------------


@pytest.mark.parametrize("kind", [RATE, TIME, SIZE])
def test_amounts_are_what_the_file_means(kind: Any) -> None:
    for unit in (*kind.units, *kind.spellings):
        found = amount(f"1.5{unit}")
        assert found is not None and found[0] == pytest.approx(float(kind.parse(f"8{unit}")) * 1.5 / 8)


def test_what_is_no_amount() -> None:
    assert [amount(v) for v in ("fast", True, None, "3 cats", float("nan"), "", {}, "1e999x")] == [None] * 8
    assert [amounts(v) for v in (["1us", "fast"], ["1us", "1KB"], ["1us", "2us"])] == [None, None, [1e3, 2e3]]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([{"star": {"hosts": 4}}, {"torus": {"dims": [2, 2]}}], ["star", "torus"]),
        ([{"star": {"hosts": 4, "links": 1}}, {"star": {"hosts": 8, "links": 1}}], ["star hosts=4", "star hosts=8"]),
        ([{"torus": {"dims": [2, 4]}}, {"torus": {"dims": [4, 2]}}], ["torus dims=2x4", "torus dims=4x2"]),
        (["none", "dcqcn", {"dcqcn": {"set": "paper"}}], ["none", "dcqcn", "dcqcn set=paper"]),
        ([[], [{"fault": "loss", "on": "all", "rate": 0.001}]], ["none", "loss"]),
        ([None, {"rate": "1Gbps", "delay": "1ns"}], ["none", "set"]),
        (["gpipe", {"interleaved": 2}], ["gpipe", "interleaved=2"]),
    ],
)
def test_labels_are_short_and_tell_values_apart(values: list[Any], labels: list[str]) -> None:
    assert distinct(values) == labels


def test_a_long_label_is_cut_but_stays_its_own() -> None:
    values = [{"x": {"key": "a" * 90 + end}} for end in "bc"]
    assert len(set(distinct(values))) == 2
    assert full({"dcqcn": {"set": "paper", "ai": None}}) == "dcqcn set=paper ai=none"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("time_us_65536_ring", "time (us), 64 KiB, ring"), ("time_us_1024", "time (us), 1 KiB"),
        ("busbw_GBps", "bus bandwidth (GB/s)"), ("busbw_GBps_ring", "bus bandwidth (GB/s), ring"),
        ("goodput_Gbps", "goodput (Gb/s)"), ("anything", "anything"),
    ],
)  # fmt: skip
def test_figures_have_names_with_units(name: str, label: str) -> None:
    assert figure_label(name) == label


def test_pictures_of_real_runs_are_drawn_the_same_each_time(tmp_path: Path) -> None:
    from results.pictures.drawing import save

    for name in ("a.svg", "b.svg"):
        save(sweep("s", ["hosts"], points("hosts", 3, 9, 33), ["goodput_Gbps"]), tmp_path / name)
    assert (tmp_path / "a.svg").read_text() == (tmp_path / "b.svg").read_text()


def test_a_style_has_its_width_and_letters(tmp_path: Path) -> None:
    """Fewer letters fit into a column, and fewer large ones on a slide: of thirty labels more go, and none touch."""
    widths, sizes, labels = {}, {}, {}
    for name in STYLES:
        with styled(name):
            figure, (axes,) = new_figure("a title")
            sizes_bytes = [f"{10 * k} MiB" for k in range(1, 31)]
            draw(axes, Across(sizes_bytes), [Series("a", [(size, 1.0) for size in sizes_bytes])])
            (path,) = save([figure], tmp_path / f"{name}.svg")
        figure.canvas.draw()
        widths[name] = figure.get_size_inches()[0]
        sizes[name] = {text.get_fontsize() for text in axes.get_yticklabels()}
        labels[name] = [t for t in axes.get_xticklabels() if t.get_text()]
        assert path.stat().st_size and (figure.get_suptitle() == "") == (name == "paper")
        boxes = [label.get_window_extent() for label in labels[name]]
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes)), name
    assert tuple(widths) == plot.STYLES
    assert widths == {"screen": 8.0, "paper": 3.5, "slides": 10.0}
    assert sizes == {"screen": {10.0}, "paper": {8.75}, "slides": {17.5}}
    assert len(labels["paper"]) < len(labels["screen"]) > len(labels["slides"]) > 4
