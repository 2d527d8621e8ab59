"""Trees of hosts and of switches on large fabrics, against the same on small ones with their graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from testbed.base.errors import InputError
from testbed.experiment import Experiment, loads
from testbed.predict import predict
from testbed.predict.large import large_figures, of_any_size
from workloads.times.messages import Costs, Path
from workloads.times.wide import both_ways, trees
from workloads.times.wide.around import Edge, Ring, direct_over_ns
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


def test_several_gpus_on_a_leaf_are_said_to_have_no_model() -> None:
    with pytest.raises(InputError, match="no model of servers with several GPUs on a leaf"), of_any_size():
        predict(
            experiment("clos: {leaves: 64, spines: 8, hosts_per_leaf: 16, gpus: 8}", step("all_reduce", "ring", "1MiB"))
        )


def test_more_branches_than_an_accelerators_bitmap_has_bits_are_refused() -> None:
    with pytest.raises(InputError, match="32768 contributors .* 64 bits") as caught, of_any_size():
        predict(experiment("rail: {servers: 32768, gpus: 8}", step("all_reduce", "in_network", "1MiB")))
    assert caught.value.where == "t.yaml:4: workload[0].algorithm" and "falls back" in caught.value.hint


TREES = [
    step(name, algorithm, "4KiB, 1MiB")
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


PAT = [("all_gather", "pat"), ("reduce_scatter", "pat")]
CUBES = [("all_reduce", "recursive_doubling"), ("all_to_all", "hypercube")]


@pytest.mark.parametrize(
    ("topology", "algorithms"),
    [("star: {hosts: 16}", PAT + CUBES), ("torus: {dims: [3, 5]}", PAT), ("rail: {servers: 4, gpus: 4}", CUBES)],
)
def test_trees_and_cubes_in_rounds_are_as_message_by_message(topology: str, algorithms: list[tuple[str, str]]) -> None:
    one = experiment(topology, *(step(*its, "4KiB, 256KiB") for its in algorithms))
    with_graph, without = predict(one).figures, list(large_figures(one))
    assert [f.time_ns for f in without] == pytest.approx([f.time_ns for f in with_graph], rel=0.01)


@pytest.mark.parametrize(
    "topology",
    [
        "star: {hosts: 12}",
        "torus: {dims: [3, 5]}",
        "clos: {leaves: 4, spines: 2, hosts_per_leaf: 4}",
        "rail: {servers: 4, gpus: 4}",
    ],
)
def test_two_rings_the_other_way_round_are_followed_on_a_few_ranks(topology: str) -> None:
    one = experiment(topology, step("all_reduce", "bidirectional_ring", "4KiB, 1MiB"))
    with_graph, without = predict(one).figures, list(large_figures(one))
    assert [f.time_ns for f in without] == pytest.approx([f.time_ns for f in with_graph], rel=0.01)


@pytest.mark.parametrize(
    ("topology", "off"),
    [
        ("star: {hosts: 48}", 0.005),
        ("torus: {dims: [6, 6]}", 0.01),
        ("clos: {leaves: 10, spines: 1, hosts_per_leaf: 4}", 0.005),
        ("rail: {servers: 6, gpus: 6}", 0.02),
    ],
)
def test_more_ranks_of_two_rings_take_what_they_add_to_a_few(
    topology: str, off: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(both_ways, "MOST_FOLLOWED", 0)
    one = experiment(topology, step("all_reduce", "bidirectional_ring", "64KiB, 4MiB"))
    with_graph, without = predict(one).figures, list(large_figures(one))
    assert [f.time_ns for f in without] == pytest.approx([f.time_ns for f in with_graph], rel=off)


@pytest.mark.parametrize("topology", ["star: {hosts: 12}", "rail: {servers: 2, gpus: 8}", "torus: {dims: [3, 5]}"])
def test_a_chain_that_reduces_is_followed_where_it_begins(topology: str) -> None:
    """Whose first rank has all pieces at once: a host adds up all that have come before it sends on."""
    one = experiment(topology, step("reduce", "chain", "4KiB, 4MiB"))
    with_graph, without = predict(one).figures, list(large_figures(one))
    assert [f.time_ns for f in without] == pytest.approx([f.time_ns for f in with_graph], rel=0.003)


@pytest.mark.parametrize("topology", ["star: {hosts: 12}", "clos: {leaves: 24, spines: 2, hosts_per_leaf: 8}"])
def test_of_very_many_ranks_when_each_begins_its_ring_makes_no_difference(
    topology: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = experiment(topology, step("broadcast", "scatter_all_gather", "4KiB, 4MiB"))
    followed = [f.time_ns for f in large_figures(one)]
    monkeypatch.setattr(trees, "_HOPS", 4)
    assert [f.time_ns for f in large_figures(one)] == pytest.approx(followed, rel=0.003)


def test_a_short_last_packet_keeps_a_slow_engine_for_its_bytes_alone() -> None:
    """One rank more is one hop more, in which every engine goes over all bytes of a chunk."""
    costs = Costs(engine_reduce_bps=1e9)
    path = Path.uniform(1, rate_bps=400e9, delay_ns=500, latency_ns=500)

    def time_ns(ranks: int) -> float:
        ring = Ring([Edge(path, path)], np.zeros(ranks, np.intp))
        return direct_over_ns([1] * (ranks - 1), costs.mtu + 1000, ring, costs)

    assert time_ns(12) - time_ns(11) == pytest.approx((costs.mtu + 1000) * 8, rel=1e-6)


def test_a_hint_names_what_the_steps_collective_has_a_model_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.times.wide.model.MOST_FOLLOWED", 10)
    one = experiment("star: {hosts: 12}", step("all_reduce", "double_binary_tree", "1MiB"))
    with pytest.raises(InputError, match="no model of .*double_binary_tree") as caught:
        list(large_figures(one))
    assert "bidirectional_ring" in caught.value.hint and "linear" not in caught.value.hint


def test_auto_takes_the_fastest_of_those_with_a_model() -> None:
    sizes = "4KiB, 1MiB, 16MiB"
    one = list(large_figures(experiment("torus: {dims: [4, 8]}", step("all_reduce", "auto", sizes))))
    by_name = [
        list(large_figures(experiment("torus: {dims: [4, 8]}", step("all_reduce", name, sizes))))
        for name in ("ring", "torus", "halving_doubling", "bidirectional_ring", "recursive_doubling")
    ]
    assert [f.time_ns for f in one] == [min(f.time_ns for f in its) for its in zip(*by_name, strict=True)]
    assert len({f.algorithm for f in one}) > 1 and all(f.algorithm.endswith(" (auto)") for f in one)


def test_auto_folds_and_names_what_it_has_no_model_of() -> None:
    """5,000 ranks exchange as 4,096, with a message before and one after: not by a ring of 9,998 hops."""
    with of_any_size():
        of = {n: predict(experiment(f"star: {{hosts: {n}}}", step("all_reduce", "auto", "4KiB"))) for n in (4096, 5000)}
    (power,), (folded,) = (its.figures for its in of.values())
    assert folded.algorithm == "recursive_doubling (auto)" and power.time_ns < folded.time_ns < 1.5 * power.time_ns
    assert folded.no_model == ("all_reduce by double_binary_tree",)
    assert folded.to_dict()["no_model"] == ["all_reduce by double_binary_tree"]
    assert "all_reduce by double_binary_tree" in of[5000].left_out[0]


def test_a_size_that_stands_twice_is_predicted_twice() -> None:
    for algorithm in ("ring", "auto"):
        one = experiment("star: {hosts: 8}", step("all_reduce", algorithm, "64KiB, 64KiB"))
        assert [f.size_bytes for f in large_figures(one)] == [f.size_bytes for f in predict(one).figures] == [65536] * 2


@pytest.mark.parametrize("accelerator", ["{}", "{fan_in: 8}"])
def test_a_small_fabric_too_is_refused_where_the_controller_refuses(accelerator: str) -> None:
    """Its run falls back to hosts (controllers/offload/jobs.py)."""
    text = (
        "name: t\nfabric: {topology: {star: {hosts: 100}}, switch: {accelerator: %s}}\n"
        "workload:\n- {collective: all_reduce, algorithm: in_network, sizes: [1MiB]}\n"
    )
    one = loads(text % accelerator, "t.yaml")
    with pytest.raises(InputError, match="100 contributors") as caught:
        predict(one)
    assert caught.value.where == "t.yaml:4: workload[0].algorithm" and "falls back" in caught.value.hint
    with pytest.raises(InputError, match="100 contributors") as again:
        list(large_figures(one))
    assert str(again.value) == str(caught.value)


def test_switches_without_accelerators_are_said_to_have_none() -> None:
    text = (
        "name: t\nfabric: {topology: {star: {hosts: 8}}, switch: {accelerator: null}}\n"
        "workload:\n- {collective: all_reduce, algorithm: in_network, sizes: [1MiB]}\n"
    )
    one = loads(text, "t.yaml")
    for figures in (lambda: predict(one).figures, lambda: list(large_figures(one))):
        with pytest.raises(InputError, match="no accelerator"):
            figures()
