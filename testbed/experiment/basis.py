"""What an experiment gives to the parts of its fabric, and what follows from that alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from hardware import bounds, cc, recovery
from hardware.config import Complex, Hardware
from testbed.experiment.blocks.cables import named
from testbed.experiment.blocks.flow_control import kept
from testbed.faults.built import Built
from topologies.graph import frames

if TYPE_CHECKING:
    from testbed.experiment.blocks.clock import Clock
    from testbed.experiment.blocks.control import Control
    from testbed.experiment.blocks.fabric import FabricSpec, Nic
    from testbed.experiment.blocks.transport import CongestionControl, Sending, Transport
    from testbed.experiment.blocks.workers import Workers
    from testbed.experiment.steps.step import Path
    from topologies.graph.fabric import Cable, Fabric

_KERNEL_MTU = 1500


class Blocks(Protocol):
    """The blocks of an experiment that say what its fabric is made of."""

    @property
    def clock(self) -> Clock: ...
    @property
    def fabric(self) -> FabricSpec: ...
    @property
    def control(self) -> Control: ...
    @property
    def transport(self) -> Transport: ...
    @property
    def workers(self) -> Workers: ...
    def build_fabric(self) -> Fabric: ...
    def senders(self) -> Iterator[tuple[Path, Sending]]: ...


@dataclass(frozen=True)
class Shaper:
    """What a class has of a port in any case, and at most (0: nothing is said), as shares; what it may catch up on."""

    min: float
    max: float
    burst_bytes: float


class Basis:
    """Of one experiment.  Rates are in bit/s, times in ns, sizes in bytes."""

    def __init__(self, blocks: Blocks) -> None:
        self.fabric, self.transport = blocks.fabric, blocks.transport
        self._senders = [sending for _, sending in blocks.senders()]
        self._real_clock, self._cpus = blocks.clock.mode == "real", blocks.workers.cpus
        self._adaptive = blocks.control.routing.chooses
        self._sprays = blocks.transport.multipath is not None
        self.graph = blocks.build_fabric()
        nic, switch, cable = self.fabric.nic, self.fabric.switch, self.fabric.cable
        self.hardware = Hardware(
            cable_rate_bps=cable.rate,
            cable_delay_ns=cable.delay,
            switch_latency_ns=switch.latency,
            cut_through=switch.cut_through,
            switch_buffer_bytes=switch.buffer,
            pcie_rate_bps=nic.pcie.rate,
            pcie_latency_ns=nic.pcie.latency,
            complex=_complex(nic),
            router_rate_bps=nic.router.rate,
            router_latency_ns=nic.router.latency,
            reaction_ns=blocks.control.reaction,
            tells_rates=blocks.control.routing.weighs,
        )
        self.hardware = replace(self.hardware, of_cable=dict(self._of_cables()))
        """The parameters that are written, and that frames' times depend on."""

    @cached_property
    def uniform(self) -> bool:
        """Whether all cables are as `fabric.cable` says, and all switches are alike."""
        own = any(c.rate_bps is not None or c.delay_ns is not None for c in self.graph.cables)
        return not own and (bool(self.graph.complexes) or not self.graph.inside)

    @cached_property
    def switches(self) -> int:
        """On the longest of the shortest paths."""
        return bounds.most_switches(self.graph)

    @cached_property
    def trims(self) -> bool:
        """Whether switches trim data packets for which they have no place."""
        trimming, switch = self.fabric.switch.trimming, self.fabric.switch
        return trimming is not None and switch.classes[self.transport.dscp] in trimming.classes

    @cached_property
    def stamps(self) -> int:
        """Switches that a packet has room to hear of; 0: no congestion control wants to hear of any."""
        return max(self._stamps(sending.cc) for sending in self._senders)

    def _stamps(self, chosen: CongestionControl) -> int:
        control = chosen.control
        return control.stamps(chosen.values, self.switches) if "telemetry" in control.hears else 0

    def cable(self, cable: Cable) -> tuple[float, float]:
        """Its rate and delay."""
        return self.hardware.cable(self.graph, cable)

    def _of_cables(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What cables have of credits and retries."""
        spec, graph = self.fabric, self.graph
        overrides = {} if spec.topology.is_large else spec.cables
        told = [({c.name for c in named(graph, text)}, own) for text, own in overrides.items()]
        for name, credits, retry in kept(graph, spec.cable, spec.host_cable, told):
            rate, delay = self.cable(graph.cable_by_name[name])
            own: dict[str, Any] = {}
            longest = self.longest + frames.ETHERNET
            if credits:
                room = credits.room or bounds.credit_room_bytes(rate, delay, spec.switch.latency, longest)
                own["credits"] = {
                    "room_bytes": room, "classes": spec.switch.lossless, "resync_ns": credits.resync or 0,
                }  # fmt: skip
            if retry:
                own["retry"] = {"buffer_bytes": retry.buffer or bounds.replay_buffer_bytes(rate, delay, longest)}
            yield name, own

    def share(self, cable: Cable) -> float:
        """What credits and replay buffer let full packets have of a cable's rate."""
        kept = self.hardware.of_cable.get(cable.name)
        if not kept:
            return 1.0
        (rate, delay), nic, graph = self.cable(cable), self.fabric.nic, self.graph
        frame = nic.mtu + frames.FRAME_BYTES - frames.OUTSIDE_BYTES
        through = [graph.switch_by_name[n] for n in (cable.a.node, cable.b.node) if n in graph.switch_by_name]
        held = max(map(self.hardware.latency_ns, through), default=nic.mtu * 8e9 / nic.pcie.rate)
        shares = [1.0]
        if "credits" in kept:
            shares.append(bounds.credits_share(rate, delay, held, frame, kept["credits"]["room_bytes"]))
        if "retry" in kept:
            shares.append(bounds.retry_share(rate, delay, frame, kept["retry"]["buffer_bytes"]))
        return min(shares)

    def line_rate_bps(self, ranks: Sequence[int]) -> float:
        """The least of these ranks' line rates."""
        if self.uniform:
            return self.fabric.cable.rate
        return min(self.hardware.nic_bps(self.graph, self.graph.nics[rank].name) for rank in ranks)

    def shaper(self, traffic_class: int) -> Shaper | None:
        """Of a class at a switch's ports."""
        written = self.fabric.switch.scheduler.shapers.get(traffic_class)
        if written is None:
            return None
        longest = self.fabric.nic.mtu + frames.MOST_HEADERS
        burst = 2 * longest if written.burst is None else written.burst
        return Shaper(written.min or 0.0, written.max or 0.0, burst)

    def ports_bps(self, switch: str) -> float:
        """Of all of a switch's ports together."""
        ports = range(1, self.graph.switch_by_name[switch].ports + 1)
        return sum(self.cable(self.graph.cable_at[switch, port])[0] for port in ports)

    @cached_property
    def worst_cable(self) -> tuple[float, float]:
        """The least rate and the longest delay of all cables outside of NICs."""
        if self.uniform:
            return self.fabric.cable.rate, self.fabric.cable.delay
        return _worst(self.cable(cable) for cable in self.graph.cables if cable.name not in self.graph.inside)

    def needed_headroom(self, rate_bps: float, delay_ns: float) -> int:
        """Bytes that may still come in after a pause over such a cable."""
        return bounds.headroom_bytes(rate_bps, delay_ns, self.fabric.nic.mtu, max(self.stamps, bounds.STAMPS))

    def headroom(self, rate_bps: float, delay_ns: float) -> int:
        """Bytes of headroom of a port with such a cable, for each lossless class."""
        written = self.fabric.switch.headroom
        return self.needed_headroom(rate_bps, delay_ns) if written is None else written

    @cached_property
    def full_path_ns(self) -> float:
        """How long a packet of the longest path waits for its acknowledgement at most while nothing is lost.

        In a lossless class every switch's whole buffer may be before it, in a lossy one what one queue may hold.
        """
        switch = self.fabric.switch
        rate, delay = _worst(map(self.cable, self.graph.cables))
        share = 1.0 if switch.pfc and switch.lossless else switch.alpha / (1 + switch.alpha)
        return recovery.full_path_ns(self.switches, share * switch.buffer, rate, self._base_rtt_ns(rate, delay))

    @cached_property
    def timeout_ns(self) -> float:
        """`fabric.nic.timeout`: as written, or as long as a packet may wait without a loss."""
        written = self.fabric.nic.timeout
        return recovery.timeout_ns(self.full_path_ns) if written is None else written

    @cached_property
    def setting(self) -> cc.Setting:
        """What the defaults of congestion controls depend on."""
        fabric, nic = self.fabric, self.fabric.nic
        fetch = bounds.fetch_ns(nic.mtu, nic.pcie.rate, nic.pcie.latency)
        trims = self.trims
        if not self.uniform:
            longest = self._longest_rtt_ns(fetch)
            return cc.Setting(fabric.cable.rate, longest, nic.mtu, fetch, self.switches, trims=trims)
        rtt = self._base_rtt_ns(fabric.cable.rate, fabric.cable.delay)
        hop = bounds.hop_ns(
            rate_bps=fabric.cable.rate, delay_ns=fabric.cable.delay, latency_ns=fabric.switch.latency, mtu=nic.mtu,
            cut_through=fabric.switch.cut_through,
        )  # fmt: skip
        return cc.Setting(fabric.cable.rate, rtt, nic.mtu, fetch, self.switches, hop, trims=trims)

    def _base_rtt_ns(self, rate_bps: float, delay_ns: float) -> float:
        """Of the longest path over such cables."""
        nic = self.fabric.nic
        return bounds.base_rtt_ns(
            self.switches, rate_bps=rate_bps, delay_ns=delay_ns, latency_ns=self.fabric.switch.latency, mtu=nic.mtu,
            pcie_bps=nic.pcie.rate, pcie_ns=nic.pcie.latency, cut_through=self.fabric.switch.cut_through,
        )  # fmt: skip

    def _longest_rtt_ns(self, fetch_ns: float) -> float:
        """As bounds.base_rtt_ns has it, over the path that takes longest, cable by cable."""
        full, ack = self.fabric.nic.mtu + frames.MOST_HEADERS, frames.ACK_FRAME

        def over(cable: Cable) -> float:
            rate, delay = self.cable(cable)
            return frames.ser_ns(full, rate) + frames.ser_ns(ack, rate) + 2 * delay

        way = bounds.longest_ns(self.graph, over, lambda switch: 2 * self.hardware.latency_ns(switch))
        return fetch_ns + way

    @cached_property
    def longest(self) -> int:
        """The longest IP packet that anybody sends."""
        switch, nic = self.fabric.switch, self.fabric.nic
        sums = 4 * switch.accelerator.elements if switch.accelerator else 0
        telemetry = bounds.telemetry_bytes(self.stamps) if self.stamps else 0
        packet = max(nic.mtu, sums) + frames.MOST_HEADERS - frames.ETHERNET + telemetry
        return max(packet, _KERNEL_MTU) if self._real_clock else packet

    @cached_property
    def built(self) -> Built:
        """What the fabric is made of, for faults that take some of it away."""
        switch = self.fabric.switch
        watchdog_ns = switch.watchdog.detect if switch.watchdog else None
        trimmed = switch.trimming.dscp if switch.trimming else None
        selective = self.transport.recovery == "selective_repeat"
        of_paths = self._adaptive, trimmed, self._sprays, selective
        return Built(self.hardware, self.headroom, self.longest, watchdog_ns, self._cpus, *of_paths)


def _complex(nic: Nic) -> Complex | None:
    """The inside of off-path SmartNICs."""
    if nic.complex is None:
        return None
    inside = nic.complex
    return Complex(inside.rate, inside.delay, inside.bridge_latency, inside.dma_latency, inside.post)


def _worst(cables: Iterable[tuple[float, float]]) -> tuple[float, float]:
    rates, delays = zip(*cables, strict=True)
    return min(rates), max(delays)
