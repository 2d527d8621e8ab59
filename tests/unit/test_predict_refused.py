"""What is not predicted is refused: at its place, all at once, with a hint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.cli import cli
from testbed.predict import predict
from testbed.predict.large import of_any_size
from tests.parts.predicted import (
    collective,
    experiment,
)


@pytest.mark.parametrize(
    ("step", "what", "where"),
    [
        (collective("all_reduce", "omnireduce", "64KiB"), "zeros", "t.yaml:5: workload[0].algorithm"),
        (collective("all_reduce", "in_network_best_effort", "64KiB"), "slots", "t.yaml:5: workload[0].algorithm"),
        (
            collective("all_reduce", "direct_reduce", "64KiB", compression="bfp"), "compression",
            "t.yaml:5: workload[0].compression",
        ),
        ({"flows": [{"from": 0, "to": 1, "size": "1MB"}]}, "share cables", "t.yaml:5: workload[0]"),
        ({"load": {"pattern": "random"}}, "drawn times", "t.yaml:5: workload[0]"),
        (collective("all_reduce", "ring", "1MiB", groups=[[0, 2], [1, 3]]), "share", "t.yaml:5: workload[0]"),
        ({"torch": __file__, "gpu": {"flops": "40T"}}, "the script does is known", "t.yaml:5: workload[0]"),
        ({"program": ["true"]}, "a program does is known", "t.yaml:5: workload[0]"),
    ],
)  # fmt: skip
def test_what_there_is_no_model_of_is_refused_at_its_place(step: dict[str, Any], what: str, where: str) -> None:
    one = experiment("{clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}}", step)
    with pytest.raises(InputError) as caught:
        predict(one)
    assert what in caught.value.what and where in caught.value.where and caught.value.hint


def test_faults_are_refused_all_at_once() -> None:
    more = "inject:\n  - {fault: loss, on: all, rate: 0.01}\n  - {fault: cable_down, on: 'cable:h0-sw0'}\n"
    with pytest.raises(InputError) as caught:
        predict(experiment("{star: {hosts: 4}}", collective("all_reduce", "ring", "1MiB"), more=more))
    assert "loss" in caught.value.what and caught.value.where == "t.yaml:5: inject[0]"
    assert [p.where for p in caught.value.also] == ["t.yaml:6: inject[1]"]


@pytest.mark.parametrize(
    ("topology", "step", "what"),
    [
        ("{torus: {dims: [64, 64]}}", collective("broadcast", "multicast", "4KiB"), "its cutoff of 20us ends before"),
        ("{star: {hosts: 8}}", {**collective("all_gather", "multicast", "4KiB"), "chains": 2}, "in chains"),
        ("{torus: {dims: [65, 64]}}", collective("all_to_all", "pairwise", "1MiB"), "too many rounds"),
        (
            "{clos: {leaves: 64, spines: 1, hosts_per_leaf: 128}}",
            collective("all_to_all", "pairwise", "1MiB"),
            "overlap on uplinks",
        ),
        (
            "{clos: {leaves: 64, spines: 2, hosts_per_leaf: 128}}",
            collective("all_to_all", "spread", "1MiB"),
            "its flows are not counted",
        ),
        ("{torus: {dims: [64, 64]}}", collective("all_reduce", "double_binary_tree", "64MiB"), "more than 240,000"),
        ("{torus: {dims: [65, 65]}}", collective("reduce_scatter", "halving", "1MiB"), "for 4225 ranks"),
        ("{star: {hosts: 5000}}", collective("send_recv", "auto", "1MiB"), "takes 2 ranks, not 5000"),
        ("{star: {hosts: 5000}}", collective("send_recv", "pair", "1MiB"), "takes 2 ranks, not 5000"),
        ("{star: {hosts: 5000}}", collective("all_reduce", "ring", "1MiB", ranks=[7, 4999]), "all ranks take part"),
        ("{star: {hosts: 5000}}", collective("all_reduce", "ring", "1MiB", ranks=[0, 5000]), "no rank 5000"),
        ("{torus: {dims: [64, 64]}}", collective("all_reduce", "ring", "1MiB", ranks=[0, 1]), "all ranks take part"),
        ("{torus: {dims: [1024, 1024]}}", collective("all_reduce", "torus", "1MiB"), "1048576 ranks are too many"),
        (
            "{clos: {pods: 8, leaves: 16, spines: 16, hosts_per_leaf: 256}}",
            collective("all_reduce", "ring", "1MiB"),
            "nothing joins the 8 pods",
        ),
        (
            "{clos: {leaves: 16, spines: 16, hosts_per_leaf: 256, pods: 1, cores: 4}}",
            collective("all_reduce", "ring", "1MiB"),
            "cores join pods",
        ),
        (
            "{clos: {leaves: 17, spines: 16, hosts_per_leaf: 256, links: 2}}",
            collective("all_reduce", "ring", "1MiB"),
            "17 leaves are no groups of 2",
        ),
        (
            "{rail: {servers: 300, gpus: 8, spines: 0}}",
            collective("all_reduce", "ring", "1MiB"),
            "nothing joins the 8 rails",
        ),
        ("{torus: {dims: [64, 64], direct: true}}", collective("all_reduce", "torus", "1MiB"), "several ports"),
    ],
)
def test_of_a_large_fabric_the_same_is_refused_at_its_place(topology: str, step: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError) as caught, of_any_size():
        predict(experiment(topology, step))
    assert what in caught.value.what and "t.yaml:" in caught.value.where and caught.value.hint


def test_only_predictions_have_large_fabrics() -> None:
    with pytest.raises(InputError, match="too many"):
        experiment("{torus: {dims: [64, 64]}}", collective("all_reduce", "torus", "1MiB"))


def test_all_that_is_wrong_with_a_point_is_said(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(
        "name: e\nfabric: {topology: {star: {hosts: 4}}}\nsweep: {seed: [1, 2]}\n"
        "workload: [{collective: all_reduce, sizes: [16KiB]}]\n"
        "inject: [{fault: loss, on: all, rate: 0.01}, {fault: cable_down, on: 'cable:h0-sw0'}]\n"
    )
    with pytest.raises(SystemExit):
        cli.main(["predict", str(file), "--json"])
    error = json.loads(capsys.readouterr().out)["error"]
    (also,) = error["also"]
    assert "loss" in error["what"] and "cable_down" in also["what"]
    assert error["where"] == also["where"] == f"{file}: point seed = 1"


def test_the_values_of_a_point_are_not_said_in_python(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(
        "name: e\nfabric: {topology: {star: {hosts: 4}}}\n"
        "sweep: {workload.0.chunk: [null], fabric.topology: [{star: {hosts: 2}}], fabric.nic.pfc: [false]}\n"
        "workload: [{collective: all_reduce, sizes: [16KiB]}]\n"
    )
    with pytest.raises(SystemExit):
        cli.main(["predict", str(file)])
    head = capsys.readouterr().out.splitlines()[0]
    assert "chunk = none, topology = star hosts=2, pfc = false" in head
    file.write_text(file.read_text() + "inject: [{fault: loss, on: all, rate: 0.01}]\n")
    with pytest.raises(SystemExit):
        cli.main(["predict", str(file), "--json"])
    where = json.loads(capsys.readouterr().out)["error"]["where"]
    assert where == f"{file}: point chunk = none, topology = star hosts=2, pfc = false"
