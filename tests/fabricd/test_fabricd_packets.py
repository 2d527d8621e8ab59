"""What a queue pair answers to a packet that is wrong, comes twice or ahead, or is for nobody: made by hand.

InfiniBand Architecture, volume 1, section 9.7: a packet that does not follow the one before it, is longer than the MTU
or than what is left of its message, or names memory that is not there, is refused, and the expected one stays the same.
"""

from __future__ import annotations

from typing import Any

from hardware.config import Hardware
from tests.parts import forged
from tests.parts.fabricd_fixture import BareFabric, bare_fabric, post_recv
from tests.parts.forged import aeth, reth
from tests.parts.timing_model import RETH, Model, timed_write
from tests.parts.traffic_fabric import drops
from tests.parts.wire_view import ACK, frames
from workloads.verbs import wire

MTU, REGION = 1024, 8192
ACKED, NOT_READY, SEQUENCE, INVALID, REFUSED = 0x1F, 0x20, 0x60, 0x61, 0x62  # InfiniBand, 1, table 45
STEP_NS = 10_000
Answer = tuple[int, int, int]
"""Syndrome, PSN, message number."""


def smaller_mtu(config: dict[str, Any]) -> None:
    config["nics"][1]["mtu"] = MTU


def text(length: int, seed: int) -> bytes:
    return bytes((seed + 7 * i) % 251 for i in range(length))


class Wire:
    """Puts packets to h1 out, one each STEP_NS, and knows what was to come back."""

    def __init__(self, f: BareFabric) -> None:
        self.f, self.at_ns = f, 0
        self.wanted: list[tuple[int, list[Answer]]] = []

    def __call__(self, qp: int, opcode: int, psn: int, behind: bytes, *answer: Answer, **other: Any) -> None:
        """`answer`: what comes back."""
        self.put(qp, opcode, psn, behind, *answer, **other)
        self.goes_on()

    def put(self, qp: int, opcode: int, psn: int, behind: bytes, *answer: Answer, **other: Any) -> None:
        h0, h1 = self.f.fabric.nics[:2]
        macs = (other.pop("source_mac", h0.mac), other.pop("mac", h1.mac))
        ips = (int(other.pop("source", h0.ip)), int(h1.ip))
        forged.put_out(self.f, "sw0", "h1", forged.packet(macs, ips, qp, opcode, psn, behind, **other))
        self.wanted.append((self.at_ns, list(answer)))

    def goes_on(self) -> None:
        self.at_ns += STEP_NS
        self.f.fabricd.request("run_until", time_ns=self.at_ns)
        self.f.events("held")


def test_each_packet_is_answered_as_it_should_be() -> None:
    first, second = text(2 * MTU, 1), text(96, 2)
    with bare_fabric("star", {"hosts": 2}, Hardware(), change=smaller_mtu) as f:
        pair = f.pair(0, 1, REGION)
        qp, key = pair.qp_b, pair.key_b
        seen = f.directory / "seen"
        say = Wire(f)
        say.at_ns = pair.a.time_ps // 1000 + STEP_NS
        until_ns = say.at_ns + 30 * STEP_NS
        f.fabricd.request("run_until", time_ns=say.at_ns)  # before anybody waits: nothing runs ahead
        pair.a.begin_wait(1)
        pair.b.begin_wait(1, until_ns * 1000)
        f.events("held")
        f.fabricd.request("capture", port="h1:1", path=str(seen))
        invalid, refused = (INVALID, 0, 0), (REFUSED, 0, 0)  # what it asks for is none; is not for it
        say(qp, forged.WRITE_MIDDLE, 0, text(MTU, 3), invalid)  # nothing has begun
        say(qp, forged.WRITE_LAST, 0, text(8, 3), invalid)
        say(qp, forged.SEND_LAST, 0, text(8, 3), invalid)
        say(qp, forged.READ, 0, reth(0, key, 8), invalid)  # its queue pair answers none
        say(qp, forged.SEND_ONLY_IMM, 0, text(12, 3), (NOT_READY, 0, 0))
        say(qp, forged.WRITE_FIRST, 0, reth(0, key, 2 * MTU) + text(MTU + 4, 3), invalid)
        say(qp, forged.WRITE_FIRST, 0, reth(0, key, MTU - 4) + text(MTU, 3), invalid)
        say(qp, forged.WRITE_ONLY, 0, reth(0, key, 96) + text(92, 3), invalid)
        say(qp, forged.WRITE_ONLY, 0, reth(0, key, 96) + text(100, 3), invalid)
        say(qp, forged.WRITE_ONLY, 0, reth(0, key + 1, 96) + text(96, 3), refused)
        say(qp, forged.WRITE_ONLY, 0, reth(REGION - 95, key, 96) + text(96, 3), refused)
        say(qp, forged.SEND_ONLY, 0, text(8, 3), (NOT_READY, 0, 0))
        say(qp, forged.WRITE_ONLY_IMM, 0, reth(0, key, 8) + bytes(4) + text(8, 3), (NOT_READY, 0, 0))
        assert not any(pair.memory_b[:])
        say(qp + 1, forged.WRITE_ONLY, 0, reth(0, key, 8) + text(8, 3))
        say(qp - 1, forged.WRITE_ONLY, 0, reth(0, key, 8) + text(8, 3))
        say(qp, forged.WRITE_ONLY, 0, reth(0, key, 8) + text(8, 3), source=f.fabric.nics[1].ip)
        say(qp, forged.WRITE_ONLY, 0, reth(0, key, 8) + text(8, 3), mac=f.fabric.nics[0].mac)
        assert drops(f) == {"no_qp": 4} and not any(pair.memory_b[:])
        say(qp, forged.WRITE_ONLY, 0, reth(REGION - 96, key, 96) + second, (ACKED, 0, 1))
        say(qp, forged.WRITE_ONLY, 0, reth(0, key, 96) + text(96, 9), (ACKED, 0, 1))  # once more: not taken
        say(qp, forged.WRITE_ONLY, 0, reth(0, key, 96) + text(96, 9), asks=False)
        say(qp, forged.WRITE_ONLY, 2, reth(0, key, 8) + text(8, 3), (SEQUENCE, 1, 1))  # ahead, and said once
        say(qp, forged.WRITE_ONLY, 3, reth(0, key, 8) + text(8, 3))
        say(qp, forged.WRITE_FIRST, 1, reth(4, key, 2 * MTU) + first[:MTU], asks=False)
        say(qp, forged.WRITE_ONLY, 2, reth(0, key, 8) + text(8, 3), (INVALID, 2, 1))  # the first one is not over
        say(qp, forged.SEND_LAST, 2, text(MTU, 3), (INVALID, 2, 1))
        say(qp, forged.WRITE_LAST, 2, text(MTU - 4, 3), (INVALID, 2, 1))
        say(qp, forged.WRITE_LAST, 2, first[MTU:], (ACKED, 2, 2))
        assert pair.memory_b[:] == (bytes(4) + first).ljust(REGION - 96, b"\0") + second
        say.at_ns = until_ns + STEP_NS
        f.fabricd.request("run_until", time_ns=say.at_ns)
        assert pair.b.end_wait() == []
        pair.b.begin_wait(1, wire.FOREVER, post_recv(qp, key, 100, wr_id=7))
        f.events("held")
        say(qp, forged.SEND_ONLY, 3, text(101, 4), (INVALID, 3, 2))
        say.put(qp, forged.SEND_ONLY, 3, text(99, 5), (ACKED, 3, 3))
        f.fabricd.request("run_until", time_ns=say.at_ns + STEP_NS)
        (received,) = pair.b.end_wait()
        pair.b.begin_wait(1)
        f.events("held")
        assert (received.wr_id, received.nbytes, received.status) == (7, 99, 0)
        assert pair.memory_b[:100] == text(99, 5) + first[95:96]
        f.fabricd.request("capture_stop", path=str(seen))
        fidelity = f.counters()["fidelity"]
        assert fidelity["flagged"] == len(say.wanted) and len(fidelity["flagged_examples"]) == 16
        nic1 = f.nic(1)
        assert (nic1["duplicate_request"], nic1["out_of_sequence"]) == (2, 2)
        f.fabricd.request("run_until")
        for w in (pair.a, pair.b):
            w.socket.close()
        answers = [fr for fr in frames(seen) if fr.out]
    assert all(fr.opcode == ACK and fr.dst_qp == pair.qp_a for fr in answers)
    for at_ns, wanted in say.wanted:
        came = [(fr.syndrome, fr.psn, fr.msn) for fr in answers if at_ns < fr.time_ns <= at_ns + STEP_NS]
        assert came == wanted, at_ns


def test_answers_to_what_was_never_sent_are_passed_over() -> None:
    """Who has sent nothing hears acknowledgements, NAKs, a notification, and then sends as if it had not."""
    h = Hardware()
    with bare_fabric("star", {"hosts": 2}, h) as f:
        pair = f.pair(0, 1)
        h0, h1 = f.fabric.nics[:2]
        for opcode, psn, behind in (
            (forged.ACKNOWLEDGE, 0, aeth(ACKED)),
            (forged.ACKNOWLEDGE, 5, aeth(ACKED)),
            (forged.ACKNOWLEDGE, 0xFFFFFF, aeth(ACKED)),
            (forged.ACKNOWLEDGE, 0, aeth(SEQUENCE)),
            (forged.ACKNOWLEDGE, 0, aeth(REFUSED)),
            (forged.ACKNOWLEDGE, 0, aeth(NOT_READY)),
            (forged.NOTIFICATION, 0, bytes(16)),
        ):
            ends = (h1.mac, h0.mac), (int(h1.ip), int(h0.ip))
            frame = forged.packet(*ends, pair.qp_a, opcode, psn, behind, asks=False)
            forged.put_out(f, "sw0", "h0", frame)
        pair.park()
        pair.a.wait(9, pair.a.time_ps + 10**7)
        took, record = timed_write(pair, 4096)
        assert (took, record.status) == (Model(h, 1).sent(4096, RETH), 0)
        nic0 = f.nic(0)
        assert (nic0["retransmitted"], nic0["local_ack_timeout_err"], nic0["rp_cnp_ignored"]) == (0, 0, 1)
        pair.done()
