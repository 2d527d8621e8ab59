"""Times of writes from the documented model alone: see test_fabricd_timing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardware.config import Hardware
from tests.parts.fabricd_fixture import Pair
from workloads.verbs import wire

PS = 1000
HEADERS = 14 + 20 + 8 + 12 + 4  # Ethernet, IPv4, UDP, BTH, ICRC
RETH, IMM, AETH, DETH = 16, 4, 4, 8


def ps_on(rate_bps: float, nbytes: int) -> int:
    """Rounded to whole ps, as a rate is stated in whole bits per second."""
    return (nbytes * 8 * 10**12 + int(rate_bps) // 2) // int(rate_bps)


def wire_ps(rate_bps: float, payload: int, extension: int) -> int:
    frame = HEADERS + extension + -(-payload // 4) * 4 + 4  # with FCS
    return ps_on(rate_bps, max(frame, 64) + 20)


class Model:
    """One-way times, in ps, over `switches` equal switches."""

    def __init__(self, h: Hardware, switches: int) -> None:
        self.h = h
        self.switches = switches
        self.pcie = int(h.pcie_latency_ns * PS)
        self.doorbell = int(h.post_ns * PS) + self.pcie
        self.passing = int((h.cable_delay_ns * (switches + 1) + h.switch_latency_ns * switches) * PS)

    def travel(self, payload: int, extension: int) -> int:
        return wire_ps(self.h.cable_rate_bps, payload, extension) * (self.switches + 1) + self.passing

    def pcie_ps(self, payload: int) -> int:
        return ps_on(self.h.pcie_rate_bps, payload)

    def arrival(self, payload: int, extension: int) -> int:
        """From the post to the last bit at the receiver's NIC, for one packet."""
        return self.doorbell + self.pcie_ps(payload) + self.pcie + self.travel(payload, extension)

    def sent(self, payload: int, extension: int) -> int:
        return self.arrival(payload, extension) + self.ack()

    def ack(self) -> int:
        return self.travel(0, AETH) + self.pcie

    def received(self, payload: int, extension: int) -> int:
        return self.arrival(payload, extension) + self.pcie_ps(payload) + self.pcie

    def packets(self, nbytes: int) -> list[tuple[int, int]]:
        """Payload and extension of each packet of a write without immediate."""
        mtu = self.h.mtu
        return [(min(mtu, nbytes - at), RETH if at == 0 else 0) for at in range(0, nbytes, mtu)]

    def long_sent(self, nbytes: int, rate_bps: float | None = None) -> int:
        """A write of many packets that is limited only by the cables' rate."""
        rate = rate_bps or self.h.cable_rate_bps
        packets = self.packets(nbytes)
        on_first_cable = sum(wire_ps(rate, *p) for p in packets)
        fetched = self.doorbell + self.pcie_ps(packets[0][0]) + self.pcie
        # on every further cable they queue behind the first, which is the longest, without a gap
        rest = wire_ps(rate, *packets[0]) * self.switches + self.passing
        return fetched + on_first_cable + rest + self.ack()


def one(records: Sequence[wire.Record]) -> wire.Record:
    assert len(records) == 1
    return records[0]


def timed_write(pair: Pair, length: int, **fields: Any) -> tuple[int, wire.Record]:
    """Posts one write and waits: time from the post to the completion, in ps, and the completion."""
    pair.park()
    start = pair.a.time_ps
    record = one(pair.a.wait(1, wire.FOREVER, pair.write(length, **fields)))
    return record.time_ps - start, record
