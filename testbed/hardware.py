"""From an experiment to the parameters of its hardware, with everything worked out that it leaves to be worked out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hardware import bounds, cc
from hardware.config import Complex, Hardware
from topologies.fabric import Fabric
from workloads import registry
from workloads.collectives.in_network_time import block_bytes

if TYPE_CHECKING:
    from testbed.spec import Experiment
    from testbed.spec.model import Nic, Switch


def hardware_of(experiment: Experiment) -> Hardware:
    """What fabricd is configured with."""
    fabric, nic, transport = experiment.fabric, experiment.fabric.nic, experiment.transport
    scale_up = fabric.scale_up
    hardware = Hardware(
        cable_rate_bps=fabric.cable.rate,
        cable_delay_ns=fabric.cable.delay,
        switch_latency_ns=fabric.switch.latency,
        switch_buffer_bytes=fabric.switch.buffer,
        mtu=nic.mtu,
        pcie_rate_bps=nic.pcie.rate,
        pcie_latency_ns=nic.pcie.latency,
        post_ns=experiment.costs.post,
        tx_buffer_bytes=nic.tx_buffer,
        ack_every=nic.ack_every,
        timeout_ns=nic.timeout,
        retry=nic.retry,
        reaction_ns=experiment.control.reaction,
        switch=_switch(experiment),
        accelerator=_accelerator(experiment),
        nic={
            "pfc": nic.pfc,
            "lossless": fabric.switch.lossless,
            **receive_thresholds(nic.rx_buffer, fabric.cable.rate, fabric.cable.delay, nic.mtu),
            "recovery": transport.recovery,
            "reorder_packets": transport.reorder_packets,
            **_classes(fabric.switch, data=transport.dscp, ack=transport.ack_dscp, cnp=transport.cnp_dscp),
            "cc": congestion_control(experiment, experiment.build_fabric()),
            **_engine(nic),
        },
        complex=_complex(nic),
    )
    if scale_up is None:
        return hardware
    return replace(hardware, scale_up_rate_bps=scale_up.rate, scale_up_delay_ns=scale_up.delay)


def ecn_of(experiment: Experiment) -> tuple[int, int, float]:
    """Kmin and Kmax in bytes, and Pmax: as said, else DCTCP's threshold for that control, else by the cables' rate."""
    ecn, rate = experiment.fabric.switch.ecn, experiment.fabric.cable.rate
    assert ecn is not None
    kmin, kmax, pmax = bounds.ecn_profile(rate)
    if experiment.transport.cc.name == "dctcp":
        kmin = kmax = bounds.dctcp_threshold(rate)
        pmax = 1.0
    if ecn.kmin is not None and ecn.kmax is not None:
        kmin, kmax = ecn.kmin, ecn.kmax
    return kmin, kmax, pmax if ecn.pmax is None else ecn.pmax


def headroom_of(experiment: Experiment) -> int:
    """Bytes of headroom of each port and lossless class."""
    fabric = experiment.fabric
    if fabric.switch.headroom is not None:
        return fabric.switch.headroom
    return bounds.headroom_bytes(fabric.cable.rate, fabric.cable.delay, fabric.nic.mtu)


def setting_of(experiment: Experiment, graph: Fabric) -> cc.Setting:
    """What defaults of congestion controls depend on."""
    fabric = experiment.fabric
    rtt = bounds.base_rtt_ns(
        bounds.most_switches(graph),
        rate_bps=fabric.cable.rate,
        delay_ns=fabric.cable.delay,
        latency_ns=fabric.switch.latency,
        mtu=fabric.nic.mtu,
        pcie_bps=fabric.nic.pcie.rate,
        pcie_ns=fabric.nic.pcie.latency,
        ack_every=fabric.nic.ack_every,
    )
    return cc.Setting(fabric.cable.rate, rtt, fabric.nic.mtu)


def congestion_control(experiment: Experiment, graph: Fabric) -> dict[str, object]:
    """`cc` of every NIC."""
    chosen = experiment.transport.cc
    values = cc.CONTROLS[chosen.name].values(setting_of(experiment, graph), chosen.values, chosen.set)
    return cc.fabricd_cc(chosen.name, values)


def slots_for(experiment: Experiment, graph: Fabric, elements: int, *, server: bool = False) -> int:
    """Slots that keep a cable full: rate x round trip, up to the accelerators and back, in packets, to a power of two.

    With a `server` sums also go into a host's memory and back.
    SwitchML (Sapio et al., NSDI 2021), section 3.6.
    """
    rtt_ns = _aggregation_rtt_ns(experiment, graph, elements, server=server)
    in_packets = experiment.fabric.cable.rate * rtt_ns / 8e9 / block_bytes(elements)
    return min(1 << max(math.ceil(in_packets) - 1, 0).bit_length(), 65535)


def aggregation_timeout_ns(
    experiment: Experiment,
    graph: Fabric,
    elements: int,
    slots: int,
    ranks: int,
    *,
    groups: int = 1,
    server: bool = False,
) -> float:
    """How long the sum of a block may take when nothing is lost: slots x the time of a frame + round trip.

    That is, all slots' packets are before it where packets take the longest, those of all `groups` of `ranks` each that
    do the same.  With a `server` every block may have met taken slots: then what all other ranks have sent goes over
    the server's cable, and the server's host adds it up.
    """
    fabric, accelerator = experiment.fabric, experiment.fabric.switch.accelerator
    packet = block_bytes(elements)
    frame_ns = max(packet * 8e9 / fabric.cable.rate, 4 * elements * 8e9 / fabric.nic.pcie.rate)
    if accelerator is not None and accelerator.rate is not None:
        frame_ns = max(frame_ns, (ranks + 1) * packet * 8e9 / accelerator.rate)
    if server:
        frame_ns = (ranks - 1) * max(frame_ns, 4 * elements * 8e9 / (experiment.costs.reduce or math.inf))
    rtt_ns = _aggregation_rtt_ns(experiment, graph, elements, server=server)
    if accelerator is not None:
        rtt_ns += 2 * bounds.most_switches(graph) * accelerator.latency
    return min(groups * slots * frame_ns + rtt_ns, 1e9)


def _aggregation_rtt_ns(experiment: Experiment, graph: Fabric, elements: int, *, server: bool) -> float:
    """From a contribution to its sum, in an idle fabric: up to the accelerators (and a host's memory) and back."""
    fabric = experiment.fabric
    packet_ns = block_bytes(elements) * 8e9 / fabric.cable.rate
    ways = bounds.most_switches(graph)  # there and back over the tree; each accelerator is a second pass
    rtt_ns = 2 * (ways + 1) * (fabric.cable.delay + packet_ns) + 3 * ways * fabric.switch.latency
    return rtt_ns + (3 if server else 1) * (fabric.nic.pcie.latency + 4 * elements * 8e9 / fabric.nic.pcie.rate)


def receive_thresholds(rx_buffer: int, rate_bps: float, delay_ns: float, mtu: int) -> dict[str, int]:
    """A NIC sends XOFF when what may still come just fits, and XON two packets below that."""
    xoff = max(rx_buffer - bounds.headroom_bytes(rate_bps, delay_ns, mtu), rx_buffer // 2)
    return {"rx_buffer_bytes": rx_buffer, "rx_xoff_bytes": xoff, "rx_xon_bytes": max(xoff - 2 * mtu, 0)}


def _accelerator(experiment: Experiment) -> dict[str, Any]:
    accelerator = experiment.fabric.switch.accelerator
    if accelerator is None:
        return {}
    rate = {} if accelerator.rate is None else {"rate_bps": accelerator.rate}
    keys = {key: getattr(accelerator, key) for key in ("slots", "elements", "fan_in")}
    return {**keys, "shared_slots": _shared_slots(experiment), "latency_ns": accelerator.latency, **rate}


def _shared_slots(experiment: Experiment) -> int:
    """Slots of an accelerator that are shared: as said, or all, half or none, as the workload needs them."""
    accelerator = experiment.fabric.switch.accelerator
    assert accelerator is not None
    if accelerator.shared_slots is not None:
        return accelerator.shared_slots
    collectives = [s for s in experiment.workload if s.kind == "collective"]
    entries = [registry.any_of(s.collective, s.algorithm) for s in collectives]
    ways = {entry.shared_slots for entry in entries if entry.accelerators}
    return {(): 0, (False,): 0, (True,): accelerator.slots}.get(tuple(ways), accelerator.slots // 2)


def _switch(experiment: Experiment) -> dict[str, Any]:
    switch = experiment.fabric.switch
    ecn = {}
    if switch.ecn is not None:
        kmin, kmax, pmax = ecn_of(experiment)
        ecn = {str(c): {"kmin_bytes": kmin, "kmax_bytes": kmax, "pmax": pmax} for c in switch.ecn.classes}
    watchdog = switch.watchdog and {
        "detect_ns": switch.watchdog.detect,
        "restore_ns": switch.watchdog.restore,
        "action": switch.watchdog.action,
    }
    return {
        "alpha": switch.alpha,
        "reserve_bytes": switch.reserve,
        "headroom_bytes": headroom_of(experiment),
        "xon_offset_bytes": switch.xon_offset,
        "lossless": switch.lossless if switch.pfc else [],
        "dscp": {str(d): switch.dscp.get(d, 0) for d in range(64)},
        "pfc": switch.pfc,
        "ecn": ecn,
        "strict": switch.scheduler.strict,
        "weights": {str(c): w for c, w in switch.scheduler.weights.items()},
        "watchdog": watchdog,
    }


def _engine(nic: Nic) -> dict[str, float]:
    """What an on-path SmartNIC adds up with; nothing for others."""
    if nic.engine is None:
        return {}
    engine = nic.engine
    return {
        "engine_reduce_bps": engine.reduce,
        "engine_packets_per_s": engine.packets,
        "engine_memory_bytes": engine.memory,
    }


def _complex(nic: Nic) -> Complex | None:
    if nic.complex is None:
        return None
    inside = nic.complex
    return Complex(inside.rate, inside.delay, inside.bridge_latency, inside.dma_latency, inside.post)


def _classes(switch: Switch, **dscp: int) -> dict[str, int]:
    """DSCP and class of what NICs send: a NIC queues it as the switch will."""
    found: dict[str, int] = {}
    for what, value in dscp.items():
        found |= {f"{what}_dscp": value, f"{what}_class": switch.dscp.get(value, 0)}
    return found
