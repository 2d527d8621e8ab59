"""`testbed predict`: times worked from formulas by hand, rules that make long rings short, and what is refused."""

from __future__ import annotations

import json
import time
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from testbed.base.errors import InputError
from testbed.cli import cli
from testbed.experiment import Experiment, loads
from testbed.predict import Figure, predict
from testbed.predict.large import large_figures, of_any_size
from testbed.predict.working import Working
from workloads.times import followed as following
from workloads.times import replay
from workloads.times.messages import Costs, Link, Path
from workloads.times.rings import ring_over_ns
from workloads.times.wide.around import (
    Edge,
    Ring,
    Run,
    always_on,
    direct_over_ns,
    hop_by_hop,
    hops,
    host_ring_over_ns,
    longest_ways,
)

# With all defaults: 4,096 B of payload take 4,178 B of a cable at 400 Gb/s, 4,198 with RETH and immediate
PCIE, DELAY, LATENCY, POST = 500.0, 500.0, 500.0, 100.0


def wire_ns(nbytes: float) -> float:
    return nbytes * 8 / 400


def pcie_ns(nbytes: float) -> float:
    return nbytes * 8 / 512


def experiment(topology: str, *steps: dict[str, Any] | str, more: str = "") -> Experiment:
    text = "".join(f"  - {step if isinstance(step, str) else json.dumps(step)}\n" for step in steps)
    return loads(f"name: t\nfabric:\n  topology: {topology}\n{more}workload:\n{text}", "t.yaml")


def figures(topology: str, *steps: dict[str, Any] | str, more: str = "") -> tuple[Figure, ...]:
    return predict(experiment(topology, *steps, more=more)).figures


def collective(name: str, algorithm: str, *sizes: str, **more: Any) -> dict[str, Any]:
    return {"collective": name, "algorithm": algorithm, "sizes": list(sizes), **more}


def test_a_message_is_what_arithmetic_says() -> None:
    """4 KiB over one switch: docs/closed-form.md has this number, 4835.36 ns."""
    (one,) = figures("{star: {hosts: 2}}", collective("send_recv", "pair", "4096B"))
    there = POST + 2 * PCIE + pcie_ns(4096) + 2 * (wire_ns(4198) + DELAY) + LATENCY
    assert one.time_ns == pytest.approx(there + 2 * (wire_ns(86) + DELAY) + LATENCY + PCIE)
    assert one.time_ns == pytest.approx(4835.36)


def test_a_ring_is_2_n_minus_1_messages() -> None:
    """16 KiB on 4 ranks: 6 messages of one packet, 3 sums; the last acknowledgement comes after the last message."""
    (one,) = figures("{star: {hosts: 4}}", collective("all_reduce", "ring", "16KiB"))
    received = 2 * PCIE + 2 * pcie_ns(4096) + 2 * (wire_ns(4198) + DELAY) + LATENCY + PCIE
    acknowledged = 2 * PCIE + pcie_ns(4096) + 2 * (wire_ns(4198) + DELAY) + LATENCY
    acknowledged += 2 * (wire_ns(86) + DELAY) + LATENCY + PCIE
    added = 4096 * 8 / 800
    assert one.time_ns == pytest.approx(6 * (POST + received) + 3 * added + acknowledged - received)
    assert one.busbw_bps == pytest.approx(2 * 3 / 4 * 16384 / one.time_ns * 1e9)


def test_nics_pay_the_doorbell_once() -> None:
    """DirectReduce, a packet a chunk: 2(n-1) ways through cables, switch and engine; 5 of them follow each other."""
    (one,) = figures("{star: {hosts: 4}}", collective("all_reduce", "direct_reduce", "16KiB"))
    way = 2 * (wire_ns(4178) + DELAY) + LATENCY
    adds, passes = 4096 * 8 / 400, 1e3 / 595.2
    begin, end = POST + 2 * PCIE + pcie_ns(4096), passes + pcie_ns(4096) + PCIE
    assert one.time_ns == pytest.approx(begin + 3 * (way + adds) + 3 * way + 2 * passes + end, rel=1e-6)


def test_groups_side_by_side_are_as_each_alone() -> None:
    step = collective("all_reduce", "ring", "64KiB")
    alone = figures("{clos: {leaves: 2, spines: 1, hosts_per_leaf: 4}}", {**step, "ranks": [0, 1, 2]})
    both = figures("{clos: {leaves: 2, spines: 1, hosts_per_leaf: 4}}", {**step, "groups": [[0, 1, 2], [4, 5, 6]]})
    assert [f.time_ns for f in both] == [alone[0].time_ns] * 2 and [f.group for f in both] == [0, 1]


def test_auto_takes_what_is_predicted_to_be_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.times.followed._LITTLE", inf)  # all are followed to the end
    sizes = ("1KiB", "1MiB")
    names = ("ring", "bidirectional_ring", "halving_doubling", "double_binary_tree", "recursive_doubling")
    each = figures("{star: {hosts: 8}}", *(collective("all_reduce", name, *sizes) for name in names))
    auto = figures("{star: {hosts: 8}}", collective("all_reduce", "auto", *sizes))
    for k, found in enumerate(auto):
        expected = found.chosen["expected_ns"]
        whole = {name: ns for name, ns in expected.items() if name in names}
        assert whole == pytest.approx({one.algorithm: one.time_ns for one in each[k::2]})
        assert (found.time_ns, found.algorithm) == (
            pytest.approx(min(expected.values())),
            f"{min(expected, key=lambda name: expected[name])} (auto)",
        )


def test_tasks_take_their_longest_path() -> None:
    tasks = """tasks: {groups: {g: [[0, 1, 2, 3]]}, list: [{id: a, compute: 50us},
      {id: c, compute: 20us, stream: other},
      {id: b, collective: all_reduce, group: g, size: 16KiB, algorithm: ring, after: [a]}]}"""
    ring = figures("{star: {hosts: 4}}", collective("all_reduce", "ring", "16KiB"))[0].time_ns
    (one,) = figures("{star: {hosts: 4}}", f"{{{tasks}}}".replace("\n", " "))
    assert one.time_ns == pytest.approx(50_000 + ring)


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


def test_it_says_what_it_leaves_out() -> None:
    """Spines are drawn only where tasks are not followed: NICs do some of these."""
    ring = collective("all_reduce", "ring", "1MiB")
    hosts, nics = (
        f"{{tasks: {{groups: {{g: {{ranks: [[0, 1, 2, 3]], algorithm: {{all_reduce: {name}}}}}}}, "
        "list: [{id: a, collective: all_reduce, group: g, size: 1MiB}]}}"
        for name in ("ring", "direct_reduce")
    )
    for steps, hashed in (((ring,), False), ((ring, hosts), False), ((ring, nics), True)):
        clos = "{clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}"
        text = " ".join(predict(experiment(clos, *steps, more="transport: {cc: dcqcn}\n")).left_out)
        assert "dcqcn" in text and "losses" in text and ("hash" in text) == hashed


def test_the_command_says_it_as_json(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(
        "name: e\nfabric: {topology: {star: {hosts: 4}}}\nsweep: {fabric.topology.star.hosts: [2, 4]}\n"
        "workload: [{collective: all_reduce, sizes: [16KiB]}]\n"
    )
    with pytest.raises(SystemExit) as ended:
        cli.main(["predict", str(file), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0 and [p["point"] for p in told["points"]] == [
        {"fabric.topology.star.hosts": n} for n in (2, 4)
    ]
    (row,) = told["points"][1]["results"]
    assert row["time_ns"] == pytest.approx(
        figures("{star: {hosts: 4}}", collective("all_reduce", "ring", "16KiB"))[0].time_ns
    )


# Long rings


def test_a_turn_is_the_fewest_edges_that_repeat() -> None:
    for which, fewest in (([0, 1, 0, 1], 2), ([0, 0, 0], 1), ([0, 1, 0], 3)):
        edges = [Edge(PATHS[k], PATHS[k]) for k in which]
        assert len(Ring.of(edges).of_each(lambda e: 1.0)) == fewest


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=9), st.integers(0, 200)
)  # fmt: skip
def test_hops_that_repeat_are_as_if_each_was_done(edges: list[tuple[int, int]], times: int) -> None:
    busy, cross = (np.array(column, float) for column in zip(*edges, strict=True))

    def step(now: NDArray[Any]) -> NDArray[Any]:
        return np.maximum(now + busy, np.roll(now + cross, 1))

    state = np.zeros(len(edges))
    for _ in range(times):
        state = step(state)
    assert hops(step, np.zeros(len(edges)), times) == pytest.approx(state)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(5, 30), st.integers(1, 5)), min_size=1, max_size=9),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), min_size=1, max_size=3),
)
def test_where_all_go_always_on_the_longest_way_is_the_latest(
    edges: list[tuple[int, int]], kinds: list[tuple[int, int]]
) -> None:
    cross, busy = (np.array(column, float) for column in zip(*edges, strict=True))
    runs = [Run(cross + more, busy, times) for times, more in kinds]
    assert always_on(runs)
    found, followed = longest_ways(runs, len(edges)), hop_by_hop(runs, len(edges))
    assert (found + cross).max() == pytest.approx((followed + cross).max())
    assert not always_on([*runs, Run(cross, cross + 1, 1)])


PATHS = [Path.uniform(s, rate_bps=400e9, delay_ns=500, latency_ns=500) for s in (1, 3, 5)]
PATHS.append(Path((Link(3600e9, 300),), scale_up=True))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(PATHS), min_size=2, max_size=24), st.integers(0, 1 << 20))
def test_a_ring_over_any_edges_is_as_hop_by_hop(paths: list[Path], chunk: int) -> None:
    n = len(paths)
    costs = Costs(reduce_bps=800e9)
    for reduces in ([True] * (n - 1) + [False] * (n - 1), [True] * (n - 1), [False] * (n - 1)):
        found = host_ring_over_ns(reduces, chunk, Ring.of([Edge(path, path) for path in paths]), costs)
        assert found == pytest.approx(ring_over_ns(reduces, chunk, paths, costs))


def ring_of(ranks: int) -> Ring:
    return Ring.of([Edge(PATHS[0], PATHS[0])] * ranks)


def test_a_ring_of_a_quarter_of_a_million_nics_is_as_long_as_its_hops() -> None:
    n = 262_144
    adds = [1] * (n - 1) + [0] * (n - 1)
    one = direct_over_ns(adds, 4096, ring_of(n), Costs())
    few = [direct_over_ns([1] * (k - 1) + [0] * (k - 1), 4096, ring_of(k), Costs()) for k in (4, 5)]
    assert one == pytest.approx(few[0] + (n - 4) * (few[1] - few[0]))


# Large fabrics

TORUS, RAIL = "{torus: {dims: [3, 4]}}", "{rail: {servers: 4, gpus: 4}}"
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


# Groups that are alike


def test_groups_whose_links_are_alike_are_followed_once_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[int] = []
    run = replay.Replay.run

    def counted(self: Any, starts: Any) -> list[float]:
        followed.append(len(starts))
        return run(self, starts)

    monkeypatch.setattr(following, "_ENDED", {})
    monkeypatch.setattr(replay.Replay, "run", counted)
    ring = collective("all_reduce", "ring", "64KiB")
    rails = [[0, 4, 8], [1, 5, 9], [2, 6, 10]]
    alike = figures("{rail: {servers: 4, gpus: 4}}", {**ring, "groups": rails})
    assert len({f.time_ns for f in alike}) == 1 and followed == [3]
    tree = "{clos: {leaves: 2, spines: 1, hosts_per_leaf: 4}}"
    near, far = (figures(tree, {**ring, "ranks": ranks})[0].time_ns for ranks in ([0, 1, 2], [0, 1, 4]))
    assert near == alike[0].time_ns < far and followed == [3, 3]  # three ranks of a leaf are as three of a rail
    slower = figures(tree, {**ring, "ranks": [0, 1, 2]}, more="  cable: {rate: 200Gbps}\n")
    assert slower[0].time_ns > near and len(followed) == 3


def test_what_takes_long_is_said_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with Working(0.01) as working:
        predict(experiment("{star: {hosts: 4}}", collective("all_reduce", "ring", "16KiB")), working.at)
        said = ""
        deadline = time.monotonic() + 60
        while "step 1 of 1, all_reduce by ring" not in said and time.monotonic() < deadline:
            said += capsys.readouterr().err
            time.sleep(0.01)
    assert "note: step 1 of 1, all_reduce by ring: " in said
