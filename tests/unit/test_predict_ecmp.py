"""Which of several spines a flow takes: queue pairs' numbers, source ports, and the hash, of one flow and of arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from testbed.experiment import Experiment, loads
from testbed.plan import auto
from testbed.plan.steps.plan import plan
from testbed.predict import connected, predict
from testbed.predict.large import large_figures, places_of
from topologies import Fabric
from topologies.kinds import build
from topologies.ranks.hops import Hops
from topologies.ranks.multipath import Hashing
from workloads.collectives.schedule import Send, program_of, schedule_of, steps
from workloads.collectives.shape import shape_of
from workloads.registry import find
from workloads.times import queue_pairs
from workloads.times.messages import Link
from workloads.times.queue_pairs import FIRST, Numbers, QueuePairs, of_ring, of_schedule
from workloads.times.ways import Routed
from workloads.times.wide.fabric import Wide
from workloads.times.wide.peers import ConnectedPairs, Everybody, neighbours

CLOS = ("clos", {"leaves": 3, "spines": 3, "hosts_per_leaf": 2, "pods": 2, "cores": 2})
RAIL = ("rail", {"servers": 3, "gpus": 4, "spines": 3})


def routed(fabric: Fabric, numbers: Any, hashing: Hashing, fixed_port: bool) -> Routed:
    both = [hop for c in fabric.cables for hop in ((c.a.node, c.b.node), (c.b.node, c.a.node))]
    links, latencies = dict.fromkeys(both, Link(400e9, 500)), {s.name: 500.0 for s in fabric.switches}
    hops = Hops(fabric, hashing)
    return Routed(hops, range(fabric.ranks), links, latencies, None, numbers, fixed_port=fixed_port)


def test_a_nic_numbers_its_queue_pairs_as_they_are_made() -> None:
    pairs = QueuePairs()
    first = pairs.connect(of_ring([5, 7, 6]))
    assert first[5, 7, 0] == (16, 16) and first[5, 6, 0] == (17, 16) and first[7, 6, 0] == (17, 17)
    assert pairs.connect({5: [(7, 0), (7, 3)], 7: [(5, 3), (5, 0)]})[7, 5, 3] == (18, 19)
    ring = pairs.ring([5, 6])
    assert ring == {(5, 6, 0): (20, 18), (6, 5, 0): (19, 21)} and pairs.ring([5, 6]) == ring


@pytest.mark.parametrize(("kind", "params"), [CLOS, RAIL])
@pytest.mark.parametrize(
    ("hashing", "fixed_port"), [(Hashing(), False), (Hashing(seed=5), False), (Hashing(dest_qp=True), True)]
)
def test_a_large_fabrics_flows_take_the_same_links(
    kind: str, params: dict[str, Any], hashing: Hashing, fixed_port: bool
) -> None:
    """Each pair alone is on as many links as by its hops, and two pairs share one exactly where their hops do."""
    fabric = build(kind, params)
    n = fabric.ranks
    numbers = {(a, b, 0): (FIRST + b - (b > a), FIRST + a - (a > b)) for a in range(n) for b in range(n) if a != b}
    ways = routed(fabric, numbers, hashing, fixed_port)
    wide = Wide(
        places_of(kind, params),
        Link(400e9, 500),
        500,
        numbers=Everybody(np.full(n, FIRST)),
        hashing=hashing,
        fixed_port=fixed_port,
    )
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
    source, target = np.array(pairs).T
    taken: dict[int, set[int]] = {}
    for which, ids in wide.places.between(source, target, wide.flows):
        for k, link in zip(which.tolist(), ids.tolist(), strict=True):
            taken.setdefault(link, set()).add(k)
    hops: dict[Any, set[int]] = {}
    for k, pair in enumerate(pairs):
        for hop in ways.route(pair).keys[1:-1]:
            hops.setdefault(hop, set()).add(k)
    assert sorted(map(sorted, taken.values())) == sorted(map(sorted, hops.values()))
    assert len(hops) > 2 * n / 3


def test_numbers_of_all_ranks_at_once_are_those_one_by_one() -> None:
    order = [0, 2, 1, 4, 3]
    pairs, made_at_once = QueuePairs(), ConnectedPairs(5)
    both: list[tuple[Numbers, Any]] = []
    for by_nics in (False, True, False, True):  # the second ring of NICs is the first one
        if by_nics:
            both.append((pairs.ring(order), made_at_once.ring(order)))
        else:
            both.append((pairs.connect(of_ring(order)), made_at_once.numbers(neighbours(order), order)))
    for k, a in enumerate(order):
        b = order[(k + 1) % 5]
        ends = np.array([a]), np.array([b])
        for made, its in both:
            assert made[a, b, 0] == tuple(int(end[0]) for end in its(*ends))


@pytest.mark.parametrize(
    ("collective", "algorithm", "numbers"),
    [
        ("broadcast", "binomial_tree", ConnectedPairs.tree), ("reduce", "binomial_tree", ConnectedPairs.tree),
        ("scatter", "binomial_tree", ConnectedPairs.tree), ("gather", "binomial_tree", ConnectedPairs.tree),
        ("broadcast", "chain", ConnectedPairs.chain), ("reduce", "chain", ConnectedPairs.chain),
        ("scatter", "linear", ConnectedPairs.linear), ("gather", "linear", ConnectedPairs.linear),
        ("broadcast", "scatter_all_gather", ConnectedPairs.tree_and_ring),
        ("all_reduce", "bidirectional_ring", ConnectedPairs.both_ways),
    ],
)  # fmt: skip
@pytest.mark.parametrize("n", [6, 7])
def test_numbers_of_hosts_trees_and_rings_are_those_of_their_schedules(
    collective: str, algorithm: str, numbers: Any, n: int
) -> None:
    """And how many each rank has made: the next step's come behind them."""
    entry = find(collective, algorithm)
    order = [0, 2, 1, 4, 5, 3, 6][:n] if entry.layout == "ring" else list(range(n))
    shape = shape_of(entry, n, 4096, 4, {}, 0)
    pairs, made = QueuePairs(), ConnectedPairs(n)
    for _ in range(2):
        calls = of_schedule(schedule_of(entry), shape, order, math.inf)
        assert calls is not None
        known = pairs.connect(calls)
        tree, ring = numbers(made, order)
        for index, rank in enumerate(order):
            for step in steps(program_of(schedule_of(entry), shape, index)):
                if isinstance(step, Send):
                    its = ring if algorithm == "scatter_all_gather" and step.channel else tree
                    peer = order[step.peer]
                    found = tuple(int(end[0]) for end in its(np.array([rank]), np.array([peer])))
                    assert found == known[rank, peer, step.channel], (rank, peer, step.channel)


def experiment(topology: str, step: dict[str, Any]) -> Experiment:
    return loads(f"name: t\nfabric: {{topology: {topology}}}\nworkload: [{step}]".replace("'", ""))


@pytest.mark.parametrize(
    ("topology", "step"),
    [
        ("{clos: {leaves: 4, spines: 2, hosts_per_leaf: 4}}", {"collective": "all_reduce", "algorithm": "ring"}),
        (
            "{clos: {leaves: 4, spines: 3, hosts_per_leaf: 4}}",
            {"collective": "all_gather", "algorithm": "direct_reduce"},
        ),
        (
            "{clos: {leaves: 2, spines: 2, hosts_per_leaf: 4, pods: 2, cores: 2}}",
            {"collective": "all_reduce", "algorithm": "ring"},
        ),
        ("{rail: {servers: 4, gpus: 4, spines: 2}}", {"collective": "all_reduce", "algorithm": "direct_reduce"}),
    ],
)
def test_with_several_spines_a_large_fabrics_models_are_as_the_others(topology: str, step: dict[str, Any]) -> None:
    one = experiment(topology, {**step, "sizes": "[4KiB, 256KiB, 4MiB]"})
    with_graph, without = predict(one).figures, list(large_figures(one))
    assert [f.time_ns for f in without] == pytest.approx([f.time_ns for f in with_graph], rel=0.03)


@pytest.mark.parametrize(
    ("topology", "step", "fastest", "by_drawn_spines"),
    [
        (
            "{clos: {leaves: 4, spines: 2, hosts_per_leaf: 2}}",
            {"collective": "all_reduce", "sizes": "[8MiB]"},
            "bidirectional_ring",
            "double_binary_tree",
        ),
        (
            "{clos: {leaves: 4, spines: 4, hosts_per_leaf: 2}}",
            {"collective": "all_reduce", "sizes": "[1MiB]"},
            "halving_doubling",
            "double_binary_tree",
        ),
        (
            "{clos: {leaves: 4, spines: 4, hosts_per_leaf: 2}}",
            {"collective": "all_gather", "sizes": "[4KiB, 1MiB]"},
            "pat",
            "bruck",
        ),
    ],
)
def test_auto_takes_what_is_fastest_over_the_spines_that_the_hash_takes(
    topology: str, step: dict[str, Any], fastest: str, by_drawn_spines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several sizes over those of the queue pairs that come behind what earlier sizes have connected."""
    monkeypatch.setattr("workloads.times.followed._LITTLE", math.inf)  # all are followed to the end
    one = experiment(topology, {**step, "algorithm": "auto"})
    (planned,) = plan(one).told()["steps"]
    found = list(planned["chosen"].values())[-1]
    whole = {name: ns for name, ns in found["expected_ns"].items() if "[" not in name}
    assert min(whole, key=lambda name: whole[name]) == fastest
    assert predict(one).figures[-1].time_ns == pytest.approx(min(found["expected_ns"].values()))
    if len(planned["chosen"]) == 1:
        other = experiment(topology, {**step, "algorithm": by_drawn_spines})
        assert predict(other).figures[0].time_ns == pytest.approx(found["expected_ns"][by_drawn_spines])


def test_auto_numbers_each_candidate_once_for_what_is_chosen_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it has too many queue pairs: it takes as long to find that out."""
    numbered: list[Any] = []
    counted = queue_pairs.of_schedule

    def of_schedule(schedule: Any, *of: Any) -> Any:
        numbered.append(schedule)
        return counted(schedule, *of)

    monkeypatch.setattr(queue_pairs, "of_schedule", of_schedule)
    topology = "{clos: {leaves: 4, spines: 2, hosts_per_leaf: 2}}"
    many = ", ".join(f"{4 * k}KiB" for k in range(1, 9))
    one = experiment(topology, {"collective": "all_to_all", "algorithm": "auto", "sizes": f"[{many}]"})
    for most in (auto.MOST_NUMBERED, 3):
        monkeypatch.setattr(auto, "MOST_NUMBERED", most)
        numbered.clear()
        (planned,) = plan(one).told()["steps"]
        assert {way["algorithm"] for way in planned["chosen"].values()} == {"spread"}
        tries = 3 + 1 + 2 * (most > 3)  # all; the chosen one; then the other ones behind it, if that can be known
        assert len(numbered) == tries


def test_behind_too_many_queue_pairs_no_step_is_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its spines are drawn, whatever it is; not hashed with numbers that others have."""
    step = {"collective": "all_reduce", "algorithm": "halving_doubling", "sizes": "[1MiB]"}
    text = "name: t\nfabric: {topology: {clos: {leaves: 4, spines: 4, hosts_per_leaf: 2}}}\nworkload:\n"
    text += "- {collective: all_to_all, algorithm: spread, sizes: [4KiB]}\n"
    one = loads(text + f"- {step}".replace("'", ""))
    hashed = predict(one).figures[1].time_ns
    monkeypatch.setattr(connected, "MOST", 30)  # 8 ranks have 24 for halving, and 56 to all others
    behind = predict(one).figures[1].time_ns
    monkeypatch.setattr(connected, "MOST", 0)
    assert behind == predict(one).figures[1].time_ns != hashed
