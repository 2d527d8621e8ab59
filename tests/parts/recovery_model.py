"""What a flow takes that loses packets: closed forms (docs/congestion-control.md), and the fabric that they are of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hardware import bounds
from hardware.config import Hardware
from testbed.experiment import loads
from testbed.plan.hardware import hardware_of
from tests.parts.traffic_fabric import frame_bytes, send, star

MTU = 4096


@dataclass(frozen=True)
class Taken:
    """A flow's time in ns, and what was counted at its sender."""

    time_ns: float
    retransmitted: int
    timeouts: int
    lost: int


def hardware(recovery: str, rate_bps: float, delay_ns: float, **nic: Any) -> Hardware:
    """As a file gives it that says no more than this."""
    experiment = loads(f"""
name: recovery
fabric:
  topology: {{star: {{hosts: 2}}}}
  cable: {{rate: {rate_bps / 1e9}Gbps, delay: {delay_ns}ns}}
transport: {{recovery: {recovery}}}
workload: [{{flows: [{{from: 1, to: 0, size: 1MB}}]}}]
""")
    h = hardware_of(experiment)
    return replace(h, nic={**h.nic, **nic})


def packet_ns(h: Hardware) -> float:
    """Of a middle packet on the slower of cable and PCIe."""
    return max(bounds.ser_ns(frame_bytes(), h.cable_rate_bps), MTU * 8e9 / h.pcie_rate_bps)


def cost_of_a_loss_ns(h: Hardware) -> float:
    """D: from the start of a lost packet to that of its second time, over one switch."""
    nak = bounds.ser_ns(bounds.ACK_FRAME, h.cable_rate_bps)
    way = 2 * h.cable_delay_ns + h.switch_latency_ns
    waiting = h.tx_buffer_bytes / frame_bytes()
    return 2 * bounds.ser_ns(frame_bytes(), h.cable_rate_bps) + 2 * way + 2 * nak + (1 + waiting) * packet_ns(h)


def selective_ns(h: Hardware, packets: int, loss: float) -> float:
    """Closed form of selective repeat: what is lost goes once more, and the end waits for the last of it."""
    t, d = packet_ns(h), cost_of_a_loss_ns(h)
    idle = bounds.base_rtt_ns(
        1, rate_bps=h.cable_rate_bps, delay_ns=h.cable_delay_ns, latency_ns=h.switch_latency_ns, mtu=MTU,
        pcie_bps=h.pcie_rate_bps, pcie_ns=h.pcie_latency_ns)  # fmt: skip
    end = d - t * (1 - (1 - loss) ** (d / t)) / loss if loss else 0.0
    return packets * t / (1 - loss) + idle + end


def lossy_flow(h: Hardware, packets: int, loss: float, *, seed: int = 1) -> Taken:
    """One flow of which each packet but the last is lost with that probability.

    The last one costs both recoveries a timeout: nothing that has come shows that it is missing.
    """
    with star(2, h, change=lambda config: config.update(seed=seed)) as f:
        if loss:
            f.fabricd.request("inject", fault="loss", primitive="frames", effect="drop", ports=["h1:1"],
                              select={"share": loss}, match={"opcodes": ["WRITE_FIRST", "WRITE_MIDDLE"]})  # fmt: skip
        (time_ns,) = send(f, [(1, 0, packets * MTU, 0)])
        sender = f.nic(1)
        dropped = {d["reason"]: d["count"] for d in f.counters()["drops"]}
    assert dropped.keys() <= {"fault"}, dropped
    return Taken(time_ns, sender["retransmitted"], sender["local_ack_timeout_err"], dropped.get("fault", 0))
