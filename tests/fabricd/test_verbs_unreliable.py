"""Unreliable connections of programs (UC): what is lost, what is dropped with it, and what is on the cable."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.dissected import dissect, frames_of
from tests.parts.fabricd_fixture import BareFabric, bare_fabric
from tests.parts.timing_model import Model
from tests.parts.verbs_program import INIT, RTR, RTS, Attributes, Program, address_of
from workloads.verbs import wire

SUCCESS, LOCAL_OPERATION, LOCAL_PROTECTION = 0, 2, 4  # of ibv_wc_status
UC, REST_PS, BYTES, MTU, ROOM = 3, 10**12, 1 << 20, 4096, 20_480
SEND_FIRST, SEND_LAST, SEND_ONLY = 0x20, 0x22, 0x24
BTH = 14 + 20 + 8  # of a frame


class Ends:
    """`a` sends, `b` rests, with `receives` of ROOM bytes each."""

    def __init__(self, f: BareFabric, receives: int = 0) -> None:
        self.a, self.b = Program(f.worker_socket(0)), Program(f.worker_socket(1))
        self.qp_a, self.qp_b = self.a.queue_pair(kind=UC), self.b.queue_pair(kind=UC)
        for p, own, peer, rank in ((self.a, self.qp_a, self.qp_b, 1), (self.b, self.qp_b, self.qp_a, 0)):
            its = Attributes(peer=peer, address=address_of(f, rank))
            p.send(*(its.command(own, state) for state in (INIT, RTR, RTS)))
        self.near, self.far = self.a.memory(BYTES), self.b.memory(BYTES)
        rooms = [self.b.recv_list(self.qp_b, [self.far.piece(ROOM * k, ROOM)], wr_id=k) for k in range(receives)]
        self.b.begin_wait(10_000, REST_PS, *rooms)

    def post(self, opcode: int, nbytes: int, at: int = 0, **how: Any) -> bytes:
        remote = {"remote": self.far.address, "rkey": self.far.key, **how}
        return self.a.send_list(self.qp_a, opcode, [self.near.piece(at, nbytes)], **remote)

    def sent(self, count: int, *posts: bytes) -> list[int]:
        records = self.a.wait(count, wire.FOREVER, *posts)
        while len(records) < count:
            records += self.a.wait(count - len(records))
        return [r.status for r in records]

    def came(self) -> list[wire.Record]:
        self.a.begin_wait(10_000, 2 * REST_PS)
        return self.b.end_wait()

    def over(self) -> None:
        for p in (self.b, self.a):
            p.socket.close()


def test_a_request_is_done_when_its_last_packet_leaves() -> None:
    """And its data are there one cable, a switch and PCIe later, as of a reliable connection."""
    with bare_fabric("star", {"hosts": 2}, Hardware()) as f:
        f.start(0, 1)
        ends = Ends(f, 1)
        ends.near.bytes[:3000] = bytes(range(250)) * 12
        model, began = Model(f.hardware, 1), ends.a.time_ps
        (record,) = ends.a.wait(1, wire.FOREVER, ends.post(wire.SEND, 3000))
        assert record.time_ps - began == model.doorbell + model.pcie_ps(3000) + model.pcie + model.pcie
        (got,) = ends.came()
        assert got.time_ps - began == model.received(3000, 0) and got.nbytes == 3000
        assert ends.far.bytes[:3000] == ends.near.bytes[:3000]
        ends.over()


def reference(packets: list[tuple[int, int]], receives: int) -> list[int]:
    """Packets (opcode, number) that have come, to how many packets each delivered message had.

    After `check_psn` and `check_op_seq` of the kernel's software RoCE (rxe_resp.c) for unreliable connections: what
    does not begin a message is dropped from the first number that is not the expected one; a beginning is always taken.
    """
    done: list[int] = []
    expected, dropping, length = 0, True, 0
    for opcode, number in packets:
        begins = opcode in (SEND_FIRST, SEND_ONLY)
        if (dropping or number != expected) and not begins:
            dropping = True
            continue
        dropping, expected = False, number + 1
        length = 1 if begins else length + 1
        if begins and len(done) == receives:
            dropping = True
        elif opcode in (SEND_LAST, SEND_ONLY):
            done.append(length)
            dropping = True  # what follows has to begin
    return done


@pytest.mark.parametrize("seed", range(3))
def test_what_comes_of_a_row_with_holes_is_what_the_reference_delivers(seed: int, tmp_path: Path) -> None:
    """What has come is taken from the capture of the last cable; receives run out before the end."""
    dice, path = random.Random(seed), tmp_path / "cable.pcapng"
    with bare_fabric("star", {"hosts": 2}, Hardware()) as f:
        f.start(0, 1)
        f.fabricd.request("capture", port="sw0:2", path=str(path))
        rule = {"primitive": "frames", "effect": "drop", "select": {"share": 0.2}}
        f.fabricd.request("inject", fault="holes", ports=["h0:1"], **rule)
        ends = Ends(f, 12)
        sizes = [dice.choice([100, MTU, 2 * MTU, 3 * MTU + 1, 5 * MTU - 96]) for _ in range(30)]
        posts = []
        for k, nbytes in enumerate(sizes):
            ends.near.bytes[ROOM * k : ROOM * k + nbytes] = bytes([k + 1]) * nbytes
            posts.append(ends.post(wire.SEND, nbytes, ROOM * k, wr_id=k))
        assert ends.sent(30, *posts) == [SUCCESS] * 30
        records = ends.came()
        f.fabricd.request("capture_stop", path=str(path))
        frames = [(x[BTH], int.from_bytes(x[BTH + 9 : BTH + 12], "big")) for x in frames_of(path)]
        delivered = reference(frames, 12)
        assert [r.wr_id for r in records] == list(range(len(delivered)))
        assert [-(-r.nbytes // MTU) for r in records] == delivered
        for r in records:
            text = ends.far.bytes[ROOM * r.wr_id : ROOM * r.wr_id + r.nbytes]
            assert len(set(text)) == 1 and r.nbytes == sizes[text[0] - 1]
        assert len(delivered) == 12 or len(frames) < sum(-(-n // MTU) for n in sizes)
        assert f.nic(0)["retransmitted"] == 0
        ends.over()


def test_wireshark_reads_what_is_on_the_cable(tmp_path: Path) -> None:
    """Opcodes of the InfiniBand specification, and nothing that comes back."""
    path = tmp_path / "cable.pcapng"
    with bare_fabric("star", {"hosts": 2}, Hardware()) as f:
        f.start(0, 1)
        f.fabricd.request("capture", port="h0:1", path=str(path))
        ends = Ends(f, 4)
        posts = [
            ends.post(wire.WRITE, 3 * MTU),
            ends.post(wire.WRITE_IMM, 8, imm=77),
            ends.post(wire.SEND_IMM, MTU + 1),
        ]
        ends.sent(3, *posts)
        assert [r.imm for r in ends.came()] == [77, 0]
        f.fabricd.request("capture_stop", path=str(path))
        ends.over()
    opcode, asks, imm = "infiniband.bth.opcode", "infiniband.bth.a", "infiniband.immdt"
    frames = dissect(path, opcode, asks, imm, "_ws.malformed")
    assert [int(x[opcode]) for x in frames] == [0x26, 0x27, 0x28, 0x2B, 0x20, 0x23]
    assert {x[asks] for x in frames} <= {"0", "False"} and not any("_ws.malformed" in x for x in frames)


def test_what_cannot_be_taken_is_dropped_and_breaks_nothing() -> None:
    """A wrong key, no receive, more than its receive has room for; then all goes on. Its own memory breaks a sender."""
    with bare_fabric("star", {"hosts": 2}, Hardware()) as f:
        f.start(0, 1)
        ends = Ends(f, 1)
        ends.near.bytes[:] = b"x" * BYTES
        posts = [ends.post(wire.WRITE, 8, rkey=99), ends.post(wire.SEND, ROOM + 1), ends.post(wire.SEND, 5)]
        assert ends.sent(4, *posts, ends.post(wire.SEND, 6)) == [SUCCESS] * 4
        assert ends.sent(1, ends.post(wire.WRITE, 3, remote=ends.far.address + 100_000)) == [SUCCESS]
        wrong = ends.a.send_list(ends.qp_a, wire.SEND, [ends.near.piece(0, 8, 99)])
        assert ends.sent(1, wrong) == [LOCAL_PROTECTION]
        assert [(r.status, r.nbytes) for r in ends.came()] == [(SUCCESS, 5)]
        assert ends.far.bytes[100_000:100_004] == b"xxx\0"
        ends.over()


@pytest.mark.parametrize("opcode", [wire.READ, wire.FETCH_ADD])
def test_it_cannot_read(opcode: int) -> None:
    with bare_fabric("star", {"hosts": 2}, Hardware()) as f:
        f.start(0, 1)
        ends = Ends(f)
        assert ends.sent(1, ends.post(opcode, 8)) == [LOCAL_OPERATION]
        ends.over()
