"""READ and atomic operations of programs: how long they take, and over fabrics that lose packets, by all recoveries."""

from __future__ import annotations

import random
from pathlib import Path
from struct import Struct
from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.dissected import dissect
from tests.parts.fabricd_fixture import BareFabric, bare_fabric
from tests.parts.timing_model import one
from tests.parts.traffic_fabric import nic
from tests.parts.verbs_ends import BYTES, Ends
from tests.parts.verbs_program import (
    LOCAL_WRITE,
    REMOTE_READ,
    Memory,
    Piece,
)
from workloads.verbs import wire

SUCCESS, LOCAL_LENGTH, LOCAL_PROTECTION, FLUSHED, REMOTE_INVALID, REMOTE_ACCESS = 0, 1, 4, 5, 9, 10
WORD = Struct("<Q")
RECOVERIES: dict[str, dict[str, Any]] = {
    "go_back_n": {},
    "selective_repeat": {"recovery": "selective_repeat"},
    "bitmaps": {"recovery": "selective_repeat", "sack_bits": 64, "loss_after_ns": 4000},
}


def word(memory: Memory, at: int) -> int:
    return int(WORD.unpack_from(memory.bytes, at)[0])


def test_what_is_read_takes_a_request_there_and_its_packets_back() -> None:
    """By hand: 100 ns post, 500 ns doorbell; 98 B there and 4,182 B back (with FCS, preamble and gap) over two cables
    of 400 Gb/s and 500 ns and a switch of 500 ns; 500 ns and 4,096 B at 512 Gb/s over PCIe at each end."""
    with bare_fabric("star", {"hosts": 2}, Hardware()) as f:
        f.start(0, 1)
        ends = Ends(f)
        began = ends.a.time_ps
        (record,) = ends.done(1, ends.read(100, 4096))
        there, back = (2 * (bits * 2.5 + 500_000) + 500_000 for bits in (8 * 98, 8 * 4182))
        pcie = 500_000 + 4096 * 8 / 512e9 * 1e12
        assert record.time_ps - began == 100_000 + 500_000 + there + pcie + back + pcie
        assert ends.near.bytes[:4096] == ends.far.bytes[100:4196] and record.nbytes == 4096
        assert f.nic(1)["rx_read_requests"] == 1
        assert [(q["tx_packets"], q["tx_bytes"]) for q in f.counters()["qps"] if q["rank"] == 1] == [(1, 4096)]
        ends.over()


def lose(f: BareFabric, opcode: str) -> None:
    """The first of that kind that the second host sends."""
    rule = {"primitive": "frames", "effect": "drop", "match": {"opcodes": [opcode]}, "select": {"first": 1}}
    f.fabricd.request("inject", fault="lost", ports=["h1:1"], **rule)


def test_by_go_back_n_a_gap_in_a_response_is_asked_for_at_once() -> None:
    """By hand: the lost first packet has taken 83.64 ns of its first cable; the second, of 4,178 B, comes behind and
    shows it. The same READ goes once more."""
    took = []
    for lost in (False, True):
        with bare_fabric("star", {"hosts": 2}, Hardware(timeout_ns=1e9)) as f:
            f.start(0, 1)
            ends = Ends(f)
            if lost:
                lose(f, "READ_RESPONSE_FIRST")
            began = ends.a.time_ps
            (record,) = ends.done(1, ends.read(0, 9000))
            took.append(record.time_ps - began)
            assert record.status == SUCCESS and ends.near.bytes[:9000] == ends.far.bytes[:9000]
            assert f.nic(0).get("packet_seq_err", 0) == lost
            ends.over()
    there, second = (2 * (bits * 2.5 + 500_000) + 500_000 for bits in (8 * 98, 8 * 4178))
    assert took[1] - took[0] == there + 500_000 + 4096 * 8 / 512e9 * 1e12 + 8 * 4182 * 2.5 + second


def test_a_lost_response_is_a_sign_to_who_sent_it() -> None:
    """DCTCP: half of what is under way, but no less than two packets (RFC 8257, 3.5; RFC 5681, 3.1); from then on a
    packet more a round trip, by shares. The reader's window is for the other direction."""
    hardware = Hardware(timeout_ns=1e9, nic=nic("dctcp"))
    with bare_fabric("star", {"hosts": 2}, hardware) as f:
        f.start(0, 1)
        ends = Ends(f)
        windows = []
        for lost in (False, True):
            if lost:
                lose(f, "READ_RESPONSE_FIRST")
            ends.done(1, ends.read(0, 9000))
            windows.append({q["rank"]: q["window_bytes"] for q in f.counters()["qps"]})
        ends.over()
    assert windows[0][0] == windows[1][0] == windows[0][1] == 400_000
    of_one = 8192 + 4096 * 4096 / 8192  # two come behind the cut
    assert windows[1][1] == int(of_one + 4096 * 4096 / of_one)


def test_a_response_says_that_all_before_it_was_taken() -> None:
    """A write's acknowledgement is lost, and nothing is sent again (InfiniBand specification, 9.7.5.1.2). Nor has the
    request, which needs no fetch, overtaken the write."""
    with bare_fabric("star", {"hosts": 2}, Hardware(timeout_ns=1e9)) as f:
        f.start(0, 1)
        ends = Ends(f)
        lose(f, "ACKNOWLEDGE")
        write = ends.a.send_list(
            ends.qp, wire.WRITE, [ends.near.piece(0, 8)], remote=ends.far.address, rkey=ends.far.key, wr_id=1
        )
        records = ends.done(2, write, ends.read(64, 8, 64, wr_id=2))
        assert [(r.wr_id, r.status) for r in records] == [(1, SUCCESS), (2, SUCCESS)]
        assert f.nic(0)["retransmitted"] == f.nic(0)["packet_seq_err"] == f.nic(1)["out_of_sequence"] == 0
        ends.over()


@pytest.mark.parametrize("recovery", RECOVERIES)
def test_whatever_is_lost_of_requests_and_responses(recovery: str) -> None:
    """Reads, writes and atomic operations at random among each other, against a model of memory; each exactly once."""
    dice = random.Random(11)
    hardware = Hardware(timeout_ns=50_000, nic={"first_psn": 0, **RECOVERIES[recovery]})
    with bare_fabric("star", {"hosts": 2}, hardware, sample=1024) as f:
        f.start(0, 1)
        for port, every in (("h0:1", 11), ("h1:1", 7)):
            f.fabricd.request(
                "inject", fault=port, primitive="frames", effect="drop", ports=[port], select={"every": every}
            )
        ends = Ends(f, expected_psn=0xFFFFF0, send_psn=0xFFFFF0, timeout=4)
        model = bytearray(ends.far.bytes[:])
        for _ in range(12):
            posts, expect = [], []
            for k in range(4):
                what = dice.choice(["read", "read", "write", "add", "swap"])
                at, nbytes, to = 8 * dice.randrange(2000), dice.choice([0, 1, 4096, 9_000, 12_288]), 16_000 * k
                if what == "read":
                    posts.append(ends.read(at, nbytes, to, wr_id=k))
                    expect.append((to, bytes(model[at : at + nbytes])))
                elif what == "write":
                    text = dice.randbytes(nbytes)
                    ends.near.bytes[to : to + nbytes] = text
                    target: dict[str, Any] = {
                        "remote": ends.far.address + at,
                        "rkey": ends.far.key,
                        "wr_id": k,
                        "flags": 3,
                    }
                    posts.append(ends.a.send_list(ends.qp, wire.WRITE, [ends.near.piece(to, nbytes)], **target))
                    model[at : at + nbytes] = text
                else:
                    (before,) = WORD.unpack_from(model, at)
                    compare = dice.choice([before, 5]) if what == "swap" else dice.randrange(2**64)
                    after = (before + compare) % 2**64 if what == "add" else 77 if compare == before else before
                    opcode = wire.FETCH_ADD if what == "add" else wire.COMPARE_SWAP
                    posts.append(ends.atomic(opcode, at, compare, 77, to, wr_id=k, flags=3))
                    WORD.pack_into(model, at, after)
                    expect.append((to, WORD.pack(before)))
            records = ends.done(4, *posts)
            assert [(r.wr_id, r.status) for r in records] == [(k, SUCCESS) for k in range(4)]
            for to, text in expect:
                assert ends.near.bytes[to : to + len(text)] == text
        assert ends.far.bytes[:] == bytes(model)
        ends.over()


def test_wireshark_reads_what_is_on_the_cable(tmp_path: Path) -> None:
    """Opcodes and numbers as the InfiniBand specification has them: a READ takes as many numbers as its response."""
    path = tmp_path / "cable.pcapng"
    with bare_fabric("star", {"hosts": 2}) as f:
        f.start(0, 1)
        f.fabricd.request("capture", port="h0:1", path=str(path))
        ends = Ends(f)
        before = word(ends.far, 64)
        for post in (ends.read(0, 9000), ends.atomic(wire.FETCH_ADD, 64, 5), ends.atomic(wire.COMPARE_SWAP, 64, 5, 6)):
            ends.done(1, post)
        f.fabricd.request("capture_stop", path=str(path))
        ends.over()
    opcode, psn, result = "infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.atomicacketh.origremdt"
    frames = dissect(path, opcode, psn, result)
    read = [("12", "0"), ("13", "0"), ("14", "1"), ("15", "2")]
    assert [(x[opcode], x[psn]) for x in frames] == [*read, ("20", "3"), ("18", "3"), ("19", "4"), ("18", "4")]
    assert [int(x[result]) for x in frames if result in x] == [before, (before + 5) % 2**64]


def test_no_more_is_read_at_a_time_than_was_agreed() -> None:
    """With one at a time the second request leaves when the first is answered; a fence waits for all."""
    with bare_fabric("star", {"hosts": 2}) as f:
        f.start(0, 1)
        spans = {}
        for most in (1, 2):
            ends = Ends(f, reads_out=most)
            one_read = one(ends.done(1, ends.read(0, 4096))).time_ps
            began = ends.a.time_ps
            first, second = ends.done(2, ends.read(0, 4096), ends.read(4096, 4096, 4096))
            spans[most] = (second.time_ps - first.time_ps, first.time_ps - began)
            assert one_read
            if most == 2:
                fenced = ends.done(2, ends.read(0, 4096), ends.read(0, 4096, flags=3))
                assert fenced[1].time_ps - fenced[0].time_ps > spans[2][1] / 2
            ends.over()
        assert spans[1][0] > spans[1][1] / 2 > spans[2][0]


def test_a_peer_that_reads_more_at_a_time_than_it_may_breaks_both() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        f.start(0, 1)
        ends = Ends(f, reads_out=8, reads_in=1)
        reads = [ends.read(0, 60_000, wr_id=k) for k in range(8)]
        statuses = [r.status for r in ends.done(8, *reads)]
        assert REMOTE_INVALID in statuses and statuses[-1] == FLUSHED
        ends.over()


@pytest.mark.parametrize("what", ["key", "range", "rights", "local", "odd address", "length", "none of its own"])
def test_what_may_not_be_read_or_changed(what: str) -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        f.start(0, 1)
        ends = Ends(f, LOCAL_WRITE | (REMOTE_READ if what != "rights" else 0), reads_out=what != "none of its own")
        expected = REMOTE_ACCESS
        post = ends.read(0, 8)
        if what == "key":
            post = ends.read(0, 8, rkey=99)
        elif what == "range":
            post = ends.read(BYTES - 4, 8)
        elif what == "local":
            pieces: list[Piece] = [ends.a.memory(4096, 0).piece(0, 8)]
            post = ends.a.send_list(ends.qp, wire.READ, pieces, remote=ends.far.address, rkey=ends.far.key)
            expected = LOCAL_PROTECTION
        elif what == "odd address":
            post, expected = ends.atomic(wire.FETCH_ADD, 4, 1), REMOTE_INVALID
        elif what == "length":
            pieces = [ends.near.piece(0, 16)]
            post = ends.a.send_list(ends.qp, wire.FETCH_ADD, pieces, remote=ends.far.address, rkey=ends.far.key)
            expected = LOCAL_LENGTH
        elif what == "none of its own":
            expected = 2
        assert [r.status for r in ends.done(1, post)] == [expected]
        assert [r.status for r in ends.done(1, ends.read(0, 8))] == [FLUSHED]
        ends.over()
