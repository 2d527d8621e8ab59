"""What NICs and switches do: what it takes of the fabric, what it is told, and its time by the closed forms over it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from controllers.offload.trees import NoTree, Tree, Trees
from testbed.experiment.built import bare_hardware
from testbed.plan.hardware import aggregation_timeout_ns, slots_for
from testbed.plan.ideal import costs_with_engines
from workloads.base.entry import NoModel, named
from workloads.base.vocabulary import DTYPES
from workloads.times.in_network import in_network_all_reduce_ns
from workloads.times.messages import Path
from workloads.times.multicast import all_gather_over_ns, broadcast_over_ns
from workloads.times.queue_pairs import Numbers
from workloads.times.wide.around import Edge, Ring
from workloads.times.wide.direct_reduce import arrays_of
from workloads.times.wide.model import model_of

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment
    from testbed.experiment.blocks.fabric import Accelerator
    from testbed.plan.choose import Chooser
    from topologies import Fabric
    from workloads.base.entry import Algorithm


def lacking(entry: Algorithm, step: CollectiveStep, experiment: Experiment, ranks: int) -> str:
    """Why these ranks cannot do the step by an offload on this fabric, as it is; "": nothing is in its way."""
    if entry.unpredicted:
        return f"there is no model of it: {entry.unpredicted}"
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


def told_of(entry: Algorithm, step: CollectiveStep, experiment: Experiment, fabric: Fabric) -> dict[str, Any]:
    """What ranks are told that do a step by it, besides their order."""
    more = {"aggregation": aggregation(step, entry, experiment, fabric)} if entry.accelerators else {}
    return {**usual(entry, step), **more}


def usual(entry: Algorithm, step: CollectiveStep) -> dict[str, Any]:
    """Keys that an algorithm heeds and a step by `auto` leaves out."""
    alone = type(step).model_validate({"collective": step.collective, "algorithm": entry.name})
    return {key: getattr(alone, key) for key in entry.defaults}


def aggregation(step: CollectiveStep, entry: Algorithm, experiment: Experiment, fabric: Fabric) -> dict[str, Any]:
    """For in-network aggregation: slots wanted, elements of a packet, and the timeout of a contribution."""
    accelerator = experiment.fabric.switch.accelerator
    elements = accelerator.elements if accelerator else 256
    elements = min(elements, experiment.fabric.nic.mtu // 4)
    slots = step.slots or slots_for(experiment, fabric, elements, server=entry.shared_slots)
    groups = step.groups or [step.ranks or list(range(fabric.ranks))]
    most = max(len(ranks) for ranks in groups)
    return {
        "slots": slots,
        "elements": elements,
        "timeout_ns": step.timeout
        or aggregation_timeout_ns(
            experiment, fabric, elements, slots, most, groups=len(groups), server=entry.shared_slots
        ),
        "retry": experiment.fabric.nic.retry,
    }


def accelerator_for(experiment: Experiment, contributors: int) -> Accelerator:
    """The accelerator of every switch, for a collective of which so many contributors come to one.

    Raises NoModel where the controller refuses it (controllers/offload/jobs.py), and a run falls back to hosts.
    """
    accelerator = experiment.fabric.switch.accelerator
    hint = "a run falls back to hosts: predict ring"
    if accelerator is None:
        raise NoModel("switches have no accelerator", hint)
    if contributors > accelerator.fan_in:
        bits = accelerator.fan_in
        what = f"{contributors} contributors come to a switch, whose accelerator has a bitmap of {bits} bits"
        raise NoModel(what, hint)
    return accelerator


def offload_ns(
    experiment: Experiment,
    chooser: Chooser,
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
    if entry.accelerators:
        return _by_switches(experiment, chooser, ranks, size_bytes, way, job)
    if entry.multicast:
        hosts = chooser.ways(ranks)
        tree = _Branches(chooser, ranks, job)

        def messages(a: int, b: int) -> Path:
            return hosts.path([(a, b)])

        n, costs = len(ranks), chooser.costs
        if entry.collective.rooted:
            done = broadcast_over_ns(n, size_bytes, tree.path, costs, messages=messages)
        else:
            done = all_gather_over_ns(n, size_bytes, tree.path, costs, messages=messages, hops=tree.hops)
        return done.in_time(way["cutoff"])
    costs = costs_with_engines(experiment)
    if (form := model_of(entry).over) is not None:
        pairs = [(k, (k + 1) % len(ranks)) for k in range(len(ranks))]
        rings = []
        for one in numbers:
            its = chooser.ways(ranks, scale_up=not entry.engines, numbers=one)
            shared = its.paths(pairs)
            rings.append(Ring.of([Edge(its.path([pair]), path) for pair, path in zip(pairs, shared, strict=True)]))
        return form(size_bytes, rings[0], costs, arrays_of(way.get("optimizer")), rings[-1])
    return cast(float, named(entry.time)(len(ranks), size_bytes, chooser.ways(ranks).path([(0, 1)]), costs))


def _by_switches(
    experiment: Experiment,
    chooser: Chooser,
    ranks: Sequence[int],
    size_bytes: int,
    way: Mapping[str, Any],
    job: int,
) -> float:
    """Over the tree that the controller makes of the ranks' shortest ways to a root."""
    aggregation, trees = way["aggregation"], chooser.trees
    among = {s.name for s in trees.fabric.switches if s.accelerator}
    tree = tree_of(trees, ranks, job, among or None)
    accelerator = accelerator_for(experiment, max(map(tree.inputs, tree.adding)))
    found = {_way(experiment, chooser, trees, tree, rank) for rank in ranks}
    return max(
        in_network_all_reduce_ns(
            len(ranks),
            size_bytes,
            path,
            chooser.costs,
            width=DTYPES[way["dtype"]],
            elements=aggregation["elements"],
            slots=min(aggregation["slots"], accelerator.slots),
            fixed_point=not way["dtype"].startswith(("int", "uint")),
            convert_bps=experiment.costs.convert,
            accelerators=adders,
            accelerator_ns=accelerator.latency,
        )
        for path, adders in found
    )


def tree_of(trees: Trees, ranks: Sequence[int], job: int, among: Set[str] | None = None) -> Tree:
    """The controller's.  Raises NoModel where it has none, and a run falls back to hosts."""
    try:
        return trees.tree(ranks, job, among)
    except NoTree as none:
        raise NoModel(str(none), "a run falls back to hosts: predict another algorithm") from None


Adders = tuple[tuple[float, int], ...]


def _way(experiment: Experiment, chooser: Chooser, trees: Trees, tree: Tree, rank: int) -> tuple[Path, Adders]:
    """From a rank up to the root, and down again; the accelerators that add up."""
    fabric, spec = experiment.build_fabric(), experiment.fabric.switch.accelerator
    assert spec is not None
    built = experiment.as_written() if experiment.inject else experiment  # a fault leaves accelerators as they are
    nic = fabric.nics[rank].name
    at = fabric.cable_at[nic, 1].other(nic).node
    up = [at, *_above(trees, at, tree.root)]
    nodes = [nic, *up, *reversed(up[:-1]), nic]
    adders = tuple((spec.rate or _ports_bps(built, name), tree.inputs(name)) for name in up if name in tree.adding)
    return chooser.along(nodes), adders


def _above(trees: Trees, switch: str, root: str) -> Iterator[str]:
    for name, port in trees.way(switch, root):
        yield trees.fabric.cable_at[name, port].other(name).node


def _ports_bps(experiment: Experiment, switch: str) -> float:
    """Of all ports together, as an accelerator's when the file does not say."""
    fabric, hardware = experiment.build_fabric(), bare_hardware(experiment)
    ports = range(1, fabric.switch_by_name[switch].ports + 1)
    return sum(hardware.cable(fabric, fabric.cable_at[switch, port])[0] for port in ports)


class _Branches:
    """Ways over the tree that a job's multicasts take: up to where two ranks' branches meet, and down."""

    def __init__(self, chooser: Chooser, ranks: Sequence[int], job: int) -> None:
        self._chooser = chooser
        trees, fabric = chooser.trees, chooser.trees.fabric
        root = tree_of(trees, ranks, job).root
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
