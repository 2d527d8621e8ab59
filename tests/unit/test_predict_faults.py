"""Faults of cables that last for the whole run are predicted; of all others the error leads somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.base.errors import InputError
from testbed.cli import cli
from testbed.experiment import Experiment, loads
from testbed.predict import Prediction, predict
from testbed.predict.large import of_any_size

CHUNK = 1 << 20


def experiment(*faults: str, cables: str = "{}", step: str = "", topology: str = "star: {hosts: 4}") -> Experiment:
    step = step or f"collective: all_reduce, algorithm: ring, sizes: [{4 * CHUNK}B]"
    listed = "".join(f"- {{{fault}}}\n" for fault in faults)
    injected = f"inject:\n{listed}" if faults else ""
    with of_any_size():
        return loads(
            f"name: t\nfabric:\n  topology: {{{topology}}}\n  cables: {cables}\nworkload:\n- {{{step}}}\n{injected}",
            "t.yaml",
        )


def time_ns(prediction: Prediction) -> float:
    (figure,) = prediction.figures
    return figure.time_ns


def test_a_ring_over_a_slower_cable_is_as_long_as_that_is_busy() -> None:
    """2 (p - 1) chunks of 1 MiB leave rank 2, one behind the other: 4,178 bytes for 4,096 of payload."""
    slower = time_ns(predict(experiment("fault: reduced_rate, on: 'nic:2', rate: 100Gbps")))
    busy = 6 * CHUNK * 4178 / 4096 * 8 / 100
    assert busy < slower < 1.05 * busy
    assert time_ns(predict(experiment())) < busy / 2


def test_a_longer_cable_adds_its_delay_to_every_step() -> None:
    """A message waits for 2 us more on its way to rank 2, and another on its way from there."""
    healthy = time_ns(predict(experiment(step="collective: all_reduce, algorithm: ring, sizes: [64B]")))
    longer = experiment(
        "fault: long_cable, on: 'all', delay: 2500ns", step="collective: all_reduce, algorithm: ring, sizes: [64B]"
    )
    # two cables a step; the last step is also known to its sender, over two more
    assert time_ns(predict(longer)) - healthy == pytest.approx(6 * 2 * 2000, abs=2 * 2 * 2000)


def test_auto_knows_nothing_of_a_fault() -> None:
    step = "collective: all_reduce, algorithm: auto, sizes: [4KiB, 1MiB]"
    faulty = experiment("fault: reduced_rate, on: all, rate: 1Gbps", step=step)
    built_so = experiment(cables="{all: {rate: 1Gbps}}", step=step)
    names = [figure.algorithm for figure in predict(faulty).figures]
    assert names == [figure.algorithm for figure in predict(experiment(step=step)).figures]
    assert names != [figure.algorithm for figure in predict(built_so).figures]


def test_a_fault_wins_over_what_the_file_says_of_the_cable() -> None:
    on = "fault: reduced_rate, on: 'nic:1', rate: 50Gbps"
    both = predict(experiment(on, cables="{nic:1: {rate: 100Gbps, delay: 3us}, all: {delay: 1us}}"))
    assert time_ns(both) == time_ns(predict(experiment(cables="{all: {delay: 1us}, nic:1: {rate: 50Gbps}}")))


@pytest.mark.parametrize(
    ("fault", "topology", "what", "hint"),
    [
        ("fault: reduced_rate, on: 'nic:0', rate: 1Gbps, at: 1us", "star: {hosts: 4}", "last", "no `at`, `for`"),
        ("fault: reduced_rate, on: 'nic:0', rate: 1Gbps, for: 1us", "star: {hosts: 4}", "last", "no `at`, `for`"),
        ("fault: loss, on: all, rate: 0.1", "star: {hosts: 4}", "no model of loss", "--set 'inject=[]' leaves it out"),
        ("fault: cable_down, on: 'nic:0'", "star: {hosts: 4}", "no model of cable_down", "--set 'inject=[]'"),
        ("fault: reduced_rate, on: all, rate: 1Gbps", "star: {hosts: 4000}", "so large", "--set 'inject=[]'"),
    ],
)
def test_other_faults_are_refused_with_what_helps(fault: str, topology: str, what: str, hint: str) -> None:
    with pytest.raises(InputError) as wrong:
        predict(experiment(fault, topology=topology))
    assert what in wrong.value.what and hint in wrong.value.hint
    assert wrong.value.where.startswith("t.yaml:8")


def predicted(file: Path, *more: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["predict", str(file), *more])
    return done.exit_code, done.output


def test_the_hint_of_a_sweep_over_faults_leads_on(tmp_path: Path) -> None:
    file = tmp_path / "swept.yaml"
    file.write_text(
        "name: t\nfabric: {topology: {star: {hosts: 4}}}\n"
        "workload:\n- {collective: all_reduce, algorithm: ring, sizes: [1KiB]}\n"
        "inject:\n- {fault: loss, on: all, rate: 0.001}\nsweep: {inject.0.rate: [0.001, 0.01]}\n"
    )
    code, text = predicted(file)
    hint = re.search(r"(--set 'sweep=\{\}' --set 'inject=\[\]')", text)
    assert code == 2 and hint is not None, text
    code, text = predicted(file, *hint[1].replace("'", "").split(), "--json")
    assert code == 0 and len(json.loads(text)["results"]) == 1
