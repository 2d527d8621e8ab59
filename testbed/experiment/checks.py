"""Checks that need several blocks: ranks, capture points and sizes against the fabric and the registries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from testbed.base.types import unknown
from testbed.experiment import basis
from testbed.experiment.blocks import known, trimming
from testbed.experiment.blocks.mixed import ranks_of
from testbed.experiment.steps.step import Blocks as OfSteps
from testbed.experiment.steps.step import Found, below, rank_out_of_range
from testbed.experiment.steps.steps import scaled_by
from topologies.graph import endpoint, frames
from topologies.graph.fabric import Fabric
from topologies.kinds import DIMENSION_ORDER
from topologies.ranks.multipath import BY_NUMBER
from workloads import registry

if TYPE_CHECKING:
    from testbed.faults import Injection


class Blocks(basis.Blocks, OfSteps, Protocol):
    """The blocks of an experiment that are checked against each other."""

    @property
    def capture(self) -> Sequence[str]: ...


def cross_check(blocks: Blocks, fabric: Fabric) -> list[Found]:
    """All mistakes; `fabric` is the graph of `blocks.fabric`."""
    found: list[Found] = []
    if blocks.fabric.scale_up and not known.with_scale_up({fabric.kind: dict(fabric.params)}):
        what = f"hosts of this {fabric.kind} have one GPU each, and so no scale-up domain"
        found.append((("fabric", "scale_up"), what, "leave it out; a rail, or a clos with `gpus`, may have it"))
    for key, *wrong in trimming.mistakes(blocks.fabric.switch, blocks.transport):
        found.append((("fabric", "switch", "trimming", key), wrong[0], wrong[1]))
    routing = blocks.control.routing
    kinds, why = known.kinds_of_routing(routing.name)
    if kinds is not None and fabric.kind not in kinds:
        what = f"routing {routing.name!r} does not fit a {fabric.kind}" + (f": {why}" if why else "")
        hint = f"it is for {' and '.join(sorted(kinds))}"
        found.append((("control", "routing"), what, hint))
    if fabric.kind in DIMENSION_ORDER and routing.hashing != BY_NUMBER:
        what = f"on a {fabric.kind} nothing is hashed: one dimension comes after the other"
        found.append((("control", "routing", "ecmp"), what, "routing: ecmp, without more"))
    if blocks.clock.mode == "real" and blocks.workers.ranks_per_process not in ("auto", 1):
        what = "with the real clock each rank has a process of its own: ranks that share one slow each other down"
        found.append((("workers", "ranks_per_process"), what, "leave it out"))
    for i, step in enumerate(blocks.workload):
        found += below(("workload", i), step.mistakes(blocks, fabric))
    found += dict.fromkeys(_senders(blocks))
    found += _rooms(blocks)
    found += _in_turn(blocks, fabric)
    found += _scaled(blocks, fabric)
    for i, step in enumerate(blocks.workload):
        found += step.beside(("workload", i), blocks)
    for i, injection in enumerate(blocks.inject):
        found += [(("inject", i, *key), what, hint) for key, what, hint in _injection(injection, blocks, fabric)]
    for i, point in enumerate(blocks.capture):
        if problem := _capture_point(point, fabric):
            found.append((("capture", i), *problem))
    return found


def _rooms(blocks: Blocks) -> Iterator[Found]:
    """Rooms for which senders have credits have to fit into the buffers, all at once, and frames into these."""
    spec, made = blocks.fabric, basis.Basis(blocks)
    where = ("fabric", "cable", "flow_control")
    of_cable = made.hardware.of_cable
    if not of_cable:
        return
    if spec.switch.cut_through and any("retry" in kept for kept in of_cable.values()):
        what = "a cut-through switch has sent on a frame before the cable knows that it is damaged"
        yield ("fabric", "cable", "retry"), what, "fabric.switch.cut_through: false, or no retries"
    longest = made.longest + frames.ETHERNET + frames.FCS_BYTES
    rooms = {name: kept["credits"]["room_bytes"] for name, kept in of_cable.items() if "credits" in kept}
    for name, room in rooms.items():
        if room < longest:
            yield (
                where,
                f"a room of {room} bytes on cable:{name} never holds a frame of {longest}",
                f"{longest}B or more",
            )
            return
    classes = len(spec.switch.lossless)
    for switch in made.graph.switches:
        cables = (made.graph.cable_at[switch.name, port].name for port in range(1, switch.ports + 1))
        needed = classes * sum(rooms.get(name, 0) for name in cables)
        if needed > spec.switch.buffer:
            what = f"rooms of {needed} bytes, of all ports and lossless classes, do not fit into {switch.name}'s buffer"
            yield where, what, f"fabric.switch.buffer: {needed}B, a smaller `room`, or fewer `lossless` classes"
            return
    if rooms and classes * max(rooms.values()) > spec.nic.rx_buffer > 0:
        needed = classes * max(rooms.values())
        yield (
            where,
            f"rooms of {needed} bytes do not fit into a NIC's receive buffer",
            f"fabric.nic.rx_buffer: {needed}B",
        )


def _injection(injection: Injection, blocks: Blocks, fabric: Fabric) -> Iterator[Found]:
    from testbed.faults import CannotInject, check

    try:
        check(injection, fabric, blocks.transport.cc.short, basis.Basis(blocks).built)
    except CannotInject as error:
        yield (error.key,) if error.key else (), error.what, error.hint
    if injection.fault.only_real_clock and blocks.clock.mode != "real":
        yield (), f"{injection.fault.name} is for the real clock: wall time means nothing here", "clock: real"


def _senders(blocks: Blocks) -> Iterator[Found]:
    """NICs that there are not, and what does not go together in what senders send by, where it is said."""
    ranks = blocks.fabric.topology.ranks
    for written in blocks.transport.nics:
        if problem := rank_out_of_range(ranks_of(written)[-1], ranks):
            yield ("transport", "nics", written), *problem
    for path, sending in blocks.senders():
        for key, what, hint in sending.of_others():
            yield (*path, key), what, hint


def _in_turn(blocks: Blocks, fabric: Fabric) -> Iterator[Found]:
    """What must hear of messages in the order in which they were sent."""
    any_order = [path for path, sending in blocks.senders() if sending.ordering != "in_order"]
    turned = blocks.transport.qps > 1 and not blocks.transport.qps_split
    for i, step in enumerate(blocks.workload):
        if any(path[0] == "transport" or path[:2] == ("workload", i) for path in any_order):
            hint = "transport: {ordering: in_order}"
        elif turned:
            hint = "transport: {qps_split: true}, or {qps: 1}"
        else:
            continue
        for collective, name in step.algorithms(fabric.ranks):
            if registry.any_of(collective, name).in_turn:
                what = f"{collective} by {name} needs its messages in the order in which they were sent"
                yield ("workload", i), what, hint


def _scaled(blocks: Blocks, fabric: Fabric) -> Iterator[Found]:
    """What does not become 1/s of itself."""
    by = scaled_by(blocks.workload)
    if by == 1:
        return
    for i, step in enumerate(blocks.workload):
        if step.scaled_by == by:
            yield from below(("workload", i), step.unscalable())
        else:
            what = f"latencies are 1/{by} for all steps, so that all must be training steps of `scale: {{by: {by}}}`"
            yield ("workload", i), what, "an experiment of its own for others"
    if blocks.inject:
        yield ("inject",), f"faults strike at times and frames, of which there is no 1/{by}", "leave inject or by out"
    for path in dict.fromkeys(path for path, sending in blocks.senders() if sending.cc.name != "none"):
        yield (*path, "cc"), f"a control's timers and thresholds do not become 1/{by}", "cc: none"
    for path in dict.fromkeys(path for path, _ in blocks.senders() if path != ("transport",)):
        yield path, f"what single senders send by does not become 1/{by}", "transport, for all of them"
    if any(cable.delay_ns is not None for cable in fabric.cables):
        yield ("fabric", "cables"), f"single cables' delays do not become 1/{by}", "fabric.cable.delay, for all"
    if blocks.fabric.nic.kind != "plain":
        yield ("fabric", "nic", "kind"), f"latencies in a SmartNIC do not become 1/{by}", "kind: plain"


def _capture_point(point: str, fabric: Fabric) -> tuple[str, str] | None:
    """What is wrong with a capture point, if anything."""
    kind, _, name = point.partition(":")
    if kind == "port":
        switch, _, port = name.rpartition(":")
        if switch not in fabric.switch_by_name:
            what, hint = unknown("switch", switch, _some(fabric.switch_by_name))
            return what, f"write port:SWITCH:N; {hint}"
        ports = fabric.switch_by_name[switch].ports
        if not (port.isdecimal() and port.isascii() and 1 <= int(port[:9]) <= ports):
            return f"switch {switch} has no port {port!r:.20}", f"it has ports 1 to {ports}"
        return None
    if kind == "nic" and (end := endpoint.parse(point)) is not None:
        return endpoint.missing(end, fabric)
    if kind == "nic":
        if name.isdecimal() and name.isascii() and int(name[:9]) < len(fabric.nics):
            return None
        return f"there is no rank {name!r:.20}", f"write nic:RANK with a rank from 0 to {len(fabric.nics) - 1}"
    if kind == "cable":
        try:
            fabric.cable(name)
        except KeyError:
            what, hint = unknown("cable", name, _some(c.name for c in fabric.cables))
            return what, f"write cable:A-B; {hint}"
        return None
    return f"{point!r:.60} is not a place to capture", "write port:SWITCH:N, nic:RANK or cable:A-B"


def _some(names: Iterable[str], limit: int = 20) -> list[str]:
    listed = list(names)
    return listed if len(listed) <= limit else [*listed[:limit], "..."]
