"""The models of large fabrics that entries of the registry name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from workloads.base.entry import NoModel, named
from workloads.collectives.exchange import distances
from workloads.collectives.schedule import connections, program_of, schedule_of
from workloads.times.messages import Costs, Link, Path
from workloads.times.switches import nvls
from workloads.times.switches.in_network import apart, travels
from workloads.times.switches.multicast import Multicast
from workloads.times.wide import direct_reduce, rounds
from workloads.times.wide.all_to_all import crowds_of, spread_ns
from workloads.times.wide.around import host_ring_over_ns
from workloads.times.wide.both_ways import MOST_FOLLOWED, both_ways_ns
from workloads.times.wide.cables import Cables
from workloads.times.wide.fabric import CachedWays, Wide
from workloads.times.wide.groups import Together
from workloads.times.wide.in_network import Multicasts, by_switches_ns, tree_of
from workloads.times.wide.model import Asked, Model, OverRing, Time
from workloads.times.wide.peers import ConnectedPairs, exchanged, neighbours, on_grid
from workloads.times.wide.places import Places, Rails, Tiers
from workloads.times.wide.rounds import trees_in_rounds
from workloads.times.wide.trees import HostTrees

if TYPE_CHECKING:
    from workloads.times.wide.fabric import Numbers
    from workloads.times.wide.groups import Groups

MOST_PAIRWISE = 4096
"""Ranks whose n - 1 rounds are followed."""


def _whole(asked: Asked) -> None:
    """Raises NoModel of messages in pieces."""
    if asked.options["chunk"] is not None:
        raise NoModel(f"there is no model of {asked.entry} in pieces for {asked.n} ranks", "leave `chunk` out", "chunk")


def _unlike(asked: Asked, other: str) -> NoModel:
    what = f"there is no model of {asked.entry} for {asked.n} ranks where single cables differ"
    return NoModel(what, f"{other}, or cables that are alike")


# Rings


def _hosts_ring(reduces: bool, gathers: bool) -> Model:
    """Halves of an all-reduce."""

    def hops(n: int) -> list[bool]:
        return [True] * (n - 1) * reduces + [False] * (n - 1) * gathers

    def whole(asked: Asked) -> Time:
        if asked.options["chunk"] is not None:
            what = f"there is no model of {asked.entry} in pieces for {asked.n} ranks"
            raise NoModel(what, others=True)
        ring = asked.over(asked.made.numbers(neighbours(asked.order), asked.order)).ring()
        return lambda size: host_ring_over_ns(hops(asked.n), asked.chunk_bytes(size), ring, asked.costs)

    def among(together: Together, groups: Groups, size_bytes: int, width: int) -> float:
        return together.hosts_ring_ns(groups, hops(groups.shape[1]), size_bytes // width, width)

    return Model(whole, among, unlike=True)


ALL_REDUCE_RING = _hosts_ring(reduces=True, gathers=True)
REDUCE_SCATTER_RING = _hosts_ring(reduces=True, gathers=False)
ALL_GATHER_RING = _hosts_ring(reduces=False, gathers=True)


def _nics_ring(form: OverRing) -> Model:
    """A ring of NICs, over the network alone."""

    def whole(asked: Asked) -> Time:
        return _round(form, asked, asked.over(asked.made.ring(asked.places.order)))

    return Model(whole, partial(Together.nics_ring_ns, form=form), over=form)


def _round(form: OverRing, asked: Asked, *ways: Wide) -> Time:
    rings, touched = [its.ring() for its in ways], direct_reduce.arrays_of(asked.options["optimizer"])
    return lambda size: form(size, rings[0], asked.costs, touched, rings[-1])


def _halves(asked: Asked) -> Time:
    numbers = (asked.made.numbers(neighbours(asked.order), asked.order) for _ in range(2))
    return _round(direct_reduce.by_hosts, asked, *map(asked.over, numbers))


NICS_ALL_REDUCE = _nics_ring(direct_reduce.all_reduce)
NICS_REDUCE_SCATTER = _nics_ring(direct_reduce.reduce_scatter)
NICS_ALL_GATHER = _nics_ring(direct_reduce.all_gather)
NICS_OPTIMIZER = _nics_ring(direct_reduce.optimus)
HOSTS_OPTIMIZER = Model(_halves, over=direct_reduce.by_hosts)


# Rounds


def _in_rounds(asked: Asked, of: rounds.Rounds) -> Time:
    _whole(asked)
    n, width = asked.n, asked.width
    most = max(asked.sizes) // width
    ways = asked.over(asked.made.numbers(exchanged(one.to for one in of(n, most, width))))
    return lambda size: rounds.rounds_ns(of(n, size // width, width), ways, asked.costs)


def _of_powers(asked: Asked, of: rounds.Rounds) -> Time:
    _whole(asked)
    if asked.n & asked.n - 1:
        raise NoModel(f"there is no model of {asked.entry} for {asked.n} ranks", "a power of two")
    return _in_rounds(asked, of)


def _apart(asked: Asked, other: str) -> None:
    """Raises NoModel where a round's messages meet those of others."""
    if isinstance(asked.places, Rails | Tiers) and asked.places.links:
        raise NoModel(f"there is no model of {asked.entry} here: its rounds overlap on uplinks", other)


def _bruck(asked: Asked) -> Time:
    _apart(asked, "recursive_doubling")
    return _in_rounds(asked, rounds.bruck)


def _pairwise(asked: Asked) -> Time:
    n, width, ways = asked.n, asked.width, asked.over(asked.made.everybody())
    _apart(asked, "spread")
    if n > MOST_PAIRWISE:
        what = f"there is no model of {asked.entry} for {n} ranks: it has too many rounds"
        raise NoModel(what, f"spread, or at most {MOST_PAIRWISE} ranks")
    return lambda size: rounds.rounds_ns(rounds.pairwise(n, size // width, width), ways, asked.costs, paced=True)


def _pat(asked: Asked, of: rounds.Rounds) -> Time:
    _apart(asked, "ring")
    if trees_in_rounds(asked.n, max(asked.sizes) // asked.width, asked.width) > MOST_PAIRWISE:
        raise NoModel(f"there is no model of {asked.entry} for {asked.n} ranks: it has too many rounds", "ring")
    return _in_rounds(asked, of)


def _rounds(of: rounds.Rounds, *, powers: bool = False) -> Model:
    """Of all ranks, and of groups."""
    whole = partial(_of_powers if powers else _in_rounds, of=of)
    return Model(whole, partial(Together.rounds_ns, of=of), of_all=True, powers=powers)


HALVING_DOUBLING = _rounds(rounds.halving_doubling)
HALVING = _rounds(rounds.halving, powers=True)
RECURSIVE_DOUBLING = _rounds(rounds.doubling, powers=True)
BRUCK = Model(_bruck)
PAIRWISE = Model(_pairwise)
WHOLE_DOUBLING = _rounds(rounds.whole_doubling)
HYPERCUBE = _rounds(rounds.hypercube, powers=True)
PAT_ALL_GATHER = Model(partial(_pat, of=rounds.pat))
PAT_REDUCE_SCATTER = Model(partial(_pat, of=partial(rounds.pat, back=True)))
DISSEMINATION = Model(partial(_in_rounds, of=rounds.dissemination))
SHIFT = Model(partial(_in_rounds, of=rounds.shift))


def _spread(asked: Asked) -> Time:
    ways = asked.over(asked.made.everybody())
    crowds = crowds_of(ways)
    if crowds is None:
        what = f"there is no model of {asked.entry} for {asked.n} ranks under several spines: its flows are not counted"
        raise NoModel(what, "one spine, a torus, or at most 4096 ranks")
    return lambda size: spread_ns(ways, crowds, asked.chunk_bytes(size), asked.costs)


SPREAD = Model(_spread, Together.spread_ns, of_all=True)
SPREAD_V = Model(None, Together.spread_ns, of_all=True)


def _on_grid(asked: Asked) -> Time:
    dims = [d for d in asked.places.dims if d > 1]
    if not dims or prod(dims) != asked.n:
        raise NoModel("these ranks are no grid", "a torus, ring or rail is one")
    ways = CachedWays(asked.over(asked.made.numbers(on_grid(dims))))
    if ways.own and not ways.own.tiers(asked.n) and asked.options["chunk"] is None:
        along = partial(Together(ways, ways, asked.costs).along_ns, dims, list(range(len(dims))))
        return lambda size: along(size, asked.width)
    return lambda size: float(named(asked.entry.time)(asked.case(size, ways, dims)))


GRID = Model(_on_grid)


def _on_rails(asked: Asked) -> Time:
    """No message leaves its rail, so that none has a choice of spines; all ranks but the ends connect as often."""
    dims = asked.places.dims
    if not isinstance(asked.places, Rails) or min(dims) < 2 or asked.bare.scale_up is None:
        raise NoModel("there are no scale-up domains", "a rail topology with `scale_up` has one per server")
    if asked.bare.own:
        raise _unlike(asked, "ring")
    ways = CachedWays(asked.bare)
    largest = asked.case(max(asked.sizes), ways, dims).shape
    middle = program_of(schedule_of(asked.entry), largest, dims[1] + 1)
    asked.made.add(len(connections(middle)))
    return lambda size: float(named(asked.entry.time)(asked.case(size, ways, dims)))


RAILS = Model(_on_rails)


# Scale-up domains


def _in_domains(of: Callable[[int, int, Path, Costs], float]) -> Model:
    return Model(None, partial(Together.domains_ns, of=of))


NVLS_ALL_REDUCE = _in_domains(nvls.all_reduce_ns)
NVLS_REDUCE_SCATTER = _in_domains(nvls.reduce_scatter_ns)
NVLS_ALL_GATHER = _in_domains(nvls.all_gather_ns)


# Trees and chains


def _by_hosts(
    asked: Asked, numbers: Callable[[ConnectedPairs, Sequence[int]], tuple[Numbers, Numbers]]
) -> Callable[[Places], tuple[Wide, Wide]]:
    """The ways over a tree's edges, and over a ring's; of this fabric, or of a smaller one of its kind."""
    tree, around = (asked.over(its) for its in numbers(asked.made, asked.order))
    tiers = tree.own and tree.own.tiers(asked.n)

    def of(places: Places) -> tuple[Wide, Wide]:
        if places.ranks == asked.n:
            return tree, around
        own = tiers and Cables.of_tiers(tiers, places.ranks, places.links)
        few, _ = numbers(ConnectedPairs(places.ranks), places.order)
        its = replace(asked.bare, places=places, numbers=few, own=own)
        return its, its

    return of


def _both_ways(asked: Asked) -> Time:
    _whole(asked)
    of = _by_hosts(asked, ConnectedPairs.both_ways)
    ways, _ = of(asked.places)
    if ways.own and not ways.own.tiers(asked.n) and asked.n > MOST_FOLLOWED:
        raise _unlike(asked, "ring")
    chunk_bytes = partial(asked.chunk_bytes, parts=2)
    return lambda size: both_ways_ns(chunk_bytes(size), lambda its: of(its)[0], asked.places, asked.costs)


def _tree(
    time_ns: Callable[[HostTrees, Asked, int, Wide], float],
    numbers: Callable[[ConnectedPairs, Sequence[int]], tuple[Numbers, Numbers]] = ConnectedPairs.tree,
    *,
    pieces: bool = False,
) -> Model:
    def whole(asked: Asked) -> Time:
        if not pieces:
            _whole(asked)
        ways, around = _by_hosts(asked, numbers)(asked.places)
        trees = HostTrees(ways, asked.costs, np.array(asked.order))
        return lambda size: time_ns(trees, asked, size, around)

    return Model(whole)


def _chain(*, reduce: bool) -> Model:
    def time_ns(trees: HostTrees, asked: Asked, size_bytes: int, around: Wide) -> float:
        return trees.chain_ns(*asked.case(size_bytes, around).pieces(size_bytes), reduce=reduce)

    return _tree(time_ns, ConnectedPairs.chain, pieces=True)


BOTH_WAYS = Model(_both_ways)
CHAIN_BROADCAST = _chain(reduce=False)
CHAIN_REDUCE = _chain(reduce=True)
TREE_BROADCAST = _tree(lambda trees, asked, size, around: trees.broadcast_ns(size))
TREE_REDUCE = _tree(lambda trees, asked, size, around: trees.reduce_ns(size))
TREE_SCATTER = _tree(lambda trees, asked, size, around: trees.scatter_ns(size // asked.width, asked.width))
TREE_GATHER = _tree(lambda trees, asked, size, around: trees.gather_ns(size // asked.width, asked.width))
LINEAR_SCATTER = _tree(
    lambda trees, asked, size, _: trees.linear_scatter_ns(asked.chunk_bytes(size)), ConnectedPairs.linear
)
LINEAR_GATHER = _tree(
    lambda trees, asked, size, _: trees.linear_gather_ns(asked.chunk_bytes(size)), ConnectedPairs.linear
)
SCATTER_ALL_GATHER = _tree(
    lambda trees, asked, size, around: trees.scatter_all_gather_ns(size // asked.width, asked.width, around.ring()),
    ConnectedPairs.tree_and_ring,
)


# Switches


def _of_one_tree(asked: Asked) -> None:
    if (asked.options.get("trees") or 1) > 1:
        what = f"there is no model of {asked.entry} over several trees for {asked.n} ranks"
        raise NoModel(what, "leave it out", "trees")


def _multicast(asked: Asked, of: Callable[[Multicasts, int], Multicast]) -> Time:
    _of_one_tree(asked)
    places, hosts = asked.places, asked.bare
    if hosts.own:
        raise _unlike(asked, "another algorithm")
    if isinstance(places, Rails) and places.gpus > 1 and asked.domain:
        hosts = replace(hosts, places=replace(places, scale_up=True), scale_up=asked.domain)
    asked.made.add(2 * len(distances(asked.n)))
    both = Multicasts(tree_of(places, asked.job), asked.bare, hosts, asked.costs)
    return lambda size: of(both, size).in_time(asked.options["cutoff"])


def _by_switches(asked: Asked) -> Time:
    _of_one_tree(asked)
    bare, tree = asked.bare, tree_of(asked.places, asked.job)
    accelerator = asked.adders.of(int(tree.inputs[tree.adding()].max()))
    elements = min(accelerator.elements, asked.costs.mtu // 4)
    worst: Link = bare.own.worst(asked.n) if bare.own else bare.cable
    slots = asked.options["slots"] or asked.adders.slots(worst, asked.places.switches, elements)
    dtype = asked.dtype if asked.entry.collective.sized else "int32"
    return lambda size: by_switches_ns(
        tree, bare, size, asked.costs,
        width=asked.width, elements=elements, slots=min(slots, accelerator.slots),
        **travels(dtype, asked.options.get("op"), asked.adders.convert_bps),
        apart=apart(asked.entry.collective, asked.n, tree.largest_branch()),
        rate_bps=accelerator.rate, accelerator_ns=accelerator.latency,
    )  # fmt: skip


MULTICAST_BROADCAST = Model(partial(_multicast, of=Multicasts.broadcast))
MULTICAST_ALL_GATHER = Model(partial(_multicast, of=Multicasts.all_gather))
BY_SWITCHES = Model(_by_switches)
