"""A cluster's constants: found again in logs that were made from them, not told where no log tells them."""

from __future__ import annotations

import json
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from testbed.base.errors import InputError
from testbed.calibrate.calibration import calibrate
from testbed.calibrate.fit import Problem, fit, without
from testbed.calibrate.found import Told, hardware
from testbed.calibrate.held import holding, predicted, scores
from testbed.calibrate.made import profile
from testbed.calibrate.measured import Measured, measured
from testbed.calibrate.prior import prior
from testbed.calibrate.work import Asked, check, holds, work
from testbed.cluster.bars import Bars
from testbed.cluster.hardware import Hardware
from testbed.cluster.model import NAMES, LibraryModel
from testbed.cluster.profile import Z90, load
from testbed.commands.calibrate import command
from testbed.logs.read import read
from testbed.logs.row import Link, Log, Point, Row
from tests.parts.cluster_logs import table
from tests.parts.made_clusters import HARDWARE, SIZES, points_of

KNOWN = prior(LibraryModel(HARDWARE, {}))


class Straight:
    """A model whose logarithms are sums: of it the answer can be written down."""

    def __init__(self, jacobian: np.ndarray) -> None:
        self.jacobian = jacobian

    def at(self, x: np.ndarray, steps: object = None) -> tuple[np.ndarray, np.ndarray]:
        return self.jacobian @ x, self.jacobian


def test_a_straight_model_is_solved_as_by_hand() -> None:
    """One constant, n rows of scatter s, prior of p: (sum y / s^2 + m / p^2) / (n / s^2 + 1 / p^2)."""
    y = np.array([0.010, 0.012, 0.011] * 100)
    problem = Problem(Straight(np.ones((300, 1))), y, np.full(300, 0.1), np.zeros(1), np.array([0.01]))
    found = fit(problem)
    assert found.x[0] == pytest.approx(3.3 / 0.01 / (300 / 0.01 + 1 / 0.0001), rel=2e-2)
    assert found.sd[0] == pytest.approx((300 / 0.01 + 1 / 0.0001) ** -0.5, rel=1e-2)
    rows = np.arange(300) % 3 == 2  # without them (1.0 + 1.2) / 0.01 / (200 / 0.01 + 1 / 0.0001)
    residuals, variances = without(found, rows)
    assert residuals[0] == pytest.approx(220 / 30_000 - 0.011, rel=5e-2)
    assert variances[0] == pytest.approx(1 / 30_000, rel=1e-2)


def test_a_row_that_is_far_off_hardly_pulls() -> None:
    y = np.array([0.0] * 9 + [3.0])
    found = fit(Problem(Straight(np.ones((10, 1))), y, np.full(10, 0.05), np.zeros(1), np.ones(1)))
    assert abs(found.x[0]) < 0.02 and found.weights[-1] < 0.05 < 0.9 < found.weights[0]


@pytest.mark.parametrize("seed", [1, 2])
def test_constants_are_found_again_within_their_intervals(seed: int) -> None:
    """`./setup.sh prove calibrate` does so with 200 seeds."""
    drawn = np.linalg.cholesky(KNOWN.correlation) @ np.random.default_rng(seed).uniform(-1, 1, len(KNOWN.x))
    truth = KNOWN.x + KNOWN.sigma * drawn
    made = calibrate(LibraryModel(HARDWARE, {}), points_of(truth, SIZES, 0.02, seed), Log())
    told = made.told
    off = np.abs(made.fitted.x - truth) / made.sd
    assert told[NAMES.index("nic.rate")] and told[NAMES.index("cta.rate")] and told.sum() >= 4
    assert np.mean(off[told] <= Z90) >= 0.75 and off[told].max() < 4


def test_large_sizes_alone_tell_no_latency() -> None:
    made = calibrate(LibraryModel(HARDWARE, {}), points_of(KNOWN.x, [1 << 30, 1 << 31], 0.02, 1), Log())
    of = dict(zip(NAMES, made.told, strict=True))
    assert of["nic.rate"]
    assert not any(its for name, its in of.items() if name.endswith((".hop", "launch", "net.message")))


LOGS = {"a.log": ("all_gather", 1), "b.log": ("all_gather", 4), "c.log": ("all_reduce", 4)}
TOLD = Told("4x400Gbps")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of a cluster whose constants are the library's own, but for its NICs: 350 Gb/s."""
    path = tmp_path_factory.mktemp("logs")
    x = KNOWN.x.copy()
    x[NAMES.index("nic.rate")] = log(350e9)
    for number, (name, (collective, gpus)) in enumerate(LOGS.items()):
        mine = [one for one in points_of(x, [1 << k for k in range(14, 31, 4)], 0.01, number) if one.point.gpus == gpus]
        times = {one.point.size_bytes: one.time_ns / 1e3 for one in mine if one.point.collective == collective}
        (path / name).write_text(table(collective, 2, gpus, times))
    return path


def asked(folder: Path, *names: str, hold: tuple[str, ...] = ()) -> Asked:
    return Asked([str(folder / name) for name in names or LOGS], TOLD, name="mine", hold=hold)


def test_the_same_logs_give_the_same_profile_and_it_reads_back(folder: Path, tmp_path: Path) -> None:
    for name in ("one.yaml", "two.yaml"):
        result = CliRunner().invoke(
            command, [*(str(folder / log) for log in LOGS), "--nics", "4x400Gbps", "--name", "mine", "--json", "--out",
                      str(tmp_path / name)], catch_exceptions=False,
        )  # fmt: skip
        assert result.exit_code == 0, result.output
    assert (tmp_path / "one.yaml").read_bytes() == (tmp_path / "two.yaml").read_bytes()
    its = load(tmp_path / "one.yaml")
    said = json.loads(result.output)
    assert (its.cluster, its.library.version, its.hardware.gpu, its.hardware.assumed) == (
        "mine",
        "2.29.2",
        "hopper",
        ["host"],
    )
    assert its.values()["nic.rate"] == pytest.approx(350e9, rel=0.03) and its.costs["nic.rate"].told
    assert its.range.collectives == ["all_gather", "all_reduce"] and its.range.gpus == [1, 4]
    names, covariance = its.covariance()
    assert names == list(NAMES) and np.all(np.linalg.eigvalsh(covariance) > -1e-3)
    assert len(said["points"]) == 15 and said["profile"]["cluster"] == "mine"
    assert "node-0" not in (tmp_path / "one.yaml").read_text()  # no host's name


def test_rows_that_are_held_back_are_predicted_and_scored(folder: Path) -> None:
    outcome = work(asked(folder, hold=("all_reduce",)))
    assert {one.one.point.collective for one in outcome.held} == {"all_reduce"} and len(outcome.held) == 5
    assert all(abs(one.error) < 0.05 and one.covered for one in outcome.held)
    assert [one.name for one in scores(outcome.held, more_nodes=False)] == [
        "above",
        "to 64MiB",
        "to 1MiB",
        "below 64KiB",
    ]
    assert outcome.profile.held_out["bars hold"] == "5 of 5 points"
    with pytest.raises(InputError, match="no point is held back"):
        work(asked(folder, hold=("nodes=77",)))


@pytest.mark.parametrize(
    ("text", "point", "held"),
    [
        ("all_reduce", Point("all_reduce", 2, 1, 8), True),
        ("all_reduce,nodes=8", Point("all_reduce", 2, 1, 8), False),
        ("sendrecv, gpus<2", Point("send_recv", 2, 1, 8), True),
        ("size>=1MiB", Point("all_reduce", 2, 1, 1 << 20), True),
        ("size<1MiB", Point("all_reduce", 2, 1, 1 << 20), False),
    ],
)
def test_what_is_held_back(text: str, point: Point, held: bool) -> None:
    assert holding(text)(point) is held


@pytest.mark.parametrize("text", ["", "nodes", "nodes=x", "size=1Gbps", "speed=3", "all_reduce,nonsense"])
def test_conditions_that_are_none(text: str) -> None:
    with pytest.raises(InputError):
        holding(text)


def test_a_profile_is_checked_against_a_new_log(folder: Path, tmp_path: Path) -> None:
    from testbed.calibrate.made import write

    path = tmp_path / "mine.yaml"
    write(work(asked(folder)).profile, path)
    _, _, found = check(str(path), [str(folder / "c.log")], TOLD, None)
    assert holds(found)
    slow = {one.one.point.size_bytes: one.one.time_ns / 1e3 * 1.6 for one in found}
    (tmp_path / "slow.log").write_text(table("all_reduce", 2, 4, slow))
    result = CliRunner().invoke(command, ["--check", str(path), str(tmp_path / "slow.log")])
    assert result.exit_code == 1 and "does not hold any more" in result.output
    assert "all_reduce 2 x 4: slower than the profile says, 1.6" in result.output


def test_a_bar_grows_beyond_what_was_measured(folder: Path) -> None:
    outcome = work(asked(folder))
    bars = Bars(outcome.profile, outcome.made.model)
    inside = bars.at(Point("all_reduce", 2, 4, 1 << 26))
    assert not inside.beyond
    more = bars.at(Point("all_reduce", 16, 4, 1 << 26))
    assert more.beyond == ("nodes 16 > 2",) and more.percent > inside.percent
    assert bars.at(Point("reduce_scatter", 2, 4, 1 << 10)).beyond == ("size 1KiB < 16KiB", "collective reduce_scatter")


def rows(*times: float, size: int = 1 << 30) -> Log:
    made = Log()
    for line, time in enumerate(times, 1):
        made.add(Row("x.log", line, "all_gather", size, time, 2, 4))
    return made


def test_the_same_row_several_times_and_two_levels() -> None:
    (one,) = measured(rows(100.0, 102.0, 104.0), HARDWARE, None, None)
    assert one.time_ns == 102.0 and one.spread == pytest.approx(1.4826 * 2 / 102)
    log = rows(100.0, 101.0, 102.0, 150.0, 151.0)
    (one,) = measured(log, HARDWARE, None, None)
    assert one.time_ns == 101.0 and log.left_out == {"of a slower level": 2}
    assert "x.log:4" in log.warnings[0] and "2 of 5 rows take 1.49 times as long" in log.warnings[0]


def test_a_rate_like_tcps_is_named() -> None:
    """1 GiB among 8 ranks in 100 ms: 75 Gb/s of 1600."""
    log = rows(100e6)
    measured(log, HARDWARE, None, None)
    assert "reaches 75 Gb/s of 1600 Gb/s of the NICs: as TCP" in log.warnings[0]


def test_what_no_log_says_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("# OSU NCCL-CUDA Allreduce Latency Test v7.3\n# Size  Avg\n1024  30.0\n")
    log, _ = read([str(path)])
    with pytest.raises(InputError, match="how many GPUs"):
        hardware(log, Told(), None)
    with pytest.raises(InputError, match="how many NICs"):
        hardware(log, Told(gpus=4), None)
    for wrong in ("8", "8x", "8x400", "0x400Gbps", "x400Gbps"):
        with pytest.raises(InputError) as error:
            hardware(log, Told(wrong, gpus=4), None)
        assert error.value.where == "--nics"
    with pytest.raises(InputError, match="on how many nodes"):
        measured(log, hardware(log, Told("4x400Gbps", gpus=4), None), None, 4)
    assert hardware(log, Told("4x400Gbps", gpus=4), None).assumed == ("gpu", "host", "version")


def test_too_few_points_and_those_that_nothing_fits() -> None:
    model = LibraryModel(HARDWARE, {})
    few = points_of(KNOWN.x, [1 << 20], 0.0, 1)
    with pytest.raises(InputError, match="4 points that can be used; a profile takes 8"):
        calibrate(model, few, Log())
    random = np.random.default_rng(1)
    wild = [Measured(one.point, one.time_ns * exp(3 * random.standard_normal()), None, one.rows) for one in
            points_of(KNOWN.x, [1 << k for k in range(10, 30, 4)], 0.0, 1)]  # fmt: skip
    with pytest.raises(InputError, match="no constants fit these points"):
        calibrate(model, wild, Log())


def test_more_than_can_be_fitted(tmp_path: Path) -> None:
    """A million GPUs of a node, tens of thousands of sizes: refused before anything is made of them."""
    head = "collective,nodes,gpus_per_node,size_bytes,time_us\n"
    path = tmp_path / "x.csv"
    path.write_text(head + "all_reduce,2,1000000,1024,20\n")
    with pytest.raises(InputError, match="1,000,000 GPUs of a node, more than 1,024"):
        work(Asked([str(path)], TOLD))
    path.write_text(head + "".join(f"all_reduce,2,4,{size},20\n" for size in range(4, 24_008, 4)))
    with pytest.raises(InputError, match="6,001 sizes of collectives, nodes and GPUs, more than 5,000"):
        work(Asked([str(path)], TOLD))
    path.write_text(head + "all_reduce,2,4,1024,N/A\n")
    with pytest.raises(InputError, match="no row of a collective can be used") as error:
        work(Asked([str(path)], TOLD))
    assert error.value.hint == "left out: 1 cut, or not to be read"


def test_profiles_with_mistakes_name_them(folder: Path, tmp_path: Path) -> None:
    made = work(asked(folder))
    result = profile("mine", made.made, made.log, made.sources, {})
    assert predicted(Bars(result, made.made.model), made.made.points)
    path = tmp_path / "bad.yaml"
    text = "cluster: x\nhardware: {gpu: hopper, gpus: 8, nics: 8, nic: 400Gbps}\n"
    text += "costs: {nic.rate: {value: 3us, interval: [1Gbps, 2Gbps], told: true}, nic.rat: {value: 1ns, "
    text += "interval: [1ns, 2ns], told: no}}\nscatter: {above: 0.1}\nrange: {nodes: [1, 2], gpus: [1, 2], "
    text += "sizes: [1, 2], collectives: [all_reduce]}\n"
    path.write_text(text.replace("told: no", "told: false"))
    with pytest.raises(InputError) as error:
        load(path)
    found = str(error.value) + " ".join(map(str, error.value.also))
    assert "bad.yaml:3: costs.nic.rate" in found and "did you mean 'nic.rate'" in found and "is missing" in found


def test_what_single_links_show_is_known_beforehand() -> None:
    """`ib_write_bw` with 196.5 Gb/s and 80 million messages a second, of NICs of 200 Gb/s."""
    model = LibraryModel(Hardware("ampere", 8, 8, 200e9), {})
    log = Log(links=[Link("x", 1, 2, 1e9, None, 80e6), Link("x", 2, 1 << 20, 196.5e9, None, 0.02e6)])
    known, bare = dict(zip(NAMES, np.exp(prior(model, log).x), strict=True)), model.priors()
    assert (known["nic.rate"], bare["nic.rate"]) == (pytest.approx(196.5e9), pytest.approx(196e9))
    assert known["net.message"] == pytest.approx(12.5) and known["net.hop"] == pytest.approx(bare["net.hop"])
    log = Log(links=[Link("x", 7, 1 << 20, 25e9)])
    prior(model, log)
    assert log.warnings == ["x:7: a link carries 25 Gb/s, and the NICs are said to have 200 Gb/s"]
