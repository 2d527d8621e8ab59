"""What a flow takes that loses packets: closed forms (docs/congestion-control.md), and the fabric that they are of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hardware import bounds
from hardware.config import Hardware
from testbed.experiment import loads
from testbed.plan.hardware import hardware_of
from tests.parts.traffic_fabric import drops, frame_bytes, send, star
from topologies.graph import frames

MTU = 4096


@dataclass(frozen=True)
class Taken:
    """A flow's time in ns, and what was counted at its sender."""

    time_ns: float
    retransmitted: int
    timeouts: int
    lost: int
    answers: int = 0
    """That its receiver sent."""


def hardware(recovery: str, rate_bps: float, delay_ns: float, transport: str = "", **nic: Any) -> Hardware:
    """As a file gives it that says no more than this; `transport`: more of its keys, behind a comma."""
    h = hardware_of(
        loads(f"""
name: recovery
fabric:
  topology: {{star: {{hosts: 2}}}}
  cable: {{rate: {rate_bps / 1e9}Gbps, delay: {delay_ns}ns}}
transport: {{recovery: {recovery}{transport}}}
""")
    )
    return replace(h, nic={**h.nic, **nic})


@dataclass(frozen=True)
class Incast:
    """Some flows at once to one receiver over a switch, in a class without PFC and without congestion control."""

    gbps: float
    fan_in: int
    size: int
    buffer: int

    def hardware(self, recovery: str) -> Hardware:
        return hardware_of(
            loads(f"""
name: incast
fabric:
  topology: {{star: {{hosts: {self.fan_in + 1}}}}}
  cable: {{rate: {self.gbps}Gbps}}
  switch: {{pfc: false, buffer: {self.buffer}B}}
  nic: {{retry: 1000}}
transport: {{recovery: {recovery}, cc: none}}
""")
        )

    @property
    def ideal_ns(self) -> float:
        """Of the last cable, if it is never idle."""
        return self.fan_in * self.size / MTU * frames.ser_ns(frame_bytes(), self.gbps * 1e9)

    @property
    def round_trip_ns(self) -> float:
        """Of the idle fabric."""
        return idle_ns(self.hardware("go_back_n"))

    def run(self, recovery: str) -> Taken:
        """Until the last flow has ended."""
        with star(self.fan_in + 1, self.hardware(recovery)) as f:
            time_ns = max(send(f, [(n, 0, self.size, 0) for n in range(1, self.fan_in + 1)]))
            nics = f.counters()["nics"]
            lost = drops(f)
        assert lost.keys() <= {"lossy", "tail"}, lost
        return Taken(
            time_ns,
            sum(n["retransmitted"] for n in nics),
            sum(n["local_ack_timeout_err"] for n in nics),
            sum(lost.values()),
        )


def packet_ns(h: Hardware) -> float:
    """Of a middle packet on the slower of cable and PCIe."""
    return max(frames.ser_ns(frame_bytes(), h.cable_rate_bps), MTU * 8e9 / h.pcie_rate_bps)


def idle_ns(h: Hardware) -> float:
    """A packet's round trip over one switch, its fetch included."""
    return bounds.base_rtt_ns(
        1, rate_bps=h.cable_rate_bps, delay_ns=h.cable_delay_ns, latency_ns=h.switch_latency_ns, mtu=MTU,
        pcie_bps=h.pcie_rate_bps, pcie_ns=h.pcie_latency_ns)  # fmt: skip


def cost_of_a_loss_ns(h: Hardware) -> float:
    """D: from the start of a lost packet to that of its second time, over one switch."""
    nak = frames.ser_ns(frames.ACK_FRAME, h.cable_rate_bps)
    way = 2 * h.cable_delay_ns + h.switch_latency_ns
    waiting = h.tx_buffer_bytes / frame_bytes()
    return 2 * frames.ser_ns(frame_bytes(), h.cable_rate_bps) + 2 * way + 2 * nak + (1 + waiting) * packet_ns(h)


def selective_ns(h: Hardware, packets: int, loss: float) -> float:
    """Closed form of selective repeat: what is lost goes once more, and the end waits for the last of it."""
    t, d = packet_ns(h), cost_of_a_loss_ns(h)
    end = d - t * (1 - (1 - loss) ** (d / t)) / loss if loss else 0.0
    return packets * t / (1 - loss) + idle_ns(h) + end


def lossy_flow(h: Hardware, packets: int, loss: float, *, jitter_ns: float = 0, seed: int = 1) -> Taken:
    """One flow of which each packet but the last is lost with that probability, and comes late by up to `jitter_ns`.

    The last one costs both recoveries a timeout: nothing that has come shows that it is missing. (In any order it may
    be lost, too: a probe repairs that.)
    """
    with star(2, h, change=lambda config: config.update(seed=seed)) as f:
        if loss:
            data = ["WRITE_FIRST", "WRITE_MIDDLE", "WRITE_ONLY"]
            f.fabricd.request("inject", fault="loss", primitive="frames", effect="drop", ports=["h1:1"],
                              select={"share": loss}, match={"opcodes": data})  # fmt: skip
        if jitter_ns:
            f.fabricd.request("inject", fault="jitter", primitive="frames", effect="delay", ports=["h1:1"],
                              select="all", delay_ns=0, jitter_ns=jitter_ns, reorder=True)  # fmt: skip
        (time_ns,) = send(f, [(1, 0, packets * MTU, 0)])
        sender, receiver = f.nic(1), f.nic(0)
        dropped = {d["reason"]: d["count"] for d in f.counters()["drops"]}
    assert dropped.keys() <= {"fault"}, dropped
    return Taken(
        time_ns,
        sender["retransmitted"],
        sender["local_ack_timeout_err"],
        dropped.get("fault", 0),
        receiver["tx_vport_rdma_unicast_packets"],
    )
