"""Collectives over all NICs of every server: how near they come to what the fabric can do, what they should take."""

from __future__ import annotations

from functools import cache
from math import inf

import numpy as np
import pytest

from testbed.experiment import Experiment, loads
from testbed.experiment.blocks.layout import group
from testbed.experiment.steps.collective import CollectiveStep
from testbed.plan.choose import Chooser
from testbed.predict import predict
from testbed.predict.large import large_figures
from testbed.predict.large_fabric import LargeFabric
from topologies.ranks.grid import NoGrid
from workloads.base.entry import Algorithm, named
from workloads.collectives.schedule import Send, Shape, program_of, schedule_of, steps
from workloads.collectives.shape import shape_of
from workloads.registry import ALGORITHMS
from workloads.times.case import Case
from workloads.times.expected import expected_ns, replayed

RAILS = {entry.collective.name: entry for entry in ALGORITHMS.values() if entry.layout == "rails" and entry.schedule}
LARGE = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
MIB = 1 << 20
LIMITS = {"all_reduce": 0.12, "broadcast": 0.08}
"""What the host adds up last is on its way meanwhile; pieces of shares meet in domains."""
SLOW = ("{reduce: 80Gbps}", "{reduce: 80Gbps, reduce_by: channel}")
NIC, DOMAIN = 400e9, 3600e9
HEADERS = 1 + 82 / 4096  # on the wire, of a full packet


@cache
def fabric(servers: int, gpus: int, costs: str = "{}") -> tuple[Experiment, Chooser]:
    experiment = loads(
        f"name: x\nfabric: {{topology: {{rail: {{servers: {servers}, gpus: {gpus}}}}}}}\ncosts: {costs}\nworkload: []"
    )
    return experiment, Chooser(experiment)


def case(entry: Algorithm, dims: tuple[int, int], size: int, costs: str = "{}", **options: object) -> Case:
    _, chooser = fabric(*dims, costs)
    ranks, told = dims[0] * dims[1], {"dims": dims, "chunk": None, "skew": 0.7, **options}
    return Case.of(entry, ranks, size, 4, told, 1, chooser.costs, chooser.ways(range(ranks)))


def bound_ns(collective: str, servers: int, gpus: int, size: int) -> float:
    """By counting bytes.  All that must enter (or leave) a server comes over its NICs, at best evenly.

    All others' chunks; the sums of all others' chunks; both; what all GPUs have for other servers; the whole vector.
    And what must enter a GPU comes over its NIC and from the domain.
    """
    ranks, others = servers * gpus, (servers - 1) / servers * size
    server = {"all_reduce": 2 * others, "all_to_all": gpus * others, "broadcast": size}.get(collective, others)
    gpu = {"all_reduce": 2, "broadcast": ranks / (ranks - 1)}.get(collective, 1) * (ranks - 1) / ranks * size
    return max(server / gpus / NIC, gpu / (NIC + DOMAIN)) * HEADERS * 8e9


@pytest.mark.parametrize("collective", LARGE)
@pytest.mark.parametrize("dims", [(4, 4), (8, 8)])
@pytest.mark.parametrize("size", [64 * MIB, 1024 * MIB])
def test_nine_tenths_of_what_all_nics_can_do(collective: str, dims: tuple[int, int], size: int) -> None:
    """By the formula, where channels add up side by side; also message by message where there are few."""
    its = case(RAILS[collective], dims, size, "{reduce_by: channel}")
    few = dims == (4, 4) and size == 64 * MIB
    time_ns = expected_ns(RAILS[collective], its) if few else named(RAILS[collective].time)(its)
    assert 0.9 <= bound_ns(collective, *dims, size) / time_ns < 1


@pytest.mark.parametrize("collective", LARGE)
def test_nics_of_a_server_may_be_on_one_leaf(collective: str) -> None:
    """Where one leaf has all of them; over spines they share what ECMP takes."""
    topology = "clos: {leaves: 1, spines: 1, hosts_per_leaf: 4, gpus: 4}"
    algorithm = "rails" if collective == "all_reduce" else "auto"  # which takes longest to follow all that it has
    step = f"{{collective: {collective}, algorithm: {algorithm}, sizes: [64MiB]}}"
    text = f"name: x\nfabric: {{topology: {{{topology}}}}}\ncosts: {{reduce: 40Tbps}}\nworkload: [{step}]"
    (figure,) = predict(loads(text)).figures
    assert 0.9 <= bound_ns(collective, 4, 4, 64 * MIB) / figure.time_ns < 1


def test_auto_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """And they are worth it where rails have one spine between them."""
    monkeypatch.setattr("workloads.times.followed._LITTLE", inf)  # all are followed to the end
    _, chooser = fabric(4, 4)
    for collective in ("all_gather", "all_to_all"):
        told = {"collective": collective, "algorithm": "auto", "sizes": ["16MiB"]}
        chosen = chooser.choose(CollectiveStep.model_validate(told))[str(16 * MIB)]
        assert chosen["algorithm"] == "rails" and chosen["dims"] == [4, 4]
        others = [ns for name, ns in chosen["expected_ns"].items() if not name.startswith("rails")]
        assert min(others) > 1.4 * chosen["expected_ns"]["rails"]


def sent(entry: Algorithm, shape: Shape) -> tuple[list[int], list[int]]:
    """Elements that each rank's NIC sends, and its GPU into the domain."""
    gpus, along, inside = shape.dims[1], [0] * shape.ranks, [0] * shape.ranks
    for index in range(shape.ranks):
        for step in steps(program_of(schedule_of(entry), shape, index)):
            if isinstance(step, Send):
                if index // gpus != step.peer // gpus:
                    assert index % gpus == step.peer % gpus, "on its rail"
                    along[index] += step.stop - step.start
                else:
                    inside[index] += step.stop - step.start
    return along, inside


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
def test_every_nic_sends_its_share_and_no_more(collective: str) -> None:
    """m servers of g: S / (m g) for each of m - 1 servers, and of an all-to-all for each of its GPUs, too."""
    m, g, chunk = 3, 4, 1000
    shape = shape_of(RAILS[collective], m * g, m * g * chunk, 1, {"dims": (m, g), "chunk": 100}, 1)
    along, inside = sent(RAILS[collective], shape)
    twice, each = (2 if collective == "all_reduce" else 1), (g if collective == "all_to_all" else 1)
    assert set(along) == {twice * each * (m - 1) * chunk}
    assert set(inside) == {twice * m * (g - 1) * chunk}


@pytest.mark.parametrize("collective", ["all_to_all", "all_to_all_v"])
def test_small_parts_for_one_gpu_elsewhere_leave_in_one_message(collective: str) -> None:
    """PXN's aggregation: m - 1 messages by each NIC instead of (m - 1) g.  By counting, with 100 ns for a post: a host
    posts m (g - 1) messages in its server, then one to each other server, and the last has its way to go.
    """
    m, g, entry = 8, 8, RAILS[collective]
    for part, messages in ((256, m - 1), (64 << 10, (m - 1) * g)):
        its = case(entry, (m, g), m * g * part, skew=0)
        for rank in (0, 37):
            to = [s.peer for s in steps(program_of(schedule_of(entry), its.shape, rank)) if isinstance(s, Send)]
            assert sum(peer // g != rank // g for peer in to) == messages
    its = case(entry, (m, g), m * g * 256, skew=0)
    way = its.message(g * 256, its.ways.path([(0, g)]), both_ways=True, sent=True)
    posted = (m * (g - 1) + m - 2) * 100
    assert replayed(its, schedule_of(entry), inf) == pytest.approx(posted + way, rel=0.001)


def test_a_broadcasts_root_sends_every_byte_into_its_domain_once() -> None:
    m, g, share = 3, 4, 1000
    shape = shape_of(RAILS["broadcast"], m * g, g * share, 1, {"dims": (m, g), "chunk": 100}, 1)
    along, inside = sent(RAILS["broadcast"], shape)
    assert along == [share] * g * (m - 1) + [0] * g
    assert inside[0] == g * share
    assert sum(inside[g:]) == (m - 1) * g * (g - 1) * share


@pytest.mark.parametrize("entry", RAILS.values(), ids=str)
def test_a_formula_says_what_its_messages_take(entry: Algorithm) -> None:
    off = {}
    for dims in ((2, 4), (4, 4)):
        for size in (4096, 8 * MIB):
            for costs in ("{}", "{reduce_by: channel}") if entry.ops else ("{}",):
                its = case(entry, dims, size, costs)
                followed = replayed(its, schedule_of(entry), inf)
                assert followed
                off[dims, size, costs] = named(entry.time)(its) / followed - 1
    small = 0.015 if entry.collective.name in ("all_to_all", "all_to_all_v") else 0.14
    limits = {4096: small, 8 * MIB: LIMITS.get(entry.collective.name, 0.05)}
    assert not {at: by for at, by in off.items() if abs(by) > limits[at[1]]}


def test_channels_add_up_side_by_side_and_hosts_one_at_a_time() -> None:
    """n - 1 operands of S/n each: by the host one after the other, by g channels in so many streams."""
    entry, size = RAILS["reduce_scatter"], 16 * MIB
    added_ns = 15 / 16 * size * 8e9 / 80e9
    by_host, by_channel = (expected_ns(entry, case(entry, (4, 4), size, costs)) for costs in SLOW)
    assert by_host == pytest.approx(added_ns, rel=0.02)
    assert by_channel == pytest.approx(added_ns / 4, rel=0.05)


def test_a_group_of_one_server_or_of_one_rail_has_no_use_for_them() -> None:
    fabric_ = fabric(4, 4)[0].build_fabric()
    for ranks, why in (([0, 1, 2], "of one server"), ([1, 5, 9], "no two of these"), ([0, 1, 4], "no grid")):
        with pytest.raises(NoGrid, match=why):
            group(RAILS["all_gather"], ranks, fabric_)
    assert group(RAILS["all_gather"], [9, 1, 0, 8], fabric_) == {"ranks": [0, 1, 8, 9], "dims": [2, 2]}


def test_large_fabrics_and_their_groups_take_what_small_ones_do() -> None:
    """All ranks of 4 x 4; two groups of half the rails, each with its own cables."""
    steps_ = "".join(f"\n- {{collective: {name}, algorithm: rails, sizes: [8MiB]}}" for name in LARGE[:2])
    one = loads(f"name: x\nfabric: {{topology: {{rail: {{servers: 4, gpus: 4}}}}}}\nworkload:{steps_}")
    with_graph, without = predict(one).figures, list(large_figures(one))
    assert [f.time_ns for f in without] == pytest.approx([f.time_ns for f in with_graph], rel=0.05)
    groups = np.array([[0, 1, 4, 5, 8, 9, 12, 13], [14, 15, 10, 11, 7, 6, 3, 2]])
    of_all, entry = LargeFabric(one).together, RAILS["all_gather"]
    assert of_all.on_rails(groups) == (4, 2)
    half = of_all.collective_ns(entry, groups, 8 * MIB, 4)
    assert half == pytest.approx(expected_ns(entry, case(entry, (4, 2), 8 * MIB)), rel=0.05)
    for other in (np.arange(16).reshape(4, 4), np.arange(16).reshape(4, 4).T, np.array([[0, 1, 6, 7]])):
        assert of_all.on_rails(other) is None
