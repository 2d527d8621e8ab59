"""Fabrics that are predicted without a graph: as with one where both can be, and of any size."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.predict import predict
from testbed.predict.large import large_figures, of_any_size
from tests.parts.predicted import (
    DELAY,
    LATENCY,
    PCIE,
    POST,
    RAIL,
    TORUS,
    collective,
    experiment,
    figures,
    pcie_ns,
    wire_ns,
)

CLOS = "{clos: {leaves: 2, spines: 1, hosts_per_leaf: 4, pods: 2, cores: 1}}"


@pytest.mark.parametrize("topology", ["{star: {hosts: 8}}", "{ring: {nodes: 9}}", TORUS, RAIL, CLOS])
@pytest.mark.parametrize(
    "step",
    [
        collective("all_reduce", "ring", "4KiB", "4MiB"),
        collective("all_gather", "ring", "256KiB"),
        collective("all_reduce", "direct_reduce", "4KiB", "256KiB", "4MiB"),
        collective("optimizer_step", "optimus_nic", "256KiB", optimizer="adam"),
        collective("optimizer_step", "host", "256KiB"),
    ],
    ids=lambda step: f"{step['collective']}-{step['algorithm']}",
)
def test_a_ring_without_a_graph_is_as_with_one(topology: str, step: dict[str, Any]) -> None:
    one = experiment(topology, step)
    with_graph, without = predict(one).figures, list(large_figures(one))
    assert [f.time_ns for f in without] == pytest.approx([f.time_ns for f in with_graph], rel=0.01)


@pytest.mark.parametrize(
    ("topology", "step"),
    [
        (TORUS, collective("all_reduce", "torus", "4KiB", "1MiB")),
        ("{ring: {nodes: 9}}", collective("all_reduce", "torus", "1MiB")),
        ("{torus: {dims: [4, 4]}}", collective("all_reduce", "halving_doubling", "4KiB", "1MiB")),
        ("{torus: {dims: [4, 4]}}", collective("all_gather", "bruck", "256KiB")),
        (TORUS, {"collective": "barrier", "algorithm": "dissemination"}),
        (RAIL, collective("all_gather", "recursive_doubling", "4KiB", "1MiB")),
        ("{star: {hosts: 16}}", collective("reduce_scatter", "halving", "4KiB", "1MiB")),
        ("{star: {hosts: 12}}", collective("all_reduce", "halving_doubling", "4KiB", "1MiB")),
        ("{star: {hosts: 23}}", collective("all_reduce", "halving_doubling", "4KiB", "1MiB")),
        ("{torus: {dims: [4, 5]}}", collective("all_reduce", "halving_doubling", "4KiB", "256KiB", "4MiB")),
    ],
)
def test_rounds_without_a_graph_are_as_with_one(topology: str, step: dict[str, Any]) -> None:
    one = experiment(topology, step)
    with_graph, without = predict(one).figures, list(large_figures(one))
    assert [f.time_ns for f in without] == pytest.approx([f.time_ns for f in with_graph], rel=0.03)


@pytest.mark.parametrize(
    ("topology", "algorithm", "off"),
    [
        ("{star: {hosts: 16}}", "spread", 0.01),
        ("{star: {hosts: 16}}", "pairwise", 0.01),
        ("{torus: {dims: [6, 6]}}", "pairwise", 0.01),
        ("{torus: {dims: [5, 5]}}", "spread", 0.01),
        ("{torus: {dims: [4, 4]}}", "spread", 0.06),
        ("{ring: {nodes: 15}}", "spread", 0.03),
        ("{ring: {nodes: 16}}", "spread", 0.03),
        ("{clos: {leaves: 4, spines: 1, hosts_per_leaf: 4}}", "spread", 0.01),
        ("{clos: {leaves: 4, spines: 4, hosts_per_leaf: 4}}", "spread", 0.01),
        ("{rail: {servers: 4, gpus: 4, spines: 2}}", "spread", 0.05),
    ],
)
def test_an_all_to_all_without_a_graph_is_as_with_one(topology: str, algorithm: str, off: float) -> None:
    one = experiment(topology, collective("all_to_all", algorithm, "4KiB", "1MiB"))
    with_graph, without = predict(one).figures, list(large_figures(one))
    assert [f.time_ns for f in without] == pytest.approx([f.time_ns for f in with_graph], rel=off)


@pytest.mark.parametrize(
    "topology",
    [
        "{star: {hosts: 12}}",
        RAIL,
        "{clos: {leaves: 3, spines: 2, hosts_per_leaf: 5}}",
        "{clos: {leaves: 2, spines: 2, hosts_per_leaf: 3, pods: 3, cores: 3}}",
        "{torus: {dims: [4, 6]}}",
        "{torus: {dims: [3, 3, 3]}}",
        "{ring: {nodes: 13}}",
    ],
)
@pytest.mark.parametrize("name", ["broadcast", "all_gather"])
def test_multicast_without_a_graph_is_as_with_one(topology: str, name: str) -> None:
    one = experiment(topology, collective(name, "multicast", "4KiB", "1MiB"))
    with_graph, without = predict(one).figures, list(large_figures(one))
    assert [f.time_ns for f in without] == pytest.approx([f.time_ns for f in with_graph], rel=0.01)


def test_a_cutoff_that_is_shorter_than_the_way_is_refused() -> None:
    """A rank counts from its start on, beyond what a whole datagram takes of its cable: a fetch and the way."""
    shortest = 2 * PCIE + pcie_ns(4) + 2 * wire_ns(82 + 24 + 4) + LATENCY - PCIE - wire_ns(82 + 24 + 4096)
    enough, short = (f"  cable: {{delay: {(20_000 - shortest) / 2 + by}ns}}\n" for by in (-0.1, 0.1))
    step = collective("broadcast", "multicast", "4B")
    for more in (enough, short):
        one = experiment("{star: {hosts: 4}}", step, more=more)
        for of in (lambda e: predict(e).figures, lambda e: list(large_figures(e))):
            if more is enough:
                assert len(of(one)) == 1
                continue
            with pytest.raises(InputError, match="cutoff of 20us ends before") as caught:
                of(one)
            assert caught.value.where == "t.yaml:6: workload[0].cutoff" and "21us is enough" in caught.value.hint
    assert len(figures("{star: {hosts: 4}}", {**step, "cutoff": "21us"}, more=short)) == 1


def test_an_all_to_all_on_a_torus_takes_its_busiest_cable() -> None:
    """32 cubed, 128 MiB: each cable carries n/d x (1 + .. + 16) messages of one packet, with RETH and immediate."""
    with of_any_size():
        one = experiment("{torus: {dims: [32, 32, 32]}}", collective("all_to_all", "spread", "128MiB"))
    (found,) = predict(one).figures
    assert found.time_ns == pytest.approx(1024 * (16 * 17 / 2) * wire_ns(4198), rel=0.01)


def test_a_torus_of_64_cubed_takes_its_hops() -> None:
    """2 x 3 x 63 hops of one packet of an element or two, each over two switches; 3 x 63 of them reduce."""
    with of_any_size():
        one = experiment("{torus: {dims: [64, 64, 64]}}", collective("all_reduce", "torus", "1MiB"))
    (found,) = predict(one).figures

    def hop(nbytes: int) -> float:
        received = 3 * PCIE + 2 * pcie_ns(nbytes) + 3 * (wire_ns(82 + 20 + nbytes) + DELAY) + 2 * LATENCY
        return POST + received

    chunks = [16384, 256, 4]
    # the first dimension's 16 KiB are four packets
    expected = sum(126 * hop(min(c, 4096)) + 63 * c * 8 / 800 for c in chunks) + 126 * 3 * wire_ns(4096 + 82)
    assert found.ranks == 262_144 and found.time_ns == pytest.approx(expected, rel=0.01)
