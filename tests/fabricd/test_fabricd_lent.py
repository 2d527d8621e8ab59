"""Payload that is lent to frames: what arrives is what was sent, whatever becomes of the sender's memory meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from scapy.utils import PcapNgReader

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, Pair, wait_until
from tests.parts.fast_path import MTU, fast, learn, rule, star
from tests.parts.timing_model import one, timed_write

LATE_PS = 300_000_000


@contextmanager
def learned(nbytes: int = 8 * MTU, hardware: Hardware | None = None) -> Iterator[tuple[BareFabric, Pair]]:
    """Two ranks whose frames go by the fast path."""
    with star(hardware=hardware) as f:
        pair = f.pair(0, 1, nbytes)
        learn(f, pair)
        yield f, pair


@pytest.mark.parametrize("size", [1, 2, 3, 4, MTU - 1, MTU, MTU + 1, 8 * MTU])
def test_all_bytes_arrive(size: int) -> None:
    with learned() as (f, pair):
        pair.memory_a[:] = os.urandom(8 * MTU)
        hops = fast(f)["hops"]
        timed_write(pair, size)
        assert fast(f)["hops"] > hops
        assert pair.memory_b[:size] == pair.memory_a[:size]
        pair.done()


def delay_one_frame(f: BareFabric) -> None:
    """The next frame to h1 comes in late, and does not hold up those behind it."""
    port = f"sw0:{f.port_to('sw0', 'h1')}"
    late = {"effect": "delay", "delay_ns": LATE_PS // 1000, "reorder": True, "select": {"first": 1}}
    f.fabricd.request("inject", fault="late", primitive="frames", ports=[port], **late)


def payloads(path: Path) -> list[bytes]:
    """Payload of each write of one packet in a capture; checks the ICRC."""
    from scapy.contrib.roce import BTH
    from scapy.layers.l2 import Ether

    found = []
    for raw in map(bytes, PcapNgReader(str(path))):
        packet = Ether(raw)
        if packet[BTH].opcode != 10:
            continue
        packet[BTH].icrc = None
        assert bytes(packet)[-4:] == raw[-4:]
        found.append(raw[14 + 20 + 8 + 12 + 16 : -4])
    return found


def test_a_frame_that_outlives_its_request_has_the_bytes_that_were_sent(tmp_path: Path) -> None:
    """The first frame comes after the second, which was sent for it; by then the worker has its memory back."""
    path = tmp_path / "h1.pcapng"
    with learned(hardware=Hardware(timeout_ns=50_000)) as (f, pair):
        sent = os.urandom(MTU)
        pair.memory_a[:MTU] = sent
        f.fabricd.request("capture", port="h1:1", path=str(path))
        delay_one_frame(f)
        hops = fast(f)["hops"]
        took, record = timed_write(pair, MTU)
        assert record.status == 0 and took < LATE_PS
        assert fast(f)["hops"] > hops
        pair.memory_a[:MTU] = bytes(MTU)
        pair.a.wait(1, pair.a.time_ps + 2 * LATE_PS)
        f.fabricd.request("capture_stop", path=str(path))
        assert pair.memory_b[:MTU] == sent
        assert payloads(path) == [sent, sent]
        assert f.nic(1)["duplicate_request"] == 1
        pair.done()


def test_what_a_rank_had_sent_before_it_was_lost_arrives() -> None:
    with learned() as (f, pair):
        sent = os.urandom(MTU)
        pair.memory_a[:MTU] = sent
        delay_one_frame(f)
        hops, until = fast(f)["hops"], pair.a.time_ps + LATE_PS // 10
        witness = f.worker(2)
        witness.begin_wait(1, until)
        assert pair.a.wait(1, until, pair.write(MTU)) == []
        witness.end_wait()  # and the clock waits for it
        assert fast(f)["hops"] == hops + 1
        pair.a.socket.close()
        f.events("worker_lost")
        wait_until(lambda: regions(f.pid) == 1, "the lost rank's memory is unmapped")
        witness.bye()
        pair.b.end_wait()
        assert pair.memory_b[:MTU] == sent
        pair.b.bye()


def regions(pid: int) -> int:
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:railbed-test")


def test_a_packet_that_a_rule_makes_another_has_the_icrc_of_what_it_was() -> None:
    """As in Open vSwitch, which leaves the ICRC as it is: the receiver drops it."""
    with star() as f:
        rule(f, f"udp,dl_dst={f.fabric.nics[1].mac},actions=set_field:50000->udp_src,output:{{h1}}")
        pair = f.pair(0, 1)
        pair.park()
        pair.memory_a[:8] = b"precious"
        posted = 0
        while fast(f)["hops"] < 3:
            posted += 1
            assert posted < 500, "not cached"
            assert pair.a.wait(1, pair.a.time_ps + 10_000_000, pair.write(8)) == []
        assert f.nic(1)["rx_icrc_encapsulated"] == posted
        assert pair.memory_b[:8] == bytes(8)


def test_memory_is_there_before_it_is_written() -> None:
    """All of a region is the kernel's business when it is registered, and no page's when a packet comes."""
    half = 8 << 20
    with star() as f:
        pair = f.pair(0, 1, 2 * half)
        learn(f, pair)
        timed_write(pair, half)  # the frames' own memory grows
        before = faults(f.pid)
        assert timed_write(pair, half, local=half, remote=half)[1].status == 0
        assert faults(f.pid) - before < 700  # of 2,048 pages; a sanitizer's own memory takes 512
        pair.done()


def faults(pid: int) -> int:
    """Page faults of a process so far."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def test_a_region_that_ends_within_a_page() -> None:
    with star() as f:
        pair = f.pair(0, 1, (4 << 20) + 12345)
        pair.memory_a[:] = os.urandom(len(pair.memory_a))
        assert one([timed_write(pair, (4 << 20) + 12345)[1]]).status == 0
        assert pair.memory_b[:] == pair.memory_a[:]
        pair.done()
