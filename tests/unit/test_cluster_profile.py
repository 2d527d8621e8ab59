"""`cluster:` in an experiment: what a profile fills in, what the experiment's own keys win, expected errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.base.errors import InputError
from testbed.base.units import parse_rate
from testbed.commands.predict import command
from testbed.experiment import Experiment, loads
from testbed.predict.expected_error import expected_errors, in_words
from topologies.graph import frames

PROFILE = """
cluster: mine
hardware: {gpu: hopper, gpus: 4, nics: 4, nic: 400Gbps, host: amd}
library: {version: 2.29.2, env: {NCCL_ALGO: Ring, NCCL_DEBUG: INFO}}
costs:
  nic.rate: {value: 350Gbps, interval: [345Gbps, 355Gbps], told: true}
  cta.rate: {value: 170Gbps, interval: [160Gbps, 180Gbps], told: true}
  nvlink.rate: {value: 2500Gbps, interval: [2Tbps, 3Tbps], told: false}
  net.message: {value: 90ns, interval: [40ns, 200ns], told: false}
correlation: {nic.rate: [1], cta.rate: [-0.5, 1]}
scatter: {below 64KiB: 0.1, to 1MiB: 0.1, to 64MiB: 0.05, above: 0.02}
range: {nodes: [2, 4], gpus: [1, 4], sizes: [1024, 1073741824], collectives: [all_gather, all_reduce]}
"""
EXPERIMENT = """
name: of-a-cluster
fabric: {topology: {rail: {servers: SERVERS, gpus: 4, spines: 1}}}
cluster: mine.yaml
workload: [{collective: all_gather, sizes: [64KiB, 64MiB]}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.yaml").write_text(PROFILE)
    return tmp_path


def experiment(folder: Path, more: str = "", servers: int = 2) -> Experiment:
    return loads(EXPERIMENT.replace("SERVERS", str(servers)) + more, "x.yaml", folder)


def test_a_profile_fills_in_what_is_left_out(folder: Path) -> None:
    made = experiment(folder)
    library = made.library
    assert library is not None and library.env == {"NCCL_ALGO": "Ring"}  # what changes no schedule is left out
    assert (library.version, library.gpu, library.host) == ("2.29.2", "hopper", "amd")
    assert library.numbers()["cta.rate"] == 170e9 and made.costs.post == 90.0
    assert made.fabric.scale_up is not None and made.fabric.scale_up.rate == 2500e9
    payload = made.fabric.cable.rate * 4096 / (4096 + frames.FRAME_BYTES)
    assert payload == pytest.approx(350e9, rel=1e-6)  # what its NICs carry, headers besides
    assert made.workload[0].algorithm == "library"  # type: ignore[attr-defined]


def test_the_experiments_own_keys_win(folder: Path) -> None:
    made = experiment(folder, "library: {version: 2.30.7, costs: {cta.rate: 99Gbps}}\ncosts: {wake: 1us}\n")
    assert made.library is not None and made.library.version == "2.30.7" and made.library.gpu == "hopper"
    numbers = made.library.numbers()
    assert (numbers["cta.rate"], numbers["nic.rate"]) == (99e9, 350e9)
    assert (made.costs.wake, made.costs.post) == (1000.0, 90.0)
    none = experiment(folder, "library: null\n")
    assert none.library is None and none.fabric.cable.rate > 350e9


def test_what_is_resolved_needs_no_file(folder: Path, tmp_path: Path) -> None:
    made = experiment(folder)
    again = loads(json.dumps(made.resolved()), "resolved", tmp_path / "elsewhere")
    assert again == made and again.cluster == made.cluster


def test_without_a_profile_nothing_is_filled_in(folder: Path) -> None:
    text = EXPERIMENT.replace("SERVERS", "2").replace("cluster: mine.yaml", "")
    made = loads(text, "x.yaml", folder)
    assert (made.cluster, made.library, made.fabric.cable.rate) == (None, None, parse_rate("400Gbps"))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("none.yaml", "there is no cluster profile 'none.yaml'"),
        ("broken.yaml", "unknown cost"),
        ("..", "no cluster profile"),
    ],
)
def test_profiles_that_are_none(folder: Path, name: str, what: str) -> None:
    (folder / "broken.yaml").write_text(PROFILE.replace("cta.rate: {", "cta.speed: {"))
    with pytest.raises(InputError) as error:
        loads(EXPERIMENT.replace("SERVERS", "2").replace("mine.yaml", name), "x.yaml", folder)
    assert what in error.value.what and error.value.where.startswith("x.yaml:4: cluster")


def test_predict_says_how_far_off_it_may_be(folder: Path) -> None:
    path = folder / "x.yaml"
    path.write_text(EXPERIMENT.replace("SERVERS", "8").replace("64MiB", "2MiB"))
    result = CliRunner().invoke(command, [str(path), "--json"], catch_exceptions=False)
    small, large = json.loads(result.stdout)["results"]
    assert small["error_percent"] > large["error_percent"] > 100 * (2.718 ** (1.6449 * 0.02) - 1)
    assert small["beyond"] == large["beyond"] == ["nodes 8 > 4"]
    text = CliRunner().invoke(command, [str(path)], catch_exceptions=False).stdout
    assert "# outside what was measured: nodes 8 > 4" in text and "± (%)" in text


def test_lines_for_a_run(folder: Path) -> None:
    made = experiment(folder)
    (line,) = in_words(made, expected_errors(made))
    assert line.startswith("mine: expected error (90 %) of all_gather") and "64KiB ± " in line and "64MiB ± " in line
