"""From an experiment to the parameters of its hardware; works out all that the experiment leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hardware import bounds, cc
from hardware.config import Hardware
from testbed.base import controls
from testbed.base.units import format_time
from testbed.experiment.basis import Basis
from testbed.plan import sending
from topologies.graph.fabric import EMBEDDED
from workloads import registry

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.blocks.fabric import Accelerator, Ecn, Nic, Switch
    from testbed.experiment.blocks.routing import Adaptive, Routing
    from testbed.experiment.blocks.transport import CongestionControl, Transport
    from testbed.experiment.steps.step import Step


def hardware_of(experiment: Experiment) -> Hardware:
    """The hardware's parameters, for fabricd's configuration."""
    basis = Basis(experiment)
    fabric, nic, transport = basis.fabric, basis.fabric.nic, basis.transport
    usual, scale_up = (fabric.cable.rate, fabric.cable.delay), fabric.scale_up
    hardware = replace(
        basis.hardware,
        mtu=nic.mtu,
        post_ns=experiment.costs.post,
        tx_buffer_bytes=nic.tx_buffer,
        ack_every=nic.ack_every,
        timeout_ns=basis.timeout_ns,
        retry=nic.retry,
        switch={
            **_switch(fabric.switch, basis.headroom(*usual), _ecn(basis, basis.setting)),
            **_adaptive(experiment.control.routing.adaptive, basis.setting),
            **({"shapers": _shapers(basis)} if fabric.switch.scheduler.shapers else {}),
            **_trimming(basis),
        },
        accelerator=_accelerator(basis, experiment.workload),
        nic={
            "pfc": nic.pfc,
            "lossless": fabric.switch.lossless if fabric.switch.pfc else [],
            **_receive_thresholds(nic, basis.needed_headroom(*usual)),
            "recovery": transport.recovery,
            **({"fixed_port": True} if transport.source_port == "fixed" else {}),
            "reorder_packets": sending.reorder_packets(basis, transport),
            **sending.selective(basis, transport),
            **sending.classes(fabric.switch, data=transport.dscp, ack=transport.ack_dscp, cnp=transport.cnp_dscp),
            "cc": sending.congestion_control(transport, basis.setting),
            **sending.multipath_of(transport, basis.setting),
            **_engine(nic),
            **_trimmed(basis),
        },
        own=sending.own_files(experiment),
        of_switch=_own_of_switches(basis, usual, experiment.control.routing),
        of_nic=_with_transports(dict(_own_of_nics(basis, usual)), sending.Senders(experiment, basis)),
    )
    if scale_up is not None:
        hardware = replace(hardware, scale_up_rate_bps=scale_up.rate, scale_up_delay_ns=scale_up.delay)
    return hardware


def _own_of_switches(basis: Basis, usual: tuple[float, float], routing: Routing) -> dict[str, dict[str, Any]]:
    """What single switches have for themselves, by name."""
    own: dict[str, dict[str, Any]] = dict(_by_cables(basis, usual))
    if routing.hashing.dest_qp:
        for switch in (s for s in basis.graph.switches if s.role not in EMBEDDED):
            hashes = {"policy": "hash", "basis": routing.hashing.basis(switch.dpid), "local_repair": False}
            own.setdefault(switch.name, {})["adaptive"] = hashes
    return own


def _by_cables(basis: Basis, usual: tuple[float, float]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Headroom and ECN by port, for switches whose cables differ."""
    graph, ecn = basis.graph, basis.fabric.switch.ecn
    switches = {switch.name for switch in graph.switches if switch.role not in EMBEDDED}
    for switch in graph.switches:
        at = [graph.cable_at[switch.name, port] for port in range(1, switch.ports + 1)]
        cables = [basis.cable(cable) for cable in at]
        deaf = [not _marks_to_nics(basis) and cable.other(switch.name).node not in switches for cable in at]
        if all(cable == usual for cable in cables) and not any(deaf):
            continue
        own: dict[str, Any] = {}
        cables += [usual] * switch.accelerator
        if any(cable != usual for cable in cables):
            own["headroom_bytes"] = [basis.headroom(*cable) for cable in cables]
        if ecn is not None:
            deaf += [False] * switch.accelerator
            marks = [_ecn(basis, replace(basis.setting, line_rate_bps=rate)) for rate, _ in cables]
            own["port_ecn"] = [{} if none else its for its, none in zip(marks, deaf, strict=True)]
        if own:
            yield switch.name, own


def _marks_to_nics(basis: Basis) -> bool:
    """Whether ports to NICs mark: as written, or unless a window by marks stands beside receivers' credit."""
    ecn, hears = basis.fabric.switch.ecn, basis.transport.cc.control.hears
    if ecn is not None and ecn.to_nics is not None:
        return ecn.to_nics
    return not {"marks", "credit"} <= set(hears)


def _own_of_nics(basis: Basis, usual: tuple[float, float]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What depends on the cable's rate and delay, for NICs whose cable differs from the others."""
    for nic in basis.graph.nics:
        cable = basis.cable(basis.graph.cable_at[nic.name, 1])
        if cable != usual:
            control = sending.congestion_control(basis.transport, replace(basis.setting, line_rate_bps=cable[0]))
            thresholds = _receive_thresholds(basis.fabric.nic, basis.needed_headroom(*cable))
            paths = sending.multipath_of(basis.transport, replace(basis.setting, line_rate_bps=cable[0]))
            yield nic.name, {**thresholds, "cc": control, **paths}


def _with_transports(of_nic: dict[str, dict[str, Any]], senders: sending.Senders) -> dict[str, dict[str, Any]]:
    """And what single NICs send by."""
    for nic in senders.basis.graph.nics:
        if transport := senders.of_nic(nic.rank):
            usual = {key: transport.pop(key) for key in ("data_dscp", "data_class")}  # of what its engines send, too
            of_nic[nic.name] = {**of_nic.get(nic.name, {}), **usual, "transport": transport}
    return of_nic


def ecn_of(ecn: Ecn, transport: Transport, setting: cc.Setting) -> tuple[int, int, float]:
    """Kmin and Kmax in bytes, and Pmax: as written, else as those have them who go by marks, else by rate.

    A choice among paths comes before the congestion control.
    """
    paths = transport.multipath and transport.multipath.entry.marks
    marks = paths or transport.cc.control.marks
    kmin, kmax, pmax = marks(setting) if marks else bounds.ecn_profile(setting.line_rate_bps)
    if ecn.kmin is not None and ecn.kmax is not None:
        kmin, kmax = ecn.kmin, ecn.kmax
    return kmin, kmax, pmax if ecn.pmax is None else ecn.pmax


def written_control(experiment: Experiment) -> dict[str, Any]:
    """Congestion control and recovery, every parameter as a file has it: of NICs with `fabric.cable`, and others."""
    basis, chosen = Basis(experiment), experiment.transport.cc

    def of(rate_bps: float, chosen: CongestionControl = chosen) -> Any:
        setting = replace(basis.setting, line_rate_bps=rate_bps)
        values = chosen.control.values(setting, chosen.values, chosen.set)
        return controls.written(chosen.name, chosen.set, {k: float(f"{v:.12g}") for k, v in values.items()})

    usual, rates = basis.fabric.cable.rate, {}
    if not basis.uniform:
        rates = {nic.name: basis.hardware.nic_bps(basis.graph, nic.name) for nic in basis.graph.nics}
    others = {name: of(rate) for name, rate in rates.items() if rate != usual}
    mixed = {".".join(map(str, path)): of(usual, its.cc) for path, its in experiment.senders() if its.cc != chosen}
    kept: dict[str, Any] = {"mixed": mixed} if mixed else {}
    if basis.transport.recovery == "selective_repeat":
        kept |= {"reorder_packets": sending.reorder_packets(basis, basis.transport)}
    if paths := basis.transport.multipath:
        values = paths.entry.values(basis.setting, paths.values)
        kept["multipath"] = controls.written_multipath(paths.policy, paths.entropies, values)
    if basis.transport.loss:
        kept["loss_after"] = format_time(sending.selective(basis, basis.transport)["loss_after_ns"])
    return {
        "cc": of(usual),
        **({"nics": others} if others else {}),
        "timeout": format_time(basis.timeout_ns),
        **kept,
    }


def _receive_thresholds(nic: Nic, headroom: int) -> dict[str, int]:
    """A NIC sends XOFF when the packets that may still come just fit, and XON two packets below that."""
    xoff = max(nic.rx_buffer - headroom, nic.rx_buffer // 2)
    return {"rx_buffer_bytes": nic.rx_buffer, "rx_xoff_bytes": xoff, "rx_xon_bytes": max(xoff - 2 * nic.mtu, 0)}


def _accelerator(basis: Basis, workload: Sequence[Step]) -> dict[str, Any]:
    accelerator = basis.fabric.switch.accelerator
    if accelerator is None:
        return {}
    rate = {} if accelerator.rate is None else {"rate_bps": accelerator.rate}
    keys = {key: getattr(accelerator, key) for key in ("slots", "elements", "fan_in")}
    shared = _shared_slots(accelerator, workload, basis.graph.ranks)
    return {**keys, **shared, "latency_ns": accelerator.latency, **rate}


def _shared_slots(accelerator: Accelerator, workload: Sequence[Step], ranks: int) -> dict[str, int]:
    """Slots of an accelerator that are shared: as written, or all, half or none, as the workload needs them.

    Where steps differ none are set aside: each step's jobs have what is free when they come.
    """
    if accelerator.shared_slots is not None:
        return {"shared_slots": accelerator.shared_slots}
    steps = [[registry.any_of(*pair) for pair in step.algorithms(ranks)] for step in workload]
    ways = {frozenset(entry.shared_slots for entry in step if entry.accelerators) for step in steps} - {frozenset()}
    if len(ways) > 1:
        return {}
    known = {(): 0, (False,): 0, (True,): accelerator.slots}
    return {"shared_slots": known.get(tuple(*ways), accelerator.slots // 2)}


def _switch(switch: Switch, headroom: int, ecn: dict[str, Any]) -> dict[str, Any]:
    watchdog = switch.watchdog and {
        "detect_ns": switch.watchdog.detect,
        "restore_ns": switch.watchdog.restore,
        "action": switch.watchdog.action,
    }
    return {
        "alpha": switch.alpha,
        "reserve_bytes": switch.reserve,
        "headroom_bytes": headroom,
        "xon_offset_bytes": switch.xon_offset,
        "lossless": switch.lossless if switch.pfc else [],
        "dscp": {str(d): c for d, c in enumerate(switch.classes)},
        "pfc": switch.pfc,
        "ecn": ecn,
        "strict": switch.scheduler.strict,
        "weights": {str(c): w for c, w in switch.scheduler.weights.items()},
        "watchdog": watchdog,
    }


def _shapers(basis: Basis) -> dict[str, dict[str, float]]:
    of = {c: basis.shaper(c) for c in basis.fabric.switch.scheduler.shapers}
    return {str(c): {"min": s.min, "max": s.max, "burst_bytes": s.burst_bytes} for c, s in of.items() if s}


def _adaptive(adaptive: Adaptive | None, setting: cc.Setting) -> dict[str, Any]:
    """How a switch takes one of several ports; nothing where it does not."""
    if adaptive is None:
        return {}
    flowlet, quality, policy = adaptive.flowlet, adaptive.quality, adaptive.policy.entry
    keys = {**policy.in_fabricd(policy.values(setting, adaptive.policy.values)), "local_repair": adaptive.local_repair}
    if flowlet:
        keys |= {"flowlet_gap_ns": flowlet.gap, "flowlet_entries": flowlet.entries}
    if quality:
        keys |= {"bands": quality.bands, "every_ns": quality.every}
    return {"adaptive": keys}


def _trimming(basis: Basis) -> dict[str, Any]:
    """What is left of frames that find no place; nothing where they are dropped."""
    trimming = basis.fabric.switch.trimming
    if trimming is None:
        return {}
    keys = {"classes": trimming.classes, "bytes": trimming.size, "dscp": trimming.dscp, "queue": trimming.queue}
    last_hop = trimming.last_hop(basis.transport)
    return {"trimming": keys | ({"last_hop_dscp": last_hop} if last_hop is not None else {})}


def _trimmed(basis: Basis) -> dict[str, Any]:
    """By what a NIC tells what is left of packets."""
    trimming = basis.fabric.switch.trimming
    if trimming is None:
        return {}
    last_hop = trimming.last_hop(basis.transport)
    return {"trimmed_dscp": trimming.dscp} | ({"trimmed_last_hop_dscp": last_hop} if last_hop is not None else {})


def _ecn(basis: Basis, setting: cc.Setting) -> dict[str, Any]:
    """Of a port in this setting, by class."""
    ecn = basis.fabric.switch.ecn
    if ecn is None:
        return {}
    kmin, kmax, pmax = ecn_of(ecn, basis.transport, setting)
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
