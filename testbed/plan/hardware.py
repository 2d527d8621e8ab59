"""From an experiment to the parameters of its hardware; works out all that the experiment leaves open."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hardware import bounds, cc, recovery
from hardware.config import Hardware
from testbed.base import controls
from testbed.base.units import format_time
from testbed.experiment.built import bare_hardware, headroom_of, needed_headroom, timeout_ns
from topologies.graph import frames
from topologies.graph.fabric import Cable, Fabric
from workloads import registry
from workloads.times.in_network import block_bytes

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.blocks.fabric import Nic, Switch


def hardware_of(experiment: Experiment) -> Hardware:
    """The hardware's parameters, for fabricd's configuration."""
    fabric, nic, transport = experiment.fabric, experiment.fabric.nic, experiment.transport
    scale_up, graph = fabric.scale_up, experiment.build_fabric()
    setting = setting_of(experiment, graph)
    hardware = replace(
        bare_hardware(experiment),
        mtu=nic.mtu,
        post_ns=experiment.costs.post,
        tx_buffer_bytes=nic.tx_buffer,
        ack_every=nic.ack_every,
        timeout_ns=timeout_ns(experiment),
        retry=nic.retry,
        switch=_switch(experiment, setting),
        accelerator=_accelerator(experiment),
        nic={
            "pfc": nic.pfc,
            "lossless": fabric.switch.lossless if fabric.switch.pfc else [],
            **_receive_thresholds(experiment, fabric.cable.rate, fabric.cable.delay),
            "recovery": transport.recovery,
            "reorder_packets": _reorder_packets(experiment, graph),
            **_classes(fabric.switch, data=transport.dscp, ack=transport.ack_dscp, cnp=transport.cnp_dscp),
            "cc": congestion_control(experiment, setting),
            **_engine(nic),
        },
    )
    if scale_up is not None:
        hardware = replace(hardware, scale_up_rate_bps=scale_up.rate, scale_up_delay_ns=scale_up.delay)
    return replace(
        hardware,
        of_switch=dict(_own_of_switches(experiment, graph, hardware, setting)),
        of_nic=dict(_own_of_nics(experiment, graph, hardware, setting)),
    )


def _own_of_switches(
    experiment: Experiment, graph: Fabric, hardware: Hardware, setting: cc.Setting
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Headroom and ECN by port, for switches whose cables differ."""
    spec = experiment.fabric
    usual, headroom = (spec.cable.rate, spec.cable.delay), headroom_of(experiment)
    for switch in graph.switches:
        cables = [graph.cable_at[switch.name, port] for port in range(1, switch.ports + 1)]
        found = [hardware.cable(graph, cable) for cable in cables]
        if all(cable == usual for cable in found):
            continue
        found += [usual] * switch.accelerator
        own: dict[str, Any] = {"headroom_bytes": [headroom(*cable) for cable in found]}
        if spec.switch.ecn is not None:
            own["port_ecn"] = [_ecn(experiment, replace(setting, line_rate_bps=rate)) for rate, _ in found]
        yield switch.name, own


def _own_of_nics(
    experiment: Experiment, graph: Fabric, hardware: Hardware, setting: cc.Setting
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What depends on the cable's rate and delay, for NICs whose cable differs from the others."""
    spec = experiment.fabric
    for nic in graph.nics:
        rate, delay = hardware.cable(graph, graph.cable_at[nic.name, 1])
        if (rate, delay) != (spec.cable.rate, spec.cable.delay):
            cc_of_nic = congestion_control(experiment, replace(setting, line_rate_bps=rate))
            yield nic.name, {**_receive_thresholds(experiment, rate, delay), "cc": cc_of_nic}


def ecn_of(experiment: Experiment, setting: cc.Setting) -> tuple[int, int, float]:
    """Kmin and Kmax in bytes, and Pmax: as written, else as the congestion control's source has them, else by rate."""
    ecn, marks = experiment.fabric.switch.ecn, cc.CONTROLS[experiment.transport.cc.name].marks
    assert ecn is not None
    kmin, kmax, pmax = marks(setting) if marks else bounds.ecn_profile(setting.line_rate_bps)
    if ecn.kmin is not None and ecn.kmax is not None:
        kmin, kmax = ecn.kmin, ecn.kmax
    return kmin, kmax, pmax if ecn.pmax is None else ecn.pmax


def setting_of(experiment: Experiment, graph: Fabric) -> cc.Setting:
    """What the defaults of congestion controls depend on."""
    fabric = experiment.fabric
    fetch = bounds.fetch_ns(fabric.nic.mtu, fabric.nic.pcie.rate, fabric.nic.pcie.latency)
    switches = bounds.most_switches(graph)
    if not uniform(graph):
        return cc.Setting(fabric.cable.rate, _longest_rtt_ns(experiment, graph), fabric.nic.mtu, fetch, switches)
    hop: dict[str, Any] = {
        "rate_bps": fabric.cable.rate,
        "delay_ns": fabric.cable.delay,
        "latency_ns": fabric.switch.latency,
        "mtu": fabric.nic.mtu,
    }
    rtt = bounds.base_rtt_ns(switches, **hop, pcie_bps=fabric.nic.pcie.rate, pcie_ns=fabric.nic.pcie.latency)
    return cc.Setting(fabric.cable.rate, rtt, fabric.nic.mtu, fetch, switches, bounds.hop_ns(**hop))


def uniform(graph: Fabric) -> bool:
    """Whether all cables are as `fabric.cable` says, and all switches are alike."""
    own = any(c.rate_bps is not None or c.delay_ns is not None for c in graph.cables)
    return not own and (bool(graph.complexes) or not graph.inside)


def line_rate_bps(experiment: Experiment, graph: Fabric, ranks: Sequence[int]) -> float:
    """The least of these ranks' line rates."""
    if uniform(graph):
        return experiment.fabric.cable.rate
    hardware = bare_hardware(experiment)
    return min(hardware.nic_bps(graph, graph.nics[rank].name) for rank in ranks)


def _longest_rtt_ns(experiment: Experiment, graph: Fabric) -> float:
    """As bounds.base_rtt_ns has it, over the path that takes longest, cable by cable."""
    fabric, hardware = experiment.fabric, bare_hardware(experiment)
    full, ack = fabric.nic.mtu + frames.MOST_HEADERS, frames.ACK_FRAME

    def over(cable: Cable) -> float:
        rate, delay = hardware.cable(graph, cable)
        return frames.ser_ns(full, rate) + frames.ser_ns(ack, rate) + 2 * delay

    way = bounds.longest_ns(graph, over, lambda switch: 2 * hardware.latency_ns(switch))
    return bounds.fetch_ns(fabric.nic.mtu, fabric.nic.pcie.rate, fabric.nic.pcie.latency) + way


def _reorder_packets(experiment: Experiment, graph: Fabric) -> int:
    """What NICs keep out of order: as written, or by the longest path."""
    transport, nic = experiment.transport, experiment.fabric.nic
    if transport.reorder_packets is not None:
        return transport.reorder_packets
    if transport.recovery != "selective_repeat":
        return recovery.LEAST
    hardware = bare_hardware(experiment)
    rate = max(hardware.nic_bps(graph, end.name) for end in graph.nics)
    packet_ns = max(frames.ser_ns(nic.mtu + frames.MOST_HEADERS, rate), nic.mtu * 8e9 / nic.pcie.rate)
    waiting = nic.tx_buffer / nic.mtu + nic.ack_every
    return recovery.reorder_packets(setting_of(experiment, graph).base_rtt_ns, packet_ns, waiting)


def congestion_control(experiment: Experiment, setting: cc.Setting) -> dict[str, object]:
    """`cc` of a NIC in this setting."""
    chosen = experiment.transport.cc
    values = cc.CONTROLS[chosen.name].values(setting, chosen.values, chosen.set)
    return cc.fabricd_cc(chosen.name, values)


def written_control(experiment: Experiment) -> dict[str, Any]:
    """Congestion control and recovery, every parameter as a file has it: of NICs with `fabric.cable`, and others."""
    graph, chosen = experiment.build_fabric(), experiment.transport.cc
    setting, hardware = setting_of(experiment, graph), bare_hardware(experiment)

    def of(rate_bps: float) -> Any:
        its = cc.CONTROLS[chosen.name].values(replace(setting, line_rate_bps=rate_bps), chosen.values, chosen.set)
        return controls.written(chosen.name, chosen.set, {k: float(f"{v:.12g}") for k, v in its.items()})

    usual, rates = experiment.fabric.cable.rate, {}
    if not uniform(graph):
        rates = {nic.name: hardware.nic_bps(graph, nic.name) for nic in graph.nics}
    others = {name: of(rate) for name, rate in rates.items() if rate != usual}
    its_own = {"nics": others} if others else {}
    kept = {}
    if experiment.transport.recovery == "selective_repeat":
        kept = {"reorder_packets": _reorder_packets(experiment, graph)}
    return {"cc": of(usual), **its_own, "timeout": format_time(timeout_ns(experiment)), **kept}


def slots_for(experiment: Experiment, graph: Fabric, elements: int, *, server: bool) -> int:
    """Slots that keep a cable full: rate x round trip to the accelerators, in packets, rounded up to a power of two.

    With a `server` the round trip goes through a host's memory. SwitchML (Sapio et al., NSDI 2021), section 3.6.
    """
    return slots_over(experiment, _worst_cable(experiment, graph), bounds.most_switches(graph), elements, server=server)


def slots_over(
    experiment: Experiment, cable: tuple[float, float], switches: int, elements: int, *, server: bool = False
) -> int:
    """Likewise of the worst `cable`'s rate and delay, and where the longest way has so many switches."""
    rtt_ns = _aggregation_rtt_ns(experiment, cable, switches, elements, server=server)
    in_packets = cable[0] * rtt_ns / 8e9 / block_bytes(elements)
    return min(1 << max(math.ceil(in_packets) - 1, 0).bit_length(), 65535)


def aggregation_timeout_ns(
    experiment: Experiment,
    graph: Fabric,
    elements: int,
    slots: int,
    ranks: int,
    *,
    groups: int,
    server: bool,
) -> float:
    """How long the sum of a block may take when nothing is lost: slots x the time of a frame + round trip.

    The worst case: on the slowest stage the packets of all slots are before it, those of all `groups` of `ranks` each.
    With a `server` every slot may have been taken: then the packets of all other ranks go over the server's cable, and
    its host adds them up.
    """
    fabric, accelerator = experiment.fabric, experiment.fabric.switch.accelerator
    packet = block_bytes(elements)
    frame_ns = max(packet * 8e9 / _worst_cable(experiment, graph)[0], 4 * elements * 8e9 / fabric.nic.pcie.rate)
    if accelerator is not None and accelerator.rate is not None:
        frame_ns = max(frame_ns, (ranks + 1) * packet * 8e9 / accelerator.rate)
    if server:
        frame_ns = (ranks - 1) * max(frame_ns, 4 * elements * 8e9 / experiment.costs.reduce)
    switches = bounds.most_switches(graph)
    rtt_ns = _aggregation_rtt_ns(experiment, _worst_cable(experiment, graph), switches, elements, server=server)
    if accelerator is not None:
        rtt_ns += 2 * switches * accelerator.latency
    return min(groups * slots * frame_ns + rtt_ns, 1e9)


def _aggregation_rtt_ns(
    experiment: Experiment, cable: tuple[float, float], ways: int, elements: int, *, server: bool
) -> float:
    """From a contribution to its sum, in an idle fabric: up to the accelerators (and a host's memory) and back.

    `ways`: switches there and back over the tree; each accelerator is a second pass.
    """
    fabric = experiment.fabric
    rate, delay = cable
    rtt_ns = 2 * (ways + 1) * (delay + block_bytes(elements) * 8e9 / rate) + 3 * ways * fabric.switch.latency
    return rtt_ns + (3 if server else 1) * (fabric.nic.pcie.latency + 4 * elements * 8e9 / fabric.nic.pcie.rate)


def _worst_cable(experiment: Experiment, graph: Fabric) -> tuple[float, float]:
    """The least rate and the longest delay of all cables outside of NICs."""
    if uniform(graph):
        return experiment.fabric.cable.rate, experiment.fabric.cable.delay
    hardware = bare_hardware(experiment)
    found = [hardware.cable(graph, cable) for cable in graph.cables if cable.name not in graph.inside]
    return min(rate for rate, _ in found), max(delay for _, delay in found)


def _receive_thresholds(experiment: Experiment, rate_bps: float, delay_ns: float) -> dict[str, int]:
    """A NIC sends XOFF when the packets that may still come just fit, and XON two packets below that."""
    rx_buffer, mtu = experiment.fabric.nic.rx_buffer, experiment.fabric.nic.mtu
    xoff = max(rx_buffer - needed_headroom(experiment)(rate_bps, delay_ns), rx_buffer // 2)
    return {"rx_buffer_bytes": rx_buffer, "rx_xoff_bytes": xoff, "rx_xon_bytes": max(xoff - 2 * mtu, 0)}


def _accelerator(experiment: Experiment) -> dict[str, Any]:
    accelerator = experiment.fabric.switch.accelerator
    if accelerator is None:
        return {}
    rate = {} if accelerator.rate is None else {"rate_bps": accelerator.rate}
    keys = {key: getattr(accelerator, key) for key in ("slots", "elements", "fan_in")}
    return {**keys, "shared_slots": _shared_slots(experiment), "latency_ns": accelerator.latency, **rate}


def _shared_slots(experiment: Experiment) -> int:
    """Slots of an accelerator that are shared: as written, or all, half or none, as the workload needs them."""
    ranks = experiment.build_fabric().ranks
    accelerator = experiment.fabric.switch.accelerator
    assert accelerator is not None
    if accelerator.shared_slots is not None:
        return accelerator.shared_slots
    entries = [registry.any_of(*pair) for step in experiment.workload for pair in step.algorithms(ranks)]
    ways = {entry.shared_slots for entry in entries if entry.accelerators}
    return {(): 0, (False,): 0, (True,): accelerator.slots}.get(tuple(ways), accelerator.slots // 2)


def _switch(experiment: Experiment, setting: cc.Setting) -> dict[str, Any]:
    switch = experiment.fabric.switch
    ecn = {}
    if switch.ecn is not None:
        ecn = _ecn(experiment, setting)
    watchdog = switch.watchdog and {
        "detect_ns": switch.watchdog.detect,
        "restore_ns": switch.watchdog.restore,
        "action": switch.watchdog.action,
    }
    return {
        "alpha": switch.alpha,
        "reserve_bytes": switch.reserve,
        "headroom_bytes": headroom_of(experiment)(experiment.fabric.cable.rate, experiment.fabric.cable.delay),
        "xon_offset_bytes": switch.xon_offset,
        "lossless": switch.lossless if switch.pfc else [],
        "dscp": {str(d): switch.dscp.get(d, 0) for d in range(64)},
        "pfc": switch.pfc,
        "ecn": ecn,
        "strict": switch.scheduler.strict,
        "weights": {str(c): w for c, w in switch.scheduler.weights.items()},
        "watchdog": watchdog,
    }


def _ecn(experiment: Experiment, setting: cc.Setting) -> dict[str, Any]:
    """Of a port in this setting, by class."""
    ecn = experiment.fabric.switch.ecn
    assert ecn is not None
    kmin, kmax, pmax = ecn_of(experiment, setting)
    return {str(c): {"kmin_bytes": kmin, "kmax_bytes": kmax, "pmax": pmax} for c in ecn.classes}


def _engine(nic: Nic) -> dict[str, float]:
    """The adder of an on-path SmartNIC; nothing for others."""
    if nic.engine is None:
        return {}
    engine = nic.engine
    return {
        "engine_reduce_bps": engine.reduce,
        "engine_packets_per_s": engine.packets,
        "engine_memory_bytes": engine.memory,
    }


def _classes(switch: Switch, **dscp: int) -> dict[str, int]:
    """DSCP and class of the packets that NICs send: a NIC queues them as the switch will."""
    found: dict[str, int] = {}
    for what, value in dscp.items():
        found |= {f"{what}_dscp": value, f"{what}_class": switch.dscp.get(value, 0)}
    return found
