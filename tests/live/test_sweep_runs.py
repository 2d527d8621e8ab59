"""Real sweeps and sampled runs: points, series against counters, pictures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import results
from results.pictures.drawing import save
from results.pictures.plots import PLOTS
from testbed.base.progress import Progress
from testbed.experiment import loads
from testbed.run.run import run
from testbed.run.sweep import FILE, run_sweep
from tests.parts.incast_experiment import INCAST


def test_a_sweep_has_a_point_for_each_combination(tmp_path: Path) -> None:
    experiment = loads(INCAST + "sweep: {fabric.topology.star.hosts: [2, 4], transport.cc: [none, hpcc]}\n")
    folder, rows = run_sweep(experiment, tmp_path / "sweep", Progress())
    assert [(r["fabric.topology.star.hosts"], r["transport.cc"]) for r in rows] == [
        (2, "none"), (2, "hpcc"), (4, "none"), (4, "hpcc"),
    ]  # fmt: skip
    assert [r["flows"] for r in rows] == [1, 1, 3, 3]
    assert rows[0]["slowdown_p50"] == pytest.approx(1.0, abs=1e-3)
    assert 1.0 < rows[1]["slowdown_p50"] < 1.1  # telemetry takes its share of the wire, and eta leaves 5 % of it
    assert 2.5 < rows[2]["slowdown_p99"] < 3.2
    assert json.loads((folder / FILE).read_text())["points"] == rows
    assert results.load(folder / rows[3]["run"]).experiment["transport"]["cc"]["hpcc"] == {}


def test_a_point_that_fails_is_a_result(tmp_path: Path) -> None:
    ring = """
name: circle
fabric: {topology: {ring: {nodes: 4}}, switch: {buffer: 2MB, watchdog: null}}
workload:
  - flows: [{from: 0, to: 2, size: 4MB}, {from: 1, to: 3, size: 4MB}, {from: 2, to: 0, size: 4MB},
            {from: 3, to: 1, size: 4MB}]
sweep: {control.dateline: [false, true]}
"""
    _, rows = run_sweep(loads(ring), tmp_path / "sweep", Progress())
    assert "deadlock" in rows[0]["error"] and rows[1]["flows"] == 4


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> tuple[results.Run, str]:
    """A sampled run, and the folder of the same run without samples; their figures are the same."""
    folder = tmp_path_factory.mktemp("runs")
    with_samples = run(loads(INCAST.replace("hosts: 3", "hosts: 5") + "measure: {sample: 1us}\n"), folder / "sampled")
    without = run(loads(INCAST.replace("hosts: 3", "hosts: 5")), folder / "plain")
    assert with_samples.metrics_sha256 == without.metrics_sha256
    return results.load(with_samples.folder), str(without.folder)


def test_samples_agree_with_the_counters(sampled: tuple[results.Run, str]) -> None:
    r, _ = sampled
    depth = r.series("queue_depth")
    bottleneck = depth[(depth["node"] == "sw0") & (depth["port"] == 1) & (depth["priority"] == 3)]
    longest = r.priorities[
        (r.priorities["node"] == "sw0") & (r.priorities["port"] == 1) & (r.priorities["priority"] == 3)
    ]
    assert 0.9 * longest["queue_max_bytes"].item() <= bottleneck["bytes"].max() <= longest["queue_max_bytes"].item()
    assert bottleneck["bytes"].iloc[-1] == 0
    assert (depth["time_ns"] % 1000 == 0).mean() > 0.99  # the last one is when sampling ends
    pauses = r.series("pauses")
    began = r.priorities["rx_pause_transition"].sum()
    assert (pauses["on"] == 1).sum() == began > 0
    assert (pauses["on"] == 0).sum() == began
    marks = r.series("marks").groupby(["node", "port", "priority"])["frames"].max().sum()
    assert marks == r.priorities["ecn_marked"].sum() > 0
    assert r.series("cnps").groupby("node")["frames"].max().sum() == r.nics["np_cnp_sent"].sum()
    sent = r.series("qp_sent").groupby(["rank", "qp"])["bytes"].max()
    assert sent.sum() == r.qps["tx_bytes"].sum()
    assert all(  # what is only fetched has not been sent
        one["bytes"].iloc[-1] <= on_wire[on_wire["time_ns"] <= t]["bytes"].max()
        for rank, of_rank in r.series("qp_sent").groupby("rank")
        for on_wire in [r.series("port_sent").query("node == @r.nics.nic[@rank]")]
        for t, one in of_rank.groupby("time_ns")
    )
    assert r.series("qp_sent")["bytes"].iloc[0] < 400e9 / 8 * 1e-6  # at most what a cable takes in the first us
    heard = r.priorities[r.priorities["node"] == r.nics["nic"][0]].set_index("priority")["rx_packets"]
    assert heard[3] == r.ports[r.ports["node"] == r.nics["nic"][0]]["rx_frames"].item() - heard.drop(3).sum() > 0
    rates = r.series("qp_rate")
    assert rates["rate_bps"].max() <= 400e9 and rates["rate_bps"].min() >= 100e6


@pytest.mark.parametrize("kind", PLOTS)
def test_pictures_are_drawn(kind: str, sampled: tuple[results.Run, str], tmp_path: Path) -> None:
    picture = tmp_path / f"{kind}.svg"
    save([PLOTS[kind].draw(sampled[0])], picture)
    text = picture.read_text()
    assert text.startswith("<?xml") and len(text) > 10_000
    if kind == "rate":
        (strips, _) = PLOTS[kind].draw(sampled[0]).axes
        said = re.search(r"each strip is (\S+) Gb/s high", strips.get_title(loc="right"))
        assert said and 300 < float(said[1]) <= 400
    again = tmp_path / "again.svg"
    save([PLOTS[kind].draw(sampled[0])], again)
    assert again.read_text() == text


def test_a_run_without_samples_says_what_to_do(
    sampled: tuple[results.Run, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from testbed.cli import cli

    with pytest.raises(SystemExit) as ended:
        cli.main(["plot", sampled[1], "queue", "-o", str(tmp_path / "q.svg")])
    assert ended.value.code == 2 and "say measure: {sample: 10us}" in capsys.readouterr().err
    with pytest.raises(results.StoreError):
        PLOTS["queue"].draw(results.load(sampled[1]))
