"""The times of what NICs and switches do, from the closed forms over the actual fabric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from controllers.offload.trees import Tree, Trees
from workloads.base.entry import named
from workloads.base.vocabulary import DTYPES
from workloads.times.in_network import in_network_all_reduce_ns
from workloads.times.messages import Path
from workloads.times.multicast import all_gather_over_ns, broadcast_over_ns
from workloads.times.queue_pairs import Numbers
from workloads.times.wide.around import Edge, Ring
from workloads.times.wide.direct_reduce import arrays_of
from workloads.times.wide.model import model_of

if TYPE_CHECKING:
    from testbed.plan.choose import Chooser
    from testbed.predict.ground import Ground
    from workloads.base.entry import Algorithm


def offload_ns(
    ground: Ground,
    entry: Algorithm,
    ranks: Sequence[int],
    size_bytes: int,
    way: Mapping[str, Any],
    numbers: Sequence[Numbers],
    job: int,
) -> float:
    """Time in ns of the fabric's `job`th offloaded collective: that number says which of equal roots its tree has.

    `numbers`: of the queue pairs that it uses, one time after the other.
    Raises NoModel where switches are to add up and cannot, and where ranks give up what comes late.
    """
    chooser, n = ground.chooser, len(ranks)
    if entry.accelerators:
        return _by_switches(ground, ranks, size_bytes, way, job)
    if entry.multicast:
        hosts, costs = chooser.ways(ranks), chooser.costs
        tree = _Branches(chooser, ranks, job)

        def messages(a: int, b: int) -> Path:
            return hosts.path([(a, b)])

        if entry.collective.rooted:
            done = broadcast_over_ns(n, size_bytes, tree.path, costs, messages=messages)
        else:
            done = all_gather_over_ns(n, size_bytes, tree.path, costs, messages=messages, hops=tree.hops)
        return done.in_time(way["cutoff"])
    costs = ground.large.costs
    if (form := model_of(entry).over) is not None:
        pairs = [(k, (k + 1) % n) for k in range(n)]
        rings = []
        for one in numbers:
            ways = chooser.ways(ranks, scale_up=not entry.engines, numbers=one)
            shared = ways.paths(pairs)
            rings.append(Ring.of([Edge(ways.path([pair]), path) for pair, path in zip(pairs, shared, strict=True)]))
        return form(size_bytes, rings[0], costs, arrays_of(way.get("optimizer")), rings[-1])
    return cast(float, named(entry.time)(n, size_bytes, chooser.ways(ranks).path([(0, 1)]), costs))


def _by_switches(ground: Ground, ranks: Sequence[int], size_bytes: int, way: Mapping[str, Any], job: int) -> float:
    """Over the tree that the controller makes of the ranks' shortest ways to a root."""
    aggregation, fabric = way["aggregation"], ground.chooser.fabric
    among = {s.name for s in fabric.switches if s.accelerator}
    trees = Trees(fabric)
    tree = trees.tree(ranks, job, among or None)
    accelerator = ground.large.accelerator(max(map(tree.inputs, tree.adding)))
    paths = {_way(ground, accelerator.rate, trees, tree, rank) for rank in ranks}
    return max(
        in_network_all_reduce_ns(
            len(ranks),
            size_bytes,
            path,
            ground.chooser.costs,
            width=DTYPES[way["dtype"]],
            elements=aggregation["elements"],
            slots=min(aggregation["slots"], accelerator.slots),
            fixed_point=not way["dtype"].startswith(("int", "uint")),
            convert_bps=ground.large.adders.convert_bps,
            accelerators=adders,
            accelerator_ns=accelerator.latency,
        )
        for path, adders in paths
    )


Adders = tuple[tuple[float, int], ...]


def _way(ground: Ground, rate_bps: float | None, trees: Trees, tree: Tree, rank: int) -> tuple[Path, Adders]:
    """From a rank up to the root, and down again; the accelerators that add up, with their rates and inputs.

    If no rate is written, it is that of all of the switch's ports together, whatever faults do to these.
    """
    fabric, basis = ground.chooser.fabric, ground.planner.basis
    nic = fabric.nics[rank].name
    at = fabric.cable_at[nic, 1].other(nic).node
    up = [at, *_above(trees, at, tree.root)]
    nodes = [nic, *up, *reversed(up[:-1]), nic]
    adders = tuple((rate_bps or basis.ports_bps(name), tree.inputs(name)) for name in up if name in tree.adding)
    return ground.chooser.along(nodes), adders


def _above(trees: Trees, switch: str, root: str) -> Iterator[str]:
    for name, port in trees.way(switch, root):
        yield trees.fabric.cable_at[name, port].other(name).node


class _Branches:
    """Ways over the tree that a job's multicasts take: up to where two ranks' branches meet, and down."""

    def __init__(self, chooser: Chooser, ranks: Sequence[int], job: int) -> None:
        self._chooser, fabric = chooser, chooser.fabric
        trees = Trees(fabric)
        root = trees.tree(ranks, job).root
        nics = [fabric.nics[rank].name for rank in ranks]
        at = [fabric.cable_at[nic, 1].other(nic).node for nic in nics]
        self._up = [[nic, switch, *_above(trees, switch, root)] for nic, switch in zip(nics, at, strict=True)]
        self.path = cache(self._path)

    def _nodes(self, a: int, b: int) -> list[str]:
        up, down = self._up[a], self._up[b]
        met = next(node for node in up if node in down)
        return [*up[: up.index(met) + 1], *reversed(down[: down.index(met)])]

    def _path(self, a: int, b: int) -> Path:
        return self._chooser.along(self._nodes(a, b))

    def hops(self, a: int, b: int) -> list[tuple[str, str]]:
        """From node to node."""
        return list(pairwise(self._nodes(a, b)))
