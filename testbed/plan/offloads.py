"""What NICs and switches do: what it takes of the fabric, what it is told, and its time by the closed forms over it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from controllers.offload.trees import NoTree, Tree, Trees
from testbed.plan import aggregation
from testbed.plan.ideal import costs_with_engines
from topologies.graph.fabric import EMBEDDED
from topologies.ranks.grid import servers_and_gpus
from workloads.base.entry import NoModel, named
from workloads.base.vocabulary import DTYPES, MOST_TREES
from workloads.times.case import Case
from workloads.times.messages import Path
from workloads.times.queue_pairs import Numbers
from workloads.times.switches.in_network import Sums, apart, sums_of, travels
from workloads.times.switches.multicast import (
    Multicast,
    all_gather_over_ns,
    broadcast_over_ns,
    crowd_of,
    shared,
)
from workloads.times.wide.around import Edge, Ring
from workloads.times.wide.direct_reduce import arrays_of
from workloads.times.wide.model import model_of

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment
    from testbed.experiment.basis import Basis
    from testbed.experiment.blocks.fabric import Accelerator, FabricSpec
    from testbed.plan.routes import Routes
    from topologies.graph.fabric import Fabric
    from workloads.base.entry import Algorithm


def lacking(entry: Algorithm, step: CollectiveStep, experiment: Experiment, ranks: int) -> str:
    """Why these ranks cannot do the step by an offload on this fabric, as it is; "": nothing is in its way."""
    if entry.unpredicted:
        return f"there is no model of it: {entry.unpredicted}"
    if entry.accelerators and all(switch.role in EMBEDDED for switch in experiment.build_fabric().switches):
        return "there are no switches: NICs are cabled to each other"
    if entry.accelerators and experiment.fabric.switch.accelerator is None:
        return "switches have no accelerator (fabric.switch.accelerator)"
    if entry.engines and experiment.fabric.nic.engine is None:
        return "NICs have no adder (fabric.nic.kind: on_path)"
    if step.dtype not in entry.dtypes:
        return f"there is none of {step.dtype}"
    if step.op is not None and step.op not in entry.ops:
        return f"it has no reduction {step.op}"
    if not entry.min_ranks <= ranks <= (entry.max_ranks or ranks):
        return f"it is not for {ranks} ranks"
    return ""


def trees_to_try(trees: Trees, entry: Algorithm, ranks: Sequence[int]) -> list[int]:
    """Numbers of trees that `auto` looks at: powers of two, and as many as there are roots."""
    if "trees" not in entry.extra:
        return []
    try:
        most = min(MOST_TREES, len(trees.roots(ranks, _adders(trees) if entry.accelerators else None)))
    except NoTree:
        return []
    return sorted({*(count for count in (2, 4, MOST_TREES) if count <= most), most} - {1})


def _adders(trees: Trees) -> Set[str] | None:
    """Switches that may be roots of sums."""
    return {s.name for s in trees.fabric.switches if s.accelerator} or None


def told_of(entry: Algorithm, step: CollectiveStep, basis: Basis, reduce_bps: float | None) -> dict[str, Any]:
    """What ranks are told that do a step by it, besides their order."""
    more = {"aggregation": told_of_sums(entry, step, basis, reduce_bps)} if entry.accelerators else {}
    return {**usual(entry, step), **more}


def usual(entry: Algorithm, step: CollectiveStep) -> dict[str, Any]:
    """Keys that an algorithm heeds and a step by `auto` leaves out."""
    alone = type(step).model_validate({"collective": step.collective, "algorithm": entry.name})
    return {key: getattr(alone, key) for key in entry.defaults}


def told_of_sums(entry: Algorithm, step: CollectiveStep, basis: Basis, reduce_bps: float | None) -> dict[str, Any]:
    """For in-network aggregation: slots wanted, elements of a packet, and the timeout of a contribution."""
    spec, server = basis.fabric, entry.shared_slots
    elements = min(spec.switch.accelerator.elements if spec.switch.accelerator else 256, spec.nic.mtu // 4)
    way = spec, basis.worst_cable, basis.switches, elements
    slots = step.slots or aggregation.slots(*way, server=server)
    groups = step.groups or [step.ranks or list(range(basis.graph.ranks))]
    most, count, trees = max(map(len, groups)), len(groups), step.trees or 1
    if trees > 1:  # each has slots of its own
        there = spec.switch.accelerator.slots if spec.switch.accelerator else slots
        slots, count = -(-step.slots // trees) if step.slots else min(slots, max(1, there // trees)), count * trees
    if entry.layout == "rails":  # each has a group of its own, and those that meet at a switch share its slots
        most, gpus = servers_and_gpus(basis.graph, groups[0])
        count *= gpus
        if spec.switch.accelerator and not step.slots:
            slots = min(slots, max(1, spec.switch.accelerator.slots // _meeting(basis.graph, groups[0][:gpus])))
    timeout_ns = step.timeout or aggregation.timeout_ns(
        *way, slots, most, groups=count, reduce_bps=reduce_bps, server=server
    )
    return {"slots": slots, "elements": elements, "timeout_ns": timeout_ns, "retry": spec.nic.retry}


def _meeting(fabric: Fabric, ranks: Sequence[int]) -> int:
    """How many of these ranks are on the switch with most of them."""
    return max(Counter(_switch_of(fabric, rank) for rank in ranks).values())


def _switch_of(fabric: Fabric, rank: int) -> str:
    nic = fabric.nics[rank].name
    return fabric.cable_at[nic, 1].other(nic).node


def accelerator_for(fabric: FabricSpec, contributors: int) -> Accelerator:
    """The accelerator of every switch, for a collective of which so many contributors come to one.

    Raises NoModel where the controller refuses it (controllers/offload/jobs.py), and a run falls back to hosts.
    """
    accelerator = fabric.switch.accelerator
    hint = "a run falls back to hosts: predict ring"
    if accelerator is None:
        raise NoModel("switches have no accelerator", hint)
    if contributors > accelerator.fan_in:
        bits = accelerator.fan_in
        what = f"{contributors} contributors come to a switch, whose accelerator has a bitmap of {bits} bits"
        raise NoModel(what, hint)
    return accelerator


def offload_ns(
    chooser: Routes,
    basis: Basis,
    entry: Algorithm,
    ranks: Sequence[int],
    size_bytes: int,
    way: Mapping[str, Any],
    numbers: Sequence[Numbers],
    job: int,
) -> float:
    """Time in ns of the fabric's `job`th offloaded collective: that number says which of equal roots its tree has.

    `basis`: of the fabric without its faults.  `numbers`: of the queue pairs that it uses, one time after the other.
    Raises NoModel where switches are to add up and cannot, and where ranks give up what comes late.
    """
    n = len(ranks)
    if entry.accelerators and entry.layout == "rails":
        return _along_rails(chooser, basis, entry, ranks, size_bytes, way, job)
    if entry.accelerators:
        way = way if entry.collective.sized else {**way, "dtype": "int32"}
        return max(one.alone_ns(size_bytes) for one in _sums(chooser, basis, entry, ranks, way, job)[0])
    if entry.multicast:
        return _copied(chooser, entry, ranks, size_bytes, way, job).in_time(way["cutoff"])
    costs = costs_with_engines(chooser.experiment)
    if (form := model_of(entry).over) is not None:
        pairs = [(k, (k + 1) % n) for k in range(n)]
        rings = []
        for one in numbers:
            ways = chooser.ways(ranks, scale_up=not entry.engines, numbers=one)
            shared = ways.paths(pairs)
            rings.append(Ring.of([Edge(ways.path([pair]), path) for pair, path in zip(pairs, shared, strict=True)]))
        return form(size_bytes, rings[0], costs, arrays_of(way.get("optimizer")), rings[-1])
    return cast(float, named(entry.time)(n, size_bytes, chooser.ways(ranks).path([(0, 1)]), costs))


def scarce_slots(
    chooser: Routes, basis: Basis, entry: Algorithm, ranks: Sequence[int], size_bytes: int, way: Mapping[str, Any]
) -> tuple[int, int]:
    """The slots that a tree of a reduction has, and those that would keep its slowest stage busy.  Raises NoModel."""
    sums, _ = _sums(chooser, basis, entry, ranks, way, 1)
    return min(one.slots for one in sums), max(one.round_trip_slots(size_bytes) for one in sums)


def _copied(
    chooser: Routes, entry: Algorithm, ranks: Sequence[int], size_bytes: int, way: Mapping[str, Any], job: int
) -> Multicast:
    """The last of all trees' datagrams; what of them a link carries is counted over all of them."""
    hosts, costs, n, count = chooser.ways(ranks), chooser.costs, len(ranks), way.get("trees") or 1
    trees = [_Branches(chooser, ranks, tree.root) for tree in trees_of(chooser.trees, ranks, job, count)]
    crowd = Counter[Hashable]()
    for tree in trees:
        crowd += crowd_of(n, tree.hops, senders=1 if entry.collective.rooted else n)
    share = {hop: carried / count for hop, carried in crowd.items()}

    def messages(a: int, b: int) -> Path:
        return hosts.path([(a, b)])

    def of(tree: _Branches) -> Multicast:
        if not entry.collective.rooted:
            return all_gather_over_ns(n, size_bytes, tree.path, costs, messages=messages, hops=tree.hops, crowd=share)

        def path(a: int, b: int) -> Path:
            return shared(tree.path(a, b), [share[hop] for hop in tree.hops(a, b)], costs.mtu)

        return broadcast_over_ns(n, size_bytes, path if count > 1 else tree.path, costs, messages=messages)

    done = [of(tree) for tree in trees]
    return Multicast(max(one.time_ns for one in done), max(one.waits_ns for one in done))


def _along_rails(
    chooser: Routes,
    basis: Basis,
    entry: Algorithm,
    ranks: Sequence[int],
    size_bytes: int,
    way: Mapping[str, Any],
    job: int,
) -> float:
    """A job for each rail.  Raises NoModel where two of them meet at a switch."""
    _, gpus = way["dims"]
    sums: set[Sums] = set()
    users: set[str] = set()
    for rail in range(gpus):
        its, tree = _sums(chooser, basis, entry, ranks[rail::gpus], way, job + rail)
        if users.intersection(tree.switches):
            raise NoModel(f"there is no model of {entry.name} where rails meet at a switch", "run it")
        users.update(tree.switches)
        sums |= its
    case = Case.of(
        entry, len(ranks), size_bytes, DTYPES[way["dtype"]], way, chooser.seed, chooser.costs, chooser.ways(ranks)
    )
    return max(cast(float, named(entry.time)(case, one)) for one in sums)


def _sums(
    chooser: Routes, basis: Basis, entry: Algorithm, ranks: Sequence[int], way: Mapping[str, Any], job: int
) -> tuple[set[Sums], Tree]:
    """Over the trees that the controller makes of the ranks' shortest ways to a root: for each way what sums take.

    Returns the last tree, too.
    """
    trees, slots = chooser.trees, way["aggregation"]
    several = trees_of(trees, ranks, job, way.get("trees") or 1, _adders(trees))
    accelerator = accelerator_for(basis.fabric, max(tree.inputs(name) for tree in several for name in tree.adding))
    users, children = Counter[Hop](), Counter[str]()
    for tree in several:
        users.update({hop for rank in ranks for hop in pairwise(_nodes(chooser, tree, rank))})
        children.update({name: tree.inputs(name) for name in tree.adding})
    found = {
        sums_of(
            path,
            chooser.costs,
            width=DTYPES[way["dtype"]],
            elements=slots["elements"],
            slots=min(slots["slots"], accelerator.slots),
            **travels(way["dtype"], way.get("op"), chooser.experiment.costs.convert),
            accelerators=[adder[:2] for adder in adders],
            accelerator_ns=accelerator.latency,
            apart=apart(entry.collective, len(ranks), tree.largest_branch()),
            trees=len(several),
            shared=shared,
            contributions=[adder[2] for adder in adders],
        )
        for tree in several
        for path, adders, shared in {
            _way(chooser, basis, accelerator.rate, tree, rank, users, children) for rank in ranks
        }
    }
    return found, several[-1]


def trees_of(trees: Trees, ranks: Sequence[int], job: int, count: int, among: Set[str] | None = None) -> list[Tree]:
    """The controller's.  Raises NoModel where it has none, and a run falls back to hosts."""
    try:
        return trees.several(ranks, job, count, among)
    except NoTree as none:
        raise NoModel(str(none), "a run falls back to hosts: predict another algorithm") from None


Hop = tuple[str, str]
Adders = tuple[tuple[float, int, int], ...]


def _nodes(chooser: Routes, tree: Tree, rank: int) -> list[str]:
    """From a rank up to the root, and down again."""
    fabric = chooser.fabric
    nic = fabric.nics[rank].name
    at = fabric.cable_at[nic, 1].other(nic).node
    up = [at, *_above(chooser.trees, at, tree.root)]
    return [nic, *up, *reversed(up[:-1]), nic]


def _way(
    chooser: Routes,
    basis: Basis,
    rate_bps: float | None,
    tree: Tree,
    rank: int,
    users: Counter[Hop],
    children: Counter[str],
) -> tuple[Path, Adders, tuple[int, ...]]:
    """That way, the accelerators that add up on it, with their rates and inputs, and who shares its links.

    If no rate is written, it is that of all of the switch's ports together, whatever faults do to these.
    """
    nodes = _nodes(chooser, tree, rank)
    adders = tuple(
        (rate_bps or basis.ports_bps(name), tree.inputs(name), children[name])
        for name in nodes[1 : len(nodes) // 2 + 1]
        if name in tree.adding
    )
    return chooser.along(nodes), adders, tuple(users[hop] for hop in pairwise(nodes))


def _above(trees: Trees, switch: str, root: str) -> Iterator[str]:
    for name, port in trees.way(switch, root):
        yield trees.fabric.cable_at[name, port].other(name).node


class _Branches:
    """Ways over a tree that a job's multicasts take: up to where two ranks' branches meet, and down."""

    def __init__(self, chooser: Routes, ranks: Sequence[int], root: str) -> None:
        self._chooser = chooser
        trees, fabric = chooser.trees, chooser.trees.fabric
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
