"""From a fabric and its hardware's parameters to fabricd's configuration (docs/fabricd-protocol.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hardware import recovery
from hardware.devices import FENCE_TAP, Devices
from hardware.patience import DEFAULT_S
from topologies.graph.fabric import EMBEDDED, Cable, Fabric, Nic, Switch


@dataclass(frozen=True)
class Complex:
    """The inside of off-path SmartNICs: the embedded bridge, and its link to the compute complex."""

    rate_bps: float
    delay_ns: float
    bridge_latency_ns: float
    dma_latency_ns: float
    post_ns: float


@dataclass(frozen=True)
class Hardware:
    """The true parameters of cables, switches and NICs: rates in bit/s, times in ns, sizes in bytes."""

    cable_rate_bps: float = 400e9
    cable_delay_ns: float = 500.0
    switch_latency_ns: float = 500.0
    cut_through: bool = False  # switches; bridges inside NICs store and forward
    switch_buffer_bytes: int = 32_000_000
    mtu: int = 4096
    pcie_rate_bps: float = 512e9
    pcie_latency_ns: float = 500.0
    post_ns: float = 100.0
    tx_buffer_bytes: int = 131_072
    ack_every: int = 16
    timeout_ns: float = recovery.LEAST_TIMEOUT_NS
    retry: int = 7
    rnr_timeout_ns: float = 10_000.0
    rnr_retry: int = 7  # 7: for ever, as in the verbs
    scale_up_rate_bps: float = 3600e9
    scale_up_delay_ns: float = 300.0
    reaction_ns: float = 1_000_000.0
    tells_rates: bool = False  # the controller hears of cables' rates that change
    switch: Mapping[str, Any] = field(default_factory=dict)
    """More of a switch, as fabricd names it (docs/fabricd-protocol.md); without: one buffer, no PFC, no ECN."""
    nic: Mapping[str, Any] = field(default_factory=dict)
    """More of a NIC, likewise; without: no PFC thresholds, no congestion control, go-back-N."""
    accelerator: Mapping[str, Any] = field(
        default_factory=lambda: {"slots": 1024, "elements": 256, "fan_in": 64, "latency_ns": 0.0}
    )
    """Of the switches that have one (Switch.accelerator)."""

    complex: Complex | None = None
    """Of a fabric with compute complexes."""

    router_rate_bps: float | None = None  # inside a NIC with several ports; None: that of its ports together
    router_latency_ns: float = 100.0
    own: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Algorithms of users' own files, which NICs and switches may name: `controls`, `multipath_policies`,
    `adaptive_policies`."""

    of_switch: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What single switches have instead, by name."""

    of_nic: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Likewise of NICs."""

    of_cable: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What single cables have besides: credits, retries."""

    def cable(self, fabric: Fabric, cable: Cable) -> tuple[float, float]:
        """Rate and delay of a cable.  Inside a NIC the link to the host is as fast as the ports, and has no delay."""
        if cable.name in fabric.inside:
            if self.complex is not None and cable.a.node in fabric.complexes:
                return self.complex.rate_bps, self.complex.delay_ns
            return self._inside_bps(fabric, cable), 0.0
        rate = self.cable_rate_bps if cable.rate_bps is None else cable.rate_bps
        return rate, self.cable_delay_ns if cable.delay_ns is None else cable.delay_ns

    def _inside_bps(self, fabric: Fabric, cable: Cable) -> float:
        """Rate of the link from a host to the bridge in its NIC."""
        if self.router_rate_bps is not None and self.complex is None:
            return self.router_rate_bps
        bridge = next(s for s in (cable.a.node, cable.b.node) if s in fabric.switch_by_name)
        ports = (fabric.cable_at[bridge, port] for port in range(1, fabric.switch_by_name[bridge].ports + 1))
        return sum(self.cable(fabric, c)[0] for c in ports if c.name not in fabric.inside)

    def nic_bps(self, fabric: Fabric, nic: str) -> float:
        """Line rate of a NIC: that of its own port."""
        return self.cable(fabric, fabric.cable_at[nic, 1])[0]

    def latency_ns(self, switch: Switch) -> float:
        """Latency of a switch or embedded bridge."""
        if switch.role not in EMBEDDED:
            return self.switch_latency_ns
        return self.complex.bridge_latency_ns if self.complex else self.router_latency_ns

    def cuts_through(self, switch: Switch) -> bool:
        return self.cut_through and switch.role not in EMBEDDED


def _accelerator(fabric: Fabric, switch: Switch, hardware: Hardware) -> dict[str, Any]:
    if not switch.accelerator:
        return {}
    cables = (fabric.cable_at[switch.name, port] for port in range(1, switch.ports + 1))
    rate = sum(hardware.cable(fabric, c)[0] for c in cables)  # of all ports together: it is never the bottleneck
    return {"accelerator": {"rate_bps": rate, **hardware.accelerator, "ip": int(switch.accelerator_ip)}}


def netdev_name(fabric_id: str, nic: Nic) -> str:
    """A NIC's kernel interface, before it is moved into its host's namespace."""
    return f"rb{fabric_id}-n{nic.rank}"


def fabricd_config(
    fabric: Fabric,
    hardware: Hardware,
    *,
    fabric_id: str,
    clock: Mapping[str, Any],
    seed: int = 1,
    patience_s: float = DEFAULT_S,
    fast_path: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The configuration of one fabric's fabricd.

    `clock` is {"mode": "virtual"} or {"mode": "real", "dilation": N}; with the real clock every NIC gets a netdev.
    `fast_path` is {"sample": N, "ovs": folder of Open vSwitch's sockets}; None sends every frame through Open vSwitch.
    `patience_s` is for workers, the controller and Open vSwitch (hardware.patience).
    """
    devices = Devices(fabric)
    return {
        "fabric": fabric_id,
        "seed": seed,
        "clock": dict(clock),
        "patience_ms": patience_s * 1000,
        "control": {"reaction_ns": hardware.reaction_ns, **({"rates": True} if hardware.tells_rates else {})},
        "fence_tap": FENCE_TAP,
        **hardware.own,
        **({"fast_path": dict(fast_path)} if fast_path else {}),
        "switches": [_switch(fabric, s, hardware, devices) for s in fabric.switches],
        "nics": [
            {
                "name": n.name,
                "rank": n.rank,
                "mac": n.mac,
                "ip": str(n.ip),
                "netdev": netdev_name(fabric_id, n) if clock["mode"] == "real" else None,
                **_nic(hardware),
                **hardware.of_nic.get(n.name, {}),
                **(_of_complex(hardware) if n.name in fabric.complexes else {}),
            }
            for n in fabric.nics
        ],
        "cables": [
            {
                "name": c.name,
                "a": [c.a.node, c.a.port],
                "b": [c.b.node, c.b.port],
                "rate_bps": rate,
                "delay_ns": delay,
                **hardware.of_cable.get(c.name, {}),
            }
            for c in fabric.cables
            for rate, delay in (hardware.cable(fabric, c),)
        ],
        "scale_up": [
            {"nics": list(nics), "rate_bps": hardware.scale_up_rate_bps, "delay_ns": hardware.scale_up_delay_ns}
            for nics in fabric.scale_up
        ],
    }


_OF_CHIPS = ("adaptive", "shapers")
"""What bridges inside NICs do not have."""


def _switch(fabric: Fabric, switch: Switch, hardware: Hardware, devices: Devices) -> dict[str, Any]:
    return {
        "name": switch.name,
        "bridge": devices.bridge(switch),
        "latency_ns": hardware.latency_ns(switch),
        "buffer_bytes": hardware.switch_buffer_bytes,
        "taps": [devices.tap(switch, port) for port in range(1, switch.bridge_ports + 1)],
        **({"cut_through": True} if hardware.cuts_through(switch) else {}),
        **{key: value for key, value in hardware.switch.items() if key not in _OF_CHIPS or switch.role not in EMBEDDED},
        **hardware.of_switch.get(switch.name, {}),
        **_accelerator(fabric, switch, hardware),
    }


_OF_NICS = ("mtu", "pcie_rate_bps", "pcie_latency_ns", "post_ns", "tx_buffer_bytes", "ack_every", "timeout_ns", "retry",
            "rnr_timeout_ns", "rnr_retry")  # fmt: skip
"""Parameters of all NICs, by their names in fabricd's configuration."""


def _nic(hardware: Hardware) -> dict[str, Any]:
    return {**{key: getattr(hardware, key) for key in _OF_NICS}, **hardware.nic}


def _of_complex(hardware: Hardware) -> dict[str, Any]:
    """What differs on the side of an off-path SmartNIC's compute complex."""
    if hardware.complex is None:
        return {}
    return {
        "pcie_rate_bps": hardware.complex.rate_bps,
        "pcie_latency_ns": hardware.complex.dma_latency_ns,
        "post_ns": hardware.complex.post_ns,
    }
