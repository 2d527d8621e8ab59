"""Which places data of a job pass.

Routes and schedule give where they may pass: any shortest path, of which ECMP's hash takes one. Where they do pass, the
counters show once the job has run for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from testbed.checklist.exchanges import exchanges
from topologies.graph.fabric import Fabric
from topologies.graph.search import hops as distances
from topologies.kinds import DIMENSION_ORDER
from topologies.ranks.hops import Hops

if TYPE_CHECKING:
    from testbed.experiment import Experiment

LEAST = 0.1
"""Share of the busiest cable's bytes from which on a cable carries data: ACKs alone are far less."""


def pairs(experiment: Experiment) -> set[tuple[int, int]] | None:
    """The ranks that send to each other; None if the network carries out the collective."""
    steps = exchanges(experiment)
    if any(not step.sent for step in steps):
        return None
    hops = Hops(experiment.build_fabric())
    return {pair for step in steps for pair, size in step.sent.items() if size and not hops.in_scale_up(*pair)}


def possible(experiment: Experiment) -> set[str]:
    """Every place that data of the workload may pass on a healthy fabric."""
    fabric = experiment.build_fabric()
    sending = pairs(experiment)
    if sending is None:
        cables = {c.name for c in fabric.cables}
        sending = {(a, b) for a in range(fabric.ranks) for b in range(fabric.ranks) if a != b}
    elif fabric.kind in DIMENSION_ORDER:
        hops = Hops(fabric)
        between = {frozenset((c.a.node, c.b.node)): c.name for c in fabric.cables}
        cables = {between[frozenset(hop)] for a, b in sending for hop in hops.between(a, b)}
    else:
        cables = _on_shortest(fabric, sending)
    return _places(fabric, cables, sending)


def measured(fabric: Fabric, experiment: Experiment, ports: Iterable[Mapping[str, Any]]) -> set[str]:
    """Every place that data have passed, by fabricd's counters of ports (`node`, `port`, `tx_bytes`)."""
    sent: dict[str, int] = {}
    for port in ports:
        cable = fabric.cable_at.get((str(port["node"]), int(port["port"])))
        if cable is not None:
            sent[cable.name] = max(sent.get(cable.name, 0), int(port["tx_bytes"]))
    busiest = max(sent.values(), default=0)
    cables = {name for name, n in sent.items() if n and n >= LEAST * busiest}
    return _places(fabric, cables, pairs(experiment) or set())


def _places(fabric: Fabric, cables: Iterable[str], sending: Iterable[tuple[int, int]]) -> set[str]:
    """The cables, and whatever is at their ends."""
    places = {f"flow:{a}->{b}" for a, b in sending}
    for name in cables:
        cable = fabric.cable_by_name[name]
        places.add(f"cable:{name}")
        for end in (cable.a, cable.b):
            if end.node in fabric.switch_by_name:
                places |= {f"switch:{end.node}", f"port:{end.node}:{end.port}"}
            else:
                places.add(f"nic:{fabric.nic_by_name[end.node].rank}")
    return places


def _on_shortest(fabric: Fabric, sending: Iterable[tuple[int, int]]) -> set[str]:
    far = {rank: distances(fabric, fabric.nics[rank].name) for rank in {rank for pair in sending for rank in pair}}

    def on_shortest(u: str, v: str) -> bool:
        return any(
            far[a][fabric.nics[b].name] in (far[a][u] + 1 + far[b][v], far[a][v] + 1 + far[b][u]) for a, b in sending
        )

    return {cable.name for cable in fabric.cables if on_shortest(cable.a.node, cable.b.node)}
