"""Collectives over all NICs of every server: how near they come to what the fabric can do, and what they should take."""

from __future__ import annotations

from functools import cache
from math import inf

import pytest

from testbed.experiment import Experiment, loads
from testbed.plan.choose import Chooser
from workloads.base.entry import Algorithm, named
from workloads.collectives.schedule import Send, Shape, program_of, schedule_of, steps
from workloads.collectives.shape import shape_of
from workloads.registry import ALGORITHMS
from workloads.times.case import Case
from workloads.times.expected import expected_ns
from workloads.times.replay import replayed

RAILS = {entry.collective.name: entry for entry in ALGORITHMS.values() if entry.layout == "rails"}
LARGE = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast")
MIB = 1 << 20
NIC, DOMAIN = 400e9, 3600e9
HEADERS = 1 + 82 / 4096  # on the wire, of a full packet


@cache
def fabric(servers: int, gpus: int, costs: str = "{}") -> tuple[Experiment, Chooser]:
    experiment = loads(
        f"name: x\nfabric: {{topology: {{rail: {{servers: {servers}, gpus: {gpus}}}}}}}\ncosts: {costs}\nworkload: []"
    )
    return experiment, Chooser(experiment, experiment.build_fabric())


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
    """Where GPUs add up, and channels do so side by side."""
    entry = RAILS[collective]
    costs = "{reduce_by: channel}"
    share = bound_ns(collective, *dims, size) / expected_ns(entry, case(entry, dims, size, costs))
    assert 0.9 <= share < 1


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
    for dims in ((2, 2), (2, 4), (4, 4), (3, 8)):
        for size in (4096, MIB, 16 * MIB):
            for costs in ("{}", "{reduce_by: channel}") if entry.ops else ("{}",):
                its = case(entry, dims, size, costs)
                followed = replayed(its, schedule_of(entry), inf)
                assert followed
                off[dims, size, costs] = named(entry.time)(its) / followed - 1
    print({at: round(by, 3) for at, by in off.items()})
    assert not {at: by for at, by in off.items() if abs(by) > 0.05}
