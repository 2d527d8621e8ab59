"""READ responses under congestion controls with a window or credit: held back as bytes are that are written."""

from __future__ import annotations

from typing import Any

import pytest

from hardware.cc import CONTROLS
from hardware.config import Hardware
from tests.parts.fabricd_fixture import FAST, BareFabric, bare_fabric, plain
from tests.parts.traffic_fabric import drops, nic, port, send
from tests.parts.verbs_ends import BYTES, Ends
from tests.parts.verbs_program import Program, couple
from workloads.verbs import wire

SIZE, SENDERS = 1 << 20, 4
RECOVERIES: dict[str, dict[str, Any]] = {
    "go_back_n": {},
    "selective_repeat": {"recovery": "selective_repeat"},
    "bitmaps": {"recovery": "selective_repeat", "sack_bits": 64, "loss_after_ns": 4000},
}


def test_a_window_of_one_packet_lets_one_response_go_at_a_time() -> None:
    """By hand: as in test_verbs_reads.py, but each packet waits until the one before is acknowledged: 90 B on the cable
    (58 B of headers, 8 of payload, FCS, preamble and gap), for which it needs no fetch."""
    with bare_fabric("star", {"hosts": 2}, Hardware(nic=nic("none", window=4096))) as f:
        f.start(0, 1)
        ends = Ends(f)
        began = ends.a.time_ps
        (record,) = ends.done(1, ends.read(100, 3 * 4096))
        there, first, middle, last, ack = (2 * (bits * 20 + 500_000) + 500_000 for bits in (98, 4182, 4178, 4182, 90))
        pcie = 500_000 + 4096 * 8 / 512e9 * 1e12
        assert record.time_ps - began == 600_000 + there + 3 * pcie + first + middle + last + 2 * ack + pcie
        assert ends.near.bytes[: 3 * 4096] == ends.far.bytes[100 : 100 + 3 * 4096]
        ends.over()


def held(control: str, verb: str) -> tuple[list[float], int]:
    """Four hosts bring SIZE bytes each to one: when each was through, in ns, and the most that the switch held."""
    with bare_fabric(
        "star", {"hosts": SENDERS + 1}, Hardware(timeout_ns=1e9, nic=nic(control)), binary=plain(), sample=FAST
    ) as f:
        took = read(f) if verb == "read" else written(f)
        return sorted(took), port(f, "sw0", 1)["queue_max_bytes"]


def written(f: BareFabric) -> list[float]:
    f.fabricd.request("start", ranks=[])
    return send(f, [(rank, 0, SIZE, 0.0) for rank in range(1, SENDERS + 1)])


def read(f: BareFabric) -> list[float]:
    f.start(*range(SENDERS + 1))
    reader, *others = (Program(f.worker_socket(rank)) for rank in range(SENDERS + 1))
    near, posts = reader.memory(SIZE), []
    for k, other in enumerate(others):
        far = other.memory(SIZE, address=0x500000)
        far.bytes[:] = bytes([k]) * SIZE
        where: dict[str, Any] = {"remote": far.address, "rkey": far.key, "wr_id": k}
        posts.append(reader.send_list(couple(f, reader, other)[0], wire.READ, [near.piece()], **where))
    for other in others:
        other.begin_wait(10_000, 10**12)
    began = reader.time_ps
    records = reader.wait(SENDERS, wire.FOREVER, *posts)
    assert [r.status for r in records] == [0] * SENDERS and set(near.bytes[:]) <= set(range(SENDERS))
    assert not drops(f)
    for program in (*others, reader):
        program.socket.close()
    return [(r.time_ps - began) / 1000 for r in records]


@pytest.mark.parametrize("control", [name for name in CONTROLS if name != "dcqcn"])
def test_what_is_read_is_held_back_as_what_is_written(control: str) -> None:
    """The same senders, bytes and cable, once by WRITE and once by READ, whose request takes 1.2 us to be there.

    Without a control, and by delay before that grows, the switch holds all that comes at once.
    """
    (written_ns, wrote), (read_ns, was_read) = (held(control, verb) for verb in ("write", "read"))
    assert read_ns == pytest.approx([t + 1163 for t in written_ns], rel=0.05)
    assert was_read == pytest.approx(wrote, rel=0.08)
    assert (was_read > 0.7 * SENDERS * SIZE) == (control in ("none", "timely"))


@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("control", ["none", "dctcp", "nscc", "rccc", "homa"])
def test_whatever_is_lost_all_is_read_in_the_end(control: str, recovery: str) -> None:
    """Of requests, responses, their acknowledgements and credits, under a window or credit that is less than a READ."""
    less = {"window": 16384} if control in ("none", "dctcp", "nscc") else {"initial": 16384}
    nics = {**nic(control, **less), **RECOVERIES[recovery]}
    with bare_fabric("star", {"hosts": 2}, Hardware(timeout_ns=50_000, nic=nics), sample=1024) as f:
        f.start(0, 1)
        for name, every in (("h0:1", 11), ("h1:1", 7)):
            chosen = {"effect": "drop", "ports": [name], "select": {"every": every}}
            f.fabricd.request("inject", fault=name, primitive="frames", **chosen)
        ends = Ends(f, timeout=4)
        for k in range(3):
            ends.near.bytes[:] = bytes(BYTES)
            posts = [ends.read(at, 16384 + k, at, wr_id=at) for at in (0, 16400, 32800)]
            records = ends.done(3, *posts)
            assert [(r.wr_id, r.status) for r in records] == [(0, 0), (16400, 0), (32800, 0)]
            for at in (0, 16400, 32800):
                assert ends.near.bytes[at : at + 16384 + k] == ends.far.bytes[at : at + 16384 + k]
        ends.over()
