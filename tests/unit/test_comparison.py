"""Algorithms compared over runs and sweeps: what is gathered, what is drawn, and what is said when nothing can be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from results.figures.values import size_label
from results.pictures.comparison import Data, collect
from results.pictures.comparison_plots import COMPARISONS
from results.pictures.drawing import SURE, PlotError, new_figure, save
from results.pictures.plots import PLOTS
from results.store.folder import RunFolder
from results.store.sweeps import SWEEP
from testbed.base.yaml_writer import dump
from testbed.cli import cli
from testbed.commands.plot import KINDS

SIZES = (1024, 1 << 20)


def result(algorithm: str, ranks: int, size: int, time_ns: float, iteration: int = 0) -> dict[str, Any]:
    return {
        "step": 0, "kind": "collective", "collective": "all_reduce", "algorithm": algorithm, "dtype": "float32",
        "op": "sum", "ranks": ranks, "size_bytes": size, "iteration": iteration, "time_ns": time_ns,
        "busbw_Bps": size / time_ns, "host_ns": time_ns / 10, "sent_bytes": 2.0 * size,
    }  # fmt: skip


def a_run(folder: Path, rows: list[dict[str, Any]], name: str = "some", **experiment: Any) -> Path:
    made = RunFolder.create(name, folder)
    with (made.path / "experiment.yaml").open("w") as file:
        dump({"name": name, **experiment}, file)
    made.write_frame("results", rows)
    return made.complete()


def a_sweep(folder: Path) -> Path:
    """Ranks x algorithm, by the keys of the file; one more point has failed."""
    keys = ["fabric.topology.star.hosts", "workload.0.algorithm"]
    points: list[dict[str, Any]] = []
    for ranks in (2, 4, 8):
        for algorithm, speed in (("ring", 1), ("tree", ranks)):
            k = len(points)
            rows = [result(algorithm, ranks, size, size * 4 / speed) for size in SIZES]
            a_run(folder / f"point-{k}", rows)
            points.append({**dict(zip(keys, (ranks, algorithm), strict=True)), "run": f"point-{k}"})
    points.append({**dict.fromkeys(keys, 16), "error": "deadlock", "run": "point-6.failed"})
    (folder / "state.json").write_text('{"state": "complete"}')
    (folder / SWEEP).write_text(json.dumps({"name": "some", "keys": keys, "points": points}))
    return folder


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return collect([a_sweep(tmp_path_factory.mktemp("swept"))])


def lines(figure: Any) -> dict[str, list[tuple[float, float]]]:
    return {
        str(one.get_label()): list(zip(one.get_xdata(), one.get_ydata(), strict=True))
        for one in figure.axes[0].get_lines()
        if not str(one.get_label()).startswith("_child")
    }


def drawn(kind: str, data: Data, baseline: str | None, over: str | None) -> Any:
    """The picture, if it is one."""
    (figure,) = COMPARISONS[kind].draw(data, baseline, over)
    return figure


def test_every_kind_of_picture_has_a_name_on_the_command_line() -> None:
    assert (*PLOTS, "timeline", "trace", "sweep", *COMPARISONS) == KINDS


def test_means_are_taken_over_the_iterations(tmp_path: Path) -> None:
    data = collect([a_run(tmp_path / "run", [result("ring", 4, 1024, t, k) for k, t in enumerate((100.0, 300.0))])])
    assert list(data.means["time_ns"]) == [200.0] and data.dimensions() == []


def test_what_says_the_same_in_other_words_is_no_dimension(swept: Data) -> None:
    assert swept.dimensions() == ["algorithm", "ranks", "size_bytes"]
    assert swept.dimensions("ranks") == ["algorithm", "size_bytes"]
    assert swept.dimensions("fabric.topology.star.hosts") == ["algorithm", "size_bytes"]


def test_speedup_by_ranks_has_a_line_for_each_size(swept: Data) -> None:
    figure = drawn("speedup", swept, "ring", "ranks")
    expected = [(2, 2.0), (4, 4.0), (8, 8.0)]
    found = lines(figure)
    assert {k: found[k] for k in ("tree, 1 KiB", "tree, 1 MiB")} == {"tree, 1 KiB": expected, "tree, 1 MiB": expected}


def test_speedup_over_another_baseline_is_the_inverse(swept: Data) -> None:
    figure = drawn("speedup", swept, "tree", None)
    assert lines(figure)["ring, 8 ranks"] == [(1024, 1 / 8), (1 << 20, 1 / 8)]


def test_runs_of_their_own_are_compared_too(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / a, [result(a, 4, 1024, t)], a) for a, t in (("ring", 300.0), ("tree", 100.0))]
    data = collect(runs)
    assert data.title == "ring, tree"
    (line, _) = drawn("speedup", data, None, None).axes[0].get_lines()
    assert list(line.get_xydata()[0]) == [1024, 3.0]


def test_the_map_has_ranks_down_and_sizes_across(swept: Data) -> None:
    (axes,) = drawn("heat", swept, None, None).axes
    assert [t.get_text() for t in axes.get_xticklabels()] == ["1 KiB", "1 MiB"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["2", "4", "8"]
    assert [t.get_text() for t in axes.texts] == ["2.00", "2.00", "4.00", "4.00", "8.00", "8.00"]


def test_times_over_a_loss_rate() -> None:
    rows = [
        {**result(a, 8, 1024, t * (1 + 100 * rate)), "inject.0.rate": rate}
        for a, t in (("ring", 2000.0), ("tree", 1000.0))
        for rate in (0.0, 0.001, 0.01)
    ]
    data = Data("loss", ("inject.0.rate",), pd.DataFrame(rows))
    figure = drawn("times", data, None, None)
    assert lines(figure) == {
        "ring": [(0.0, 2.0), (0.001, pytest.approx(2.2)), (0.01, 4.0)],
        "tree": [(0.0, 1.0), (0.001, pytest.approx(1.1)), (0.01, 2.0)],
    }
    assert lines(drawn("times", data, None, "rate")) == lines(figure)


@pytest.mark.parametrize(("kind", "values"), [("host", [0.4096, 419.4304]), ("sent", [0.002048, 2.097152])])
def test_what_a_rank_takes_is_drawn_by_size(kind: str, values: list[float], tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [result("ring", 4, size, size * 4.0) for size in SIZES])
    (line,) = drawn(kind, collect([run]), None, None).axes[0].get_lines()
    assert list(line.get_xdata()) == list(SIZES) and list(line.get_ydata()) == pytest.approx(values)


def test_bus_bandwidth_by_size_starts_at_zero_over_sizes_to_scale(tmp_path: Path) -> None:
    """The picture that everybody draws: sizes on a logarithmic axis, GB/s on one that is not."""
    drawn_at = [(1 << 10, 0.1), (1 << 20, 20.0), (1 << 30, 45.0)]
    rows = [result("ring", 8, size, size / (1e9 * speed)) for size, speed in drawn_at]
    figure = drawn("busbw", collect([a_run(tmp_path / "run", rows)]), None, None)
    (axes,) = figure.axes
    (line,) = axes.get_lines()
    assert list(line.get_xdata()) == [size for size, _ in drawn_at]
    assert list(line.get_ydata()) == pytest.approx([speed for _, speed in drawn_at])
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_ylim()[0]) == ("log", "linear", 0)


def topology(kind: str, **params: Any) -> dict[str, Any]:
    return {"fabric": {"topology": {kind: params}, "scale_up": {"rate": "1Gbps"} if kind == "rail" else None}}


def test_runs_on_different_topologies_are_not_averaged(tmp_path: Path) -> None:
    runs = [
        a_run(tmp_path / str(k), [result("ring", 4, 1024, t)], **topology(kind, **params))
        for k, (t, kind, params) in enumerate([
            (1000.0, "star", {"hosts": 4}), (3000.0, "torus", {"dims": [2, 2]}), (5000.0, "rail", {"servers": 4}),
            (7000.0, "torus", {"dims": [4, 1]}),
        ])
    ]  # fmt: skip
    data = collect(runs)
    assert data.dimensions() == ["fabric.topology"]
    assert lines(drawn("times", data, None, None)) == {
        "star": [(1024, 1.0)], "torus dims=2x2": [(1024, 3.0)], "rail": [(1024, 5.0)], "torus dims=4x1": [(1024, 7.0)],
    }  # fmt: skip
    (axes,) = drawn("times", data, None, "topology").axes
    assert [bar.get_height() for bar in axes.patches] == [1, 3, 5, 7]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["star", "torus dims=2x2", "rail", "torus dims=4x1"]


def test_swept_topologies_of_one_kind_are_not_averaged(tmp_path: Path) -> None:
    folder, key = tmp_path / "sweep", "fabric.topology"
    points = []
    for k, dims in enumerate(([2, 4], [4, 2])):
        a_run(folder / f"point-{k}", [result("ring", 8, 1024, 1000.0 * (k + 1))], **topology("torus", dims=dims))
        points.append({key: {"torus": {"dims": dims}}, "run": f"point-{k}"})
    (folder / "state.json").write_text('{"state": "complete"}')
    (folder / SWEEP).write_text(json.dumps({"name": "some", "keys": [key], "points": points}))
    assert lines(drawn("times", collect([folder]), None, None)) == {
        "torus dims=2x4": [(1024, 1.0)], "torus dims=4x2": [(1024, 2.0)],
    }  # fmt: skip


def test_runs_that_differ_in_any_other_key_are_told_apart_by_it(tmp_path: Path) -> None:
    runs = []
    for k, rate in enumerate(("100Gbps", "400Gbps")):
        fabric = {"topology": {"star": {"hosts": 4}}, "cable": {"rate": rate, "delay": "1us"}}
        runs.append(a_run(tmp_path / str(k), [result("ring", 4, 1024, 1000.0 * (k + 1))], fabric=fabric, seed=1))
    data = collect(runs)
    assert data.keys == ("fabric.cable.rate",)
    figure = drawn("times", data, None, None)
    (line,) = figure.axes[0].get_lines()
    assert [tuple(p) for p in line.get_xydata()] == [(1e11, 1.0), (4e11, 2.0)]
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == ["100Gbps", "400Gbps"]


def test_steps_of_one_algorithm_in_several_runs_are_told_apart_by_their_options(tmp_path: Path) -> None:
    runs = [
        a_run(tmp_path / chunk, [result("ring", 4, 1024, 1000.0)],
              workload=[{"collective": "all_reduce", "algorithm": "ring", "sizes": ["1KiB"], "chunk": chunk}])
        for chunk in ("1KiB", "4KiB")
    ]  # fmt: skip
    assert list(collect(runs).means["algorithm"]) == ["ring[chunk=1KiB]", "ring[chunk=4KiB]"]


def test_a_name_that_two_keys_end_in_is_not_guessed_at() -> None:
    rows = [{**result("ring", 8, 1024, 1.0), "inject.0.rate": 0.1, "fabric.cable.rate": "1Gbps"}]
    data = Data("some", ("inject.0.rate", "fabric.cable.rate"), pd.DataFrame(rows))
    with pytest.raises(PlotError, match="'rate' may be inject.0.rate or fabric.cable.rate"):
        data.column("rate")


KINDS_OF_STEPS = ("all_reduce", "send_recv", "all_to_all")


def a_study(topologies: int, sizes: int) -> Data:
    """As experiments/topology/torus.yaml: three collectives, each with an algorithm of its own, on each topology."""
    key = "fabric.topology"
    rows = [
        {**result(f"of_{c}", 4, size, 1000.0 * (k + 1)), "collective": c, key: json.dumps({"torus": {"dims": [k, k]}})}
        for c in KINDS_OF_STEPS
        for k in range(topologies)
        for size in (1024 << s for s in range(sizes))
    ]
    return Data("study", (key,), pd.DataFrame(rows))


def test_what_is_too_much_for_lines_has_panels() -> None:
    figure = drawn("times", a_study(14, 2), None, None)
    assert [axes.get_title() for axes in figure.axes] == [f"{c}, of_{c}" for c in KINDS_OF_STEPS]
    assert [len(axes.get_lines()) for axes in figure.axes] == [14] * 3
    assert [t.get_text() for t in figure.legends[0].get_texts()] == [f"torus dims={k}x{k}" for k in range(14)]
    looks = [[(i.get_color(), i.get_linestyle(), i.get_marker()) for i in axes.get_lines()] for axes in figure.axes]
    assert looks[0] == looks[1] == looks[2] and len(set(looks[0])) == 14


def test_nine_panels_stand_in_two_columns_and_fifteen_in_two_pictures() -> None:
    figure = drawn("times", a_study(2, 3), None, "topology")
    assert [axes.get_subplotspec().colspan.start for axes in figure.axes] == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert [axes.get_xlabel() for axes in figure.axes] == [""] * 7 + ["fabric.topology"] * 2
    labelled = [axes.xaxis.get_tick_params()["labelbottom"] for axes in figure.axes]
    assert labelled == [False] * 7 + [True] * 2
    figures = COMPARISONS["times"].draw(a_study(2, 5), None, "topology")
    assert [len(figure.axes) for figure in figures] == [12, 3]


def test_further_pictures_have_numbered_names(tmp_path: Path) -> None:
    paths = save([new_figure(title)[0] for title in "ab"], tmp_path / "times.svg")
    assert paths == [tmp_path / "times.svg", tmp_path / "times-2.svg"] and all(map(Path.exists, paths))


def test_lines_that_cannot_be_told_apart_are_in_several_pictures() -> None:
    rows = [{**result("ring", 4, size, 1.0), "link": str(k)} for k in range(60) for size in SIZES]
    figures = COMPARISONS["times"].draw(Data("many", ("link",), pd.DataFrame(rows)), None, "size")
    assert [len(figure.axes[0].get_lines()) for figure in figures] == [24, 24, 12]
    assert set(lines(figures[2])) == {f"link {k}" for k in range(48, 60)}


def test_seeds_are_averaged_over_with_an_interval_and_ratios_are_of_the_same_seed() -> None:
    times = {"ring": (100.0, 110.0, 120.0), "in_network": (50.0, 55.0, 30.0)}
    accelerator = {"ring": None, "in_network": '{"slots": 1024}'}
    key = "fabric.switch.accelerator"
    rows = [
        {**result(name, 4, size, 1.0), "time_ns": 1e3 * time, "seed": seed, key: accelerator[name]}
        for name, of in times.items() for seed, time in enumerate(of, 1) for size in SIZES
    ]  # fmt: skip
    data = Data("both", ("seed", key), pd.DataFrame(rows))
    (figure,) = COMPARISONS["times"].draw(data, None, "size")
    assert {name: points[0][1] for name, points in lines(figure).items()} == {
        "ring": pytest.approx(110), "in_network": pytest.approx(45),
    }  # fmt: skip
    assert SURE in figure.get_suptitle()
    (figure,) = COMPARISONS["speedup"].draw(data, "ring", None)
    assert lines(figure)["in_network"][0][1] == pytest.approx((2 + 2 + 4) / 3), "not 110 / 45"
    (figure,) = COMPARISONS["times"].draw(data, None, "seed")
    assert SURE not in figure.get_suptitle() and len(figure.axes[0].get_lines()) >= 2


def test_no_figure_is_kept(swept: Data) -> None:
    """pyplot keeps those that it makes, and warns when there are many."""
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    drawn("times", swept, None, None)
    with pytest.raises(PlotError):
        drawn("speedup", swept, "rnig", None)
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize("kind", COMPARISONS)
def test_pictures_are_the_same_each_time(kind: str, swept: Data, tmp_path: Path) -> None:
    save(COMPARISONS[kind].draw(swept, None, None), tmp_path / "a.svg")
    save(COMPARISONS[kind].draw(swept, None, None), tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_text() == (tmp_path / "b.svg").read_text()


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    data = collect([a_sweep(tmp_path)])
    with pytest.raises(PlotError, match="rnig was not run; there is ring, tree"):
        drawn("speedup", data, "rnig", None)
    with pytest.raises(PlotError, match="nothing called 'rate'.*size, ranks, algorithm, hosts"):
        drawn("times", data, None, "rate")
    alone = collect([a_run(tmp_path / "alone", [result("ring", 4, 1024, 100.0)])])
    with pytest.raises(PlotError, match="only ring was run"):
        drawn("speedup", alone, None, None)
    with pytest.raises(PlotError, match="no collective"):
        collect([a_run(tmp_path / "none", [])])


@pytest.mark.parametrize(("size", "label"), [(4, "4 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (1000 << 10, "1000 KiB"),
                                             (1 << 30, "1 GiB"), (1500, "1.46 KiB")])  # fmt: skip
def test_sizes_on_axes(size: int, label: str) -> None:
    assert size_label(size) == label


def plot(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["plot", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_plot_takes_several_runs_where_they_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [str(a_run(tmp_path / a, [result(a, 4, 1024, 100.0)])) for a in ("ring", "tree")]
    out = tmp_path / "p.png"
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert plot(*runs, "speedup", "--baseline", "ring", "-o", str(out)) == 0
    assert out.stat().st_size > 1000
    assert plot(*runs, "queue") == 2
    assert "queue draws one run" in capsys.readouterr().err
    assert plot(*runs, "speedup", "--baseline", "rnig") == 2
    assert plot(str(tmp_path / "nothing"), "heat") == 2
    for wrong, says in (
        (
            ("times", "--baseline", "ring"),
            "--baseline at: command line hint: it goes with speedup, heat",
        ),
        (("queue", "--over", "ranks"), "queue takes no --over"),
        (("speedup", "--figure", "drops"), "speedup takes no --figure"),
        (("times", "--out", ""), "the name of the picture is empty"),
        (("times", "--out", str(tmp_path / "no/p.png")), "there is no folder"),
        (("times", "--out", "p.gif"), "pictures are .svg, .png, .pdf or .pgf"),
        (
            ("times", "--out", str(tmp_path / "p.pgf")),
            "none of xelatex, lualatex, pdflatex is there",
        ),
    ):
        assert plot(*runs, *wrong) == 2
        assert says in " ".join(capsys.readouterr().err.split())
    monkeypatch.chdir(tmp_path)  # unasked, a picture is called after its run and lies here
    flows = a_run(tmp_path / "flows", [{**result("write", 2, 1024, 1.0), "kind": "flow"}])
    assert plot(str(a_sweep(tmp_path / "mine")), str(flows), "times") == 0
    told = capsys.readouterr()
    assert told.out == "mine-flows-times.svg\n" and Path("mine-flows-times.svg").exists()
    assert told.err.splitlines() == [
        f"left out: {tmp_path / 'mine'}: 1 of 7 points, which failed",
        f"left out: {flows}: no collective has ended there, only flows, which have no algorithm",
    ]
    assert plot(str(tmp_path / "mine/point-0"), "times") == 0
    assert capsys.readouterr().out == "mine-point-0-times.svg\n"
    assert plot(str(a_sweep(tmp_path / "swept")), "queue") == 2
    assert "draw one of its points, such as" in capsys.readouterr().err
