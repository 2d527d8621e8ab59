"""Trees of hosts and of switches on large fabrics, against the same on small ones with their graphs."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.experiment import Experiment, loads
from testbed.predict import predict
from testbed.predict.large import large_figures, of_any_size
from workloads.times.wide.in_network import tree_of
from workloads.times.wide.places import Grid


def experiment(topology: str, *steps: dict[str, Any]) -> Experiment:
    text = "".join(f"- {step}\n".replace("'", "") for step in steps)
    return loads(f"name: t\nfabric: {{topology: {{{topology}}}}}\nworkload:\n{text}", "t.yaml")


def step(name: str, algorithm: str, sizes: str, **more: Any) -> dict[str, Any]:
    return {"collective": name, "algorithm": algorithm, "sizes": f"[{sizes}]", **more}


@pytest.mark.parametrize(
    "topology",
    [
        "star: {hosts: 12}",
        "ring: {nodes: 8}",
        "ring: {nodes: 9}",
        "torus: {dims: [2, 5, 2]}",
        "torus: {dims: [6, 8]}",
        "rail: {servers: 4, gpus: 4, spines: 2}",
        "rail: {servers: 6, gpus: 1, spines: 2}",
        "clos: {leaves: 4, spines: 3, hosts_per_leaf: 5}",
        "clos: {leaves: 3, spines: 2, hosts_per_leaf: 4, pods: 2, cores: 3}",
        "clos: {leaves: 1, spines: 2, hosts_per_leaf: 4, pods: 3, cores: 3}",
    ],
)
def test_switches_add_up_over_the_controllers_tree(topology: str) -> None:
    """Of several jobs: each has another one of the equally good roots."""
    one = experiment(topology, *[step("all_reduce", "in_network", "4B, 4KiB, 4MiB")] * 3)
    with_graph, without = predict(one).figures, list(large_figures(one))
    assert [f.time_ns for f in without] == pytest.approx([f.time_ns for f in with_graph], rel=1e-9)


def test_a_torus_of_64_cubed_has_a_tree_of_96_hops() -> None:
    tree = tree_of(Grid((64, 64, 64)), 1)
    assert tree.far.max() == 3 * 32 and tree.inputs.sum() == 2 * 64**3 - 1  # a rank each, and all but the root
    assert (tree.far[tree.above] == tree.far - (tree.far > 0)).all()


def test_more_branches_than_an_accelerators_bitmap_has_bits_are_refused() -> None:
    with pytest.raises(InputError, match="32768 contributors .* 64 bits") as caught, of_any_size():
        predict(experiment("rail: {servers: 32768, gpus: 8}", step("all_reduce", "in_network", "1MiB")))
    assert caught.value.where == "t.yaml:4: workload[0].algorithm" and "falls back" in caught.value.hint


TREES = [
    step(name, algorithm, "4KiB, 256KiB, 4MiB")
    for name, algorithm in (
        ("broadcast", "binomial_tree"),
        ("reduce", "binomial_tree"),
        ("scatter", "binomial_tree"),
        ("gather", "binomial_tree"),
        ("scatter", "linear"),
        ("gather", "linear"),
        ("broadcast", "chain"),
        ("broadcast", "scatter_all_gather"),
    )
]


@pytest.mark.parametrize(
    ("topology", "off"),
    [
        ("star: {hosts: 12}", 0.01),
        ("torus: {dims: [4, 4, 2]}", 0.05),
        ("torus: {dims: [3, 5]}", 0.06),
        ("rail: {servers: 3, gpus: 4, spines: 2}", 0.03),
        ("clos: {leaves: 3, spines: 2, hosts_per_leaf: 4, pods: 2, cores: 3}", 0.03),
    ],
)
def test_trees_of_hosts_are_as_message_by_message(topology: str, off: float) -> None:
    one = experiment(topology, *TREES)
    with_graph, without = predict(one).figures, list(large_figures(one))
    assert [f.time_ns for f in without] == pytest.approx([f.time_ns for f in with_graph], rel=off)


@pytest.mark.parametrize("topology", ["star: {hosts: 12}", "ring: {nodes: 16}", "torus: {dims: [4, 4]}"])
def test_two_rings_the_other_way_round_share_each_nic(topology: str) -> None:
    one = experiment(topology, step("all_reduce", "bidirectional_ring", "4KiB, 256KiB, 4MiB"))
    with_graph, without = predict(one).figures, list(large_figures(one))
    assert [f.time_ns for f in without] == pytest.approx([f.time_ns for f in with_graph], rel=0.03)
