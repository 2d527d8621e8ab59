"""The cables of an experiment's fabric: as faults leave them for the whole run, and, where some differ, as arrays.

A cable that is slower or longer from beginning to end is one that was built so.  But controllers and `auto` know
nothing of it: routes and algorithms are those of the healthy fabric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.base.errors import InputError
from testbed.experiment.blocks.cables import Override, OwnCable, laid
from testbed.faults.cable import CableFault
from workloads.times.messages import Link
from workloads.times.wide.cables import Cables, LinkIndex, host_called, switch_called

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from testbed.experiment import Experiment
    from testbed.faults import Injection
    from workloads.times.wide.places import Places

_KEYS = {"rate_bps": "rate", "delay_ns": "delay"}


def is_of_cables(injection: Injection) -> bool:
    """Whether it changes cables' rates or delays, and nothing else."""
    return isinstance(injection.fault, CableFault) and injection.fault.values().keys() <= _KEYS.keys()


def lasts(injection: Injection) -> bool:
    """From the beginning to the end."""
    return injection.at == 0 and injection.lasts is None


def with_faults(experiment: Experiment) -> Experiment:
    """Its fabric's cables as its faults leave them: all of these can be predicted."""
    if not experiment.inject:
        return experiment
    fabric = experiment.build_fabric()
    for injection in experiment.inject:  # the last one that applies wins
        fault = injection.fault
        assert isinstance(fault, CableFault)
        left: dict[str, Any] = {_KEYS[key]: value for key, value in fault.values().items()}
        fabric = laid(fabric, OwnCable(), {injection.on: Override.model_construct(**left)})
    return experiment.on_fabric(fabric)


_FORMS = "cable:A-B, nic:RANK, switch:NAME or all"


def cables_of(experiment: Experiment, places: Places) -> Cables | None:
    """None where all are alike.  Raises InputError for a target that a large fabric does not have."""
    spec, n = experiment.fabric, places.ranks
    hosts, graph = spec.host_cable, experiment.build_fabric()
    large = spec.topology.is_large
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
        for target, told in spec.cables.items():
            lay(_named(places, links, target, experiment.place("fabric", "cables", target)), told.rate, told.delay)
    else:
        for cable in graph.cables:
            lay(_cable(places, links, cable.a.node, cable.b.node), cable.rate_bps, cable.delay_ns)
    rate[links.missing], delay[links.missing] = rate[-1], delay[-1]  # a link's number that there is
    return Cables.of(Link(spec.cable.rate, spec.cable.delay), rate, delay)


def _named(places: Places, links: LinkIndex, target: str, place: str) -> NDArray[np.int64]:
    """What a target means where there is no graph to look it up in (topologies/graph/targets.py)."""
    kind, _, name = target.partition(":")
    found = np.zeros(0, np.int64)
    if target == "all":
        found = np.concatenate([np.arange(2 * places.ranks), np.arange(4 * places.ranks, links.count)])
    elif kind == "cable":
        cuts = [k for k in range(len(name)) if name[k] == "-"]
        ends = [its for k in cuts if (its := _cable(places, links, name[:k], name[k + 1 :])).size]
        found = ends[0] if ends else found
    elif kind == "nic" and name.isdecimal() and int(name) < places.ranks:
        found = links.of_host(int(name))
    elif kind == "switch" and (number := switch_called(places, name)) is not None:
        found = links.of_switch(number)
    if not found.size:
        raise InputError("there is no such cable in this fabric", place, f"{_FORMS}: so large a fabric has no others")
    return found


def _cable(places: Places, links: LinkIndex, a: str, b: str) -> NDArray[np.int64]:
    """Both directions of the cable between two nodes; none if there is none."""
    nodes = [(host_called(places, name), switch_called(places, name)) for name in (a, b)]
    for (host, _), (_, switch) in (nodes, nodes[::-1]):
        if host is not None and switch is not None:
            return links.of_host(host) if places.leaf(np.array([host]))[0] == switch else np.zeros(0, np.int64)
    one, other = (np.array([-1 if switch is None else switch]) for _, switch in nodes)
    found = np.concatenate([links.between(one, other), links.between(other, one)])
    return found[found >= 0] if min(one[0], other[0]) >= 0 else found[:0]
