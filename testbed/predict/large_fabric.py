"""An experiment's fabric for the models that work with arrays: what they need of it, worked out once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from testbed.base.errors import InputError
from testbed.plan import aggregation
from testbed.plan.ideal import costs_with_engines, sprays
from testbed.plan.offloads import accelerator_for
from testbed.plan.routes import has_dateline
from workloads.times.messages import Link
from workloads.times.wide.cables import Cables, LinkIndex, host_called, switch_called
from workloads.times.wide.fabric import Wide
from workloads.times.wide.groups import Together
from workloads.times.wide.model import Adders
from workloads.times.wide.places import KINDS, Places, places_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from testbed.experiment import Experiment
    from testbed.experiment.blocks.fabric import FabricSpec
    from testbed.experiment.steps.step import Step
    from topologies.graph.fabric import Fabric
    from topologies.ranks.hops import Hop


class LargeFabric:
    """Of a fabric that is large, or could be; nothing of it is looked up in a graph of all its parts."""

    def __init__(self, experiment: Experiment) -> None:
        self.spec, self.graph, self.seed = experiment.fabric, experiment.build_fabric(), experiment.seed
        self.costs, self._dateline = costs_with_engines(experiment), has_dateline(experiment)
        adaptive, several = experiment.control.routing.adaptive, experiment.transport.qps > 1
        self.several_paths = sprays(experiment.transport) or adaptive is not None or several
        self._hashing = experiment.control.routing.hashing
        self._fixed_port = experiment.transport.source_port == "fixed"
        self._data_class = self.spec.switch.dscp.get(experiment.transport.dscp, 0)
        self.adders = Adders(partial(accelerator_for, self.spec), self._slots, experiment.costs.convert)
        self._place = experiment.place
        cable, scale_up = self.spec.cable, self.spec.scale_up
        self._usual = Link(cable.rate, cable.delay)
        self.domain = Link(scale_up.rate, scale_up.delay) if scale_up else None
        """The links of scale-up domains."""

    def places(self, *, scale_up: bool = False) -> Places:
        return places_of(self.spec.topology.kind, self.spec.topology.params, scale_up=scale_up)

    @cached_property
    def nics(self) -> Wide:
        """The ways over the network alone."""
        places = self.places()
        own = _cables(self.spec, self.graph, places, self._place)
        return Wide(
            places,
            self._usual,
            self.spec.switch.latency,
            own=own,
            dateline=self._dateline,
            hashing=self._hashing,
            fixed_port=self._fixed_port,
        )

    @cached_property
    def hosts(self) -> Wide:
        """The ways of what hosts send, through scale-up domains, too."""
        return replace(self.nics, places=self.places(scale_up=self.domain is not None), scale_up=self.domain)

    @cached_property
    def together(self) -> Together:
        """For what groups of all ranks do at a time.  Raises InputError where there is no such model of the fabric."""
        self.refuse_ports()
        return Together(self.hosts, self.nics, self.costs, self.seed)

    def refuse_ports(self) -> None:
        """Raises InputError for a network that was named node by node, and for NICs with several ports."""
        topology, place = self.spec.topology, self._place("fabric", "topology")
        if topology.kind not in KINDS:
            what = f"there is no model of so large a fabric of kind {topology.kind}"
            raise InputError(what, place, f"there is one of {', '.join(KINDS)}")
        if topology.params.get("direct") or topology.params.get("links", 1) > 1:
            raise InputError("there is no model of NICs with several ports in so large a fabric", place, "leave it out")

    def _slots(self, cable: Link, switches: int, elements: int) -> int:
        return aggregation.slots(self.spec, (cable.rate_bps, cable.delay_ns), switches, elements)

    def class_of(self, step: Step | None = None) -> int:
        """The class of a step's data, where it says one; else of all."""
        own: int | None = getattr(step, "traffic_class", None)
        return self._data_class if own is None else own

    def unseen(self, step: Step | None = None) -> tuple[Hop, ...] | None:
        """What is said of pauses where no messages are followed: None, or, if PFC pauses nobody, that none are."""
        switch, nic = self.spec.switch, self.spec.nic
        paused = (switch.pfc or (nic.pfc and nic.rx_buffer > 0)) and self.class_of(step) in switch.lossless
        return None if paused else ()


_FORMS = "cable:A-B, nic:RANK, switch:NAME or all"


def _cables(spec: FabricSpec, graph: Fabric, places: Places, place: Callable[..., str]) -> Cables | None:
    """None where all are alike.  Raises InputError for a target that a large fabric does not have.

    `place`: where a key stands in the file.
    """
    n, hosts, large = places.ranks, spec.host_cable, spec.topology.is_large
    if all(c.rate_bps is None and c.delay_ns is None for c in graph.cables) and not (large and spec.cables):
        return None
    links = LinkIndex(places)
    rate, delay = np.full(links.count, spec.cable.rate), np.full(links.count, spec.cable.delay)

    def lay(ids: NDArray[np.int64] | slice, rate_bps: float | None, delay_ns: float | None) -> None:
        if rate_bps is not None:
            rate[ids] = rate_bps
        if delay_ns is not None:
            delay[ids] = delay_ns

    if large:
        lay(slice(0, 2 * n), hosts.rate, hosts.delay)
        for target, own in spec.cables.items():
            lay(_named(places, links, target, place("fabric", "cables", target)), own.rate, own.delay)
    else:
        for cable in graph.cables:
            lay(_cable(places, links, cable.a.node, cable.b.node), cable.rate_bps, cable.delay_ns)
    rate[links.missing], delay[links.missing] = rate[-1], delay[-1]  # a link's number that there is
    return Cables.of(Link(spec.cable.rate, spec.cable.delay), rate, delay)


def _named(places: Places, links: LinkIndex, target: str, place: str) -> NDArray[np.int64]:
    """What a target means where there is no graph to look it up in (topologies/graph/targets.py)."""
    kind, _, name = target.partition(":")
    ids = np.zeros(0, np.int64)
    if target == "all":
        ids = np.concatenate([np.arange(2 * places.ranks), np.arange(4 * places.ranks, links.count)])
    elif kind == "cable":
        cuts = [k for k in range(len(name)) if name[k] == "-"]
        cables = (_cable(places, links, name[:k], name[k + 1 :]) for k in cuts)
        ids = next((cable for cable in cables if cable.size), ids)
    elif kind == "nic" and name.isdecimal() and int(name) < places.ranks:
        ids = links.of_host(int(name))
    elif kind == "switch" and (number := switch_called(places, name)) is not None:
        ids = links.of_switch(number)
    if not ids.size:
        raise InputError("there is no such cable in this fabric", place, f"{_FORMS}: so large a fabric has no others")
    return ids


def _cable(places: Places, links: LinkIndex, a: str, b: str) -> NDArray[np.int64]:
    """Both directions of the cable between two nodes; none if there is none."""
    nodes = [(host_called(places, name), switch_called(places, name)) for name in (a, b)]
    for (host, _), (_, switch) in (nodes, nodes[::-1]):
        if host is not None and switch is not None:
            return links.of_host(host) if places.leaf(np.array([host]))[0] == switch else np.zeros(0, np.int64)
    one, other = (np.array([-1 if switch is None else switch]) for _, switch in nodes)
    both = np.concatenate([links.between(one, other), links.between(other, one)])
    return both[both >= 0] if min(one[0], other[0]) >= 0 else both[:0]
