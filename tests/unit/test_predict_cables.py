"""Large fabrics whose cables differ: each link has its own rate and delay, and what shares a slow one waits for it."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from testbed.base.errors import InputError
from testbed.experiment import Experiment, loads
from testbed.plan.choose import Chooser
from testbed.predict import predict
from testbed.predict.figure import FLOWS, MESSAGES, ONE_PIPELINE
from testbed.predict.large import large_figures, of_any_size
from testbed.predict.large_fabric import LargeFabric
from topologies.graph.frames import FRAME_BYTES, IMM_BYTES, RETH_BYTES
from workloads.registry import find
from workloads.times.messages import Link
from workloads.times.wide import fabric
from workloads.times.wide.cables import Cables
from workloads.times.wide.places import places_of

FABRICS = (
    "star: {hosts: 5}",
    "ring: {nodes: 5}",
    "torus: {dims: [2, 3, 2]}",
    "rail: {servers: 3, gpus: 2, spines: 2}",
    "clos: {leaves: 3, spines: 2, hosts_per_leaf: 2}",
    "clos: {leaves: 2, spines: 2, hosts_per_leaf: 2, pods: 2, cores: 3}",
)


def experiment(topology: str, more: str, *steps: str) -> Experiment:
    workload = "".join(f"- {{{step}}}\n" for step in steps)
    with of_any_size():
        return loads(f"name: t\nfabric:\n  topology: {{{topology}}}\n{more}\nworkload:\n{workload}", "t.yaml")


def figure(topology: str, more: str, step: str) -> tuple[float, str]:
    (found,) = predict(experiment(topology, more, step)).figures
    return found.time_ns, found.how


def cables(one: Experiment) -> Cables | None:
    return LargeFabric(one).nics.own


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("topology", FABRICS)
def test_every_link_has_its_own_cable_by_its_name_and_with_the_graph(topology: str, by_name: bool) -> None:
    """Every cable is another one: so wherever a message goes, its links' delays say which cables it took."""
    names = [cable.name for cable in experiment(topology, "", "collective: barrier").build_fabric().cables]
    own = ", ".join(f"'cable:{name}': {{delay: {100 + k}ns}}" for k, name in enumerate(names))
    one = experiment(topology, f"  cables: {{{own}}}", "collective: barrier")
    spec = one.fabric.topology
    places = places_of(spec.kind, spec.params)
    chooser = Chooser(one)
    spec._is_large = by_name  # then nothing but the names is looked at
    ways = fabric.Wide(places, Link(400e9, 500), 500, own=cables(one))
    for a, b in permutations(range(places.ranks), 2):
        numbers = {(a, b, 0): (16, 16), (b, a, 0): (16, 16)}
        graph = chooser.ways(range(places.ranks), scale_up=False, numbers=numbers)
        assert ways.route((a, b)).path == graph.route((a, b)).path


@pytest.mark.parametrize("target", ["switch:leaf1", "switch:spine2", "nic:5", "all", "cable:leaf1-h3"])
def test_other_targets_name_the_same_cables(target: str) -> None:
    one = experiment(FABRICS[-1], f"  cables: {{'{target}': {{rate: 100Gbps}}}}", "collective: barrier")
    graph = cables(one)
    one.fabric.topology._is_large = True
    names = cables(one)
    assert graph and names and graph.kinds == names.kinds and (graph.which == names.which).all()


@pytest.mark.parametrize("target", ["cable:h0-leaf1", "cable:leaf0-leaf1", "switch:rail0", "nic:70000", "port:leaf0:1"])
def test_a_cable_that_a_large_fabric_does_not_have_is_refused_at_its_place(target: str) -> None:
    topology = "clos: {leaves: 256, spines: 256, hosts_per_leaf: 256}"
    with pytest.raises(InputError, match="no such cable") as caught:
        predict(experiment(topology, f"  cables: {{'{target}': {{rate: 1Gbps}}}}", "collective: barrier"))
    assert "t.yaml:4: fabric.cables" in caught.value.where


RING = "collective: all_reduce, algorithm: ring, sizes: [{}B]"


@pytest.mark.parametrize("ranks", [240, 5000])
def test_a_ring_goes_as_fast_as_its_slowest_cable(ranks: int) -> None:
    """Each of 2 (n - 1) chunks goes over the slow cable, one behind the other."""
    chunk, step = 65536, RING.format(ranks * 65536)
    found, how = figure(f"star: {{hosts: {ranks}}}", "  cables: {'cable:h77-sw0': {rate: 50Gbps}}", step)
    wire = chunk + chunk // 4096 * FRAME_BYTES + RETH_BYTES + IMM_BYTES
    assert how == FLOWS and found == pytest.approx(2 * (ranks - 1) * wire * 8 / 50, rel=0.01)


def test_a_fault_of_a_cable_that_lasts_is_such_a_cable_where_messages_are_too_many() -> None:
    step = RING.format(240 * 65536)
    inject = "inject: [{fault: reduced_rate, on: 'nic:7', rate: 50Gbps}]"
    one = experiment("star: {hosts: 240}", "", step)
    faulty = loads(f"name: t\nfabric: {{topology: {{star: {{hosts: 240}}}}}}\nworkload:\n- {{{step}}}\n{inject}\n")
    (found,), (usual,) = predict(faulty).figures, predict(one).figures
    assert found.time_ns == figure("star: {hosts: 240}", "  cables: {'nic:7': {rate: 50Gbps}}", step)[0]
    assert found.time_ns > 2 * usual.time_ns


@pytest.mark.parametrize("ranks", [8, 240, 5000])
def test_a_longer_cable_is_passed_five_times(ranks: int) -> None:
    """In and out again in each of two turns, and by the last message's acknowledgement."""
    topology, step = f"star: {{hosts: {ranks}}}", RING.format(4 * ranks)
    usual, _ = figure(topology, "", step)
    found, how = figure(topology, "  cables: {'nic:5': {delay: 5500ns}}", step)
    assert how == (FLOWS if ranks > 8 else MESSAGES) and found - usual == pytest.approx(5 * 5000, rel=1e-6)


def test_hosts_cables_that_are_all_slower_are_a_slower_star() -> None:
    """A star has no others; nor is anything else of a rate there."""
    both_ways = "collective: all_reduce, algorithm: bidirectional_ring, sizes: [1MiB]"
    for step in (RING.format(1 << 20), "collective: all_to_all, sizes: [1MiB]", both_ways):
        slower, _ = figure("star: {hosts: 1200}", "  cable: {rate: 100Gbps, delay: 2us}", step)
        hosts, how = figure("star: {hosts: 1200}", "  host_cable: {rate: 100Gbps, delay: 2us}", step)
        assert how == FLOWS and hosts == pytest.approx(slower, rel=1e-9)


def test_an_all_to_all_waits_for_its_slow_uplink() -> None:
    """All of a leaf's ranks send to all of other leaves over one cable, which is an eighth as fast as the others."""
    topology = "clos: {leaves: 64, spines: 1, hosts_per_leaf: 32}"
    step = "collective: all_to_all, sizes: [32MiB]"  # chunks of 16 KiB
    found, _ = figure(topology, "  cables: {'cable:leaf9-spine0': {rate: 50Gbps}}", step)
    wire = 16384 + 4 * FRAME_BYTES + RETH_BYTES
    assert found == pytest.approx(32 * (2048 - 32) * wire * 8 / 50, rel=0.01)


TOPOLOGIES = (*FABRICS[:3], "torus: {dims: [4, 3]}", *FABRICS[3:])
CABLES = (
    "  host_cable: {rate: 100Gbps, delay: 2us}",
    "  cable: {rate: 100Gbps}\n  host_cable: {rate: 400Gbps}",
    "  cables: {'nic:3': {rate: 50Gbps, delay: 1us}}",
    "  cables: {'nic:9': {delay: 6us}, 'all': {rate: 200Gbps}}",
)
STEPS = tuple(
    f"collective: {its}, sizes: [4KiB, 1MiB]"
    for its in (
        "all_reduce, algorithm: ring",
        "all_gather, algorithm: direct_reduce",
        "all_reduce, algorithm: in_network",
        "optimizer_step, algorithm: host",
    )
)


@pytest.mark.parametrize(
    ("topology", "more", "step"),
    [
        (topology, more, step)
        for (i, topology), (j, more), (k, step) in product(*map(enumerate, (TOPOLOGIES, CABLES, STEPS)))
        if (i + j + k) % 2 == 0
    ],
)
def test_rings_and_trees_without_a_graph_are_as_with_one(topology: str, more: str, step: str) -> None:
    """Any two of them meet, in half of all cases."""
    ranks = places_of(*next(iter(experiment(topology, "", step).fabric.topology.model_dump().items()))).ranks
    if "nic:9" in more and ranks < 10:
        more = more.replace("nic:9", "nic:4")
    one = experiment(topology, more, step)
    with_graph, without = predict(one).figures, list(large_figures(one))
    assert [f.time_ns for f in without] == pytest.approx([f.time_ns for f in with_graph], rel=0.02)


def test_what_rounds_know_less_of_is_followed_message_by_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that are late meet those of the next round."""
    step = "collective: all_gather, algorithm: recursive_doubling, sizes: [4MiB]"
    one = experiment("star: {hosts: 16}", "  cables: {'cable:h1-sw0': {delay: 5us}}", step)
    (followed,), (large,) = predict(one).figures, large_figures(one)
    assert large.time_ns == pytest.approx(followed.time_ns, rel=1e-9)
    monkeypatch.setattr("workloads.times.wide.model.MOST_FOLLOWED", 1)
    (rounds,) = large_figures(one)
    assert rounds.how == FLOWS and rounds.time_ns == pytest.approx(0.88 * followed.time_ns, rel=0.01)


def test_training_waits_for_the_group_with_the_slow_cable() -> None:
    """Data groups go along rails; the one with the slow cable is not the first.  Chunks of 3.6 MB, one by one."""
    topology, more = "rail: {servers: 300, gpus: 8, spines: 8}", "  cables: {'nic:2001': {rate: 50Gbps}}"
    model = "model: {layers: 4, hidden: 2048, heads: 16, seq: 256}, gpu: {flops: 1000T}, batch: {count: 2}"
    step = f"train: {{{model}, parallel: {{tensor: 8, data: 300}}, place: {{tensor: scale_up}}}}"
    groups = np.arange(2400).reshape(300, 8).T.copy()
    its = LargeFabric(experiment(topology, more, step)).together
    found = its.collective_ns(find("all_reduce", "ring"), groups, 1 << 30, 4)
    wire = (1 << 30) / 300 * (1 + FRAME_BYTES / 4096)
    assert found == pytest.approx(2 * 299 * wire * 8 / 50, rel=0.01)
    (usual, how), (slower, _) = figure(topology, "", step), figure(topology, more, step)
    assert how == ONE_PIPELINE and usual < slower


@pytest.mark.parametrize("step", ["broadcast, algorithm: multicast", "all_reduce, algorithm: bidirectional_ring"])
def test_what_counts_on_cables_that_are_alike_has_no_model_where_they_differ(step: str) -> None:
    step = f"collective: {step}, sizes: [1MiB]"
    with pytest.raises(InputError, match="where single cables differ"):
        predict(experiment("star: {hosts: 5000}", "  cables: {'nic:0': {rate: 50Gbps}}", step))


def test_acknowledgements_wait_for_the_cables_of_their_own_way() -> None:
    """ECMP may lead them over another spine: two cables there, two back, each 5 us longer on one of the spines."""
    topology = "clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}"
    pairs = [[a, b] for a in (0, 1) for b in (2, 3)]
    found = set()
    for ranks in pairs:
        step = f"collective: send_recv, algorithm: pair, sizes: [4B], ranks: {ranks}"
        usual, _ = figure(topology, "", step)
        longer = [figure(topology, f"  cables: {{'switch:spine{k}': {{delay: 5500ns}}}}", step)[0] for k in (0, 1)]
        found.add(tuple(sorted(round(one - usual) for one in longer)))
    assert found <= {(0, 20_000), (10_000, 10_000)} and len(found) == 2, found
