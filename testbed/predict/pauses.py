"""Where a run's PFC would pause somebody: which buffers there are, and what is said of those that fill up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from testbed.plan.thresholds import MOST_NAMES, Buffer, configured
from workloads.times.buffers import Buffers, Room

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.steps.step import Step
    from testbed.predict.figure import Figure
    from topologies.ranks.hops import Hop


def buffers_of(experiment: Experiment, traffic_class: int) -> Buffers:
    """Of its switches and NICs, as far as they pause this class."""
    _, config = configured(experiment)
    rooms: dict[str, Room] = {}
    for switch in config["switches"]:
        if traffic_class in switch["lossless"]:
            buffer = Buffer.of(switch)
            rooms[switch["name"]] = Room(buffer.reserve, max(buffer.shared, 0), buffer.alpha)
    for nic in config["nics"]:
        if nic["pfc"] and nic["rx_buffer_bytes"] and traffic_class in nic["lossless"]:
            rooms[nic["name"]] = Room(nic["rx_xoff_bytes"])
    return Buffers(rooms)


def class_of(experiment: Experiment, step: Step | None = None) -> int:
    """The class of a step's data, where it says one; else of all."""
    own: int | None = getattr(step, "traffic_class", None)
    return experiment.fabric.switch.dscp.get(experiment.transport.dscp, 0) if own is None else own


def unseen(experiment: Experiment, traffic_class: int) -> tuple[Hop, ...] | None:
    """What is said of this class's pauses where no messages are followed: None, or of one without PFC that none are."""
    switch, nic = experiment.fabric.switch, experiment.fabric.nic
    paused = (switch.pfc or (nic.pfc and nic.rx_buffer > 0)) and traffic_class in switch.lossless
    return None if paused else ()


def pauses(figures: Sequence[Figure]) -> Iterator[str]:
    """A line for each step and algorithm in which somebody would be paused."""
    some = [figure for figure in figures if figure.paused]
    for (_, name, algorithm, holds_up), its in groupby(some, key=lambda f: (f.step, f.name, f.algorithm, f.holds_up)):
        rows = list(its)
        sizes = dict.fromkeys(f"{f.size_bytes} B" for f in rows if f.size_bytes is not None)
        what = f"{name} by {algorithm}, {', '.join(sizes)}" if sizes else name
        hops = dict.fromkeys(hop for f in rows for hop in f.paused or ())
        yield f"PFC, in {what}: {_who(list(hops))}; {_SO[holds_up]}"


_SO = {
    None: "a run takes longer where that holds others up, too",
    True: "that holds up what goes elsewhere, too: a run may take much longer",
    False: "all that waits there goes the same way, so a run takes no longer",
}


def _who(hops: Sequence[Hop]) -> str:
    by: dict[str, list[str]] = {}
    for sender, node in hops:
        by.setdefault(node, []).append(sender)
    said = [f"{node} would pause {_some(senders, ', ')}" for node, senders in by.items()]
    return _some(said, "; ")


def _some(names: Sequence[str], between: str) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES + 1 else ""
    return between.join(names[:MOST_NAMES] if more else names) + more
